//! `bellwether leader`: the leader of an election.

use std::ops::ControlFlow;

use bellwether::election::Candidate;
use bellwether::{Client, Election, Error};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::args::LeaderArgs;
use crate::connect::patience::Patience;
use crate::connect::session::in_session_within;
use crate::exit::Exit;
use crate::output::people::{who_json, who_text};
use crate::output::refusal::Refusal;
use crate::output::{self, Output, print_now};

pub(crate) fn run(args: LeaderArgs, output: Output) -> anyhow::Result<Exit> {
    let patience = Patience::within(args.wait);
    in_session_within(patience, &args.tree.connect, output, async |client| {
        if args.watch {
            return watch(client, &args, output).await;
        }
        let leader = match patience.left().filter(|_| !patience.is_at_once()) {
            None => Election::new(client, &args.path).leader().await?,
            Some(left) => match timeout(left, first(client, &args)).await {
                Ok(leader) => leader?,
                Err(_) => {
                    let (limit, path) = (patience.limit().unwrap_or_default(), &args.path);
                    output.notice(format_args!("no leader at {path} within {limit:?}"));
                    return patience.exit(client).await;
                }
            },
        };
        let Some(leader) = leader else {
            return Err(Refusal::no(format!("there is no leader at {}", args.path)).into());
        };
        check(&leader, &args)?;
        Ok(output::answer_line(line(Some(&leader), &args))?)
    })
}

/// The present leader, or the next one.
async fn first(client: &Client, args: &LeaderArgs) -> Result<Option<Candidate>, Error> {
    let mut leaders = Election::new(client, &args.path).observe();
    while let Some(leader) = leaders.next().await {
        if let Some(leader) = leader? {
            return Ok(Some(leader));
        }
    }
    Ok(None)
}

/// Prints the present leader and each later one, until the output is closed.
async fn watch(client: &Client, args: &LeaderArgs, output: Output) -> anyhow::Result<Exit> {
    let mut leaders = Election::new(client, &args.path).observe();
    while let Some(leader) = leaders.next().await {
        let leader = match leader {
            Ok(leader) => leader,
            Err(error) => {
                output.error(&error.into());
                continue;
            }
        };
        if leader.is_none() && !args.tree.json {
            output.notice(format_args!("there is no leader at {}", args.path));
            continue;
        }
        if let Some(Err(refusal)) = leader.as_ref().map(|leader| check(leader, args)) {
            output.error(&refusal.into());
            continue;
        }
        if let ControlFlow::Break(()) = print_now(format!("{}\n", line(leader.as_ref(), args)))? {
            break;
        }
    }
    Ok(Exit::Done)
}

/// Refuses `--value` for a leader without one, and a value that could control the terminal.
fn check(leader: &Candidate, args: &LeaderArgs) -> Result<(), Refusal> {
    let path = &args.path;
    match &leader.value {
        _ if !args.value => Ok(()),
        Some(value) => output::check_plain(value.as_bytes(), path),
        None => Err(Refusal::no(format!("the leader at {path} has no value"))
            .hint("`elect --value TEXT` sets it")),
    }
}

fn line(leader: Option<&Candidate>, args: &LeaderArgs) -> String {
    match leader {
        _ if args.tree.json => object(leader, args).to_string(),
        Some(leader) if args.value => leader.value.clone().unwrap_or_default(),
        Some(leader) => format!("{}, token {}", who_text(&leader.who), leader.token),
        None => String::new(),
    }
}

fn object(leader: Option<&Candidate>, args: &LeaderArgs) -> Value {
    json!({
        "path": args.path,
        "who": leader.map(|leader| who_json(&leader.who)),
        "value": leader.and_then(|leader| leader.value.as_deref()),
        "token": leader.map(|leader| leader.token),
    })
}
