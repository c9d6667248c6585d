//! The election of a leader: candidates, permanent candidacies and observers.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bellwether_client as zk;
use futures_util::stream::unfold;
use tracing::{info, warn};

use crate::error::{Error, ErrorKind, Failure};
use crate::events::Events;
use crate::hold::ephemeral_node::KnownData;
use crate::hold::fence::FencingToken;
use crate::hold::{Hold, acquire_in_session, guard_of_a_hold};
use crate::line::contender::{Contender, Mode};
use crate::line::name::{Kind, Layout, Name};
use crate::line::{WaitQueue, Waiting, exclusive_options, line_options};
use crate::node::NodePath;
use crate::node::data::{NodeData, Who};
use crate::session::client::{Client, SessionId};
use crate::session::retry::{NodeEvent, Retry, read_synced};
use crate::session::telemetry::call;
use crate::session::{Session, lock};

/// Leader election: one candidate leads; when it resigns or dies, the next candidate in line leads.
///
/// # What it guarantees
///
/// Among candidates that use the same servers, exactly one is first in line at any moment, and only that candidate gets a [`Leadership`].
/// Its fencing [token](Hold::token) is greater than the token of every earlier leader, and [`lost`](Hold::lost) resolves before the servers
/// can grant the leadership to the next candidate. A leader that resigns stops being leader in its own process before it does on the
/// servers.
///
/// # What it does not
///
/// As for every hold, a leader that is paused longer than its session timeout is no longer leader, and cannot know before it wakes. Work
/// that two leaders must never do has to compare fencing tokens. [`observe`](Self::observe) and [`candidates`](Self::candidates) return the
/// first candidate in line, which may not have learned of its election yet.
///
/// # Node layout
///
/// The path is a directory, a container unless it exists; candidates are ephemeral sequential nodes in it, named
/// `candidate-<session>-<acquisition>-<sequence>`, with the identity ([`Who`]) and the value of the candidate as JSON. With a [crash
/// mark](Self::crash_mark), `held` beside them. Other children are ignored.
///
/// # Fairness
///
/// Strict: by the order in which the candidates joined. Each watches the candidate before it, so a resignation wakes one candidate.
///
/// # Session loss
///
/// A short outage changes nothing but [`state`](Hold::state). When the session ends, [`campaign`](Self::campaign) returns
/// [`ErrorKind::SessionEnded`] and [`lost`](Hold::lost) resolves. [`candidacy`](Self::candidacy) continues in a new session by itself, at the
/// end of the line, and so does [`observe`](Self::observe).
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Election};
/// # async fn lead(token: bellwether::FencingToken) {}
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let election = Election::new(client, "/services/scheduler").value("10.0.0.7:8080");
/// let leadership = election.campaign().await?;
/// match leadership.run(lead(leadership.token())).await {
///     Ok(()) => leadership.resign().await?,
///     Err(lost) => println!("{lost}, and another candidate may lead"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    wait_queue: WaitQueue,
    value: Option<String>,
}

