//! Compares an import with the tree, and makes the changes.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context;
use bellwether::zk;
use bytes::Bytes;
use zk::CreateMode;

use crate::exit::Exit;
use crate::output::Output;
use crate::output::progress::Progress;
use crate::output::refusal::{Refusal, Verb};
use crate::output::rendering::counted;
use crate::tree::batch;
use crate::tree::export_file::{FileNode, Kind};
use crate::tree::lineage;
use crate::tree::walk::{ask_all, walk};
use crate::value::acl_list::AclList;
use crate::value::node_path;

/// How an import treats nodes that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Change nothing if a node of the file exists.
    Refuse,
    /// Overwrite nodes of the file, and keep other nodes.
    Merge,
    /// Overwrite nodes of the file, and delete other nodes.
    Replace,
}

/// The changes to make.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Parents first.
    pub(crate) creates: Vec<Create>,
    pub(crate) changes: Vec<Change>,
    /// The deepest first.
    pub(crate) deletes: Vec<String>,
    pub(crate) unchanged: usize,
    /// The number of ephemeral nodes that are kept although they are not in the file.
    pub(crate) ephemerals: usize,
}

/// A node to create.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) path: String,
    kind: Kind,
    ttl: Option<Duration>,
    data: Vec<u8>,
    acl: AclList,
}

/// A node to change.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) path: String,
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
    /// Compares the nodes of a file with the tree at `top`.
    pub(crate) async fn make(
        zk: &zk::Client,
        top: &str,
        existing: Existing,
        nodes: Vec<FileNode>,
        output: Output,
    ) -> Result<Self, Refusal> {
        let mut plan = Self::default();
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|node| (node_path::join(top, &node.path), node))
            .collect();
        if existing == Existing::Replace {
            plan.find_deletes(zk, top, &nodes, output).await?;
        }
        let progress = Progress::bar("comparing", nodes.len(), output);
        let answers = ask_all(nodes, |(path, _)| {
            progress.advance();
            let (data, acl) = (zk.get(path), zk.acl(path));
            async { (data.await, acl.await) }
        });
        for ((path, node), answer) in answers.await {
            match answer {
                (Err(zk::Error::NO_NODE), _) | (_, Err(zk::Error::NO_NODE)) => {
                    plan.creates.push(create(path, node)?);
                }
                (Ok((_, stat)), _) if stat.ephemeral_owner != 0 => {
                    return Err(Refusal::no(format!(
                        "cannot import {path}: an ephemeral node exists there"
                    )));
                }
                // The root always exists.
                (Ok(_), Ok(_)) if existing == Existing::Refuse && path != "/" => {
                    return Err(Refusal::no(format!("cannot import {path}: the node exists already"))
                        .hint("--merge overwrites existing nodes; --replace also deletes nodes that are not in the file"));
                }
                (Ok((data, stat)), Ok((acl, _))) => plan.compare(path, node, (data, acl), &stat)?,
                (Err(error), _) | (_, Err(error)) => {
                    return Err(Refusal::of(Verb::Read, &path, error));
                }
            }
        }
        Ok(plan)
    }

    /// Finds nodes below the top that are not in the file. Ephemeral nodes belong to sessions, so they and their parents are kept.
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
        self.deletes = visited
            .iter()
            .rev()
            .map(|node| &*node.path)
            .filter(|path| !kept.contains(path) && !node_path::is_of_server(zk.root(), path))
            .map(str::to_owned)
            .collect();
        Ok(())
    }

    /// Compares a node of the file with the existing node.
    fn compare(
        &mut self,
        path: String,
        node: FileNode,
        (data, acl): (Bytes, Vec<zk::Acl>),
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

    /// Makes the changes: first deletes, then creates and sets, and then access lists of existing nodes, which cannot be set in
    /// transactions.
    pub(crate) async fn carry_out(
        &self,
        zk: &zk::Client,
        top: &str,
        output: Output,
    ) -> anyhow::Result<()> {
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
            let deleted = batch::commit(zk, &paths, |writer, path| writer.delete(path, None)).await;
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
}

impl Step<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Create(create) => {
                let list: usize = create.acl.0.iter().map(zk::Acl::encoded_bytes).sum();
                create.path.len() + create.data.len() + list + 48
            }
            Self::Set(path, data, _) => path.len() + data.len() + 32,
        }
    }

    fn add_to(&self, writer: &mut zk::Multi<'_>) {
        match self {
            Self::Set(path, data, version) => writer.set(path, data, Some(*version)),
            Self::Create(create) => {
                let options = match (create.kind, create.ttl) {
                    (_, Some(ttl)) => CreateMode::PersistentWithTtl.with_ttl(ttl),
                    (Kind::Container, None) => CreateMode::Container.into(),
                    (Kind::Persistent | Kind::Ttl, None) => CreateMode::Persistent.into(),
                };
                let options = options.acl(create.acl.0.clone());
                writer.create(&create.path, &create.data, options);
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
