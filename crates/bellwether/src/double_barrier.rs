//! The double barrier: a number of members begin together and end together, round after round.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use zookeeper_client as zk;

use crate::access::Access;
use crate::catch_up::caught_up;
use crate::client::Client;
use crate::contender::{Failure, TRIES_MAX};
use crate::error::{BarrierError, Outcome, ReleaseError, outcome};
use crate::hold::Hold;
use crate::name::{Layout, Name};
use crate::path::NodePath;
use crate::round::{Entrance, LeaveFailure, READY, Round, State, is_after};
use crate::who::Who;

/// The one who completes a round names every member in one request, which a server takes up to 1 MiB of.
const SIZE_MAX: usize = 2_000;

/// A barrier that lets a fixed number of members in when all are there, and out when all are done.
///
/// # What it guarantees
///
/// [`enter`](Self::enter) returns when as many members as agreed are there, all in the same round, and not before;
/// [`leave`](Inside::leave) when all of that round have left. It can be used again and again: rounds are numbered, and
/// whoever is quick enters the next one while the slow still leave the one before. A member that dies before all are there is
/// missing, and another may take its place; one that dies inside counts as left.
///
/// # What it does not
///
/// Members are counted, not named: any so many make a round. One too many waits for the next round, one too few wait until
/// one more comes, so give them [a limit](Self::enter_timeout) if nobody might.
///
/// # Node layout
///
/// The data of the path is JSON with the number of members and the generation, the number of the present round. In a directory
/// named for the generation stand the members, ephemeral sequential nodes named `member-<session>-<acquisition>-<sequence>`
/// with JSON that tells [who](Who) it is, and beside them, once all are there, `ready`. The directory goes with its round; the
/// path stays, since it keeps count.
///
/// # Fairness
///
/// By the order of arrival: the first so many are in. To be let in wakes each member once, and costs it no request.
///
/// # Session loss
///
/// A short outage changes nothing. When the session ends, whoever is entering or leaving gets
/// [`BarrierError::SessionEnded`], and [`lost`](Hold::lost) of one inside resolves.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, DoubleBarrier};
/// # async fn compute() {}
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let step = DoubleBarrier::new(client, "/simulation/step", 8).message("worker 3");
/// for _ in 0..100 {
///     let inside = step.enter().await?;
///     compute().await;
///     inside.leave().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    client: Client,
    path: String,
    size: usize,
    message: Option<String>,
    access: Access,
    /// The generation that was seen last: a hint, which saves the first look.
    seen: Arc<Mutex<Option<u64>>>,
}

