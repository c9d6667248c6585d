//! A run notices what it must not pass over: panics, waits without end, and what is left behind.

use std::sync::{Arc, Mutex};

use bellwether::Client;
use bellwether::zk::{self, CreateMode};
use bellwether_sim::{Fault, Gone, Plan, Recipe, Round, Worker, run, shrink};
use bellwether_testkit::History;

/// Something that no recipe may do.
trait Misdeed: Clone + Default + Send + Sync + 'static {
    fn commit(
        &self,
        worker: &Worker,
        client: &Client,
    ) -> impl Future<Output = Result<(), zk::Error>> + Send;

    fn round() -> Round {
        Round::Done
    }

    fn check() {}
}

#[derive(Clone)]
struct Bad<M>(M);

impl<M: Misdeed> Recipe for Bad<M> {
    const NAME: &'static str = "bad";

    fn new(_: &Plan) -> Self {
        Self(M::default())
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        if let Err(error) = self.0.commit(worker, client).await {
            worker.failed(&error);
        }
        worker.pause().await;
        Ok(M::round())
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        M::check();
        Ok(())
    }
}

/// The violation of a run without faults.
fn violation<M: Misdeed>() -> String {
    let mut plan = Plan::of(1);
    plan.faults.clear();
    run::<Bad<M>>(&plan).violation.unwrap_or_default()
}

#[derive(Clone, Default)]
struct Nothing;

impl Misdeed for Nothing {
    async fn commit(&self, _: &Worker, _: &Client) -> Result<(), zk::Error> {
        Ok(())
    }
}

#[test]
fn run_without_a_misdeed_passes() {
    assert_eq!(violation::<Nothing>(), "");
}

#[derive(Clone, Default)]
struct Panics;

impl Misdeed for Panics {
    async fn commit(&self, worker: &Worker, _: &Client) -> Result<(), zk::Error> {
        assert!(worker.who > 0, "worker 0 panics");
        Ok(())
    }
}

#[test]
fn panic_of_a_worker_is_a_violation() {
    assert_eq!(violation::<Panics>(), "a panic: worker 0 panics");
}

#[derive(Clone, Default)]
struct PanicsInCheck;

impl Misdeed for PanicsInCheck {
    async fn commit(&self, _: &Worker, _: &Client) -> Result<(), zk::Error> {
        Ok(())
    }

    fn check() {
        panic!("the check panics");
    }
}

#[test]
fn panic_of_a_check_is_a_violation() {
    assert_eq!(violation::<PanicsInCheck>(), "a panic: the check panics");
}

#[derive(Clone, Default)]
struct Fails;

impl Misdeed for Fails {
    async fn commit(&self, _: &Worker, _: &Client) -> Result<(), zk::Error> {
        Ok(())
    }

    fn round() -> Round {
        Round::Failed
    }
}

#[test]
fn rounds_that_fail_are_no_progress() {
    let wrong = violation::<Fails>();
    assert!(wrong.starts_with("no progress"), "{wrong}");
}

#[derive(Clone, Default)]
struct GetsAnError;

impl Misdeed for GetsAnError {
    async fn commit(&self, _: &Worker, client: &Client) -> Result<(), zk::Error> {
        client.raw().get("/missing").await.map(drop)
    }
}

#[test]
fn error_that_no_fault_can_cause_is_a_violation() {
    let wrong = violation::<GetsAnError>();
    assert!(wrong.ends_with("got an error: no node"), "{wrong}");
}

#[derive(Clone, Default)]
struct KeepsANode;

impl Misdeed for KeepsANode {
    async fn commit(&self, worker: &Worker, client: &Client) -> Result<(), zk::Error> {
        let path = format!("/of{}", worker.who);
        match client.raw().create(&path, b"", CreateMode::Ephemeral).await {
            Ok(_) | Err(zk::Error::NODE_EXISTS) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[test]
fn node_of_an_idle_session_is_a_violation() {
    let wrong = violation::<KeepsANode>();
    assert!(
        wrong.starts_with("kept by idle sessions: node /of"),
        "{wrong}"
    );
}

#[derive(Clone, Default)]
struct KeepsWatches(Arc<Mutex<Vec<zk::Watch>>>);

impl Misdeed for KeepsWatches {
    async fn commit(&self, _: &Worker, client: &Client) -> Result<(), zk::Error> {
        let (_, watch) = client.raw().exists_watched("/missing").await?;
        self.0.lock().unwrap().push(watch);
        Ok(())
    }
}

#[test]
fn watch_of_an_idle_session_is_a_violation() {
    let wrong = violation::<KeepsWatches>();
    assert!(wrong.starts_with("kept by idle sessions: "), "{wrong}");
    assert!(wrong.ends_with(" watches"), "{wrong}");
}

#[derive(Clone, Default)]
struct LeavesANode;

impl Misdeed for LeavesANode {
    async fn commit(&self, _: &Worker, client: &Client) -> Result<(), zk::Error> {
        match client
            .raw()
            .create("/left", b"", CreateMode::Persistent)
            .await
        {
            Ok(_) | Err(zk::Error::NODE_EXISTS) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[test]
fn node_that_nobody_needs_is_a_violation() {
    assert_eq!(violation::<LeavesANode>(), "left behind: node /left");
}

/// It does not stand a broken connection.
#[derive(Clone)]
struct Delicate;

impl Recipe for Delicate {
    const NAME: &'static str = "delicate";

    fn new(_: &Plan) -> Self {
        Self
    }

    async fn round(&self, worker: &mut Worker, _: &Client) -> Result<Round, Gone> {
        worker.pause().await;
        Ok(Round::Done)
    }

    fn check(&self, plan: &Plan, _: &History) -> Result<(), String> {
        let mut faults = plan.faults.iter().map(|(_, fault)| fault);
        match faults.any(|fault| matches!(fault, Fault::Cut { .. })) {
            true => Err("a connection broke".to_owned()),
            false => Ok(()),
        }
    }
}

#[test]
fn failing_run_is_made_small() {
    let plan = Plan::torn(1);
    let (part, wrong) = shrink(run::<Delicate>, &plan);
    assert_eq!(part.faults.len(), 1, "{part:#?}");
    assert_eq!(run::<Delicate>(&part.of(&plan)).violation, Some(wrong));
}
