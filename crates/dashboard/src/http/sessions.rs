//! Connected clients, from the four-letter word `cons`, and what client addresses use, from `addr`.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{Shared, answer};

/// Maximum number of connections sent to a page.
const SHOWN_MAX: usize = 1000;

/// Part of the version of the servers that have the word `addr`. Others take a word that they do not have for the start of a request.
const OURS: &str = "-bellwether-";

/// Connections of all servers that answer `cons`, with the fields of each line, and addresses of those that answer `addr`.
pub(super) async fn sessions(State(app): Shared) -> Response {
    let mut connections = Vec::new();
    let mut silent = Vec::new();
    let mut addresses = Vec::new();
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
        if member
            .ask("srvr")
            .await
            .is_ok_and(|srvr| srvr.contains(OURS))
        {
            let lines = member.ask("addr").await.unwrap_or_default();
            let lines = lines
                .lines()
                .filter_map(|line| address(member.name(), line));
            addresses.extend(lines);
        }
    }
    let total = connections.len();
    connections.truncate(SHOWN_MAX);
    answer(&json!({
        "connections": connections,
        "total": total,
        "silent": silent,
        "addresses": addresses,
    }))
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

/// Parses a line such as `10.0.0.7 connections=1 requests=20 received_bytes=300 sent_bytes=4000`.
fn address(server: &str, line: &str) -> Option<Value> {
    let (address, fields) = line.split_once(' ')?;
    let mut used = Map::new();
    for field in fields.split(' ') {
        let (name, number) = field.split_once('=')?;
        used.insert(name.to_owned(), number.parse::<u64>().ok()?.into());
    }
    Some(json!({"server": server, "address": address, "used": used}))
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

    #[test]
    fn line_of_addr_is_read_and_a_refusal_is_none() {
        let line = "10.0.0.7 connections=1 requests=20 received_bytes=300 sent_bytes=4000";
        let read = address("zk1", line).unwrap();
        assert_eq!(
            (&read["address"], &read["used"]["sent_bytes"]),
            (&json!("10.0.0.7"), &json!(4000))
        );
        let refusal = "addr is not executed because it is not in the whitelist.";
        assert_eq!(address("zk1", refusal), None);
    }
}
