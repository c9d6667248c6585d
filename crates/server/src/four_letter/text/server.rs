//! `srvr` and `stat`: the server as a whole.

use super::VERSION;
use super::connections::{ConnectionReport, brief};
use crate::stats::Summary;

/// Content of `srvr`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerReport {
    /// Milliseconds from request to reply.
    pub(crate) latency_ms: Summary,
    /// Packets, including four-letter words.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Connections, including the one that asks.
    pub(crate) connections: usize,
    pub(crate) outstanding: usize,
    pub(crate) zxid: i64,
    pub(crate) node_count: usize,
    /// Why writes that make the tree larger are refused, if they are.
    pub(crate) refuses_growth: Option<&'static str>,
}

/// The answer to `srvr`.
pub(crate) fn srvr(server: &ServerReport) -> String {
    format!("Zookeeper version: {VERSION}\n{}", statistics(server))
}

/// The answer to `stat`.
pub(crate) fn stat(server: &ServerReport, connections: &[ConnectionReport]) -> String {
    let clients: String = connections.iter().map(|c| brief(c) + ")\n").collect();
    format!(
        "Zookeeper version: {VERSION}\nClients:\n{clients}\n{}",
        statistics(server)
    )
}

fn statistics(server: &ServerReport) -> String {
    let ServerReport {
        latency_ms,
        received,
        sent,
        connections,
        outstanding,
        zxid,
        node_count,
        refuses_growth,
    } = server;
    let (min, average, max) = (latency_ms.min(), latency_ms.average(), latency_ms.max);
    // Only while it is so: the lines before are those of Apache.
    let refuses = refuses_growth.map_or(String::new(), |why| format!("Refuses growth: {why}\n"));
    format!(
        "Latency min/avg/max: {min}/{average}/{max}\n\
         Received: {received}\n\
         Sent: {sent}\n\
         Connections: {connections}\n\
         Outstanding: {outstanding}\n\
         Zxid: 0x{zxid:x}\n\
         Mode: standalone\n\
         Node count: {node_count}\n\
         {refuses}"
    )
}

#[cfg(test)]
pub(super) fn sample() -> ServerReport {
    ServerReport {
        latency_ms: Summary {
            min: 0,
            max: 11,
            sum: 207,
            count: 210,
        },
        received: 221,
        sent: 220,
        connections: 3,
        outstanding: 1,
        zxid: 0xce,
        node_count: 9,
        refuses_growth: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::connections;
    use super::*;

    const STATISTICS: &str = "\
Latency min/avg/max: 0/0.9857/11
Received: 221
Sent: 220
Connections: 3
Outstanding: 1
Zxid: 0xce
Mode: standalone
Node count: 9
";

    #[test]
    fn srvr_has_the_lines_of_apache() {
        assert_eq!(
            srvr(&sample()),
            format!("Zookeeper version: {VERSION}\n{STATISTICS}")
        );
    }

    #[test]
    fn stat_has_the_clients_between_version_and_latency() {
        let expected = format!(
            "Zookeeper version: {VERSION}\nClients:\n \
             /127.0.0.1:38202[1](queued=0,recved=206,sent=207)\n \
             /127.0.0.1:38290[0](queued=0,recved=1,sent=0)\n\n{STATISTICS}"
        );
        assert_eq!(stat(&sample(), &connections::samples()), expected);
    }

    /// Parses like zktop: a version, a line to skip, clients up to a blank line, then pairs.
    #[test]
    fn a_tool_finds_all_it_needs_in_stat() {
        let text = stat(&sample(), &connections::samples());
        let mut lines = text.lines();
        let (_, version) = lines.next().unwrap().split_once(": ").unwrap();
        assert!(version.starts_with("3.8.0-"));
        lines.next();
        for client in lines.by_ref().take_while(|line| !line.is_empty()) {
            let (address, rest) = client.trim().split_once('[').unwrap();
            assert!(address.starts_with("/127.0.0.1:"));
            let (mask, fields) = rest.split_once("](").unwrap();
            assert!(mask.chars().all(|c| c.is_ascii_digit()));
            for field in fields.strip_suffix(')').unwrap().split(',') {
                let (_, number) = field.split_once('=').unwrap();
                number.parse::<u64>().unwrap();
            }
        }
        let pairs: BTreeMap<_, _> = lines
            .map(|line| {
                let parts: Vec<_> = line.split(':').map(str::trim).collect();
                <[&str; 2]>::try_from(parts).unwrap().into()
            })
            .collect::<BTreeMap<&str, &str>>();
        assert_eq!(pairs["Latency min/avg/max"].split('/').count(), 3);
        assert_eq!(pairs["Node count"], "9");
        assert_eq!(pairs["Zxid"], "0xce");
        for key in ["Mode", "Outstanding", "Received", "Sent"] {
            assert!(pairs.contains_key(key), "{key}");
        }
    }
}
