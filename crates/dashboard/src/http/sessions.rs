//! Connected clients, from the four-letter word `cons`.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{Shared, answer};

/// Maximum number of connections sent to a page.
const SHOWN_MAX: usize = 1000;

/// Connections of all servers that answer `cons`, with the fields of each line.
pub(super) async fn sessions(State(app): Shared) -> Response {
    let mut connections = Vec::new();
    let mut silent = Vec::new();
    for member in &app.live.members {
        match member.ask("cons").await {
            Ok(lines) if !lines.contains("is not in the whitelist") => {
                let lines = lines
                    .lines()
                    .filter_map(|line| connection(member.name(), line));
                connections.extend(lines);
            }
            _ => silent.push(member.name().to_owned()),
        }
    }
    let total = connections.len();
    connections.truncate(SHOWN_MAX);
    answer(&json!({"connections": connections, "total": total, "silent": silent}))
}

/// Parses a line such as ` /127.0.0.1:51234[1](queued=0,recved=5,sent=5,sid=0x10,lop=PING,est=1,to=15000)`.
fn connection(server: &str, line: &str) -> Option<Value> {
    let (address, rest) = line.trim().split_once('[')?;
    let (_, fields) = rest.split_once('(')?;
    let fields: Map<String, Value> = fields
        .trim_end_matches(')')
        .split(',')
        .filter_map(|field| field.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    // A connection without a session only sends a four-letter word, like this one.
    fields.get("sid")?;
    let address = address.trim_start_matches('/');
    Some(json!({"server": server, "address": address, "fields": fields}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_cons_is_read_and_that_of_the_asker_left_out() {
        let line = " /127.0.0.1:51234[1](queued=0,recved=5,sent=5,sid=0x10,lop=PING,to=15000)";
        let read = connection("zk1", line).unwrap();
        assert_eq!(read["address"], "127.0.0.1:51234");
        assert_eq!(read["fields"]["sid"], "0x10");
        assert_eq!(read["fields"]["to"], "15000");
        assert_eq!(
            connection("zk1", " /127.0.0.1:5[0](queued=0,recved=1,sent=0)"),
            None
        );
        assert_eq!(connection("zk1", ""), None);
    }
}
