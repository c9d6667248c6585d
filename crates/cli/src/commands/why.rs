//! `bellwether why`: the chain of those who hold something up.

use std::io::{self, Write};

use bellwether::{Contestant, Line, Overview, Recipe};
use serde_json::{Value, json};

use super::locks::look;
use crate::args::WhyArgs;
use crate::duration;
use crate::exit::Exit;
use crate::node_path::is_within;
use crate::output::{self, Output};
use crate::overview::{line_at, line_kind};
use crate::people::{age, contestant_json, contestant_text};
use crate::refusal::Refusal;
use crate::rendering::path_text;
use crate::session::in_session;

pub(crate) fn run(args: WhyArgs, output: Output) -> anyhow::Result<Exit> {
    let (path, within) = (&args.path, &args.within);
    if !is_within(path, within) {
        return Err(Refusal::usage(format!("{path} is not within {within}")).into());
    }
    in_session(&args.tree, output, async |client| {
        let overview = look(client, within).await?;
        let line = line_at(&overview, path).filter(|line| line.holders().next().is_some());
        let Some(line) = line else {
            return Err(Refusal::no(format!("nobody holds {path}")).into());
        };
        let cause = Cause::of(&overview, path, line, &mut Vec::new());
        if args.tree.json {
            return Ok(output::answer_line(cause.object())?);
        }
        Ok(output::answer(|out| {
            cause.write(out, 0)?;
            Ok(Exit::Done)
        })?)
    })
}

/// Why one has to wait at a path.
struct Cause<'a> {
    path: &'a str,
    line: &'a Line,
    /// Those who hold it, and what each waits for in turn.
    holders: Vec<(&'a Contestant, Vec<Cause<'a>>)>,
    /// The way here came by this path already.
    is_circle: bool,
}

impl<'a> Cause<'a> {
    /// `way` has the paths that led here.
    fn of(overview: &'a Overview, path: &'a str, line: &'a Line, way: &mut Vec<&'a str>) -> Self {
        let is_circle = way.contains(&path);
        let mut holders = Vec::new();
        if !is_circle {
            way.push(path);
            for holder in line.holders() {
                let owner = holder.owner();
                let waits = waits_of(overview, &owner);
                let causes = waits.map(|(path, line)| Self::of(overview, path, line, way));
                holders.push((holder, causes.collect()));
            }
            way.pop();
        }
        Self {
            path,
            line,
            holders,
            is_circle,
        }
    }

    fn write(&self, out: &mut dyn Write, depth: usize) -> io::Result<()> {
        let (indent, path) = ("  ".repeat(depth), path_text(self.path));
        let waits = if depth == 0 { "" } else { "waits for " };
        if self.is_circle {
            return writeln!(
                out,
                "{indent}{waits}{path}: a circle, in which nobody will get through"
            );
        }
        writeln!(out, "{indent}{waits}{path}  {}", line_kind(self.line.kind))?;
        for (holder, causes) in &self.holders {
            let who = contestant_text(holder);
            let time = duration::text(age(holder.since));
            writeln!(
                out,
                "{indent}  held by {who}, {time}, token {}",
                holder.token
            )?;
            for cause in causes {
                cause.write(out, depth + 2)?;
            }
        }
        Ok(())
    }

    fn object(&self) -> Value {
        let holders = self.holders.iter().map(|(holder, causes)| {
            let mut object = contestant_json(holder);
            object["waits_for"] = causes.iter().map(Cause::object).collect();
            object
        });
        json!({
            "path": self.path,
            "circle": self.is_circle,
            "holders": holders.collect::<Value>(),
        })
    }
}

/// Where somebody waits.
fn waits_of<'a>(overview: &'a Overview, owner: &str) -> impl Iterator<Item = (&'a str, &'a Line)> {
    overview
        .sights
        .iter()
        .filter_map(move |sight| match &sight.what {
            Recipe::Line(line) if line.waiters().any(|waiter| waiter.owner() == owner) => {
                Some((sight.path.as_str(), line))
            }
            _ => None,
        })
}
