//! The double barrier: a number of members begin together and end together, round after round.
//!
//! All members are nodes in one directory, in order of arrival. The member that completes the number creates the node `ready` of the round,
//! in one multi with a check that all members exist; the member that finds that all have left deletes it, in one multi with the step to the
//! next generation. So a member that dies before `ready` is missing, and a member that dies after it has left.
//!
//! `ready` names the last member of its round, and members behind it belong to later rounds. A surplus member keeps its place, so it enters
//! the next round however far its server lags: if each round had a directory of its own, it would have to be quicker than other members
//! to get into one.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::future::{join3, try_join};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Failure, OtherUse};
use crate::hold::Hold;
use crate::line::contender::{Contender, JoinRequest, LINE_MAX, Mode};
use crate::line::name::{Kind, Layout, Name};
use crate::node::data::Who;
use crate::node::{Access, NodePath};
use crate::request::receipts::Receipts;
use crate::session::client::Client;
use crate::session::recipe_options::{RecipeOptions, recipe_options};
use crate::session::retry::{Happened, NodeEvent, Retry, found, read_synced, until_answered};
use crate::session::telemetry::call;
use crate::session::{Session, lock};

/// The member that completes a round names every member in one request, and a server accepts at most 1 MiB.
const SIZE_MAX: usize = 2_000;

/// A barrier for a fixed number of members: it lets them in when all have entered, as
/// [`tokio::sync::Barrier`](https://docs.rs/tokio/latest/tokio/sync/struct.Barrier.html) does, and out when all have left.
///
/// # What it guarantees
///
/// [`enter`](Self::enter) returns when `size` members have entered the same round, and not before; [`leave`](BarrierGuard::leave) returns when
/// all members of that round have left. The barrier can be used repeatedly: rounds are numbered, and fast members enter the next round
/// while slow ones still leave the previous one. A member that dies before the round is complete is missing, and another may take its
/// place; a member that dies inside counts as left.
///
/// # What it does not
///
/// Members are counted, not named: any `size` members make a round. A surplus member waits for the next round. If members are missing, the
/// others wait; set [a limit](Self::enter_timeout) if the missing ones may never come.
///
/// # Node layout
///
/// The data of the path is JSON with the number of members and the generation, which is the number of the current round. The members are in
/// the directory `members`: ephemeral sequential nodes named `member-<session>-<acquisition>-<sequence>`, each with the identity of the
/// member ([`Who`]) as JSON, and beside them, once all members of a round are there, `ready-<generation>`, which names the last of them. Members
/// behind that one wait for the next round. `receipt-…` in the path makes sure that a member has one node. The path stays, since it stores the
/// generation.
///
/// # Fairness
///
/// In order of arrival: the first `size` members are in the round. A surplus member keeps its place, and is in the next round. Admission wakes each member once, and costs it no request.
///
/// # Session loss
///
/// A short outage changes nothing. When the session ends, `enter` and `leave` return [`ErrorKind::SessionEnded`], and
/// [`lost`](Hold::lost) of a member inside resolves.
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
    options: RecipeOptions,
    size: usize,
    memory: Arc<Mutex<Memory>>,
}

/// The state that clones of a handle keep from one round to the next.
#[derive(Debug, Default)]
struct Memory {
    /// The generation that was seen last: a hint, which saves the first look.
    generation: Option<u64>,
    receipts: Option<Receipts>,
}

