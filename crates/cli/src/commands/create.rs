//! `bellwether create`: a new node.

use bellwether::zk;
use serde_json::json;
use zk::{Acls, CreateMode, EventType};

use crate::acl_list::AclList;
use crate::args::{CreateArgs, DataArgs};
use crate::exit::Exit;
use crate::output::{self, Output};
use crate::refusal::{Refusal, Verb};
use crate::session::on_tree;
use crate::{lineage, node_stat, payload};

pub(crate) fn run(args: CreateArgs, output: Output) -> anyhow::Result<Exit> {
    if args.path == "/" && !args.parents {
        return Err(Refusal::usage("the root is there already").into());
    }
    let data = match args.ephemeral {
        true => payload::given_or_empty(&args.data)?,
        false => payload::read_or_empty(&args.data)?,
    };
    on_tree(&args.tree, output, async |zk| {
        let (path, stat) = create(zk, &args, &data).await?;
        let exit = output::answer(|out| {
            if args.tree.json {
                writeln!(out, "{}", node_stat::object(json!({"path": path}), &stat))?;
            } else {
                writeln!(out, "{path}")?;
            }
            Ok(Exit::Done)
        })?;
        if args.ephemeral {
            return stay(zk, &path, &args.data, output).await;
        }
        Ok(exit)
    })
}

/// Creates the node and returns the path that it got.
async fn create(
    zk: &zk::Client,
    args: &CreateArgs,
    data: &[u8],
) -> Result<(String, zk::Stat), Refusal> {
    // Only the name of a sequential node may be empty.
    let path = match args.path.strip_suffix('/') {
        Some(stripped) if !args.sequential && !stripped.is_empty() => stripped,
        _ => &*args.path,
    };
    let mode = match (args.ephemeral, args.sequential) {
        (true, true) => CreateMode::EphemeralSequential,
        (true, false) => CreateMode::Ephemeral,
        (false, true) => CreateMode::PersistentSequential,
        (false, false) if args.container => CreateMode::Container,
        (false, false) => CreateMode::Persistent,
    };
    let acl = args.acl.clone().unwrap_or_else(AclList::open);
    let mut options = mode.with_acls(Acls::new(&acl.0));
    if let Some(ttl) = args.ttl {
        options = options.with_ttl(ttl);
    }
    if args.parents {
        lineage::make_above(zk, path).await?;
    }
    match zk.create(path, data, &options).await {
        Ok((stat, number)) if args.sequential => Ok((format!("{path}{number}"), stat)),
        Ok((stat, _)) => Ok((path.to_owned(), stat)),
        // As `mkdir -p`.
        Err(zk::Error::NodeExists) if args.parents && !args.ephemeral => {
            let stat = zk.check_stat(path).await.map_err(Verb::Read.on(path))?;
            let stat = stat.ok_or_else(|| Refusal::of(Verb::Read, path, zk::Error::NoNode))?;
            Ok((path.to_owned(), stat))
        }
        Err(error) => Err(Refusal::of(Verb::Create, path, error).with_data(data.len())),
    }
}

/// Stays as long as an ephemeral node is wanted, or there.
async fn stay(
    zk: &zk::Client,
    path: &str,
    data: &DataArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let why = tokio::select! {
        ended = payload::until_input_ends(data) => return ended.map(|()| Exit::Done),
        why = gone(zk, path) => why,
    };
    output.error(&anyhow::anyhow!("{path} is gone: {why}"));
    Ok(Exit::Lost)
}

/// Waits until the node is deleted or the session has ended, and says which.
async fn gone(zk: &zk::Client, path: &str) -> &'static str {
    let mut states = zk.state_watcher();
    loop {
        match zk.check_and_watch_stat(path).await {
            Ok((None, _)) => return "somebody has deleted it",
            Ok((Some(_), watcher)) => {
                let event = watcher.changed().await;
                if event.event_type == EventType::Session {
                    return "the session has ended";
                }
            }
            Err(_) if zk.state().is_terminated() => return "the session has ended",
            // A lost connection: the session may live on.
            Err(_) => {
                states.changed().await;
            }
        }
    }
}
