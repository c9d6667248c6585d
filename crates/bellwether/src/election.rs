//! The election of a leader.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether_client as zk;

use crate::candidacy::Candidacy;
use crate::catch_up::caught_up;
use crate::client::Client;
use crate::contender::{Contender, Failure, Rule, TRIES_MAX};
use crate::error::{AcquireError, ReleaseError, WriteError};
use crate::hold::{Hold, HoldWatch, Undo, acquire_there};
use crate::name::{Kind, Layout, Name};
use crate::node_data::NodeData;
use crate::observe::Observe;
use crate::own_node::Known;
use crate::path::NodePath;
use crate::terms::{Terms, exclusive_options, line_options};
use crate::waiting::Waiting;
use crate::who::Who;

/// An election: one of those who run leads, and when it resigns or dies, the next in line does.
///
/// # What it guarantees
///
/// Among those who run through the same servers, the server has one first in line at any moment, and that one alone gets a
/// [`Leadership`]. Its [token](Hold::token) is greater than that of every leader before, and [`lost`](Hold::lost) resolves before
/// the servers can let the next one lead. Whoever resigns is "not leader" for itself before it is for the servers.
///
/// # What it does not
///
/// As for every hold, a leader that is paused longer than its session timeout is leader no more and cannot know before it
/// wakes; what must never be done by two leaders has to compare tokens. [`observe`](Self::observe) and
/// [`candidates`](Self::candidates) tell who is first in line: that one may not have heard of it yet.
///
/// # Node layout
///
/// The path is a directory, a container unless it exists; candidates are ephemeral sequential nodes in it, named
/// `candidate-<session>-<acquisition>-<sequence>`, with JSON that tells [who](Who) runs and the value it proclaims. With a
/// [crash mark](Self::crash_mark), `held` beside them. Other children are ignored.
///
/// # Fairness
///
/// Strict: by the order in which they began to run. Each watches the one before it, so a resignation wakes one.
///
/// # Session loss
///
/// A short outage changes nothing but [`state`](Hold::state). When the session ends, [`campaign`](Self::campaign) returns
/// [`AcquireError::SessionEnded`] and [`lost`](Hold::lost) resolves. [`stand`](Self::stand) goes on in a new session by itself, at the
/// end of the line, and so does [`observe`](Self::observe).
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Election};
/// # async fn lead(token: i64) {}
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let election = Election::new(client, "/services/scheduler").value("10.0.0.7:8080");
/// let leadership = election.campaign().await?;
/// tokio::select! {
///     () = lead(leadership.token()) => leadership.resign().await?,
///     () = leadership.lost() => println!("somebody else leads now"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    terms: Terms,
    value: Option<String>,
}