impl Election {
    /// An election at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            wait_queue: WaitQueue::new(client, path),
            value: None,
        }
    }

    /// The value of this candidate: for example the address of the leader. The leader may [set](Leadership::set_value) another value.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    line_options!();
    exclusive_options!();

    /// Becomes a candidate, and waits until it leads.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the candidacy: the node is deleted in the background, or with the session at the latest; a later call joins
    /// the end of the line.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `InUse`, `TooLarge`, `TooManyEphemerals`, `SequenceUsedUp`, `NoSession`,
    /// `SessionEnded`, `Disconnected`, `Full`, `Removed`, `Refused`.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        self.campaign_within(None).await
    }

    /// Leads if there is no other candidate; `None` otherwise.
    ///
    /// Reads the line first, so that a refused try writes nothing.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign).
    pub async fn try_campaign(&self) -> Result<Option<Leadership>, Error> {
        let this = self.clone();
        let tried = async move {
            let session = this.wait_queue.session().await?;
            if !this.wait_queue.contenders(&session).await?.is_empty() {
                return Ok(None);
            }
            let contender = this.enter(&session).await?;
            match contender.is_blocked() {
                true => Ok(None),
                false => this.lead(contender).await.map(Some),
            }
        };
        call!("election.try_campaign", self.path())
            .try_hold(acquire_in_session(self.client().runtime(), tried))
            .await
    }

    /// Becomes a candidate, and returns without waiting until it leads: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign).
    pub async fn join(&self) -> Result<Waiting<Leadership>, Error> {
        call!("election.join", self.path())
            .run(async {
                let session = self.wait_queue.session().await?;
                let contender = self.enter(&session).await?;
                let election = self.clone();
                Ok(Waiting::new(
                    &self.wait_queue,
                    contender,
                    async move |contender| election.lead(contender).await,
                ))
            })
            .await
    }

    pub(crate) async fn campaign_in(&self, session: &Session) -> Result<Leadership, Failure> {
        let contender = self.enter(session).await?;
        self.lead(contender).await
    }

    async fn enter(&self, session: &Session) -> Result<Contender, Failure> {
        let mut who = self.wait_queue.who(session);
        who.value.clone_from(&self.value);
        self.wait_queue
            .join_as(session, who, Kind::Candidate, Mode::EXCLUSIVE)
            .await
    }

    async fn lead(&self, contender: Contender) -> Result<Leadership, Failure> {
        let known = KnownData::created_by(contender.who());
        let hold = self.wait_queue.turn(contender).await?;
        Ok(Leadership {
            hold,
            known: Mutex::new(known),
        })
    }

    /// Does the same as [`campaign`](Self::campaign), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign). The same holds when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the limit has passed; else as [`campaign`](Self::campaign).
    pub async fn campaign_timeout(&self, limit: Duration) -> Result<Leadership, Error> {
        self.campaign_within(Some(limit)).await
    }

    async fn campaign_within(&self, limit: Option<Duration>) -> Result<Leadership, Error> {
        let this = self.clone();
        let elected = async move {
            let session = this.wait_queue.session().await?;
            this.campaign_in(&session).await
        };
        call!("election.campaign", self.path())
            .waits(self.client(), limit)
            .hold(acquire_in_session(self.client().runtime(), elected))
            .await
    }

    /// A permanent candidacy, which continues over session expiry: for services that are candidates as long as they live.
    pub fn candidacy(&self) -> Candidacy {
        Candidacy::new(self.clone())
    }

    /// Follows the leader without being a candidate: the current leader first, then each change of the leader or of its value. The stream
    /// continues over session expiry.
    pub fn observe(&self) -> Observe {
        Observe::new(self.clone())
    }

    /// Clears the crash mark of a dead leader, when its work has been repaired by hand. Tells whether there was one: see
    /// [`Lock::clear_crash_mark`](crate::Lock::clear_crash_mark).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the mark may be there or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`, `Held`.
    pub async fn clear_crash_mark(&self) -> Result<bool, Error> {
        call!("election.clear_crash_mark", self.path())
            .ask(self.wait_queue.clear_mark())
            .await
    }

    /// The current leader; `None` if there is no candidate.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn leader(&self) -> Result<Option<Candidate>, Error> {
        call!("election.leader", self.path())
            .find(async { self.read(1).await.map(|leader| leader.into_iter().next()) })
            .await
    }

    /// The candidates in order: the leader first.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn candidates(&self) -> Result<Vec<Candidate>, Error> {
        call!("election.candidates", self.path())
            .run(self.read(usize::MAX))
            .await
    }

    async fn read(&self, count: usize) -> Result<Vec<Candidate>, Failure> {
        let dir = self.dir()?;
        let session = self.wait_queue.session().await?;
        let mut retry = Retry::limited();
        loop {
            match self.try_read(&session, &dir, count).await {
                Ok(candidates) => return Ok(candidates),
                Err(error) => retry.again_after(Err(error))?,
            }
        }
    }

    /// `NoNode` if the first in line left while we looked.
    async fn try_read(
        &self,
        session: &Session,
        dir: &NodePath,
        count: usize,
    ) -> Result<Vec<Candidate>, zk::Error> {
        let zk = session.zk();
        let mut names = line(zk, dir).await?;
        names.truncate(count);
        let paths: Vec<String> = names.iter().map(|name| dir.child(name)).collect();
        // Sent together.
        let reads: Vec<_> = paths.iter().map(|path| zk.get(path)).collect();
        let mut candidates = Vec::new();
        for read in reads {
            match read.await {
                Ok((data, stat)) => candidates.push(Candidate::new(&data, &stat)),
                Err(error @ zk::Error::NO_NODE) if candidates.is_empty() => return Err(error),
                Err(zk::Error::NO_NODE) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(candidates)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.wait_queue.options.client
    }

    pub(crate) fn dir(&self) -> Result<NodePath, Failure> {
        self.wait_queue.dir()
    }
}

/// The nodes of the candidates, in order. A lagging server is synced first.
pub(crate) async fn line(zk: &zk::Client, dir: &NodePath) -> Result<Vec<Name>, zk::Error> {
    let list = || zk.children(dir.as_str());
    match read_synced(zk, dir.as_str(), list).await {
        Ok(children) => Ok(in_order(children)),
        Err(zk::Error::NO_NODE) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The candidates among the children of a directory, the first in line first.
pub(crate) fn in_order(children: Vec<String>) -> Vec<Name> {
    let names = Layout::Bellwether.contenders(children);
    let mut names: Vec<Name> = names
        .filter(|name| name.kind() == Kind::Candidate)
        .collect();
    names.sort_by(Name::cmp_age);
    names
}

/// A candidate, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The candidate's identity.
    pub who: Who,
    /// The candidate's value.
    pub value: Option<String>,
    /// The candidate's fencing token, if it is elected.
    pub token: FencingToken,
}

impl Candidate {
    pub(crate) fn new(data: &[u8], stat: &zk::Stat) -> Self {
        let who = Who::from_data(data).unwrap_or_default();
        Self {
            value: who.value.clone(),
            who,
            token: stat.czxid.into(),
        }
    }
}

/// A term of leadership; see [`Hold`] for what it promises.
///
/// End it with [`resign`](Self::resign), which returns errors. A dropped leadership is resigned in the background; with a crash mark, the
/// next leader then sees a crash.
#[derive(Debug)]
#[must_use = "the leadership ends when this is dropped"]
pub struct Leadership {
    hold: Hold,
    /// The data of the node, so that the next proclamation need not read it.
    known: Mutex<KnownData>,
}

impl Leadership {
    /// Publishes a value to all [observers](Election::observe). It replaces the previous value.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the value may have been set or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHeld`] if the leadership has ended: nothing was set; [`ErrorKind::TooLarge`] beyond 64 KiB; else
    /// [`ErrorKind`]: `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn set_value(&self, value: impl Into<String>) -> Result<(), Error> {
        call!("election.set_value", self.hold.path())
            .of(&self.hold)
            .run(async {
                let value = value.into();
                Failure::check_size(value.len())?;
                let value = Some(value);
                let known = self.known().clone();
                // Keeps what other clients have written there, such as a request to release.
                let word = |data: &mut NodeData| data.who.value.clone_from(&value);
                let now = self.hold.update(known, word).await?;
                *self.known() = now;
                Ok(())
            })
            .await
    }

    fn known(&self) -> MutexGuard<'_, KnownData> {
        lock(&self.known)
    }
}

