//! `mntr`: values for monitoring tools, one per line.

use super::{ServerReport, VERSION};

/// Content of `mntr`.
#[derive(Debug, Clone, Default)]
pub(crate) struct MonitorText {
    pub(crate) server: ServerReport,
    pub(crate) uptime_ms: u64,
    /// Watches in both tables: a persistent watch counts twice, as in Apache 3.8.
    pub(crate) watch_count: usize,
    pub(crate) ephemerals_count: usize,
    /// Total bytes of paths and data.
    pub(crate) data_bytes: u64,
    pub(crate) sessions: usize,
    /// Open files and their limit, if known.
    pub(crate) open_files: Option<u64>,
    pub(crate) open_files_max: Option<u64>,
    /// Further counters and gauges, by Apache's names without `zk_`.
    pub(crate) values: Vec<(&'static str, i64)>,
    /// Percentiles of the last seconds, in milliseconds.
    pub(crate) times_ms: Vec<(&'static str, f64)>,
    /// Size of the log's disk, and how much of it is used, in bytes.
    pub(crate) disk: Option<(u64, u64)>,
}

/// The answer to `mntr`.
///
/// The values that every tool needs come first, because some tools read only 2048 bytes.
pub(crate) fn mntr(monitor: &MonitorText) -> String {
    let server = &monitor.server;
    let mut lines = MonitorLines::default();
    lines.add("", "version", VERSION);
    lines.add("", "server_state", "standalone");
    lines.add("avg_", "latency", server.latency_ms.average());
    lines.add("max_", "latency", server.latency_ms.max);
    lines.add("min_", "latency", server.latency_ms.min());
    lines.add("", "packets_received", server.received);
    lines.add("", "packets_sent", server.sent);
    lines.add("", "num_alive_connections", server.connections);
    lines.add("", "outstanding_requests", server.outstanding);
    lines.add("", "znode_count", server.node_count);
    lines.add("", "watch_count", monitor.watch_count);
    lines.add("", "ephemerals_count", monitor.ephemerals_count);
    lines.add("", "approximate_data_size", monitor.data_bytes);
    lines.add(
        "",
        "open_file_descriptor_count",
        or_unknown(monitor.open_files),
    );
    lines.add(
        "",
        "max_file_descriptor_count",
        or_unknown(monitor.open_files_max),
    );
    lines.add("", "uptime", monitor.uptime_ms);
    lines.add("", "global_sessions", monitor.sessions);
    for (name, value) in &monitor.values {
        lines.add("", name, value);
    }
    for (name, value) in &monitor.times_ms {
        lines.add("", name, value);
    }
    if let Some((size, used)) = monitor.disk {
        lines.add("", "data_disk_bytes", size);
        lines.add("", "data_disk_used_bytes", used);
    }
    lines.0
}

/// Apache prints -1 for unknown values.
fn or_unknown(number: Option<u64>) -> String {
    number.map_or_else(|| "-1".to_owned(), |number| number.to_string())
}

#[derive(Default)]
struct MonitorLines(String);

impl MonitorLines {
    fn add(&mut self, prefix: &str, name: &str, value: impl ToString) {
        let value = value.to_string();
        // One exporter reports the whole server as down if a line does not have two fields.
        debug_assert!(!name.contains(char::is_whitespace) && !value.contains(['\t', '\n']));
        self.0 += &format!("zk_{prefix}{name}\t{value}\n");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::server;
    use super::*;

    fn sample() -> MonitorText {
        MonitorText {
            server: server::sample(),
            uptime_ms: 1266,
            watch_count: 3,
            ephemerals_count: 2,
            data_bytes: 67,
            sessions: 2,
            open_files: Some(41),
            open_files_max: None,
            values: vec![("connection_rejected", 0), ("response_bytes", 17_201)],
            times_ms: vec![("p99_readlatency", 0.25)],
            disk: Some((1000, 10)),
        }
    }

    #[test]
    fn mntr_prints_each_kind_of_figure_as_apache_does() {
        let expected = format!(
            "zk_version\t{VERSION}
zk_server_state\tstandalone
zk_avg_latency\t0.9857
zk_max_latency\t11
zk_min_latency\t0
zk_packets_received\t221
zk_packets_sent\t220
zk_num_alive_connections\t3
zk_outstanding_requests\t1
zk_znode_count\t9
zk_watch_count\t3
zk_ephemerals_count\t2
zk_approximate_data_size\t67
zk_open_file_descriptor_count\t41
zk_max_file_descriptor_count\t-1
zk_uptime\t1266
zk_global_sessions\t2
zk_connection_rejected\t0
zk_response_bytes\t17201
zk_p99_readlatency\t0.25
zk_data_disk_bytes\t1000
zk_data_disk_used_bytes\t10
"
        );
        assert_eq!(mntr(&sample()), expected);
    }

    /// Parses like the exporters: two fields per line, all but the first two values numeric.
    #[test]
    fn a_tool_finds_two_fields_in_every_line() {
        let text = mntr(&sample());
        let pairs: BTreeMap<&str, &str> = text
            .lines()
            .map(|line| {
                let fields: Vec<_> = line.split('\t').collect();
                <[&str; 2]>::try_from(fields).unwrap().into()
            })
            .collect();
        assert_eq!(pairs.len(), text.lines().count(), "no key comes twice");
        for (key, value) in pairs {
            if !matches!(key, "zk_version" | "zk_server_state") {
                value.parse::<f64>().unwrap();
            }
        }
    }

    #[test]
    fn what_every_tool_needs_is_in_the_first_two_thousand_bytes() {
        let text = mntr(&sample());
        let end = text.find("zk_global_sessions").unwrap();
        assert!(end < 2000);
    }
}
