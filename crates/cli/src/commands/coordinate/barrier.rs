//! `bellwether barrier`: waiters are held up until the barrier is lifted.

use std::time::Duration;

use bellwether::inspect::{Recipe, Survey};
use bellwether::{Barrier, Error, ErrorKind, Who};
use futures_util::stream;
use serde_json::json;
use tokio::time::timeout;

use crate::args::{
    BarrierArgs, BarrierCommand, BarrierLsArgs, BarrierSetArgs, BarrierWaitArgs, PlaceArgs,
};
use crate::connect::patience::Patience;
use crate::connect::session::{in_session, in_session_within};
use crate::exit::Exit;
use crate::hold::waiting;
use crate::output::overview::unexplored;
use crate::output::people::{who_json, who_text};
use crate::output::{self, Output};

pub(crate) fn run(args: BarrierArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        BarrierCommand::Set(args) => set(&args, output),
        BarrierCommand::Wait(args) => wait(&args, output),
        BarrierCommand::Ls(args) => ls(&args, output),
        BarrierCommand::Lift(args) => lift(&args, output),
    }
}

fn set(args: &BarrierSetArgs, output: Output) -> anyhow::Result<Exit> {
    let place = &args.place;
    in_session(&place.tree.connect, output, async |client| {
        let mut barrier = Barrier::new(client, &place.path);
        if let Some(message) = &args.message {
            barrier = barrier.message(message);
        }
        let changed = barrier.set().await?;
        if !changed {
            output.notice(format_args!("{} is set already", place.path));
        }
        print(place, changed)
    })
}

fn ls(args: &BarrierLsArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.tree.connect, output, async |client| {
        let overview = Survey::new(client, &args.path).look().await?;
        if let Some(told) = unexplored(&overview) {
            output.notice(told);
        }
        let barriers = overview
            .recipes
            .iter()
            .filter_map(|sight| match &sight.what {
                Recipe::Barrier { set_by, .. } => Some((&sight.path, set_by.as_ref())),
                _ => None,
            });
        Ok(output::answer(|out| {
            if args.tree.json {
                let object = |(path, set_by): (&String, Option<&Who>)| json!({"path": path, "set_by": set_by.map(who_json)});
                let barriers: Vec<_> = barriers.map(object).collect();
                writeln!(out, "{}", json!({"path": args.path, "barriers": barriers}))?;
                return Ok(Exit::Done);
            }
            for (path, set_by) in barriers {
                let by = set_by.map_or("an unknown client".into(), who_text);
                writeln!(out, "{path}  set by {by}")?;
            }
            Ok(Exit::Done)
        })?)
    })
}

fn lift(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        let changed = Barrier::new(client, &place.path).lift().await?;
        if !changed {
            output.notice(format_args!("{} is not set", place.path));
        }
        print(place, changed)
    })
}

fn print(place: &PlaceArgs, changed: bool) -> anyhow::Result<Exit> {
    if !place.tree.json {
        return Ok(Exit::Done);
    }
    let object = json!({"path": place.path, "changed": changed});
    Ok(output::answer_line(object)?)
}

fn wait(args: &BarrierWaitArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, patience) = (&args.place, Patience::new(&args.wait));
    in_session_within(patience, &place.tree.connect, output, async |client| {
        let barrier = Barrier::new(client, &place.path);
        let by = barrier.set_by().await?;
        if let Some(who) = by.as_ref().filter(|_| patience.is_at_once()) {
            output.notice(format_args!("{} is set by {}", place.path, who_text(who)));
            return patience.exit(client).await;
        }
        if patience.is_at_once() {
            return print(place, false);
        }
        let news = stream::iter(
            by.clone()
                .map(|who| move || format!("set by {}", who_text(&who))),
        );
        let what = format!("waiting at {}", place.path);
        let limit = patience.left().unwrap_or(Duration::MAX);
        let lifted = async {
            match limit {
                Duration::MAX => barrier.wait().await,
                limit => barrier.wait_timeout(limit).await,
            }
        };
        match waiting::showing(what, news, lifted, output).await {
            Err(Error {
                kind: ErrorKind::TimedOut { .. },
                ..
            }) => {
                // It may have been set again meanwhile, by another client.
                let now = timeout(waiting::WHO_LIMIT, barrier.set_by()).await;
                let by = now.ok().and_then(Result::ok).flatten().or(by);
                let by = by.map_or_else(String::new, |who| format!(", set by {}", who_text(&who)));
                output.notice(format_args!(
                    "timed out after {:?} waiting for {} to be lifted{by}",
                    patience.limit().unwrap_or_default(),
                    place.path
                ));
                patience.exit(client).await
            }
            lifted => {
                lifted?;
                print(place, by.is_some())
            }
        }
    })
}
