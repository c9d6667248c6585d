//! `mntr`: figures for monitoring tools, one a line.

use super::{Percentiles, ServerReport, Summary, VERSION};

/// What `mntr` tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct Monitor {
    pub(crate) server: ServerReport,
    pub(crate) uptime_ms: u64,
    /// Watches of both tables, so a persistent one counts twice, as in Apache 3.8.
    pub(crate) watch_count: usize,
    pub(crate) ephemerals_count: usize,
    /// Bytes of all paths and data.
    pub(crate) data_bytes: u64,
    pub(crate) sessions: usize,
    /// Open files and how many there may be, if known.
    pub(crate) open_files: Option<u64>,
    pub(crate) open_files_max: Option<u64>,
    /// Whatever else is measured, counters and gauges alike, by Apache's names without `zk_`.
    pub(crate) values: Vec<(&'static str, i64)>,
    pub(crate) summaries: Vec<SummaryReport>,
}

/// A summary by Apache's name, such as `fsynctime`.
#[derive(Debug, Clone)]
pub(crate) struct SummaryReport {
    pub(crate) name: &'static str,
    pub(crate) summary: Summary,
    /// For the names that have them in Apache, such as `readlatency`.
    pub(crate) percentiles: Option<Percentiles>,
}

/// The answer to `mntr`.
///
/// What every tool looks for comes first, as some read 2048 bytes and no more.
pub(crate) fn mntr(monitor: &Monitor) -> String {
    let server = &monitor.server;
    let mut lines = Lines::default();
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
    for report in &monitor.summaries {
        lines.add_summary(report);
    }
    lines.0
}

/// Apache prints -1 where the system does not tell.
fn or_unknown(number: Option<u64>) -> String {
    number.map_or_else(|| "-1".to_owned(), |number| number.to_string())
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, prefix: &str, name: &str, value: impl ToString) {
        let value = value.to_string();
        // One exporter gives the whole server up for down if a line has not two fields.
        debug_assert!(!name.contains(char::is_whitespace) && !value.contains(['\t', '\n']));
        self.0 += &format!("zk_{prefix}{name}\t{value}\n");
    }

    fn add_summary(&mut self, report: &SummaryReport) {
        let SummaryReport {
            name,
            summary,
            percentiles,
        } = report;
        self.add("avg_", name, summary.average());
        self.add("min_", name, summary.min());
        self.add("max_", name, summary.max);
        self.add("cnt_", name, summary.count);
        self.add("sum_", name, summary.sum);
        if let Some(percentiles) = percentiles {
            self.add("p50_", name, percentiles.p50);
            self.add("p95_", name, percentiles.p95);
            self.add("p99_", name, percentiles.p99);
            self.add("p999_", name, percentiles.p999);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::server;
    use super::*;

    fn sample() -> Monitor {
        Monitor {
            server: server::sample(),
            uptime_ms: 1266,
            watch_count: 3,
            ephemerals_count: 2,
            data_bytes: 67,
            sessions: 2,
            open_files: Some(41),
            open_files_max: None,
            values: vec![("connection_rejected", 0), ("response_bytes", 17_201)],
            summaries: vec![
                SummaryReport {
                    name: "node_changed_watch_count",
                    summary: Summary {
                        min: 1,
                        max: 1,
                        sum: 2,
                        count: 2,
                    },
                    percentiles: None,
                },
                SummaryReport {
                    name: "readlatency",
                    summary: Summary {
                        min: 0,
                        max: 2,
                        sum: 3,
                        count: 4,
                    },
                    percentiles: Some(Percentiles {
                        p50: 1,
                        p95: 2,
                        p99: 2,
                        p999: 2,
                    }),
                },
            ],
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
zk_avg_node_changed_watch_count\t1.0
zk_min_node_changed_watch_count\t1
zk_max_node_changed_watch_count\t1
zk_cnt_node_changed_watch_count\t2
zk_sum_node_changed_watch_count\t2
zk_avg_readlatency\t0.75
zk_min_readlatency\t0
zk_max_readlatency\t2
zk_cnt_readlatency\t4
zk_sum_readlatency\t3
zk_p50_readlatency\t1
zk_p95_readlatency\t2
zk_p99_readlatency\t2
zk_p999_readlatency\t2
"
        );
        assert_eq!(mntr(&sample()), expected);
    }

    /// As the exporters do: two fields a line, numbers but for the first two.
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
