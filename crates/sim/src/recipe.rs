//! The recipe interface of a run. A new recipe is one file: an `impl Recipe`, and a line in the list of all.

use bellwether::Client;
use bellwether_testkit::History;

use crate::plan::Plan;
use crate::worker::{Gone, Worker};

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// The worker got what it had asked for. After the faults have ended, every worker must complete such a round.
    Done,
    /// It failed, or gave up in time.
    Failed,
}

/// A recipe that many workers use at once, with its checks.
pub trait Recipe: Clone + Send + Sync + 'static {
    /// Its name on the command line.
    const NAME: &'static str;

    /// Whether every worker must complete a round after all faults have ended. If the recipe promises no order, one worker is enough.
    const IS_FAIR: bool = true;

    /// Prepares a run. Also holds state that workers share outside of the servers.
    fn new(plan: &Plan) -> Self;

    /// Uses the recipe once. Errors that it returns go to [`Worker::failed`]. When [faults are over](Worker::is_calm), it waits without a
    /// limit for what it asks for, so that a worker that waits in vain makes no progress.
    fn round(
        &self,
        worker: &mut Worker,
        client: &Client,
    ) -> impl Future<Output = Result<Round, Gone>> + Send;

    /// Checks the whole run.
    ///
    /// # Errors
    ///
    /// Describes the violation.
    fn check(&self, plan: &Plan, history: &History) -> Result<(), String>;

    /// The directories that an operator may delete, with everything in them. Workers lose their places and holds, and nothing else.
    fn directories(&self) -> Vec<String> {
        Vec::new()
    }

    /// The process of a worker was killed, at this moment.
    fn killed(&self, who: usize) {
        let _ = who;
    }

    /// Last check after all workers have stopped, before the servers are searched for leftovers.
    fn finish(&self, client: &Client) -> impl Future<Output = Result<(), String>> + Send {
        let _ = client;
        async { Ok(()) }
    }

    /// Whether a node may be left on the servers after all workers have stopped.
    fn may_stay(&self, path: &str) -> bool {
        let _ = path;
        false
    }
}
