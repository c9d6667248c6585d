//! The file format of `export` and `import`: one JSON object, with one node per line.
//!
//! ```json
//! {"format": "bellwether-export", "version": 1, "path": "/config", "nodes": [
//! {"path": "/", "kind": "persistent", "data": {"text": ""}, "acl": [{"scheme": "world", "id": "anyone", "rights": "cdrwa"}]},
//! {"path": "/limits", "kind": "persistent", "data": {"base64": "/wA="}, "acl": […]}
//! ]}
//! ```
//!
//! Paths are relative to the top of the export, so that it can be imported elsewhere. `docs/commands.md` describes the format.

use std::collections::HashSet;
use std::io::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::value::acl_list::AclList;
use crate::value::data_json::DataJson;
use crate::value::node_path;

const FORMAT: &str = "bellwether-export";
const VERSION: u32 = 1;

/// A node of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileNode {
    /// Relative to the top of the export; `/` is the top itself.
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// Of kind `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) data: DataJson,
    pub(crate) acl: AclList,
}

/// The kind of a node. An export always has `persistent`, because servers do not tell clients the kind; the others are for files written
/// by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Persistent,
    Container,
    Ttl,
}

impl FileNode {
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.ttl_ms.map(Duration::from_millis)
    }
}

/// Writes a file. Parents come before their children.
pub(crate) fn write(out: &mut dyn Write, top: &str, nodes: &[FileNode]) -> io::Result<()> {
    let top = json!(top);
    write!(
        out,
        r#"{{"format":"{FORMAT}","version":{VERSION},"path":{top},"nodes":["#
    )?;
    for (place, node) in nodes.iter().enumerate() {
        out.write_all(if place == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, node)?;
    }
    out.write_all(b"\n]}\n")
}

/// Reads a file, and checks that it is a tree: it has the top, every node has a parent, and no path occurs twice.
pub(crate) fn read(text: &[u8]) -> Result<Vec<FileNode>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, expecting = "what `bellwether export` writes")]
    struct File {
        format: String,
        version: u32,
        #[serde(rename = "path")]
        _path: String,
        nodes: Vec<FileNode>,
    }

    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if file.format != FORMAT || file.version != VERSION {
        let (format, version) = (file.format, file.version);
        return Err(format!(
            "its format is {format} {version}, not {FORMAT} {VERSION}"
        ));
    }
    let mut nodes = file.nodes;
    // A parent sorts before its children.
    nodes.sort_by(|one, other| one.path.cmp(&other.path));
    let mut paths = HashSet::new();
    for node in &nodes {
        let path = &*node.path;
        match node_path::parse(path) {
            Ok(normal) if normal == path => {}
            _ => return Err(format!("{path:?} is not the path of a node")),
        }
        if node_path::parent(path).is_some_and(|parent| !paths.contains(parent)) {
            return Err(format!("{path} has no parent in the file"));
        }
        if !paths.insert(path) {
            return Err(format!("{path} is in the file twice"));
        }
        if (node.kind == Kind::Ttl) != node.ttl_ms.is_some() {
            return Err(format!(
                "{path}: a node of kind ttl needs ttl_ms, and other nodes cannot have it"
            ));
        }
    }
    if nodes.is_empty() {
        return Err("the file has no nodes".to_owned());
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(path: &str) -> FileNode {
        FileNode {
            path: path.to_owned(),
            kind: Kind::Persistent,
            ttl_ms: None,
            data: DataJson::from(vec![0xff]),
            acl: AclList::open(),
        }
    }

    fn written(nodes: &[FileNode]) -> String {
        let mut text = Vec::new();
        write(&mut text, "/top", nodes).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_stands_one_node_a_line() {
        let text = written(&[node("/"), node("/a"), node("/a/b")]);
        assert_eq!(text.lines().count(), 5);
        let paths: Vec<_> = read(text.as_bytes())
            .unwrap()
            .into_iter()
            .map(|node| node.path)
            .collect();
        assert_eq!(paths, ["/", "/a", "/a/b"]);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        for (nodes, why) in [
            (vec![], "no nodes"),
            (vec![node("/a")], "/a has no parent"),
            (vec![node("/"), node("/a/b")], "/a/b has no parent"),
            (vec![node("/"), node("/a"), node("/a")], "twice"),
            (vec![node("/"), node("/a/")], "not the path"),
            (vec![node("/"), node("/..")], "not the path"),
        ] {
            let error = read(written(&nodes).as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let ttl = FileNode {
            kind: Kind::Ttl,
            ..node("/")
        };
        assert!(read(written(&[ttl]).as_bytes()).is_err());
        let newer = written(&[node("/")]).replace("\"version\":1", "\"version\":2");
        assert!(read(newer.as_bytes()).unwrap_err().contains("2, not"));
        for text in ["", "[]", "{}"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
