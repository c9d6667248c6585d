//! `bellwether why`: the chain of holders that a waiter waits for.

use std::io::{self, Write};

use bellwether::inspect::{Line, Overview, QueueEntry, Recipe, Survey, WaitsFor};
use serde_json::{Value, json};

use crate::args::WhyArgs;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::overview::{line_at, line_kind, unexplored};
use crate::output::people::{age, contestant_json, contestant_text};
use crate::output::refusal::Refusal;
use crate::output::rendering::path_text;
use crate::output::{self, Output};
use crate::value::duration;
use crate::value::node_path::is_within;

/// What to do if there are more directories than are read.
const LOOK_FURTHER: &str = "name a path nearer to it with --within, or raise --max-directories";

pub(crate) fn run(args: WhyArgs, output: Output) -> anyhow::Result<Exit> {
    let (path, within) = (&args.path, &args.within);
    if !is_within(path, within) {
        return Err(Refusal::usage(format!("{path} is not within {within}")).into());
    }
    in_session(&args.tree.connect, output, async |client| {
        let survey = Survey::new(client, within).only_waits(path);
        let survey = survey.directories_max(args.max_directories);
        let overview = survey.look().await?;
        let line = line_at(&overview, path).filter(|line| line.holders().next().is_some());
        let Some(line) = line else {
            let refusal = match overview.unexplored {
                0 => Refusal::no(format!("{path} is not held")),
                _ => Refusal::failed(format!(
                    "no holder of {path} was found, but not everything below {within} was read"
                ))
                .hint(LOOK_FURTHER),
            };
            return Err(refusal.into());
        };
        if let Some(told) = unexplored(&overview) {
            output.notice(told);
            output.hint(LOOK_FURTHER);
        }
        let circles = overview.deadlocks();
        let cause = Look::new(&overview, &circles).cause(path, line, &mut Vec::new());
        if args.tree.json {
            let mut object = cause.object();
            object["unexplored"] = overview.unexplored.into();
            return Ok(output::answer_line(object)?);
        }
        Ok(output::answer(|out| {
            cause.write(out, 0)?;
            Ok(Exit::Done)
        })?)
    })
}

/// Explains why a path is not free, from a survey.
pub(crate) fn lines(overview: &Overview, path: &str) -> Vec<String> {
    let line = line_at(overview, path).filter(|line| line.holders().next().is_some());
    let Some(line) = line else {
        return vec![format!("{} is not held", path_text(path))];
    };
    let circles = overview.deadlocks();
    let cause = Look::new(overview, &circles).cause(path, line, &mut Vec::new());
    let mut text = Vec::new();
    cause
        .write(&mut text, 0)
        .expect("a vector takes everything");
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::to_owned).collect()
}

/// Why a path is not free.
struct Cause<'a> {
    path: &'a str,
    line: &'a Line,
    /// The holders, and what each of them waits for.
    holders: Vec<(&'a QueueEntry, Vec<Cause<'a>>)>,
    /// The chain contained this path before, and its holders are listed there.
    is_above: bool,
    /// The waiter is part of a deadlock.
    is_circle: bool,
}

/// A survey, and its deadlocks.
struct Look<'a> {
    overview: &'a Overview,
    /// The waits of all deadlocks.
    circles: Vec<&'a WaitsFor>,
}

impl<'a> Look<'a> {
    fn new(overview: &'a Overview, circles: &'a [Vec<WaitsFor>]) -> Self {
        Self {
            overview,
            circles: circles.iter().flatten().collect(),
        }
    }

    /// `way` has the paths of the chain so far, each with the owner that holds it and waits for the next.
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

    /// With several holders, a chain that comes back need not be a deadlock: other holders may release.
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
                "{indent}{waits}{path}: DEADLOCK, these holders wait for each other"
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

/// The paths at which an owner waits.
fn waits_of<'a>(overview: &'a Overview, owner: &str) -> impl Iterator<Item = (&'a str, &'a Line)> {
    overview
        .recipes
        .iter()
        .filter_map(move |sight| match &sight.what {
            Recipe::Line(line) if line.waiters().any(|waiter| waiter.owner() == owner) => {
                Some((sight.path.as_str(), line))
            }
            _ => None,
        })
}
