//! One round of a double barrier: from the first member that enters to the last that leaves.
//!
//! All members are nodes in one directory, in order of arrival. The member that completes the number creates the node `ready` of the round,
//! in one multi with a check that all members exist; the member that finds that all have left deletes it, in one multi with the step to the
//! next generation. So a member that dies before `ready` is missing, and a member that dies after it has left.
//!
//! `ready` names the last member of its round, and members behind it belong to later rounds. A surplus member keeps its place, so it enters
//! the next round however far its server lags: if each round had a directory of its own, it would have to be quicker than other members
//! to get into one.

use std::cmp::Ordering;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::future::{join3, try_join};
use serde::{Deserialize, Serialize};

use crate::error::ReleaseError;
use crate::hold::Hold;
use crate::line::Failure;
use crate::line::contender::{Contender, JoinRequest, LINE_MAX, Mode};
use crate::line::name::{Kind, Layout, Name};
use crate::node::data::Who;
use crate::node::{Access, NodePath};
use crate::request::receipts::Receipts;
use crate::session::Session;
use crate::session::retry::{Happened, NodeEvent, Retry, until_answered};

/// The directory of all members.
pub(crate) const MEMBERS: &str = "members";

/// The name of the node that says that a round is complete. Its data is the name of the last member. The generation is in the name, so that
/// a request about one round never meets the node of another.
pub(crate) fn ready_name(generation: u64) -> String {
    format!("ready-{generation}")
}

/// How long a member that has left waits before it checks whether members inside have died. The last member to leave notifies the others,
/// unless it dies, which the servers notice only after a session timeout.
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

/// Why a round could not be left in order.
#[derive(Debug)]
pub(crate) enum LeaveFailure {
    Release(ReleaseError),
    Wait(Failure),
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
        let mut look = match (contender.is_first_try(), ready, state) {
            (true, Ok(ready), Ok(state)) => EntryState::new(ready, state),
            _ => self.look().await?,
        };
        loop {
            let state =
                BarrierState::from_data(&look.state.0).filter(|state| state.size == self.size);
            let Some(state) = state else {
                let (data, stat) = look.state;
                return Ok(Entrance::Changed(data, stat));
            };
            if state.generation != self.generation {
                self.generation = state.generation;
                look = self.look().await?;
                continue;
            }
            let Some(ready) = look.ready.take() else {
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
                look = self.look().await?;
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
            look = self.look().await?;
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
            Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
            Err(error) if error.is_transient() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // Its place, and not their number: others may have come behind it.
        contender.look(children)?;
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
            return Err(Failure::Removed);
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

    /// Whether a member was counted when all were there; `None` if it cannot be known now.
    async fn is_among(&self, contender: &Contender) -> Result<Option<bool>, Failure> {
        let Some(own) = contender.name() else {
            return Err(Failure::Removed);
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
            Ok(None) => Err(Failure::Removed),
            Err(error) if error.is_transient() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn look(&self) -> Result<EntryState, Failure> {
        let zk = self.session.zk();
        let look = || {
            // Made before the first await: both are sent in one packet, and in this order: if there is no `ready`, the generation is that
            // of the round which is complete next.
            let ready = zk.exists_watched(&self.ready());
            let state = zk.get(self.barrier.as_str());
            async {
                let (ready, state) = (ready.await, state.await);
                Ok(EntryState::new(ready?, state?))
            }
        };
        match until_answered(look).await {
            Ok(look) => Ok(look),
            // Another client deleted the barrier, and our node with it.
            Err(zk::Error::NO_NODE) => Err(Failure::Removed),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves, and waits until all have.
    pub(crate) async fn leave(&self, hold: Hold) -> Result<(), LeaveFailure> {
        // The first look at the other members is sent right after the deletion of the own node, so the last member to leave sees that it is
        // the last.
        try_join(
            async { hold.release().await.map_err(LeaveFailure::Release) },
            async { self.over().await.map_err(LeaveFailure::Wait) },
        )
        .await?;
        Ok(())
    }

    /// Waits until the round is over: all members have left. The first member that sees this ends the round.
    async fn over(&self) -> Result<(), Failure> {
        let (zk, dir) = (self.session.zk(), self.dir());
        let look = || {
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
            let (last, watch, children) = match until_answered(look).await {
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
                Happened::SessionEnded => return Err(Failure::SessionEnded),
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

/// Whether a member came after the round was complete, by the data of `ready`. If the data cannot be read, all members count.
pub(crate) fn is_after(name: &Name, ready: &[u8]) -> bool {
    let last = String::from_utf8(ready.to_vec())
        .ok()
        .and_then(|name| Layout::Bellwether.parse(name));
    last.is_some_and(|last| last.is_before(name))
}
