//! Metrics of a program's recipes and sessions, with its own recorder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::{Lock, Semaphore, connect};
use bellwether_testkit::{Op, TestServer};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

use crate::support::place::{Place, soon};

/// All values, by the name of the metric.
#[derive(Clone, Default)]
struct Measured(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

impl Measured {
    fn values(&self, name: &str) -> Vec<f64> {
        self.0
            .lock()
            .unwrap()
            .get(name)
            .cloned()
            .unwrap_or_default()
    }
}

struct One(Measured, String);

impl One {
    fn add(&self, value: f64) {
        let mut values = self.0.0.lock().unwrap();
        values.entry(self.1.clone()).or_default().push(value);
    }
}

impl CounterFn for One {
    fn increment(&self, by: u64) {
        (0..by).for_each(|_| self.add(1.0));
    }

    fn absolute(&self, _: u64) {}
}

impl HistogramFn for One {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Recorder for Measured {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(One(self.clone(), key.name().to_owned())))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(One(self.clone(), key.name().to_owned())))
    }
}

impl Measured {
    /// Measures this process from now on.
    fn install() -> Self {
        let measured = Self::default();
        metrics::set_global_recorder(measured.clone()).ok().unwrap();
        measured
    }

    fn count(&self, name: &str) -> usize {
        self.values(name).len()
    }
}

#[tokio::test]
async fn waits_holds_hand_overs_losses_and_sessions_are_measured() {
    let measured = Measured::install();
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let lock = Lock::new(&client, "/measured");
    let first = lock.acquire().await.unwrap();
    assert_eq!(measured.count("bellwether_handovers_total"), 0);
    let waiting = lock.join().await.unwrap();
    let watches = server.watch_count().unwrap();
    let turn = tokio::spawn(waiting.turn());
    // It waits when it watches the holder.
    soon(async {
        while server.watch_count().unwrap() == watches {
            tokio::task::yield_now().await;
        }
    })
    .await;
    first.release().await.unwrap();
    let second = turn.await.unwrap().unwrap();
    assert_eq!(measured.count("bellwether_wait_seconds"), 2);
    assert_eq!(measured.count("bellwether_handovers_total"), 1);
    assert_eq!(measured.count("bellwether_hold_seconds"), 1);
    assert_eq!(measured.count("bellwether_holds_lost_total"), 0);
    server.expire_session(client.session_id().number()).unwrap();
    soon(second.lost()).await;
    assert_eq!(measured.count("bellwether_holds_lost_total"), 1);
    drop(second);
    assert_eq!(measured.count("bellwether_hold_seconds"), 2);
    assert_eq!(measured.count("bellwether_client_sessions_total"), 1);
}

/// Permits are not granted by the turn in the line but by a count, after a wait of another kind.
#[tokio::test]
async fn wait_for_a_permit_is_measured_from_the_place_in_line() {
    const HELD: Duration = Duration::from_millis(200);
    let measured = Measured::install();
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let semaphore = Semaphore::new(&client, "/permits", 1);
    let first = semaphore.acquire().await.unwrap();
    let waiting = semaphore.join().await.unwrap();
    let begin = Instant::now();
    let releasing = async {
        tokio::time::interval_at(tokio::time::Instant::now() + HELD, HELD)
            .tick()
            .await;
        first.release().await.unwrap();
    };
    let (second, ()) = tokio::join!(waiting.turn(), releasing);
    let waited = measured.values("bellwether_wait_seconds");
    assert_eq!(waited.len(), 2);
    assert!(waited[1] >= HELD.as_secs_f64(), "{waited:?}");
    assert!(
        waited[1] <= begin.elapsed().as_secs_f64() + 1.0,
        "{waited:?}"
    );
    assert_eq!(measured.count("bellwether_handovers_total"), 1);
    second.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn requests_retries_and_reconnects_equal_what_passed_the_wire() {
    let measured = Measured::install();
    let place = Place::embedded().await;
    let (proxy, client) = place.counted().await;
    let counter = bellwether::Counter::new(&client, "/counter");
    for _ in 0..7 {
        counter.add(1).await.unwrap();
    }
    assert_eq!(measured.count("bellwether_retries_total"), 0);
    let lost = proxy.swallow_reply(Op::GetData);
    assert_eq!(counter.get().await.unwrap(), 7);
    lost.happened().await.unwrap();
    assert_eq!(measured.count("bellwether_retries_total"), 1);
    client.close().await;
    assert_eq!(measured.count("bellwether_client_reconnects_total"), 1);
    // Sent by the client itself.
    let own = [Op::Ping, Op::CloseSession, Op::SetWatches, Op::SetWatches2];
    let counts = proxy.counts();
    let sent = counts.iter().filter(|(op, _)| !own.contains(op));
    let sent: usize = sent.map(|(_, count)| count).sum();
    assert_eq!(
        measured.count("bellwether_client_requests_total"),
        sent,
        "{counts:?}"
    );
}
