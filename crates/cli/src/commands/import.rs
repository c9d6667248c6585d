//! `bellwether import`: the nodes of an export, made again.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Context;
use bellwether::zk;
use serde_json::json;
use zk::{Acls, CreateMode};

use crate::acl_list::AclList;
use crate::args::ImportArgs;
use crate::exit::Exit;
use crate::export_file::{self, FileNode, Kind};
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::refusal::{Refusal, Verb};
use crate::rendering::counted;
use crate::session::on_tree;
use crate::walk::{ask_all, walk};
use crate::{batch, lineage, node_path, payload};

/// The longest file that is taken; it is read whole.
const FILE_BYTES_MAX: u64 = 1 << 30;

pub(crate) fn run(args: ImportArgs, output: Output) -> anyhow::Result<Exit> {
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let text = payload::read_file(file, FILE_BYTES_MAX)?;
    let nodes = export_file::read(&text).map_err(|why| {
        let file = file.display();
        Refusal::usage(format!("cannot import {file}: {why}"))
            .hint("`bellwether export` writes such files; docs/commands.md describes them")
    })?;
    on_tree(&args.tree, output, async |zk| {
        let plan = Plan::make(zk, &args, nodes, output).await?;
        if !args.dry_run {
            plan.carry_out(zk, &args.path, output).await?;
        }
        if plan.ephemerals > 0 {
            let ephemerals = counted(plan.ephemerals, "ephemeral node");
            output.notice(format_args!("left alone: {ephemerals}"));
        }
        plan.tell(&args, output)
    })
}

/// What is to be done.
#[derive(Debug, Default)]
struct Plan {
    /// From the top down.
    creates: Vec<Create>,
    changes: Vec<Change>,
    /// From the deepest up.
    deletes: Vec<String>,
    unchanged: usize,
    /// How many ephemeral nodes stay that `--replace` would delete.
    ephemerals: usize,
}

#[derive(Debug)]
struct Create {
    path: String,
    kind: Kind,
    ttl: Option<std::time::Duration>,
    data: Vec<u8>,
    acl: AclList,
}

#[derive(Debug)]
struct Change {
    path: String,
    /// The new data, and the version that it replaces.
    data: Option<(Vec<u8>, i32)>,
    /// The new list, and the version that it replaces.
    acl: Option<(AclList, i32)>,
}

/// One step of a transaction.
enum Step<'a> {
    Create(&'a Create),
    Set(&'a str, &'a [u8], i32),
}