guard_of_a_hold!(Leadership, resign);

/// The time for which a candidate rests after a failure that did not wait by itself.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// The states of a candidate that [stands](crate::Election::candidacy) for election.
#[derive(Debug)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub enum CandidacyState {
    /// Candidate in the session with this id: for the first time, or again, because the previous session has ended, and with it the place
    /// in line or the leadership.
    Running {
        /// The id of that session, as in [`Client::session_id`](crate::Client::session_id).
        session: SessionId,
    },
    /// Leader, until the leadership is resigned or lost. It becomes a candidate again when the next item is polled.
    Elected(Leadership),
    /// Not a candidate at the moment, for this reason. It tries again, unless the client is closed. Report it to the service's monitoring.
    Interrupted(Error),
}

/// A stream of what happens to a permanent candidate: it runs, is elected, and runs again. When its session ends, it continues in a new
/// one, and reports that.
///
/// ```no_run
/// # use bellwether::{Election, Leadership};
/// # use bellwether::election::CandidacyState;
/// # use futures_util::StreamExt;
/// # async fn lead(leadership: &Leadership) {}
/// # async fn run(election: &Election) -> Result<(), Box<dyn std::error::Error>> {
/// let mut candidacy = election.candidacy();
/// while let Some(state) = candidacy.next().await {
///     match state {
///         CandidacyState::Elected(leadership) => {
///             if leadership.run(lead(&leadership)).await.is_ok() {
///                 leadership.resign().await?;
///             }
///         }
///         CandidacyState::Running { session } => println!("runs in session {session}"),
///         CandidacyState::Interrupted(error) => println!("does not run: {error}"),
///         _ => {}
///     }
/// }
/// # Ok(()) }
/// ```
///
/// The place in line is kept while the stream is not polled, and given up when the stream is dropped. The stream ends when the client is
/// closed.
pub type Candidacy = Events<CandidacyState>;

impl Candidacy {
    pub(crate) fn new(election: Election) -> Self {
        let runner = Runner {
            election,
            session: None,
            rests: false,
        };
        let next = async |runner: Option<Runner>| {
            let mut runner = runner?;
            let state = runner.next().await;
            let is_over =
                matches!(&state, CandidacyState::Interrupted(error) if error.kind.is_final());
            Some((state, (!is_over).then_some(runner)))
        };
        Self::from_stream(unfold(Some(runner), next))
    }
}

