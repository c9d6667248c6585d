//! Trees of a known size, as data files for either server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use bellwether_server::{Config, Server};
use bellwether_testkit::{RawClient, Request};
use tempfile::TempDir;

/// Nodes below each parent.
const CHILDREN: usize = 1000;

const DATA_BYTES: usize = 100;

/// Requests in flight while the folder is built.
const PIPELINE: usize = 500;

/// The time limit of an answer while the folder is built.
const DEADLINE: Duration = Duration::from_secs(60);

/// Nodes of 100 bytes, a thousand below each parent.
#[derive(Debug, Clone, Copy)]
pub struct Population {
    parents: usize,
}

impl Population {
    /// A thousand nodes.
    pub const THOUSAND: Self = Self { parents: 1 };
    /// A million nodes.
    pub const MILLION: Self = Self { parents: 1000 };

    /// Builds it through the embedded server, in a folder in which all nodes are in the log, after the
    /// snapshot of an empty tree.
    pub async fn build(self) -> Result<TempDir> {
        let folder = tempfile::tempdir()?;
        let server = server(folder.path()).await?;
        let mut client = RawClient::connect(server.addresses()[0]).await?;
        client.set_deadline(DEADLINE);
        for parent in 0..self.parents {
            let mut requests = vec![Request::create(format!("/parent-{parent:04}"), "")];
            let nodes = parent * CHILDREN..(parent + 1) * CHILDREN;
            requests.extend(nodes.map(|node| Request::create(path(node), [b'x'; DATA_BYTES])));
            for part in requests.chunks(PIPELINE) {
                client.send_all(part).await?;
                for _ in part {
                    client.receive_reply().await?.ok()?;
                }
            }
        }
        client.call(Request::CloseSession).await?.ok()?;
        server.shutdown().await;
        Ok(folder)
    }

    /// The last of its nodes: a server that has it has all.
    pub fn last(self) -> String {
        path(self.parents * CHILDREN - 1)
    }

    /// Some of its nodes, at random, but the same ones for the same `seed`.
    pub fn sample(self, seed: usize, count: usize) -> Vec<String> {
        let mut state = seed as u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap_or_default()
        };
        let nodes = self.parents * CHILDREN;
        (0..count).map(|_| path(next() % nodes)).collect()
    }
}

/// A copy of a folder in which everything is in a snapshot as well.
pub async fn with_snapshot(folder: &Path) -> Result<TempDir> {
    let copy = copy(folder)?;
    // A start takes a snapshot of everything, and a shutdown waits until it is written.
    server(copy.path()).await?.shutdown().await;
    Ok(copy)
}

/// A copy of a folder, with which a server starts.
pub fn copy(folder: &Path) -> Result<TempDir> {
    let copy = tempfile::tempdir()?;
    fs::create_dir_all(files(copy.path()))?;
    for entry in fs::read_dir(files(folder))? {
        let entry = entry?;
        fs::copy(entry.path(), files(copy.path()).join(entry.file_name()))?;
    }
    Ok(copy)
}

/// The names of the snapshots in a folder, unfinished ones too.
pub fn snapshots(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(files(folder))? {
        names.extend(entry?.file_name().into_string());
    }
    names.retain(|name| name.contains("snapshot"));
    names.sort();
    Ok(names)
}

async fn server(folder: &Path) -> Result<Server> {
    let config = Config {
        data_dir: Some(folder.join("data")),
        snap_count: usize::MAX,
        ..Config::default()
    };
    Ok(Server::start(config).await?)
}

fn files(folder: &Path) -> PathBuf {
    folder.join("data/version-2")
}

fn path(node: usize) -> String {
    let (parent, child) = (node / CHILDREN, node % CHILDREN);
    format!("/parent-{parent:04}/child-{child:04}")
}
