//! Proof that the servers still keep the session, and until when that can be relied on.
//!
//! A server expires a session no earlier than its timeout T after it last heard from it, and a hold is good until then, less a margin.
//!
//! A single server answers and expires by one clock: it has heard of the session when any answered request was *sent*, or later. In an
//! ensemble only the leader expires sessions, and it hears of them from its followers, which go on answering reads for a while after they
//! were cut off. There it takes an answered write and another request to the leader behind it to prove what the leader has heard:
//! [`zk::Life`] says of which request. docs/ensembles.md has the table.
//!
//! The data of a single server may move to an ensemble, and sessions with it, so each new connection is asked again.

use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bellwether_client as zk;
use tokio::sync::Notify;

use crate::session::runtime::SessionRuntime;
use crate::session::{Moment, Session, WeakSession, lock};

/// The kind of servers behind the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Single,
    Ensemble,
}

impl ServerKind {
    /// Asks the server until it answers.
    pub(crate) async fn detect(zk: &zk::Client) -> Result<Self, zk::Error> {
        loop {
            match Self::ask(zk).await {
                Err(error) if error.is_transient() => {}
                answer => return answer,
            }
        }
    }

    /// Asks the server once. What cannot be found out is taken for an ensemble, where less counts as proof.
    async fn ask(zk: &zk::Client) -> Result<Self, zk::Error> {
        match zk.config().await {
            Ok((config, _)) if config.windows(7).any(|key| key == b"server.") => Ok(Self::Ensemble),
            // A leader that started from the data of a single server names no members (`Learner.syncWithLeader` fills in the node, `Leader.lead`
            // does not, without dynamic reconfiguration). But it was elected.
            Ok(_) if elections(zk.last_zxid()) > 0 => Ok(Self::Ensemble),
            // Servers before 3.5 have no such node, and do not tell.
            Err(zk::Error::NO_NODE | zk::Error::NO_AUTH) => Ok(Self::Ensemble),
            Ok(_) => Ok(Self::Single),
            Err(error) => Err(error),
        }
    }
}

/// Returns the number of elections before a transaction: the epoch in its zxid.
pub(crate) fn elections(zxid: i64) -> i64 {
    zxid >> 32
}

/// The proof of life of one session, and how long it lasts.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// The kind of servers at the opening of the session.
    opened_with: ServerKind,
    /// Set when the data of a single server, and this session with it, have moved to an ensemble: the deadline at that moment.
    moved: OnceLock<Moment>,
    zk: zk::Client,
    /// The number of holds and contenders that need the heartbeat. An idle session has the client's own pings.
    users: Mutex<usize>,
    /// Notified when the last user is gone.
    unused: Notify,
}

/// The number of times that a server hears of an idle session in a session timeout.
const IDLE_ACTIVITY: u32 = 6;
/// The number of times that it does in an ensemble while something is held.
const ACTIVITY: u32 = 20;
/// The number of times that a quorum does in an ensemble while something is held.
const PROOFS: u32 = 12;
/// The number of times in a session timeout that the leader asks its followers which sessions were active: every half tick, and a session
/// timeout has two ticks at least (`Leader.lead`, `minSessionTimeout`).
const REPORTS: u32 = 4;
/// The margin for delays and clock drift, as a fraction of the session timeout.
const MARGIN: u32 = 10;

impl Liveness {
    pub(crate) fn new(kind: ServerKind, zk: zk::Client) -> Self {
        Self {
            opened_with: kind,
            moved: OnceLock::new(),
            zk,
            users: Mutex::new(0),
            unused: Notify::new(),
        }
    }

    /// Until when a hold can be relied on, as far as is known now.
    pub(crate) fn deadline(&self) -> Moment {
        let life = self.zk.life();
        let t = life.timeout;
        let heard = match self.server_kind() {
            ServerKind::Single => life.any,
            ServerKind::Ensemble => life.heard,
        };
        let deadline = heard + (t - t / MARGIN);
        self.moved
            .get()
            .map_or(deadline, |moved| deadline.max(*moved))
    }

    /// Asks a new connection whether it leads to an ensemble now.
    ///
    /// What was proven on the single server stays so: the leader has heard of the session when it was attached, right before.
    async fn update_server_kind(&self) -> Result<(), zk::Error> {
        if self.server_kind() == ServerKind::Single
            && ServerKind::ask(&self.zk).await? == ServerKind::Ensemble
        {
            let carried = self.deadline();
            let users = self.users();
            // It moves once.
            let _ = self.moved.set(carried);
            if *users > 0 {
                self.set_activity(ACTIVITY);
            }
        }
        Ok(())
    }

