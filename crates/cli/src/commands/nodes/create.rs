//! `bellwether create`: creates a node.

use bellwether::zk;
use serde_json::json;
use zk::{CreateMode, CreateOptions};

use crate::args::{CreateArgs, DataArgs};
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::refusal::{Refusal, Verb};
use crate::output::{self, Output};
use crate::tree::lineage;
use crate::tree::node_stat;
use crate::tree::payload;
use crate::value::acl_list::AclList;

pub(crate) fn run(args: CreateArgs, output: Output) -> anyhow::Result<Exit> {
    if args.path == "/" && !args.parents {
        return Err(Refusal::usage("the root exists already").into());
    }
    let data = match args.ephemeral {
        true => payload::given_or_empty(&args.data)?,
        false => payload::read(&args.data)?,
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

/// Creates the node, and returns its path.
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
    let acl = args
        .tree
        .connect
        .security
        .acl
        .clone()
        .unwrap_or_else(AclList::open);
    let options = options(args).acl(acl.0);
    if args.parents {
        lineage::make_above(zk, path).await?;
    }
    match zk.create(path, data, &options).await {
        Ok(created) => Ok((created.path, created.stat)),
        // As `mkdir -p`.
        Err(zk::Error::NODE_EXISTS) if args.parents && !args.ephemeral => {
            let stat = zk.exists(path).await.map_err(Verb::Read.on(path))?;
            let stat = stat.ok_or_else(|| Refusal::of(Verb::Read, path, zk::Error::NO_NODE))?;
            Ok((path.to_owned(), stat))
        }
        Err(error) => Err(Refusal::of(Verb::Create, path, error).with_data(data.len())),
    }
}

fn options(args: &CreateArgs) -> CreateOptions {
    let mode = match (args.ephemeral, args.sequential) {
        (true, true) => CreateMode::EphemeralSequential,
        (true, false) => CreateMode::Ephemeral,
        (false, true) => CreateMode::PersistentSequential,
        (false, false) if args.container => CreateMode::Container,
        (false, false) => CreateMode::Persistent,
    };
    match args.ttl {
        None => mode.into(),
        Some(ttl) if args.sequential => CreateMode::PersistentSequentialWithTtl.with_ttl(ttl),
        Some(ttl) => CreateMode::PersistentWithTtl.with_ttl(ttl),
    }
}

/// Runs until stdin ends, or until the ephemeral node is lost.
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
    output.error(&anyhow::anyhow!("{path} is lost: {why}"));
    Ok(Exit::Lost)
}

/// Waits until the node is lost, and returns the reason.
async fn gone(zk: &zk::Client, path: &str) -> &'static str {
    let mut states = zk.states();
    loop {
        match zk.exists_watched(path).await {
            Ok((None, _)) => return "the node was deleted",
            Ok((Some(_), watch)) => {
                if watch.await.is_err() {
                    return "the session ended";
                }
            }
            Err(_) if zk.state().is_ended() => return "the session ended",
            // The connection is lost, but the session may continue.
            Err(_) => {
                let _ = states.changed().await;
            }
        }
    }
}