impl DoubleBarrier {
    /// A barrier at a path for so many members. Nothing is sent, nor is anything checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>, size: usize) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            size,
            message: None,
            access: Access::default(),
            seen: Arc::default(),
        }
    }

    /// A word for people who ask [who is there](Self::members).
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// Who may touch the nodes that are made here. Everybody unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            access: Access::new(acl),
            ..self
        }
    }

    /// Enters, and waits until all members are there.
    ///
    /// One too many waits until the round is over, and enters the next.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place up: the node is deleted in the background, or with the session at the latest. Another
    /// call with the same client waits for that first, so that nobody is counted twice.
    ///
    /// # Errors
    ///
    /// See [`BarrierError`]; never [`BarrierError::TimedOut`].
    pub async fn enter(&self) -> Result<Inside, BarrierError> {
        let mut round = self.round(self.last_seen())?;
        // Members are counted: the node of an attempt that was given up a moment ago would make one of us two.
        self.client.janitor().swept().await;
        let mut state = match self.last_seen() {
            Some(_) => None,
            None => Some(self.read_state(&round.barrier).await?),
        };
        let mut who = self.client.who();
        who.message.clone_from(&self.message);
        loop {
            if let Some((data, stat)) = state.take() {
                match self.understand(&round.barrier, &data, &stat).await? {
                    Some(generation) => round.generation = generation,
                    None => {
                        state = Some(self.read_state(&round.barrier).await?);
                        continue;
                    }
                }
            }
            let entrance = round.enter(who.clone()).await;
            match entrance.map_err(|failure| self.error(failure))? {
                Entrance::Open(contender) => {
                    let hold = contender.hold(&self.path, false, Duration::ZERO).await;
                    self.see(round.generation);
                    return Ok(Inside {
                        hold: hold.map_err(|failure| self.error(failure))?,
                        barrier: self.clone(),
                        round,
                    });
                }
                Entrance::Missed => round.generation += 1,
                Entrance::Elsewhere(data, stat) => state = Some((data, stat)),
            }
        }
    }

    /// As [`enter`](Self::enter), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`enter`](Self::enter). The same holds when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`BarrierError::TimedOut`] when the limit has passed; else as [`enter`](Self::enter).
    pub async fn enter_timeout(&self, limit: Duration) -> Result<Inside, BarrierError> {
        match self.client.home().timeout(limit, self.enter()).await {
            Some(result) => result,
            None => Err(self.timed_out(limit)),
        }
    }

    /// Who is there now, in the present round: to find out who is missing.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`BarrierError`].
    pub async fn members(&self) -> Result<Members, BarrierError> {
        let round = self.round(None)?;
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            match self.look(round.clone()).await {
                Ok(members) => return Ok(members),
                // It moved on to the next round while we looked.
                Err(Failure::Removed) => last = zk::Error::NoNode,
                Err(Failure::Disconnected(error)) => last = error,
                Err(failure) => return Err(self.error(failure)),
            }
        }
        Err(self.error(Failure::Disconnected(last)))
    }

    async fn look(&self, mut round: Round) -> Result<Members, Failure> {
        let zk = self.client.zk();
        let path = round.barrier.as_str();
        let state = match caught_up(zk, path, || zk.get_data(path)).await {
            Ok((data, _)) => State::from_data(&data),
            Err(zk::Error::NoNode) => None,
            Err(error) => return Err(error.into()),
        };
        let mut members = Members {
            round: state.map_or(0, |state| state.generation),
            size: state.map_or(self.size, |state| state.size),
            is_open: false,
            here: Vec::new(),
        };
        round.generation = members.round;
        let dir = round.dir();
        let ready = dir.child(READY);
        let ready = zk.get_data(&ready);
        let children = zk.list_children(dir.as_str());
        let ready = match ready.await {
            Ok((data, _)) => Some(data),
            Err(zk::Error::NoNode) => None,
            Err(error) => return Err(error.into()),
        };
        members.is_open = ready.is_some();
        let mut names: Vec<Name> = match children.await {
            Ok(children) => Layout::Bellwether.contenders(children).collect(),
            Err(zk::Error::NoNode) if ready.is_none() => return Ok(members),
            Err(zk::Error::NoNode) => return Err(Failure::Removed),
            Err(error) => return Err(error.into()),
        };
        // Those who came too late for this round are not in it.
        names.retain(|name| !ready.as_ref().is_some_and(|ready| is_after(name, ready)));
        names.sort_by(Name::cmp_age);
        let paths: Vec<String> = names.iter().map(|name| dir.child(name)).collect();
        let reads: Vec<_> = paths.iter().map(|path| zk.get_data(path)).collect();
        for read in reads {
            match read.await {
                Ok((data, _)) => members.here.push(Who::from_data(&data).unwrap_or_default()),
                Err(zk::Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(members)
    }

    /// Reads what the node of the barrier says; makes it if it is missing.
    async fn read_state(&self, barrier: &NodePath) -> Result<(Vec<u8>, zk::Stat), BarrierError> {
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            let read = match self.client.zk().get_data(barrier.as_str()).await {
                Err(zk::Error::NoNode) => self
                    .client
                    .make_kept_directory(barrier, b"", &self.access)
                    .await
                    .and(Err(zk::Error::NoNode)),
                read => read,
            };
            match read {
                Ok(read) => return Ok(read),
                Err(zk::Error::NoNode) => last = zk::Error::NoNode,
                Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                Err(error) => return Err(self.error(error.into())),
            }
        }
        Err(self.error(Failure::Disconnected(last)))
    }

    /// The present generation by the data of the barrier; `None` if that has just been written: read again.
    async fn understand(
        &self,
        barrier: &NodePath,
        data: &[u8],
        stat: &zk::Stat,
    ) -> Result<Option<u64>, BarrierError> {
        let path = self.path.clone();
        if data.is_empty() {
            let state = State::new(self.size, 0).to_data();
            let zk = self.client.zk();
            let version = Some(stat.version);
            return match zk.set_data(barrier.as_str(), &state, version).await {
                Ok(_) => Ok(Some(0)),
                // Somebody else was quicker, or an earlier try of ours.
                Err(zk::Error::BadVersion | zk::Error::NoNode) => Ok(None),
                Err(error) if outcome(&error) == Outcome::Unknown => Ok(None),
                Err(error) => Err(self.error(error.into())),
            };
        }
        match State::from_data(data) {
            Some(state) if state.size == self.size => Ok(Some(state.generation)),
            Some(state) => Err(BarrierError::SizeDiffers {
                path,
                theirs: state.size,
                ours: self.size,
            }),
            None => Err(BarrierError::NotABarrier { path }),
        }
    }

    fn round(&self, generation: Option<u64>) -> Result<Round, BarrierError> {
        if !(1..=SIZE_MAX).contains(&self.size) {
            return Err(BarrierError::BadSize {
                size: self.size,
                size_max: SIZE_MAX,
            });
        }
        match NodePath::parse(&self.path) {
            Ok(path) => Ok(Round {
                client: self.client.clone(),
                barrier: self.client.resolve(&path),
                access: self.access.clone(),
                size: self.size,
                generation: generation.unwrap_or(0),
            }),
            Err(source) => Err(BarrierError::BadPath {
                path: self.path.clone(),
                source,
            }),
        }
    }

    fn last_seen(&self) -> Option<u64> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, generation: u64) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(generation);
    }

    fn error(&self, failure: Failure) -> BarrierError {
        BarrierError::new(failure, &self.path)
    }

    fn timed_out(&self, limit: Duration) -> BarrierError {
        BarrierError::TimedOut {
            path: self.path.clone(),
            limit,
        }
    }
}