impl Plan {
    /// Compares the file with the tree.
    async fn make(
        zk: &zk::Client,
        args: &ImportArgs,
        nodes: Vec<FileNode>,
        output: Output,
    ) -> Result<Self, Refusal> {
        let mut plan = Self::default();
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|node| (node_path::join(&args.path, &node.path), node))
            .collect();
        if args.replace {
            plan.find_deletes(zk, &args.path, &nodes, output).await?;
        }
        let progress = Progress::bar("comparing", nodes.len(), output);
        let answers = ask_all(nodes, |(path, _)| {
            progress.advance();
            let (data, acl) = (zk.get_data(path), zk.get_acl(path));
            async { (data.await, acl.await) }
        });
        for ((path, node), answer) in answers.await {
            match answer {
                (Err(zk::Error::NoNode), _) | (_, Err(zk::Error::NoNode)) => {
                    plan.creates.push(create(path, node)?);
                }
                (Ok((_, stat)), _) if stat.ephemeral_owner != 0 => {
                    return Err(Refusal::no(format!(
                        "cannot import {path}: an ephemeral node has its place"
                    )));
                }
                // The root is always there.
                (Ok(_), Ok(_)) if !args.merge && !args.replace && path != "/" => {
                    return Err(Refusal::no(format!("cannot import {path}: it exists already"))
                        .hint("--merge overwrites what exists; --replace also deletes what the file has not"));
                }
                (Ok((data, stat)), Ok((acl, _))) => plan.compare(path, node, (data, acl), &stat)?,
                (Err(error), _) | (_, Err(error)) => {
                    return Err(Refusal::of(Verb::Read, &path, error));
                }
            }
        }
        Ok(plan)
    }

    /// Finds what is below the top and not in the file. Ephemeral nodes belong to sessions: they stay, and what is
    /// above them.
    async fn find_deletes(
        &mut self,
        zk: &zk::Client,
        top: &str,
        nodes: &[(String, FileNode)],
        output: Output,
    ) -> Result<(), Refusal> {
        let progress = Progress::counter("listing", output);
        let visited = match walk(zk, top, None, &progress).await {
            Err(refusal) if refusal.exit() == Exit::No => return Ok(()),
            visited => visited?,
        };
        let mut kept: HashSet<&str> = nodes.iter().map(|(path, _)| &**path).collect();
        for node in visited.iter().filter(|node| node.is_ephemeral()) {
            self.ephemerals += 1;
            kept.insert(&node.path);
            kept.extend(node_path::above(&node.path));
        }
        let of_the_server =
            |path: &str| node_path::is_within(&node_path::join(zk.path(), path), "/zookeeper");
        self.deletes = visited
            .iter()
            .rev()
            .map(|node| &*node.path)
            .filter(|path| !kept.contains(path) && !of_the_server(path))
            .map(str::to_owned)
            .collect();
        Ok(())
    }

    /// Finds what is to be changed in a node that exists.
    fn compare(
        &mut self,
        path: String,
        node: FileNode,
        (data, acl): (Vec<u8>, Vec<zk::Acl>),
        stat: &zk::Stat,
    ) -> Result<(), Refusal> {
        let new = create(path, node)?;
        let change = Change {
            data: (new.data != data).then_some((new.data, stat.version)),
            acl: (new.acl.0 != acl).then_some((new.acl, stat.aversion)),
            path: new.path,
        };
        if change.data.is_none() && change.acl.is_none() {
            self.unchanged += 1;
        } else {
            self.changes.push(change);
        }
        Ok(())
    }

    async fn carry_out(&self, zk: &zk::Client, top: &str, output: Output) -> anyhow::Result<()> {
        let all = self.creates.len() + self.changes.len() + self.deletes.len();
        let progress = Progress::bar("importing", all, output);
        let mut done = 0;
        let stopped = |done: usize| {
            move || {
                format!(
                    "the import stopped after {done} of {}",
                    counted(all, "change")
                )
            }
        };

        for paths in batch::split(self.deletes.iter().collect(), |path| path.len() + 32) {
            let deleted =
                batch::commit(zk, &paths, |writer, path| writer.add_delete(path, None)).await;
            deleted
                .map_err(|refused| {
                    let path = paths[refused.place.unwrap_or(0)];
                    Refusal::of(Verb::Delete, path, refused.error)
                })
                .with_context(stopped(done))?;
            done += paths.len();
            progress.advance_by(paths.len());
        }

        lineage::make_above(zk, top).await?;
        let sets = self.changes.iter().filter_map(|change| {
            let (data, version) = change.data.as_ref()?;
            Some(Step::Set(&change.path, data, *version))
        });
        let writes = self.creates.iter().map(Step::Create).chain(sets).collect();
        for writes in batch::split(writes, Step::bytes) {
            let written = batch::commit(zk, &writes, |writer, write| write.add_to(writer)).await;
            written
                .map_err(|refused| writes[refused.place.unwrap_or(0)].refusal(refused.error))
                .with_context(stopped(done))?;
            done += writes.len();
            progress.advance_by(writes.len());
        }

        let lists = self.changes.iter().filter_map(|change| {
            let (acl, version) = change.acl.as_ref()?;
            Some((&*change.path, acl, *version))
        });
        let set =
            |(path, acl, version): &(&str, &AclList, i32)| zk.set_acl(path, &acl.0, Some(*version));
        for ((path, ..), answer) in ask_all(lists, set).await {
            answer
                .map_err(Verb::SetAcl.on(path))
                .with_context(stopped(done))?;
        }
        Ok(())
    }

    fn tell(&self, args: &ImportArgs, output: Output) -> anyhow::Result<Exit> {
        let created: Vec<_> = self.creates.iter().map(|create| &create.path).collect();
        let changed: Vec<_> = self.changes.iter().map(|change| &change.path).collect();
        let (deleted, unchanged) = (&self.deletes, self.unchanged);
        let counts = format!(
            "{} created, {} changed, {} deleted, {unchanged} as they are",
            created.len(),
            changed.len(),
            deleted.len()
        );
        let exit = output::answer(|out| {
            if args.tree.json {
                let object = json!({
                    "path": args.path,
                    "dry_run": args.dry_run,
                    "created": created,
                    "changed": changed,
                    "deleted": deleted,
                    "unchanged": unchanged,
                });
                writeln!(out, "{object}")?;
            } else if args.dry_run {
                for (mark, paths) in [
                    ('+', &created),
                    ('~', &changed),
                    ('-', &deleted.iter().collect()),
                ] {
                    for path in paths {
                        writeln!(out, "{mark} {path}")?;
                    }
                }
            }
            Ok(Exit::Done)
        })?;
        output.notice(if args.dry_run {
            format!("nothing is done; it would be: {counts}")
        } else {
            counts
        });
        Ok(exit)
    }
}

impl Step<'_> {
    fn bytes(&self) -> usize {
        let entry_bytes = |acl: &zk::Acl| acl.scheme().len() + acl.id().len() + 12;
        match self {
            Self::Create(create) => {
                let list: usize = create.acl.0.iter().map(entry_bytes).sum();
                create.path.len() + create.data.len() + list + 48
            }
            Self::Set(path, data, _) => path.len() + data.len() + 32,
        }
    }

    fn add_to(&self, writer: &mut zk::MultiWriter<'_>) -> Result<(), zk::Error> {
        match self {
            Self::Set(path, data, version) => writer.add_set_data(path, data, Some(*version)),
            Self::Create(create) => {
                let mode = match create.kind {
                    Kind::Persistent | Kind::Ttl => CreateMode::Persistent,
                    Kind::Container => CreateMode::Container,
                };
                let mut options = mode.with_acls(Acls::new(&create.acl.0));
                if let Some(ttl) = create.ttl {
                    options = options.with_ttl(ttl);
                }
                writer.add_create(&create.path, &create.data, &options)
            }
        }
    }

    fn refusal(&self, error: zk::Error) -> Refusal {
        match self {
            Self::Create(create) => Refusal::of(Verb::Create, &create.path, error),
            Self::Set(path, ..) => Refusal::of(Verb::Set, path, error),
        }
    }
}

fn create(path: String, node: FileNode) -> Result<Create, Refusal> {
    let ttl = node.ttl();
    let data = Vec::try_from(node.data)
        .map_err(|error| Refusal::usage(format!("cannot import {path}: its data: {error}")))?;
    Ok(Create {
        path,
        kind: node.kind,
        ttl,
        data,
        acl: node.acl,
    })
}