    pub(crate) fn is_alive(&self) -> bool {
        Moment::now() < self.deadline()
    }

    /// Waits until the session is known to be alive: otherwise a new hold could be over already.
    ///
    /// Fails if the session is being closed: the servers then delete the nodes of all its holds, and a waiter behind one of them would see that
    /// as its turn.
    pub(crate) async fn prove(&self) -> Result<(), zk::Error> {
        if self.zk.is_closed() {
            return Err(zk::Error::SessionEnded(zk::SessionEnd::Closed));
        }
        // What the caller has just written may need no more than the second step.
        let mut is_confirmed = self.server_kind() == ServerKind::Single;
        while !self.is_alive() {
            let answer = match is_confirmed {
                true => self.beat().await,
                false => self.confirm().await,
            };
            is_confirmed = true;
            match answer {
                Err(error) if !error.is_transient() => return Err(error),
                Err(_) | Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Proves that the session is alive, unless the servers are silent. On failure the session may be over, or only the connection.
    pub(crate) async fn beat(&self) -> Result<(), zk::Error> {
        match self.server_kind() {
            ServerKind::Single => answered(self.zk.exists("/").await.map(drop)),
            ServerKind::Ensemble => {
                // A multi goes through the quorum even if it contains only a check.
                let mut multi = self.zk.new_multi();
                multi.check("/", None);
                answered(multi.commit().await.map(drop).map_err(zk::Error::from))?;
                self.confirm().await
            }
        }
    }

    /// The second step of a proof: a request that passes the leader, behind the answer to a write. It costs no write.
    async fn confirm(&self) -> Result<(), zk::Error> {
        answered(self.zk.sync("/").await.map(drop))
    }

    /// A hold or contender begins to rely on the session.
    fn begin(&self) {
        let mut users = self.users();
        *users += 1;
        if *users == 1 {
            self.set_activity(ACTIVITY);
            self.zk.set_attentive(true);
        }
    }

    /// A hold or contender is over.
    fn end(&self) {
        let mut users = self.users();
        *users -= 1;
        if *users == 0 {
            self.set_activity(IDLE_ACTIVITY);
            self.zk.set_attentive(false);
            self.unused.notify_waiters();
        }
    }

    /// Waits until nothing is held or waited for.
    pub(crate) async fn unused(&self) {
        loop {
            let unused = self.unused.notified();
            if *self.users() == 0 {
                return;
            }
            unused.await;
        }
    }

    /// Called with the users locked, so that the last call is that of the last change.
    fn set_activity(&self, pings_per_timeout: u32) {
        if self.server_kind() == ServerKind::Ensemble {
            self.zk.set_pings_per_timeout(pings_per_timeout);
        }
    }

    fn users(&self) -> MutexGuard<'_, usize> {
        lock(&self.users)
    }

    pub(crate) fn server_kind(&self) -> ServerKind {
        match self.moved.get() {
            Some(_) => ServerKind::Ensemble,
            None => self.opened_with,
        }
    }

    /// Returns the time for which the servers may stand still without the loss of a hold that was proven regularly before.
    pub(crate) fn outage_max(&self) -> Duration {
        let t = self.zk.session_timeout();
        match self.server_kind() {
            ServerKind::Single => t - t / IDLE_ACTIVITY - t / MARGIN,
            ServerKind::Ensemble => t - t / ACTIVITY - t / REPORTS - t / MARGIN - t / PROOFS,
        }
    }

    /// The longest time between two proofs while the servers answer.
    fn proof_interval(&self) -> Duration {
        self.zk.session_timeout() / PROOFS
    }

    /// Returns the pause until the next look. After a failure it tries again soon, but not at once.
    fn pause(&self, is_asked: bool) -> Duration {
        let interval = self.proof_interval();
        let due = match self.server_kind() {
            _ if !is_asked => Duration::ZERO,
            // It needs no writes, and none is ever due.
            ServerKind::Single => interval,
            ServerKind::Ensemble => self.until_due(),
        };
        due.max(interval / 20).max(Duration::from_millis(1))
    }

    /// Returns the time until the next write is needed.
    fn until_due(&self) -> Duration {
        let interval = self.proof_interval();
        match *self.users() {
            0 => interval,
            _ => (self.zk.life().proven + interval).left(),
        }
    }
}

/// A refusal proves as much as a success.
fn answered(result: Result<(), zk::Error>) -> Result<(), zk::Error> {
    match result {
        Err(error) if !error.is_refusal() => Err(error),
        _ => Ok(()),
    }
}

/// A hold or a place in line depends on the session.
#[derive(Debug)]
pub(crate) struct KeepAlive(Session);

impl KeepAlive {
    /// Keeps up the heartbeat of a session as long as the result lives.
    pub(crate) fn new(session: &Session) -> Self {
        session.liveness().begin();
        Self(session.clone())
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        if self.0.is_forked() {
            return;
        }
        self.0.liveness().end();
    }
}

/// The heartbeat of a session. It does not keep the session open, and ends with it.
///
/// A single server needs none: the client's own pings are answered by the clock that expires sessions. In an ensemble it takes
/// a write, and this makes them while something is held.
pub(crate) async fn run_heartbeat(session: WeakSession, runtime: SessionRuntime) {
    // The last connection that was asked what it leads to.
    let mut known = 1;
    let Some(mut states) = session.upgrade().map(|session| session.zk().states()) else {
        return;
    };
    loop {
        let pause = session.upgrade().map(|session| {
            let is_asked = session.zk().connections() <= known;
            session.liveness().pause(is_asked)
        });
        let Some(pause) = pause else {
            return;
        };
        tokio::select! {
            biased;
            () = runtime.sleep(pause) => {}
            // A new connection may lead to an ensemble, where a hold needs proof soon. The sender is gone with the session.
            _ = states.changed() => {}
        }
        if let Some(session) = session.upgrade() {
            session.report_traffic();
        }
        if let Some(session) = session.upgrade()
            && session.zk().connections() > known
        {
            let now = session.zk().connections();
            if session.liveness().update_server_kind().await.is_ok() {
                known = now;
            }
        }
        if let Some(session) = session.upgrade()
            && session.liveness().server_kind() == ServerKind::Ensemble
            && session.liveness().until_due().is_zero()
            && let Err(error) = session.liveness().beat().await
            && error.is_session_end()
        {
            return;
        }
        if session.upgrade().is_none_or(|session| session.is_ended()) {
            return;
        }
    }
}

/// Sessions for tests, which take one server for an ensemble, so that their proof of life runs out early.
#[cfg(test)]
pub(crate) mod pretended_ensemble {
    use std::time::Duration;

    use bellwether_client as zk;

    use crate::session::Session;
    use crate::session::client::connect;
    use crate::session::liveness::ServerKind;

    /// A session on one server that takes it for an ensemble: what counts as proof is over long before the session is.
    pub(crate) async fn session(address: String) -> Session {
        session_within(address, zk::Limits::default()).await
    }

    /// The same with other limits.
    pub(crate) async fn session_within(address: String, limits: zk::Limits) -> Session {
        let timeout = Duration::from_secs(4);
        let zk = zk::Client::connect(&*address)
            .session_timeout(timeout)
            .limits(limits)
            .await
            .unwrap();
        Session::start(zk, ServerKind::Ensemble, None, connect(address))
    }

    /// Waits until nothing proves any more that the session is alive.
    pub(crate) async fn until_unproven(session: &Session) {
        let passed = async {
            while session.liveness().is_alive() {
                session.runtime().sleep(Duration::from_millis(5)).await;
            }
        };
        let limit = session.session_timeout();
        tokio::time::timeout(limit, passed).await.unwrap();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use bellwether_testkit::TestServer;
    use futures_util::FutureExt as _;

    use super::*;

    use crate::session::liveness::pretended_ensemble::{session_within, until_unproven};

    #[tokio::test]
    async fn proof_is_no_busy_loop_when_the_client_has_too_many_requests() {
        let server = TestServer::start().await.unwrap();
        let limits = zk::Limits {
            requests_max: 0,
            ..zk::Limits::default()
        };
        let session = session_within(server.connect_string(), limits).await;
        until_unproven(&session).await;
        let (tell, told) = mpsc::channel();
        // A thread of its own: a loop without end would stop the test, too.
        let proving = session.clone();
        std::thread::spawn(move || tell.send(proving.liveness().prove().now_or_never()));
        let proven = told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(proven, None, "it waits");
    }
}
