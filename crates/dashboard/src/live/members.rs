//! State of the servers: roles and metrics, from the four-letter words `srvr` and `mntr`.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use futures_util::future::{BoxFuture, join_all};
use serde_json::{Value, json};

use crate::json::ms;

/// Sends a four-letter word to a server.
type Ask = dyn Fn(&'static str) -> BoxFuture<'static, io::Result<String>> + Send + Sync;

/// One server, and how to send four-letter words to it.
#[derive(Clone)]
pub struct Member {
    name: String,
    ask: Arc<Ask>,
}

impl Member {
    /// A server by its display name, and a function that sends it a four-letter word.
    pub fn new<F>(
        name: impl Into<String>,
        ask: impl Fn(&'static str) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = io::Result<String>> + Send + 'static,
    {
        Self {
            name: name.into(),
            ask: Arc::new(move |word| Box::pin(ask(word))),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) async fn ask(&self, word: &'static str) -> io::Result<String> {
        (self.ask)(word).await
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// State of a server as reported by itself.
#[derive(Clone, Debug)]
pub(crate) struct MemberState {
    pub(crate) name: String,
    /// Why it does not answer.
    pub(crate) silent: Option<String>,
    /// Why it refuses writes that make its tree larger.
    pub(crate) refuses_growth: Option<String>,
    version: String,
    mode: String,
    zxid: i64,
    /// Requests since its start.
    received: f64,
    asked: Instant,
    requests_per_second: Option<f64>,
    /// The answer to `mntr` without `zk_`, if the server allows that word.
    pub(crate) numbers: HashMap<String, f64>,
}

impl MemberState {
    async fn ask(member: &Member, before: Option<&Self>) -> Self {
        let mut state = Self {
            name: member.name.clone(),
            silent: None,
            refuses_growth: None,
            version: String::new(),
            mode: String::new(),
            zxid: 0,
            received: 0.0,
            asked: Instant::now(),
            requests_per_second: None,
            numbers: HashMap::new(),
        };
        let srvr = match member.ask("srvr").await {
            // Apache's words of a member without a quorum (`NOT_SERVING_REQUESTS`).
            Ok(srvr) if srvr.contains("not currently serving requests") => {
                state.silent = Some("it serves no requests, because it has no quorum".to_owned());
                return state;
            }
            Ok(srvr) => srvr,
            Err(error) => {
                state.silent = Some(error.to_string());
                return state;
            }
        };
        for line in srvr.lines() {
            let Some((key, value)) = line.split_once(": ") else {
                continue;
            };
            let value = value.trim();
            match key {
                "Zookeeper version" => {
                    let version = value.split([',', ' ']).next().unwrap_or_default();
                    // Debian's builds leave the name of the commit open.
                    let (version, _) = version.split_once("-${").unwrap_or((version, ""));
                    state.version = version.to_owned();
                }
                "Mode" => state.mode = value.to_owned(),
                "Refuses growth" => state.refuses_growth = Some(value.to_owned()),
                "Zxid" => state.zxid = zxid(value),
                "Received" => state.received = value.parse().unwrap_or_default(),
                "Node count" => state.number("znode_count", value),
                "Connections" => state.number("num_alive_connections", value),
                "Outstanding" => state.number("outstanding_requests", value),
                "Latency min/avg/max" => {
                    let mut parts = value.split('/');
                    for name in ["min_latency", "avg_latency", "max_latency"] {
                        state.number(name, parts.next().unwrap_or_default());
                    }
                }
                _ => {}
            }
        }
        let mntr = member.ask("mntr").await.unwrap_or_default();
        for line in mntr.lines() {
            if let Some((key, value)) = line.split_once('\t')
                && let Some(name) = key.strip_prefix("zk_")
            {
                state.number(name, value.trim());
            }
        }
        state.requests_per_second = before
            .filter(|before| before.silent.is_none() && before.received <= state.received)
            .map(|before| {
                let passed = state.asked.duration_since(before.asked).as_secs_f64();
                (state.received - before.received) / passed.max(0.001)
            });
        state
    }

    fn number(&mut self, name: &str, value: &str) {
        if let Ok(value) = value.parse::<f64>() {
            self.numbers.insert(name.to_owned(), value);
        }
    }
}

/// Queries all servers concurrently. Returns their states, and a sample of the values that the charts show.
pub(super) async fn ask_all(
    members: &[Member],
    before: &[MemberState],
) -> (Vec<MemberState>, Value) {
    let asked = members
        .iter()
        .enumerate()
        .map(|(place, member)| MemberState::ask(member, before.get(place)));
    let states = join_all(asked).await;
    let sample = sample(&states);
    (states, sample)
}

/// The servers as JSON for the pages.
pub(super) fn json(states: &[MemberState]) -> Value {
    let newest = states.iter().map(|state| state.zxid).max().unwrap_or(0);
    states
        .iter()
        .map(|state| {
            json!({
                "name": state.name,
                "silent": state.silent,
                "version": state.version,
                "mode": state.mode,
                // Only within an epoch: a new leader starts another.
                "lag": (state.zxid >> 32 == newest >> 32).then_some(newest - state.zxid),
                "numbers": state.numbers,
            })
        })
        .collect()
}

/// One point of each chart: sums over the servers, or their maximum.
fn sample(states: &[MemberState]) -> Value {
    let values = |name: &str| {
        let values = states.iter().filter_map(|state| state.numbers.get(name));
        values.copied().collect::<Vec<_>>()
    };
    let sum = |name: &str| {
        let values = values(name);
        (!values.is_empty()).then(|| values.iter().sum::<f64>())
    };
    let worst = |names: &[&str]| {
        let values = names.iter().flat_map(|name| values(name));
        values.reduce(f64::max)
    };
    let rates: Vec<_> = states
        .iter()
        .filter_map(|state| state.requests_per_second)
        .collect();
    json!({
        "at_ms": ms(SystemTime::now()),
        "requests_per_second": (!rates.is_empty()).then(|| rates.iter().sum::<f64>()),
        "latency_avg_ms": worst(&["avg_latency"]),
        "latency_p50_ms": worst(&["p50_readlatency", "p50_updatelatency"]),
        "latency_p99_ms": worst(&["p99_readlatency", "p99_updatelatency"]),
        "fsync_p99_ms": worst(&["p99_fsynctime"]),
        "connections": sum("num_alive_connections"),
        "sessions": worst(&["global_sessions"]),
        "watches": sum("watch_count"),
        "nodes": worst(&["znode_count"]),
        "bytes": worst(&["approximate_data_size"]),
        "outstanding": sum("outstanding_requests"),
    })
}

fn zxid(text: &str) -> i64 {
    let digits = text.trim_start_matches("0x");
    i64::from_str_radix(digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn numbers_come_from_both_words_and_rates_from_two_looks() {
        let received = Arc::new(std::sync::atomic::AtomicU64::new(10));
        let count = received.clone();
        let member = Member::new("zk1", move |word| {
            let received = count.fetch_add(10, std::sync::atomic::Ordering::Relaxed);
            let answer = match word {
                "srvr" => format!(
                    "Zookeeper version: 3.8.0-1-${{mvngit.commit.id}}, built on x\nLatency min/avg/max: 0/0.5/7\nReceived: {received}\nZxid: 0x10000000a\nMode: follower\nNode count: 5\n"
                ),
                _ => "zk_p99_fsynctime\t3\nzk_version\tx\n".to_owned(),
            };
            async move { Ok(answer) }
        });
        let members = [member];
        let (first, sample) = ask_all(&members, &[]).await;
        assert_eq!(sample["requests_per_second"], Value::Null);
        assert_eq!(sample["fsync_p99_ms"], 3.0);
        assert_eq!(sample["nodes"], 5.0);
        let (second, sample) = ask_all(&members, &first).await;
        assert!(sample["requests_per_second"].as_f64().unwrap() > 0.0);
        let shown = json(&second);
        assert_eq!(shown[0]["mode"], "follower");
        assert_eq!(
            (&shown[0]["version"], &shown[0]["lag"]),
            (&json!("3.8.0-1"), &json!(0))
        );
    }
}