impl Election {
    /// An election at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            terms: Terms::new(client, path),
            value: None,
        }
    }

    /// What this candidate stands for: an address where the leader can be found, for example. The leader may
    /// [proclaim](Leadership::proclaim) another.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    line_options!();
    exclusive_options!();

    /// Runs, and waits until this candidate leads.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the candidacy: the node is deleted in the background, or with the session at the latest; a
    /// later call runs anew, at the end of the line.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    pub async fn campaign(&self) -> Result<Leadership, AcquireError> {
        let this = self.clone();
        let elected = async move {
            let contender = this.enter().await?;
            this.lead(contender).await
        };
        acquire_there(self.client().home(), elected).await
    }

    /// Runs, and returns without waiting until this candidate leads: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign).
    pub async fn join(&self) -> Result<Waiting<Leadership>, AcquireError> {
        let contender = self.enter().await?;
        let election = self.clone();
        Ok(Waiting::new(
            &self.terms,
            contender,
            async move |contender| election.lead(contender).await,
        ))
    }

    async fn enter(&self) -> Result<Contender, AcquireError> {
        let mut who = self.terms.who();
        who.value.clone_from(&self.value);
        self.terms
            .join_as(who, Kind::Candidate, Rule::EXCLUSIVE)
            .await
    }

    async fn lead(&self, contender: Contender) -> Result<Leadership, AcquireError> {
        let known = Known::created_by(contender.who());
        let hold = self.terms.turn(contender).await?;
        Ok(Leadership {
            hold,
            known: Mutex::new(known),
        })
    }

    /// As [`campaign`](Self::campaign), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign). The same holds when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] when the limit has passed; else as [`campaign`](Self::campaign).
    pub async fn campaign_timeout(&self, limit: Duration) -> Result<Leadership, AcquireError> {
        self.terms.within(limit, self.campaign()).await
    }

    /// Runs again and again, over ends of the session too: for services that are candidates as long as they live.
    pub fn stand(&self) -> Candidacy {
        Candidacy::new(self.clone())
    }

    /// Follows who leads, without running: the present leader first, then each change of the leader or of what it
    /// proclaims. It goes on over ends of the session.
    pub fn observe(&self) -> Observe {
        Observe::new(self.clone())
    }

    /// Who leads now; `None` if nobody runs.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`].
    pub async fn leader(&self) -> Result<Option<Candidate>, AcquireError> {
        self.read(1).await.map(|leader| leader.into_iter().next())
    }

    /// Who runs, in the order in which they will lead: the leader first.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`].
    pub async fn candidates(&self) -> Result<Vec<Candidate>, AcquireError> {
        self.read(usize::MAX).await
    }

    async fn read(&self, count: usize) -> Result<Vec<Candidate>, AcquireError> {
        let dir = self.dir()?;
        let mut last = zk::Error::Unknown;
        for _ in 0..TRIES_MAX {
            match self.try_read(&dir, count).await {
                Ok(candidates) => return Ok(candidates),
                Err(Failure::Removed) => last = zk::Error::NO_NODE,
                Err(Failure::Disconnected(error)) => last = error,
                Err(failure) => return Err(self.error(failure)),
            }
        }
        Err(self.error(Failure::Disconnected(last)))
    }

    /// `Removed` if the first in line left while we looked.
    async fn try_read(&self, dir: &NodePath, count: usize) -> Result<Vec<Candidate>, Failure> {
        let zk = self.client().zk();
        let mut names = self.line(dir).await?;
        names.truncate(count);
        let paths: Vec<String> = names.iter().map(|name| dir.child(name)).collect();
        // Sent together.
        let reads: Vec<_> = paths.iter().map(|path| zk.get(path)).collect();
        let mut candidates = Vec::new();
        for read in reads {
            match read.await {
                Ok((data, stat)) => candidates.push(Candidate::new(&data, &stat)),
                Err(zk::Error::NO_NODE) if candidates.is_empty() => return Err(Failure::Removed),
                Err(zk::Error::NO_NODE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(candidates)
    }

    /// The names of those who run, in order. A server that lags behind is brought up to date first.
    pub(crate) async fn line(&self, dir: &NodePath) -> Result<Vec<Name>, zk::Error> {
        let zk = self.client().zk();
        let list = || zk.children(dir.as_str());
        match caught_up(zk, dir.as_str(), list).await {
            Ok(children) => Ok(in_order(children)),
            Err(zk::Error::NO_NODE) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.terms.client
    }

    /// The same election through another session.
    pub(crate) fn through(&self, client: Client) -> Self {
        let mut election = self.clone();
        election.terms.client = client;
        election
    }

    pub(crate) fn dir(&self) -> Result<NodePath, AcquireError> {
        self.terms.dir()
    }

    pub(crate) fn error(&self, failure: Failure) -> AcquireError {
        self.terms.error(failure)
    }
}

/// The candidates among the children of a directory, the first in line first.
pub(crate) fn in_order(children: Vec<String>) -> Vec<Name> {
    let mut names: Vec<Name> = Layout::Bellwether.contenders(children).collect();
    names.sort_by(Name::cmp_age);
    names
}

/// One who runs, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Who it is.
    pub who: Who,
    /// What it stands for or has proclaimed.
    pub value: Option<String>,
    /// Its fencing token, if it is elected.
    pub token: i64,
}

impl Candidate {
    pub(crate) fn new(data: &[u8], stat: &zk::Stat) -> Self {
        let who = Who::from_data(data).unwrap_or_default();
        Self {
            value: who.value.clone(),
            who,
            token: stat.czxid,
        }
    }
}

/// A term of office; what it promises is told at [`Hold`].
///
/// Give it back with [`resign`](Self::resign), which reports. Dropped, it is given back in the background.
#[derive(Debug)]
#[must_use = "the leadership is given back when this is dropped"]
pub struct Leadership {
    hold: Hold,
    /// The data of the node, so that the next proclamation need not read it.
    known: Mutex<Known>,
}

impl Leadership {
    /// Proclaims a value to all who [observe](Election::observe). The last one counts.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the value may have been proclaimed or not.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotHeld`] if this one leads no more: nothing was proclaimed; [`WriteError::TooLarge`] beyond 64 KiB; else
    /// see [`WriteError`].
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<(), WriteError> {
        let value = value.into();
        WriteError::check_size(value.len())?;
        let value = Some(value);
        let known = self.known().clone();
        // Beside what others have written there, such as a request to step down.
        let word = |data: &mut NodeData| data.who.value.clone_from(&value);
        let now = self.hold.amend(known, word).await?;
        *self.known() = now;
        Ok(())
    }

    /// Something to ask whether this one leads, for every part of a program that has to know. It does not keep the office.
    #[must_use]
    pub fn badge(&self) -> Badge {
        Badge {
            token: self.hold.token(),
            hold: self.hold.watch(),
        }
    }

    /// Gives the leadership back and waits for the server's acknowledgement, over any number of reconnects. Every
    /// [badge](Self::badge) says "not leader" before the request leaves.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// See [`ReleaseError`]: the term has ended all the same, but perhaps before this call.
    pub async fn resign(self) -> Result<(), ReleaseError> {
        self.hold.release().await
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Undo for Leadership {
    fn undo(self) {
        self.hold.undo();
    }
}

impl Deref for Leadership {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

/// Tells whether a candidate leads. It outlives the [`Leadership`], and copies are cheap.
#[derive(Clone, Debug)]
pub struct Badge {
    token: i64,
    hold: HoldWatch,
}

impl Badge {
    /// Whether the one who gave it leads at this moment, as far as this end can know. Compares clocks; a paused process that
    /// asks when it wakes gets the true answer.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.hold.is_held()
    }

    /// The fencing token of that term.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Resolves when the term has ended: lost, given back, or the guard dropped.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if the term has ended meanwhile.
    pub async fn ended(&self) {
        self.hold.lost().await;
    }
}