impl DoubleBarrier {
    /// A barrier at a path for `size` members. Nothing is sent, nor is anything checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>, size: usize) -> Self {
        Self {
            options: RecipeOptions::new(client, path),
            size,
            memory: Arc::default(),
        }
    }

    recipe_options!(options);

    /// Enters, and waits until all members have entered.
    ///
    /// A surplus member waits until the round is over, and enters the next, before members that arrive later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place up: the node is deleted in the background, or with the session at the latest. Another call with
    /// the same client waits for that first, so that no member is counted twice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `BadSize`, `InUse`, `TooLarge`, `TooManyEphemerals`, `SequenceUsedUp`, `NoSession`,
    /// `SessionEnded`, `Disconnected`, `Full`, `Removed`, `Refused`.
    pub async fn enter(&self) -> Result<BarrierGuard, Error> {
        self.enter_within(None).await
    }

    async fn enter_within(&self, limit: Option<Duration>) -> Result<BarrierGuard, Error> {
        call!("double_barrier.enter", self.path())
            .waits(&self.options.client, limit)
            .hold(self.open())
            .await
    }

    async fn open(&self) -> Result<BarrierGuard, Failure> {
        let mut round = self.round(self.last_seen()).await?;
        // Members are counted: without this, the node of an earlier call that was dropped would be counted too.
        round.session.cleaner().swept().await;
        let mut state = match self.last_seen() {
            Some(_) => None,
            None => Some(self.read_state(&round).await?),
        };
        let who = self.options.who(&round.session);
        loop {
            if let Some((data, stat)) = state.take() {
                match self.understand(&round, &data, &stat).await? {
                    Some(generation) => round.generation = generation,
                    None => {
                        state = Some(self.read_state(&round).await?);
                        continue;
                    }
                }
            }
            match round.enter(who.clone()).await? {
                Entrance::Open(contender) => {
                    let hold = contender
                        .hold(&self.options.path, false, Duration::ZERO)
                        .await;
                    self.remember(round.generation);
                    return Ok(BarrierGuard {
                        hold: hold?,
                        barrier: self.clone(),
                        round,
                    });
                }
                Entrance::Changed(data, stat) => state = Some((data, stat)),
            }
        }
    }

    /// Does the same as [`enter`](Self::enter), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`enter`](Self::enter). The same holds when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the limit has passed; else as [`enter`](Self::enter).
    pub async fn enter_timeout(&self, limit: Duration) -> Result<BarrierGuard, Error> {
        self.enter_within(Some(limit)).await
    }

    /// The members that are there now, in the current round: to find out which are missing.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `BadSize`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn members(&self) -> Result<Members, Error> {
        call!("double_barrier.members", self.path())
            .run(async {
                let round = self.round(None).await?;
                let mut retry = Retry::limited();
                loop {
                    match self.read_members(round.clone()).await {
                        Ok(members) => return Ok(members),
                        Err(error) => retry.again_after(Err(error))?,
                    }
                }
            })
            .await
    }

    /// `NoNode` if it moved on to the next round meanwhile.
    async fn read_members(&self, mut round: Round) -> Result<Members, zk::Error> {
        let session = round.session.clone();
        let zk = session.zk();
        let path = round.barrier.as_str();
        let state = |read: Option<(Bytes, zk::Stat)>| {
            let (data, _) = read?;
            BarrierState::from_data(&data)
        };
        let before = state(found(read_synced(zk, path, || zk.get(path)).await)?);
        let mut members = Members {
            round: before.map_or(0, |state| state.generation),
            size: before.map_or(self.size, |state| state.size),
            is_open: false,
            here: Vec::new(),
        };
        round.generation = members.round;
        let dir = round.dir();
        let (ready, children, after) = zk.batch(|zk| {
            let ready = zk.get(&round.ready());
            (ready, zk.children(dir.as_str()), zk.get(path))
        });
        let ready = found(ready.await)?.map(|(data, _)| data);
        members.is_open = ready.is_some();
        let children = found(children.await)?.unwrap_or_default();
        let after = state(found(after.await)?);
        if after.map(|state| state.generation) != before.map(|state| state.generation) {
            return Err(zk::Error::NO_NODE);
        }
        let mut names: Vec<Name> = Layout::Bellwether.contenders(children).collect();
        // Members that came too late for this round are not in it.
        names.retain(|name| !ready.as_ref().is_some_and(|ready| is_after(name, ready)));
        names.sort_by(Name::cmp_age);
        let paths: Vec<String> = names.iter().map(|name| dir.child(name)).collect();
        let reads: Vec<_> = paths.iter().map(|path| zk.get(path)).collect();
        for read in reads {
            match read.await {
                Ok((data, _)) => members.here.push(Who::from_data(&data).unwrap_or_default()),
                Err(zk::Error::NO_NODE) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(members)
    }

    /// Reads the data of the barrier; creates its node if it is missing.
    async fn read_state(&self, round: &Round) -> Result<(Bytes, zk::Stat), Failure> {
        let (session, barrier) = (&round.session, &round.barrier);
        let mut retry = Retry::limited();
        loop {
            let again = match session.zk().get(barrier.as_str()).await {
                Ok(read) => return Ok(read),
                Err(zk::Error::NO_NODE) => {
                    let made = session.make_kept_directory(barrier, b"", &self.options.access);
                    retry.again_after(made.await)
                }
                Err(error) => retry.again(error),
            };
            again?;
        }
    }

    /// The current generation by the data of the barrier; `None` if that has just been written: read again.
    async fn understand(
        &self,
        round: &Round,
        data: &[u8],
        stat: &zk::Stat,
    ) -> Result<Option<u64>, Failure> {
        if data.is_empty() {
            let state = BarrierState::new(self.size, 0).to_data();
            let (zk, barrier) = (round.session.zk(), &round.barrier);
            let version = Some(stat.version);
            return match zk.set(barrier.as_str(), &state, version).await {
                Ok(_) => Ok(Some(0)),
                // Another member was quicker, or an earlier try of ours whose reply was lost; the next read shows it.
                Err(zk::Error::BAD_VERSION | zk::Error::NO_NODE) => Ok(None),
                Err(error) if error.is_transient() => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        match BarrierState::from_data(data) {
            Some(state) if state.size == self.size => Ok(Some(state.generation)),
            Some(state) => Err(ErrorKind::InUse(OtherUse::Members {
                theirs: state.size,
                ours: self.size,
            })
            .into()),
            None => Err(ErrorKind::InUse(OtherUse::NotABarrier).into()),
        }
    }

    /// A round, through the current session.
    async fn round(&self, generation: Option<u64>) -> Result<Round, Failure> {
        if !(1..=SIZE_MAX).contains(&self.size) {
            return Err(ErrorKind::BadSize {
                size: self.size,
                size_max: SIZE_MAX,
            }
            .into());
        }
        let (barrier, session) = (self.options.node()?, self.options.session().await?);
        let mut memory = self.memory();
        let receipts = match &memory.receipts {
            Some(receipts) if receipts.session().is(&session) => receipts.clone(),
            _ => {
                let receipts =
                    Receipts::new(&session, barrier.clone(), self.options.access.clone());
                memory.receipts.insert(receipts).clone()
            }
        };
        Ok(Round {
            barrier,
            session,
            access: self.options.access.clone(),
            receipts,
            size: self.size,
            generation: generation.unwrap_or(0),
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    fn last_seen(&self) -> Option<u64> {
        self.memory().generation
    }

    fn remember(&self, generation: u64) {
        self.memory().generation = Some(generation);
    }
}

/// The members at a double barrier, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Members {
    /// The number of the round.
    pub round: u64,
    /// The number of members in a round.
    pub size: usize,
    /// True if the round is complete. Then [`here`](Self::here) lists the members that have not left yet.
    pub is_open: bool,
    /// The members that are there, in order of arrival.
    pub here: Vec<Who>,
}

impl Members {
    /// Returns the number of members that are still missing.
    #[must_use]
    pub fn missing(&self) -> usize {
        match self.is_open {
            true => 0,
            false => self.size.saturating_sub(self.here.len()),
        }
    }
}

/// Membership in a complete round of a [`DoubleBarrier`]; see [`Hold`] for what it promises.
///
/// When it is dropped, the member leaves in the background, and does not wait for the other members. They may learn of it a second later
/// than from [`leave`](Self::leave).
#[derive(Debug)]
#[must_use = "the member leaves when this is dropped"]
pub struct BarrierGuard {
    hold: Hold,
    barrier: DoubleBarrier,
    round: Round,
}

impl BarrierGuard {
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
    /// [`ErrorKind::Removed`] if another client had deleted the member's node before, and [`ErrorKind::SessionEnded`]; this member has
    /// left in any case.
    pub async fn leave(self) -> Result<(), Error> {
        self.leave_within(None).await
    }

    async fn leave_within(self, limit: Option<Duration>) -> Result<(), Error> {
        let Self {
            hold,
            barrier,
            round,
        } = self;
        call!("double_barrier.leave", hold.path())
            .of(&hold)
            .within(barrier.options.client.runtime(), limit)
            .run(async {
                round.leave(hold).await?;
                barrier.remember(round.generation + 1);
                Ok(())
            })
            .await
    }

    /// Does the same as [`leave`](Self::leave), but waits for the other members for at most `limit`.
    ///
    /// # Cancel safety
    ///
    /// As [`leave`](Self::leave).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the limit has passed: this member has left, and others are still inside; else as
    /// [`leave`](Self::leave).
    pub async fn leave_timeout(self, limit: Duration) -> Result<(), Error> {
        self.leave_within(Some(limit)).await
    }
}

impl Deref for BarrierGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

/// The directory of all members.
pub(crate) const MEMBERS: &str = "members";

/// The name of the node that says that a round is complete. Its data is the name of the last member. The generation is in the name, so that
/// a request about one round never meets the node of another.
pub(crate) fn ready_name(generation: u64) -> String {
    format!("ready-{generation}")
}

/// The time for which a member that has left waits before it checks whether members inside have died. The last member to leave notifies the
/// others, unless it dies, which the servers notice only after a session timeout.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The data of a double barrier's node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BarrierState {
    version: u32,
    pub(crate) size: usize,
    pub(crate) generation: u64,
}

impl BarrierState {
    pub(crate) fn new(size: usize, generation: u64) -> Self {
        Self {
            version: 1,
            size,
            generation,
        }
    }

    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn to_data(self) -> Vec<u8> {
        serde_json::to_vec(&self).expect("numbers are JSON")
    }
}

/// A round, by its generation.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) session: Session,
    /// The node of the barrier.
    pub(crate) barrier: NodePath,
    pub(crate) access: Access,
    /// A second node of a member would be counted as another member.
    pub(crate) receipts: Receipts,
    pub(crate) size: usize,
    pub(crate) generation: u64,
}

/// The outcome of an attempt to enter a round.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub(crate) enum Entrance {
    /// Inside: all are there.
    Open(Contender),
    /// The data of the barrier is not that of a barrier of this size.
    Changed(Bytes, zk::Stat),
}

/// A look at a round by a member that wants to enter.
struct EntryState {
    /// `None` when all are there; else tells when they are.
    ready: Option<NodeEvent>,
    state: (Bytes, zk::Stat),
}

impl Round {
    /// Enters, and waits until all are there. The generation is a guess at first, and then that of the round that was entered.
    pub(crate) async fn enter(&mut self, who: Who) -> Result<Entrance, Failure> {
        let dir = self.dir();
        let entry = JoinRequest {
            mode: Mode::EXCLUSIVE,
            kind: Kind::Member,
            who,
            access: self.access.clone(),
            is_inner: true,
            line_max: LINE_MAX,
            layout: Layout::Bellwether,
            first_limit: None,
            once: Some(self.receipts.clone()),
        };
        let zk = self.session.zk();
        let ready = self.ready();
        // Polled in this order, so they are sent in this order, in one packet.
        let (contender, ready, state) = join3(
            Contender::enter(&self.session, dir, entry),
            async { zk.exists_watched(&ready).await },
            async { zk.get(self.barrier.as_str()).await },
        )
        .await;
        let mut contender = contender?;
        // A look counts if it came after the node. Then a round that is not complete will include this member, or another that was there
        // before it.
        let mut entry = match (contender.is_first_try(), ready, state) {
            (true, Ok(ready), Ok(state)) => EntryState::new(ready, state),
            _ => self.read_state().await?,
        };
        loop {
            let state =
                BarrierState::from_data(&entry.state.0).filter(|state| state.size == self.size);
            let Some(state) = state else {
                let (data, stat) = entry.state;
                return Ok(Entrance::Changed(data, stat));
            };
            if state.generation != self.generation {
                self.generation = state.generation;
                entry = self.read_state().await?;
                continue;
            }
            let Some(ready) = entry.ready.take() else {
                match self.is_among(&contender).await? {
                    Some(true) => {
                        contender.prove_alive().await?;
                        return Ok(Entrance::Open(contender));
                    }
                    Some(false) => {
                        self.over().await?;
                        contender.list().await?;
                    }
                    None => {}
                }
                entry = self.read_state().await?;
                continue;
            };
            let opened = match contender.lower().count().cmp(&(self.size - 1)) {
                Ordering::Less => self.wait(&mut contender, ready).await?,
                Ordering::Equal => self.open(&contender).await?,
                Ordering::Greater => {
                    self.wait_outside(&mut contender, ready).await?;
                    false
                }
            };
            if opened {
                contender.prove_alive().await?;
                return Ok(Entrance::Open(contender));
            }
            contender.list().await?;
            entry = self.read_state().await?;
        }
    }

    /// Waits for `ready` as one of the first `size` members. Returns whether the event proves that the round is complete and includes this
    /// member.
    async fn wait(&self, contender: &mut Contender, ready: NodeEvent) -> Result<bool, Failure> {
        contender.watch_own().await?;
        let event = contender.wait(ready).await?;
        // The members before us can only become fewer, so the member that completed the round has counted us if our node existed; and it
        // did, unless its deletion was reported first. After a reconnect the order of events proves nothing.
        Ok(event == Happened::Created && contender.would_have_heard())
    }

    /// Waits as a surplus member until something changes: another member may leave before the round is complete.
    async fn wait_outside(
        &self,
        contender: &mut Contender,
        ready: NodeEvent,
    ) -> Result<(), Failure> {
        let dir = self.dir();
        let listed = self.session.zk().children_watched(dir.as_str()).await;
        let (children, watch) = match listed {
            Ok(listed) => listed,
            Err(zk::Error::NO_NODE) => return Err(ErrorKind::Removed.into()),
            Err(error) if error.is_transient() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // Its place, and not their number: others may have come behind it.
        contender.update(children)?;
        if contender.lower().count() < self.size {
            return Ok(());
        }
        tokio::select! {
            biased;
            event = contender.wait(ready) => drop(event?),
            _ = NodeEvent::of(watch) => {}
        }
        Ok(())
    }

    /// Creates `ready` if all members are still there. `false` if a member has left, or the outcome is unknown: look again.
    async fn open(&self, contender: &Contender) -> Result<bool, Failure> {
        let Some(own) = contender.name() else {
            return Err(ErrorKind::Removed.into());
        };
        let dir = self.dir();
        let mut writer = self.session.zk().new_multi();
        for name in contender.lower().chain([own]) {
            writer.check(&dir.child(name), None);
        }
        let options = zk::CreateMode::Persistent.with_acl(self.access.acl());
        writer.create(&self.ready(), own.as_str().as_bytes(), &options);
        match writer.commit().await {
            Ok(_) => Ok(true),
            Err(zk::MultiError::Refused {
                code: zk::ErrorCode::NoNode | zk::ErrorCode::NodeExists,
                ..
            }) => Ok(false),
            Err(error) => match zk::Error::from(error) {
                error if error.is_transient() => Ok(false),
                error => Err(error.into()),
            },
        }
    }

    /// Returns whether a member was counted when all were there; `None` if it cannot be known now.
    async fn is_among(&self, contender: &Contender) -> Result<Option<bool>, Failure> {
        let Some(own) = contender.name() else {
            return Err(ErrorKind::Removed.into());
        };
        let zk = self.session.zk();
        let ready = zk.get(&self.ready());
        let mine = zk.exists(&self.dir().child(own));
        let ready = match ready.await {
            Ok((data, _)) => data,
            // Over already, or the connection was lost.
            Err(error) if error == zk::Error::NO_NODE || error.is_transient() => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        match mine.await {
            Ok(Some(_)) => Ok(Some(!is_after(own, &ready))),
            Ok(None) => Err(ErrorKind::Removed.into()),
            Err(error) if error.is_transient() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn read_state(&self) -> Result<EntryState, Failure> {
        let zk = self.session.zk();
        let read = || {
            // Made before the first await: both are sent in one packet, and in this order: if there is no `ready`, the generation is that
            // of the round which is complete next.
            let ready = zk.exists_watched(&self.ready());
            let state = zk.get(self.barrier.as_str());
            async {
                let (ready, state) = (ready.await, state.await);
                Ok(EntryState::new(ready?, state?))
            }
        };
        match until_answered(read).await {
            Ok(state) => Ok(state),
            // Another client deleted the barrier, and our node with it.
            Err(zk::Error::NO_NODE) => Err(ErrorKind::Removed.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves, and waits until all have.
    pub(crate) async fn leave(&self, hold: Hold) -> Result<(), Failure> {
        // The first look at the other members is sent right after the deletion of the own node, so the last member to leave sees that it is
        // the last.
        let released = async {
            hold.release().await.map_err(|error| match error.kind {
                ErrorKind::NotHeld => ErrorKind::Removed.into(),
                ErrorKind::LostWithSession => ErrorKind::SessionEnded.into(),
                kind => Failure::from(kind),
            })
        };
        try_join(released, self.over()).await?;
        Ok(())
    }

    /// Waits until the round is over: all members have left. The first member that sees this ends the round.
    async fn over(&self) -> Result<(), Failure> {
        let (zk, dir) = (self.session.zk(), self.dir());
        let read = || {
            // Made before the first await: both are sent in one packet.
            let ready = zk.get_watched(&self.ready());
            let list = zk.children(dir.as_str());
            async {
                let (ready, list) = (ready.await, list.await);
                let (last, _, watch) = ready?;
                Ok((last, watch, list?))
            }
        };
        loop {
            let (last, watch, children) = match until_answered(read).await {
                Ok(looked) => looked,
                Err(zk::Error::NO_NODE) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let (inside, next): (Vec<_>, Vec<_>) = Layout::Bellwether
                .contenders(children)
                .partition(|name| !is_after(name, &last));
            let Some(inside) = inside.first() else {
                return self.finish(next.is_empty()).await;
            };
            let ended = tokio::select! {
                biased;
                event = NodeEvent::of(watch) => event,
                event = self.dies(inside) => event,
            };
            match ended {
                Happened::Deleted => return Ok(()),
                Happened::SessionEnded => return Err(ErrorKind::SessionEnded.into()),
                _ => {}
            }
        }
    }

    /// Waits for the end of a member that may have died: not at once, since normally the last member to leave ends the round.
    async fn dies(&self, member: &Name) -> Happened {
        self.session.runtime().sleep(LOOK_AFTER).await;
        let path = self.dir().child(member);
        if let Ok((_, _, watch)) = self.session.zk().get_watched(&path).await {
            NodeEvent::of(watch).await;
        }
        // Any event: look again.
        Happened::DataChanged
    }

    /// Moves on to the next generation, unless another member has done so. An empty directory is replaced, which numbers its members from 0
    /// again: the numbers of one that is never empty end some day.
    async fn finish(&self, mut is_empty: bool) -> Result<(), Failure> {
        let (zk, dir) = (self.session.zk(), self.dir());
        let state = BarrierState::new(self.size, self.generation + 1).to_data();
        let options = zk::CreateMode::Container.with_acl(self.access.acl());
        // Idempotent: the second try would not find `ready`.
        let mut retry = Retry::limited();
        loop {
            let mut writer = zk.new_multi();
            writer.delete(&self.ready(), None);
            writer.set(self.barrier.as_str(), &state, None);
            if is_empty {
                writer.delete(dir.as_str(), None);
                writer.create(dir.as_str(), b"", &options);
            }
            match writer.commit().await.map_err(zk::Error::from) {
                Ok(_) => return Ok(()),
                // Another member was quicker.
                Err(zk::Error::NO_NODE) => return Ok(()),
                // A member of the next round has come, or the server is too old to know containers.
                Err(zk::Error::NOT_EMPTY | zk::Error::UNIMPLEMENTED) if is_empty => {
                    is_empty = false;
                }
                Err(error) => retry.again(error)?,
            }
        }
    }

    pub(crate) fn dir(&self) -> NodePath {
        self.barrier.descend(MEMBERS)
    }

    /// The path of the node `ready` of this round.
    pub(crate) fn ready(&self) -> String {
        self.dir().child(ready_name(self.generation))
    }
}

impl EntryState {
    fn new((ready, watch): (Option<zk::Stat>, zk::Watch), state: (Bytes, zk::Stat)) -> Self {
        Self {
            ready: ready.is_none().then(|| NodeEvent::of(watch)),
            state,
        }
    }
}

/// Returns whether a member came after the round was complete, by the data of `ready`. If the data cannot be read, all members count.
pub(crate) fn is_after(name: &Name, ready: &[u8]) -> bool {
    let last = String::from_utf8(ready.to_vec())
        .ok()
        .and_then(|name| Layout::Bellwether.parse(name));
    last.is_some_and(|last| last.is_before(name))
}
