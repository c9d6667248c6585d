//! `bellwether export`: writes a subtree as JSON.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Context;
use bellwether::zk;

use crate::args::ExportArgs;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::progress::Progress;
use crate::output::refusal::{Refusal, Verb};
use crate::output::rendering::counted;
use crate::output::{self, Output};
use crate::tree::export_file::{self, FileNode, Kind};
use crate::tree::walk::{ask_all, walk};
use crate::value::acl_list::AclList;
use crate::value::node_path;

pub(crate) fn run(args: ExportArgs, output: Output) -> anyhow::Result<Exit> {
    on_tree(&args.tree, output, async |zk| {
        let (nodes, ephemerals) = read(zk, &args.path, output).await?;
        let exit = match &args.output {
            None => output::answer(|out| {
                export_file::write(out, &args.path, &nodes)?;
                Ok(Exit::Done)
            })?,
            Some(file) => {
                let written = File::create(file).and_then(|file| {
                    let mut out = BufWriter::new(file);
                    export_file::write(&mut out, &args.path, &nodes)?;
                    out.flush()
                });
                written.with_context(|| format!("cannot write {}", file.display()))?;
                output.notice(format_args!("{} written", counted(nodes.len(), "node")));
                Exit::Done
            }
        };
        if ephemerals > 0 {
            output.notice(format_args!(
                "left out: {}",
                counted(ephemerals, "ephemeral node")
            ));
        }
        Ok(exit)
    })
}

/// The nodes to write, and the number of ephemeral nodes that are left out.
async fn read(
    zk: &zk::Client,
    top: &str,
    output: Output,
) -> Result<(Vec<FileNode>, usize), Refusal> {
    let progress = Progress::counter("listing", output);
    let mut visited = walk(zk, top, None, &progress).await?;
    drop(progress);
    let all = visited.len();
    visited.retain(|node| !node.is_ephemeral());
    let ephemerals = all - visited.len();
    visited.retain(|node| node.path == top || !node_path::is_of_server(zk.root(), &node.path));

    let progress = Progress::bar("reading", visited.len(), output);
    let paths = visited.into_iter().map(|node| node.path);
    let request = |path: &String| (zk.get(path), zk.acl(path));
    let answers = ask_all(paths, |path| {
        let (data, acl) = request(path);
        progress.advance();
        async { (data.await, acl.await) }
    });
    let mut nodes = Vec::new();
    let mut read = HashSet::new();
    for (path, answer) in answers.await {
        let ((data, _), (acl, _)) = match answer {
            (Ok(data), Ok(acl)) => (data, acl),
            (Err(zk::Error::NO_NODE), _) | (_, Err(zk::Error::NO_NODE)) if path != top => continue,
            (Err(error), _) | (_, Err(error)) => return Err(Refusal::of(Verb::Read, &path, error)),
        };
        // The parent may have been deleted and created again since the listing.
        if path != top && !node_path::parent(&path).is_some_and(|parent| read.contains(parent)) {
            continue;
        }
        let acl = AclList(acl);
        if acl.is_masked() {
            return Err(Refusal::no(format!(
                "cannot export {path}: the server hides its access list"
            ))
            .hint("authenticate with --auth as a user with the right to administrate the node"));
        }
        nodes.push(FileNode {
            path: relative(&path, top),
            kind: Kind::Persistent,
            ttl_ms: None,
            data: data.to_vec().into(),
            acl,
        });
        read.insert(path);
    }
    Ok((nodes, ephemerals))
}

/// The path relative to the top.
fn relative(path: &str, top: &str) -> String {
    match path.strip_prefix(top) {
        Some("") => "/".to_owned(),
        Some(below) if below.starts_with('/') => below.to_owned(),
        _ => path.to_owned(),
    }
}
