//! Slow-request log: requests whose answer took longer than a threshold, with the time that each stage took.
//!
//! Nothing is measured for it on the way of a request: a group of writes has its times in [`StageTimes`], and a request the time of its
//! arrival.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::{PeerAddress, Request};
use crate::clock;
use crate::metrics::{Meters, operation_name};

/// Number of slow requests that are remembered.
const REMEMBERED_MAX: usize = 10;

/// Lines in the log per [`PERIOD`], so that a slow disk does not flood it: the next line says how many requests were left out.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// Longest path in a line. What follows is left out.
const PATH_CHARS_MAX: usize = 200;

/// Threshold that no request reaches.
const OFF: u64 = u64::MAX;

/// When a group of writes passed the stages up to its publication.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageTimes {
    /// The first of its writes left the queue.
    pub(crate) taken: Instant,
    /// The last of them was decided.
    pub(crate) decided: Instant,
    /// The log began to write it.
    pub(crate) log_begun: Instant,
    /// It was on disk.
    pub(crate) synced: Instant,
}

impl StageTimes {
    /// Of a group that was taken from the queue at `taken`, and is decided now.
    pub(crate) fn decided_since(taken: Instant) -> Self {
        let decided = Instant::now();
        Self {
            taken,
            decided,
            log_begun: decided,
            synced: decided,
        }
    }
}

/// The stages of a request, in order, with what each took.
type Stages = Vec<(&'static str, Duration)>;

/// An answered request that took long.
#[derive(Debug)]
pub(crate) struct SlowRequest {
    request: Request,
    session_id: i64,
    took: Duration,
    stages: Stages,
}

impl SlowRequest {
    /// A write that was answered after `took`.
    pub(crate) fn write(
        request: &Request,
        session_id: i64,
        took: Duration,
        times: &StageTimes,
    ) -> Self {
        let received = request.received;
        let answered = received + took;
        // A write may arrive while others of its group are decided.
        let taken = times.taken.max(received);
        let stages = vec![
            ("queued", taken - received),
            ("writer", times.decided.saturating_duration_since(taken)),
            (
                "log",
                times.log_begun.saturating_duration_since(times.decided),
            ),
            (
                "fsync",
                times.synced.saturating_duration_since(times.log_begun),
            ),
            ("publish", answered.saturating_duration_since(times.synced)),
        ];
        Self {
            request: request.clone(),
            session_id,
            took,
            stages,
        }
    }

    /// A read that was answered after `took`, and before waited until `begun` for a write of its session or for a thread.
    pub(crate) fn read(request: &Request, session_id: i64, took: Duration, begun: Instant) -> Self {
        let queued = begun.saturating_duration_since(request.received);
        let stages = vec![("queued", queued), ("read", took.saturating_sub(queued))];
        Self {
            request: request.clone(),
            session_id,
            took,
            stages,
        }
    }
}

/// What is remembered of a slow request. Displays as a line of `name=value`.
#[derive(Debug, Clone)]
pub(crate) struct SlowEntry {
    time_ms: i64,
    operation: String,
    path: Option<String>,
    bytes: usize,
    session_id: i64,
    address: PeerAddress,
    took: Duration,
    stages: Stages,
}

impl SlowEntry {
    /// `replied` is when the reply was handed to the socket.
    fn of(slow: SlowRequest, replied: Instant) -> Self {
        let SlowRequest {
            request,
            session_id,
            took,
            mut stages,
        } = slow;
        let reply = replied.saturating_duration_since(request.received + took);
        stages.push(("reply", reply));
        Self {
            time_ms: clock::wall_ms(),
            operation: operation_name(request.op),
            path: request.path().map(|path| cut(&path)),
            bytes: request.body.len(),
            session_id,
            address: request.peer.address,
            took,
            stages,
        }
    }

    fn stages(&self) -> String {
        let mut text = String::new();
        for (stage, took) in &self.stages {
            // Writing to a `String` does not fail.
            let _ = write!(text, " {stage}_ms={}", took.as_millis());
        }
        text.split_off(1)
    }
}

impl fmt::Display for SlowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "time_ms={} operation={}", self.time_ms, self.operation)?;
        if let Some(path) = &self.path {
            write!(f, " path={path:?}")?;
        }
        write!(
            f,
            " bytes={} session={:#x} address={} took_ms={} {}",
            self.bytes,
            self.session_id,
            self.address,
            self.took.as_millis(),
            self.stages()
        )
    }
}

/// Threshold, rate limit and memory of the slow-request log.
#[derive(Debug)]
pub(crate) struct SlowRequests {
    threshold_us: AtomicU64,
    meters: Arc<Meters>,
    state: Mutex<Reported>,
}

#[derive(Debug, Default)]
struct Reported {
    last: VecDeque<SlowEntry>,
    rate: Rate,
}

impl SlowRequests {
    pub(crate) fn new(threshold: Duration, meters: Arc<Meters>) -> Self {
        let slow = Self {
            threshold_us: AtomicU64::new(OFF),
            meters,
            state: Mutex::default(),
        };
        slow.set_threshold(threshold);
        slow
    }

    /// Zero switches the log off.
    pub(crate) fn set_threshold(&self, threshold: Duration) {
        let threshold_us = match threshold {
            Duration::ZERO => OFF,
            threshold => micros(threshold),
        };
        self.threshold_us.store(threshold_us, Relaxed);
    }