/// Who is at a double barrier, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Members {
    /// The number of the round.
    pub round: u64,
    /// How many make a round.
    pub size: usize,
    /// Whether all were there and are let in. Then [`here`](Self::here) are those who have not left yet.
    pub is_open: bool,
    /// Who is there, in the order of arrival.
    pub here: Vec<Who>,
}

impl Members {
    /// How many have not come yet.
    #[must_use]
    pub fn missing(&self) -> usize {
        match self.is_open {
            true => 0,
            false => self.size.saturating_sub(self.here.len()),
        }
    }
}

/// A membership in a round of a [`DoubleBarrier`] in which all are there; what it promises is told at [`Hold`].
///
/// Dropped, the member leaves in the background, and does not wait for the others. They may learn of it a second later than
/// they would from [`leave`](Self::leave).
#[derive(Debug)]
#[must_use = "the member leaves when this is dropped"]
pub struct Inside {
    hold: Hold,
    barrier: DoubleBarrier,
    round: Round,
}

impl Inside {
    /// The number of the round, the same for all its members. It rises from round to round as long as the servers keep the
    /// path.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round.generation
    }

    /// Leaves, and waits until all members have.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only ends the wait: the member has left, or does so in the background.
    ///
    /// # Errors
    ///
    /// [`BarrierError::Removed`] if another hand had ended the membership before, and [`BarrierError::SessionEnded`]; this
    /// member is out in any case.
    pub async fn leave(self) -> Result<(), BarrierError> {
        let Self {
            hold,
            barrier,
            round,
        } = self;
        match round.leave(hold).await {
            Ok(()) => {
                barrier.see(round.generation + 1);
                Ok(())
            }
            Err(LeaveFailure::Wait(failure)) => Err(barrier.error(failure)),
            Err(LeaveFailure::Release(error)) => Err(match error {
                ReleaseError::NotHeld { path } => BarrierError::Removed { path },
                ReleaseError::SessionEnded { path } => BarrierError::SessionEnded { path },
                ReleaseError::Refused { path, source } => BarrierError::Refused { path, source },
            }),
        }
    }

    /// As [`leave`](Self::leave), but waits for the others so long at most.
    ///
    /// # Cancel safety
    ///
    /// As [`leave`](Self::leave).
    ///
    /// # Errors
    ///
    /// [`BarrierError::TimedOut`] when the limit has passed: this member has left, and others are inside still; else as
    /// [`leave`](Self::leave).
    pub async fn leave_timeout(self, limit: Duration) -> Result<(), BarrierError> {
        let barrier = self.barrier.clone();
        match barrier.client.home().timeout(limit, self.leave()).await {
            Some(result) => result,
            None => Err(barrier.timed_out(limit)),
        }
    }
}

impl Deref for Inside {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}
