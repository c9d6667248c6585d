//! `bellwether set`: replaces the data of a node.

use bellwether::zk::{self, CreateMode, CreateOptions};
use serde_json::json;

use crate::args::SetArgs;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::refusal::{Refusal, Verb};
use crate::output::{self, Output};
use crate::tree::lineage;
use crate::tree::node_stat;
use crate::tree::payload;
use crate::value::acl_list::AclList;

/// How often to try again where other clients create and delete the node meanwhile.
const ROUNDS_MAX: usize = 5;

pub(crate) fn run(args: SetArgs, output: Output) -> anyhow::Result<Exit> {
    // Before the session, which should not wait for a user who types.
    let data = payload::read(&args.data)?;
    on_tree(&args.tree, output, async |zk| {
        let path = &args.path;
        let stat = set(zk, &args, &data).await?;
        if !args.tree.json {
            return Ok(Exit::Done);
        }
        Ok(output::answer_line(node_stat::object(
            json!({"path": path}),
            &stat,
        ))?)
    })
}

/// Sets the data, and with `--create` makes a node that is missing.
async fn set(zk: &zk::Client, args: &SetArgs, data: &[u8]) -> Result<zk::Stat, Refusal> {
    let path = &args.path;
    let refusal = |verb, error| Refusal::of(verb, path, error).with_data(data.len());
    let acl = args.tree.connect.security.acl.clone();
    let options = CreateOptions::from(CreateMode::Persistent);
    let options = options.acl(acl.unwrap_or_else(AclList::open).0);
    for _ in 0..ROUNDS_MAX {
        match zk.set(path, data, args.expect).await {
            Err(zk::Error::NO_NODE) if args.create => {}
            set => return set.map_err(|error| refusal(Verb::Set, error)),
        }
        lineage::make_above(zk, path).await?;
        match zk.create(path, data, &options).await {
            // Another client was faster.
            Err(zk::Error::NODE_EXISTS) => {}
            created => {
                let created = created.map_err(|error| refusal(Verb::Create, error))?;
                return Ok(created.stat);
            }
        }
    }
    let what = format!("cannot set {path}: other clients keep creating and deleting it");
    Err(Refusal::no(what))
}