struct Runner {
    election: Election,
    /// The session that was reported last.
    session: Option<SessionId>,
    /// True if the last try failed for a reason that may persist.
    rests: bool,
}

impl Runner {
    async fn next(&mut self) -> CandidacyState {
        if self.rests {
            self.election.client().runtime().sleep(REST).await;
        }
        let ran = self.run().await;
        // A candidate whose node another client deleted may run again at once. Other failures may persist, so it rests first.
        self.rests = !matches!(
            ran,
            Ok(_)
                | Err(Failure {
                    kind: ErrorKind::Removed,
                    ..
                })
        );
        ran.unwrap_or_else(|failure| {
            let error = failure.of("election.candidacy", self.election.path());
            warn!(path = self.election.path(), %error, "candidate does not run");
            CandidacyState::Interrupted(error)
        })
    }

    async fn run(&mut self) -> Result<CandidacyState, Failure> {
        loop {
            let session = self.election.client().session().await?;
            let id = SessionId::from(session.session_id());
            if self.session.replace(id) != Some(id) {
                info!(path = self.election.path(), session = %id, "candidate runs");
                return Ok(CandidacyState::Running { session: id });
            }
            let election = self.election.clone();
            let elected = async move { election.campaign_in(&session).await };
            let elected = acquire_in_session(self.election.client().runtime(), elected);
            match self.election.client().unless_closed(elected).await {
                Ok(leadership) => return Ok(CandidacyState::Elected(leadership)),
                // The next item reports the new session.
                Err(Failure {
                    kind: ErrorKind::SessionEnded,
                    ..
                }) => {}
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// A stream of leaders: the current leader first, then each change; `None` if there is no candidate. A leader that came and went between
/// two looks is skipped. Within one session, the stream never goes back to an earlier leader.
///
/// An error does not end it: the next item is waited for in the next session, if need be. It ends when the client is closed.
pub type Observe = Events<Result<Option<Candidate>, Error>>;

impl Observe {
    pub(crate) fn new(election: Election) -> Self {
        let observer = Observer {
            election,
            last: None,
            event: None,
            rests: false,
        };
        let next = async |observer: Option<Observer>| {
            let mut observer = observer?;
            if observer.rests {
                observer.election.client().runtime().sleep(REST).await;
            }
            let path = observer.election.path().to_owned();
            let leader = observer.next().await;
            let leader = leader.map_err(|failure| failure.of("election.observe", &path));
            observer.rests = leader.is_err();
            let is_over = leader.as_ref().is_err_and(|error| error.kind.is_final());
            Some((leader, (!is_over).then_some(observer)))
        };
        Self::from_stream(unfold(Some(observer), next))
    }
}

struct Observer {
    election: Election,
    /// The leader that was reported last.
    last: Option<Option<Candidate>>,
    /// Waits for the next change.
    event: Option<NodeEvent>,
    /// True if the last look failed for a reason that may persist.
    rests: bool,
}

impl Observer {
    async fn next(&mut self) -> Result<Option<Candidate>, Failure> {
        loop {
            if let Some(event) = &mut self.event {
                event.await;
            }
            self.event = None;
            let session = self.election.client().session().await?;
            let dir = self.election.dir()?;
            match read_first(session.zk(), &dir).await {
                Ok((leader, event)) => {
                    self.event = Some(event);
                    if self.last.as_ref() != Some(&leader) {
                        self.last = Some(leader.clone());
                        return Ok(leader);
                    }
                }
                // It left while we looked, or the look was lost: again. While there is no connection, the next request
                // waits in the client: this does not spin.
                Err(zk::Error::NO_NODE) => {}
                Err(error) if !error.is_refusal() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The first candidate, and a watch on its node alone, since no candidate can join before it. `NoNode` if it left meanwhile.
async fn read_first(
    zk: &zk::Client,
    dir: &NodePath,
) -> Result<(Option<Candidate>, NodeEvent), zk::Error> {
    let mut names = line(zk, dir).await?;
    if names.is_empty() {
        let listed = zk.children_watched(dir.as_str()).await;
        let (children, watch) = match listed {
            // Not even a directory: wait for that.
            Err(zk::Error::NO_NODE) => {
                let (stat, watch) = zk.exists_watched(dir.as_str()).await?;
                return match stat {
                    Some(_) => Err(zk::Error::NO_NODE),
                    None => Ok((None, NodeEvent::of(watch))),
                };
            }
            listed => listed?,
        };
        names = in_order(children);
        if names.is_empty() {
            return Ok((None, NodeEvent::of(watch)));
        }
    }
    let (data, stat, watch) = zk.get_watched(&dir.child(&names[0])).await?;
    Ok((Some(Candidate::new(&data, &stat)), NodeEvent::of(watch)))
}
