//! `bellwether why`: the chain of those who hold something up.

use std::io::{self, Write};

use bellwether::{Contestant, Line, Overview, Recipe, WaitsFor};
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
        let circles = overview.deadlocks();
        let look = Look {
            overview: &overview,
            circles: circles.iter().flatten().collect(),
        };
        let cause = look.cause(path, line, &mut Vec::new());
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
    /// The way here came by this path already, and its holders are told of there.
    is_above: bool,
    /// Whoever waits here is one of those who wait for each other.
    is_circle: bool,
}

/// What was seen.
struct Look<'a> {
    overview: &'a Overview,
    /// The waits of all deadlocks.
    circles: Vec<&'a WaitsFor>,
}

impl<'a> Look<'a> {
    /// `way` has the paths that led here, each with the owner who holds something there and waits for the next.
    fn cause(&self, path: &'a str, line: &'a Line, way: &mut Vec<(&'a str, String)>) -> Cause<'a> {
        let is_above = way.iter().any(|(above, _)| *above == path);
        let waiter = way.last().map(|(_, owner)| owner);
        let is_circle = waiter.is_some_and(|waiter| self.is_of_circle(path, waiter));
        let mut holders = Vec::new();
        if !is_above {
            for holder in line.holders() {
                let owner = holder.owner();
                let waits = waits_of(self.overview, &owner);
                way.push((path, owner.clone()));
                let causes = waits.map(|(path, line)| self.cause(path, line, way));
                holders.push((holder, causes.collect()));
                way.pop();
            }
        }
        Cause {
            path,
            line,
            holders,
            is_above,
            is_circle: is_above && is_circle,
        }
    }

    /// Where several hold something, a way that comes back need not be a circle: the others may let go.
    fn is_of_circle(&self, path: &str, waiter: &str) -> bool {
        let mut steps = self.circles.iter();
        steps.any(|step| step.path == path && step.owner == waiter)
    }
}

impl Cause<'_> {
    fn write(&self, out: &mut dyn Write, depth: usize) -> io::Result<()> {
        let (indent, path) = ("  ".repeat(depth), path_text(self.path));
        let waits = if depth == 0 { "" } else { "waits for " };
        if self.is_circle {
            return writeln!(
                out,
                "{indent}{waits}{path}: a circle, in which nobody will get through"
            );
        }
        if self.is_above {
            return writeln!(out, "{indent}{waits}{path}: see above");
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
            "above": self.is_above,
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
