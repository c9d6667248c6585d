//! `bellwether snapshot`: prints a snapshot.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};

use anyhow::Context;
use bellwether_server::files::{SnapshotError, SnapshotNode, SnapshotReader};
use serde_json::{Value, json};

use crate::args::DataFileArgs;
use crate::commands::server::data_file;
use crate::exit::Exit;
use crate::output::rendering::{acl_json, acl_text, data_json, data_text, hex, path_text};
use crate::output::time_text::time_text;
use crate::output::{self, Output};

pub(crate) fn run(args: DataFileArgs, output: Output) -> anyhow::Result<Exit> {
    let chosen = data_file::chosen(&args.file, "snapshot", output)?;
    let path = chosen.display();
    let file = File::open(&chosen).with_context(|| format!("cannot open {path}"))?;
    let name = chosen.file_name().unwrap_or_default().to_string_lossy();
    output::answer(|out| {
        let mut count = Count::default();
        let end = match print(out, file, &name, args.json, &mut count) {
            Ok(digest) => SnapshotEnd::Sound(digest),
            Err(Stopped::Output(error)) => return Err(error),
            Err(Stopped::Snapshot(SnapshotError::Read(error))) => {
                return Err(data_file::unread(&chosen, error));
            }
            Err(Stopped::Snapshot(SnapshotError::Damaged { offset, why })) => {
                SnapshotEnd::Damaged { offset, why }
            }
        };
        if args.json {
            writeln!(out, "{}", end_json(&end, &count))?;
        } else {
            write_end(out, &end, &count)?;
        }
        Ok(match end {
            SnapshotEnd::Sound(_) => Exit::Done,
            SnapshotEnd::Damaged { .. } => Exit::No,
        })
    })
    .map_err(anyhow::Error::from)
}

/// How the file ends.
enum SnapshotEnd {
    /// All checksums match. With the digest of the tree and its zxid, if the file has them.
    Sound(Option<(i64, u64)>),
    Damaged {
        offset: u64,
        why: &'static str,
    },
}

/// The numbers of nodes read.
#[derive(Default)]
struct Count {
    nodes: u64,
    /// Nodes whose access lists are missing in the file.
    without_acl: u64,
}

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} nodes", self.nodes)?;
        match self.without_acl {
            0 => Ok(()),
            without_acl => write!(out, ", {without_acl} of them without an access list"),
        }
    }
}

enum Stopped {
    Output(io::Error),
    Snapshot(SnapshotError),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<SnapshotError> for Stopped {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}

fn print(
    out: &mut dyn Write,
    file: File,
    name: &str,
    json: bool,
    count: &mut Count,
) -> Result<Option<(i64, u64)>, Stopped> {
    let mut snapshot = SnapshotReader::open(file, name)?;
    for (id, timeout_ms) in snapshot.sessions() {
        let id = hex(*id);
        if json {
            writeln!(out, "{}", json!({"session": id, "timeout_ms": timeout_ms}))?;
        } else {
            writeln!(out, "session {id} timeout={timeout_ms}ms")?;
        }
    }
    while let Some(node) = snapshot.next()? {
        count.nodes += 1;
        count.without_acl += u64::from(node.lacks_acl());
        if json {
            writeln!(out, "{}", node_json(&node))?;
        } else {
            write_node(out, &node)?;
        }
    }
    Ok(snapshot.digest()?)
}

fn write_node(out: &mut dyn Write, node: &SnapshotNode) -> io::Result<()> {
    let (path, data) = (path_text(&node.path), data_text(node.data.as_deref()));
    write!(
        out,
        "{} {path} {data} acl={}",
        node.offset,
        acl_text(&node.acl)
    )?;
    let (czxid, mzxid, pzxid) = (hex(node.czxid), hex(node.mzxid), hex(node.pzxid));
    write!(out, " czxid={czxid} mzxid={mzxid} pzxid={pzxid}")?;
    let (ctime, mtime) = (time_text(node.ctime), time_text(node.mtime));
    write!(out, " ctime={ctime} mtime={mtime}")?;
    let (version, cversion, aversion) = (node.version, node.cversion, node.aversion);
    write!(
        out,
        " version={version} cversion={cversion} aversion={aversion}"
    )?;
    writeln!(out, " owner={}", hex(node.ephemeral_owner))
}

fn node_json(node: &SnapshotNode) -> Value {
    json!({
        "offset": node.offset,
        "path": &*node.path,
        "data": data_json(node.data.as_deref()),
        "acl": acl_json(&node.acl),
        "czxid": hex(node.czxid),
        "mzxid": hex(node.mzxid),
        "pzxid": hex(node.pzxid),
        "ctime_ms": node.ctime,
        "mtime_ms": node.mtime,
        "version": node.version,
        "cversion": node.cversion,
        "aversion": node.aversion,
        "owner": hex(node.ephemeral_owner),
    })
}

fn write_end(out: &mut dyn Write, end: &SnapshotEnd, count: &Count) -> io::Result<()> {
    match end {
        SnapshotEnd::Sound(Some((zxid, digest))) => {
            let zxid = hex(*zxid);
            writeln!(out, "sound end after {count}; digest {digest:#x} of {zxid}")
        }
        SnapshotEnd::Sound(None) => writeln!(out, "sound end after {count}; no digest"),
        SnapshotEnd::Damaged { offset, why } => {
            writeln!(out, "damaged at {offset} after {count}: it {why}")
        }
    }
}

fn end_json(end: &SnapshotEnd, count: &Count) -> Value {
    let Count { nodes, without_acl } = count;
    match end {
        SnapshotEnd::Sound(digest) => {
            let zxid = digest.map(|(zxid, _)| hex(zxid));
            let digest = digest.map(|(_, digest)| format!("{digest:#x}"));
            json!({
                "end": "sound",
                "nodes": nodes,
                "without_acl": without_acl,
                "digest": digest,
                "digest_zxid": zxid,
            })
        }
        SnapshotEnd::Damaged { offset, why } => {
            json!({
                "end": "damaged",
                "nodes": nodes,
                "without_acl": without_acl,
                "offset": offset,
                "why": why,
            })
        }
    }
}
