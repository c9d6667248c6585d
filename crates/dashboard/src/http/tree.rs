//! The tree: children in pages, one node in full, and a search by name.

use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use bellwether::zk::{self, Error, Stat};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Shared, answer, refusal, session, within};
use crate::json::{self, hex};

/// Children per page.
const CHILDREN_SHOWN: usize = 100;

/// Maximum bytes of a node's data sent.
const DATA_BYTES_SHOWN: usize = 64 << 10;

/// Maximum number of nodes that a search returns, and of directories that it lists.
const FOUND_MAX: usize = 200;
const SEARCHED_MAX: usize = 5_000;

/// Maximum time of a search, apart from requests in flight. The answer is what was found by then.
const SEARCH_MAX: Duration = Duration::from_secs(15);

/// Maximum number of requests of a search in flight.
const AHEAD_MAX: usize = 64;

#[derive(Deserialize)]
pub(super) struct Children {
    path: String,
    /// Number of children to skip.
    #[serde(default)]
    from: usize,
    /// Text that their names must contain.
    #[serde(default)]
    filter: String,
}

/// One page of the children of a node, by name.
pub(super) async fn children(State(app): Shared, Query(wanted): Query<Children>) -> Response {
    let listed = async {
        let zk = checked(&wanted.path, session(&app).await?.raw())?;
        let mut names = within(zk.children(&wanted.path)).await?;
        let total = names.len();
        names.retain(|name| name.contains(&wanted.filter));
        names.sort_unstable();
        let matching = names.len();
        let shown: Vec<_> = names
            .into_iter()
            .skip(wanted.from)
            .take(CHILDREN_SHOWN)
            .collect();
        // A request is sent when its future is created, so these are pipelined.
        let stats = shown
            .iter()
            .map(|name| zk.exists(&join(&wanted.path, name)));
        let stats = within(async { Ok::<_, Error>(join_all(stats.collect::<Vec<_>>()).await) });
        let children: Value = shown
            .iter()
            .zip(stats.await?)
            .map(|(name, stat)| {
                let stat = stat.ok().flatten().unwrap_or_default();
                json!({
                    "name": name,
                    "children": stat.num_children,
                    "bytes": stat.data_length,
                    "ephemeral": stat.ephemeral_owner != 0,
                })
            })
            .collect();
        Ok(answer(&json!({
            "path": wanted.path,
            "children": children,
            "from": wanted.from,
            "matching": matching,
            "total": total,
        })))
    };
    listed.await.unwrap_or_else(|refused: Response| refused)
}

#[derive(Deserialize)]
pub(super) struct Node {
    path: String,
}

/// Data, stat and access list of a node.
pub(super) async fn node(State(app): Shared, Query(wanted): Query<Node>) -> Response {
    let read = async {
        let path = &wanted.path;
        let zk = checked(path, session(&app).await?.raw())?;
        let access = zk.acl(path);
        let (data, stat) = within(zk.get(path)).await?;
        // A client may lack the permission to read the access list of a node that it may read.
        let access = within(access).await.ok().map(|(list, _)| list);
        let shown = &data[..data.len().min(DATA_BYTES_SHOWN)];
        Ok(answer(&json!({
            "path": path,
            "data": json::data(Some(shown)),
            "hex": hex_lines(&shown[..shown.len().min(4096)]),
            "cut": data.len() > shown.len(),
            "stat": stat_json(&stat),
            "acl": access.map(|list| json::acl(&list)),
        })))
    };
    read.await.unwrap_or_else(|refused: Response| refused)
}

#[derive(Deserialize)]
pub(super) struct Search {
    name: String,
    #[serde(default = "root")]
    under: String,
}

fn root() -> String {
    "/".to_owned()
}

/// Nodes whose name contains a text, level by level (breadth first).
pub(super) async fn search(State(app): Shared, Query(wanted): Query<Search>) -> Response {
    let found = async {
        let zk = checked(&wanted.under, session(&app).await?.raw())?;
        let (mut found, mut level, mut searched) = (Vec::new(), vec![wanted.under.clone()], 0);
        let begin = Instant::now();
        let is_enough = |found: &Vec<String>, searched| {
            found.len() >= FOUND_MAX || searched >= SEARCHED_MAX || begin.elapsed() > SEARCH_MAX
        };
        while !level.is_empty() && !is_enough(&found, searched) {
            let mut below = Vec::new();
            for some in level.chunks(AHEAD_MAX) {
                let lists: Vec<_> = some.iter().map(|path| zk.children(path)).collect();
                let lists = within(async { Ok::<_, Error>(join_all(lists).await) }).await?;
                for (path, list) in some.iter().zip(lists) {
                    for name in list.unwrap_or_default() {
                        let child = join(path, &name);
                        if name.contains(&wanted.name) {
                            found.push(child.clone());
                        }
                        below.push(child);
                    }
                }
                searched += some.len();
                if is_enough(&found, searched) {
                    break;
                }
            }
            level = below;
        }
        let is_cut = is_enough(&found, searched);
        found.truncate(FOUND_MAX);
        Ok(answer(&json!({"found": found, "cut": is_cut})))
    };
    found.await.unwrap_or_else(|refused: Response| refused)
}

/// Refuses what is no path before it is sent.
#[expect(
    clippy::result_large_err,
    reason = "the error is the answer, which goes out as it is"
)]
fn checked(path: &str, zk: zk::Client) -> Result<zk::Client, Response> {
    match zk::check_path(path) {
        Ok(()) => Ok(zk),
        Err(_) => Err(refusal(StatusCode::BAD_REQUEST, "invalid path")),
    }
}

fn join(path: &str, name: &str) -> String {
    format!("{}/{name}", path.trim_end_matches('/'))
}

fn stat_json(stat: &Stat) -> Value {
    json!({
        "czxid": hex(stat.czxid),
        "mzxid": hex(stat.mzxid),
        "pzxid": hex(stat.pzxid),
        "ctime_ms": stat.ctime,
        "mtime_ms": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeral_owner": (stat.ephemeral_owner != 0).then(|| hex(stat.ephemeral_owner)),
        "bytes": stat.data_length,
        "children": stat.num_children,
    })
}

/// Formats like `hexdump -C`.
fn hex_lines(data: &[u8]) -> String {
    let line = |(place, bytes): (usize, &[u8])| {
        let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = bytes.iter().map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '.',
        });
        format!(
            "{:08x}  {:<47}  {}\n",
            place * 16,
            digits.join(" "),
            text.collect::<String>()
        )
    };
    data.chunks(16).enumerate().map(line).collect()
}