    /// Whether a request that took this long is slow.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        micros(took) >= self.threshold_us.load(Relaxed)
    }

    /// Counts, remembers and logs a request whose reply has just been handed to the socket. Called outside of all locks: the log may be
    /// slow too.
    pub(crate) fn report(&self, slow: SlowRequest) {
        let now = Instant::now();
        self.meters.count_slow(slow.request.op);
        let entry = SlowEntry::of(slow, now);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.len() == REMEMBERED_MAX {
            state.last.pop_front();
        }
        state.last.push_back(entry.clone());
        let admitted = state.rate.admit(now);
        drop(state);
        if let Some(left_out) = admitted {
            tracing::warn!(
                operation = entry.operation,
                path = entry.path,
                bytes = entry.bytes,
                session = format_args!("{:#x}", entry.session_id),
                address = %entry.address,
                took_ms = micros(entry.took) / 1000,
                stages = entry.stages(),
                left_out,
                "slow request"
            );
        }
    }

    /// The last slow requests, the newest first.
    pub(crate) fn last(&self) -> Vec<SlowEntry> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last.iter().rev().cloned().collect()
    }
}

/// Limits lines to [`LINES_MAX`] per [`PERIOD`].
#[derive(Debug, Default)]
struct Rate {
    begun: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Rate {
    /// Whether a line may be logged; if so, how many were left out since the line before.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_over = |begun| now.saturating_duration_since(begun) >= PERIOD;
        if self.begun.is_none_or(is_over) {
            self.begun = Some(now);
            self.lines = 0;
        }
        if self.lines == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

fn cut(path: &str) -> String {
    match path.char_indices().nth(PATH_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &path[..end]),
        None => path.to_owned(),
    }
}

/// Like `as_micros`, without its 128-bit arithmetic.
fn micros(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000_000);
    seconds.saturating_add(u64::from(time.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use bellwether_testkit::Request as ClientRequest;

    use super::*;
    use crate::server::core::Core;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_stage_of_a_write_has_its_time() {
        let client = Core::new().connect();
        let request = client.request(&ClientRequest::set_data("/a\n\"b", "secret"));
        let received = request.received;
        let times = StageTimes {
            taken: received + ms(1),
            decided: received + ms(3),
            log_begun: received + ms(7),
            synced: received + ms(107),
        };
        let slow = SlowRequest::write(&request, 0x12, ms(115), &times);
        let entry = SlowEntry::of(slow, received + ms(131)).to_string();
        let (_, entry) = entry.split_once(' ').unwrap();
        assert_eq!(
            entry,
            "operation=setData path=\"/a\\n\\\"b\" bytes=23 session=0x12 address=127.0.0.1:2181 took_ms=115 \
             queued_ms=1 writer_ms=2 log_ms=4 fsync_ms=100 publish_ms=8 reply_ms=16"
        );
    }

    #[test]
    fn a_write_that_arrived_after_the_first_of_its_group_was_not_queued() {
        let client = Core::new().connect();
        let request = client.request(&ClientRequest::set_data("/a", ""));
        let received = request.received;
        let times = StageTimes {
            taken: received - ms(5),
            decided: received + ms(2),
            log_begun: received + ms(2),
            synced: received + ms(3),
        };
        let slow = SlowRequest::write(&request, 1, ms(3), &times);
        assert_eq!(slow.stages[..2], [("queued", ms(0)), ("writer", ms(2))]);
    }

    #[test]
    fn zero_is_off_and_a_threshold_counts_itself() {
        let slow = SlowRequests::new(ms(5), Arc::default());
        assert!(slow.is_slow(ms(5)) && !slow.is_slow(ms(4)));
        slow.set_threshold(Duration::ZERO);
        assert!(!slow.is_slow(Duration::from_secs(1_000_000)));
    }

    #[test]
    fn a_slow_disk_does_not_flood_the_log() {
        let mut rate = Rate::default();
        let begin = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(rate.admit(begin), Some(0));
        }
        for _ in 0..500 {
            assert_eq!(rate.admit(begin + PERIOD / 2), None);
        }
        assert_eq!(rate.admit(begin + PERIOD), Some(500));
        assert_eq!(rate.admit(begin + PERIOD), Some(0));
    }

    #[test]
    fn all_are_counted_and_the_last_are_remembered() {
        let meters = Arc::<Meters>::default();
        let slow = SlowRequests::new(ms(1), meters.clone());
        let client = Core::new().connect();
        for number in 0..25 {
            let request = client.request(&ClientRequest::get_data(format!("/{number}")));
            slow.report(SlowRequest::read(&request, 1, ms(2), request.received));
        }
        assert_eq!(meters.slow_requests(), [("getData".to_owned(), 25)]);
        let last = slow.last();
        assert_eq!(last.len(), REMEMBERED_MAX);
        assert_eq!(last[0].path.as_deref(), Some("/24"));
        assert_eq!(last[REMEMBERED_MAX - 1].path.as_deref(), Some("/15"));
    }

    #[test]
    fn long_paths_are_cut_between_characters() {
        let path = format!("/{}", "ö".repeat(500));
        assert_eq!(cut(&path).chars().count(), PATH_CHARS_MAX + 3);
        assert_eq!(cut("/short"), "/short");
    }
}
