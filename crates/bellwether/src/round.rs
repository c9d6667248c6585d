//! One round of a double barrier: from the first who enters to the last who leaves.
//!
//! A round has a directory of its own, named for its generation. Members stand in it in the order of arrival. The one who
//! makes their number full creates `ready`, in one step with a check that all of them are there; the one who finds that
//! all have left deletes it, in one step with the move to the next generation. So a member that dies before `ready` is
//! missing, one that dies after it has left, and nothing of one round is seen in another.

use std::cmp::Ordering;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::future::{join3, try_join};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::client::Client;
use crate::contender::{Contender, Entry, Failure, LINE_MAX, Rule};
use crate::error::{Outcome, ReleaseError, outcome};
use crate::hold::Hold;
use crate::name::{Kind, Layout, Name};
use crate::node_event::{Happened, NodeEvent};
use crate::path::NodePath;
use crate::sabotage::Sabotage;
use crate::who::Who;

/// The name of the node that says that all are there. Its data is the name of the last of them.
pub(crate) const READY: &str = "ready";

/// How long one who has left waits before it looks whether those inside have died. The last one out tells everybody, unless
/// it dies, which the servers know only after a session timeout.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// What the node of a double barrier says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    pub(crate) size: usize,
    pub(crate) generation: u64,
}

impl State {
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
    pub(crate) client: Client,
    /// The node of the barrier.
    pub(crate) barrier: NodePath,
    pub(crate) access: Access,
    pub(crate) size: usize,
    pub(crate) generation: u64,
}

/// Where an attempt to enter a round has led.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub(crate) enum Entrance {
    /// Inside: all are there.
    Open(Contender),
    /// The round was full. It is over now.
    Missed,
    /// It is not the present round; that is told by the data of the barrier.
    Elsewhere(Bytes, zk::Stat),
}

/// Why a round could not be left in order.
#[derive(Debug)]
pub(crate) enum LeaveFailure {
    Release(ReleaseError),
    Wait(Failure),
}

/// A look at a round from one of those who want to enter.
struct Look {
    /// `None` when all are there; else tells when they are.
    ready: Option<NodeEvent>,
    state: (Bytes, zk::Stat),
}

impl Round {
    /// Enters, and waits until all are there.
    pub(crate) async fn enter(&self, who: Who) -> Result<Entrance, Failure> {
        let dir = self.dir();
        let entry = Entry {
            rule: Rule::EXCLUSIVE,
            kind: Kind::Member,
            who,
            access: self.access.clone(),
            line_max: LINE_MAX,
            layout: Layout::Bellwether,
            first_limit: None,
        };
        let zk = self.client.zk();
        let ready = dir.child(READY);
        // Polled in this order, so they are sent in this order, and travel together.
        let (contender, ready, state) = join3(
            Contender::enter(&self.client, dir, entry),
            async { zk.exists_watched(&ready).await },
            async { zk.get(self.barrier.as_str()).await },
        )
        .await;
        let mut contender = contender?;
        // A look counts if it came after the node: then the round was not over before that was there.
        let mut look = match (contender.is_first_try(), ready, state) {
            (true, Ok(ready), Ok(state)) => Look::new(ready, state),
            _ => self.look().await?,
        };
        loop {
            if State::from_data(&look.state.0).map(|state| state.generation)
                != Some(self.generation)
            {
                let (data, stat) = look.state;
                return Ok(Entrance::Elsewhere(data, stat));
            }
            let Some(ready) = look.ready.take() else {
                match self.is_among(&contender).await? {
                    Some(true) => {
                        contender.prove_alive().await?;
                        return Ok(Entrance::Open(contender));
                    }
                    Some(false) => {
                        contender.give_up().await?;
                        self.over().await?;
                        return Ok(Entrance::Missed);
                    }
                    None => {
                        look = self.look().await?;
                        continue;
                    }
                }
            };
            let opened = match contender.lower().len().cmp(&(self.size - 1)) {
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

    /// Waits for word as one of the first. Tells whether that was proof that all are there, and this one among them.
    async fn wait(&self, contender: &mut Contender, ready: NodeEvent) -> Result<bool, Failure> {
        let mut states = self.client.zk().states();
        contender.watch_own().await?;
        let event = tokio::select! {
            biased;
            event = contender.wait(ready) => event?,
            _ = states.changed(), if self.client.is_sabotaged(Sabotage::PassOnAnyWake) => {
                return Ok(true);
            }
        };
        // Those before us only become fewer, so whoever made the number full has counted us, if we were there: and we were,
        // unless we had been told otherwise first. After a reconnect the order of events proves nothing.
        Ok(event == Happened::Created && contender.would_have_heard().await)
    }

    /// Waits as one too many until something has changed: one of the others may leave before all are there.
    async fn wait_outside(
        &self,
        contender: &mut Contender,
        ready: NodeEvent,
    ) -> Result<(), Failure> {
        let dir = self.dir();
        let listed = self.client.zk().children_watched(dir.as_str()).await;
        let (children, watch) = match listed {
            Ok(listed) => listed,
            Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
            Err(error) if outcome(&error) == Outcome::Unknown => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // Its place, and not their number: others may have come behind it.
        contender.look(children)?;
        if contender.lower().len() < self.size {
            return Ok(());
        }
        tokio::select! {
            event = contender.wait(ready) => drop(event?),
            _ = NodeEvent::of(watch) => {}
        }
        Ok(())
    }

    /// Says that all are there, if they still are. `false` if somebody has left, or it is not known: look again.
    async fn open(&self, contender: &Contender) -> Result<bool, Failure> {
        let Some(own) = contender.name() else {
            return Err(Failure::Removed);
        };
        let dir = self.dir();
        let mut writer = self.client.zk().new_multi();
        for name in contender.lower().iter().chain([own]) {
            writer.check(&dir.child(name), None);
        }
        let options = zk::CreateMode::Persistent.with_acl(self.access.acl());
        writer.create(&dir.child(READY), own.as_str().as_bytes(), &options);
        match writer.commit().await {
            Ok(_) => Ok(true),
            Err(zk::MultiError::Refused {
                code: zk::ErrorCode::NoNode | zk::ErrorCode::NodeExists,
                ..
            }) => Ok(false),
            Err(error) => match zk::Error::from(error) {
                error if outcome(&error) == Outcome::Unknown => Ok(false),
                error => Err(error.into()),
            },
        }
    }

    /// Whether a member was counted when all were there; `None` if it cannot be known now.
    async fn is_among(&self, contender: &Contender) -> Result<Option<bool>, Failure> {
        let Some(own) = contender.name() else {
            return Err(Failure::Removed);
        };
        let (zk, dir) = (self.client.zk(), self.dir());
        let ready = zk.get(&dir.child(READY));
        let mine = zk.exists(&dir.child(own));
        let ready = match ready.await {
            Ok((data, _)) => data,
            // Over already, or the connection was lost.
            Err(error) if error == zk::Error::NO_NODE || outcome(&error) == Outcome::Unknown => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        match mine.await {
            Ok(Some(_)) => Ok(Some(!is_after(own, &ready))),
            Ok(None) => Err(Failure::Removed),
            Err(error) if outcome(&error) == Outcome::Unknown => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn look(&self) -> Result<Look, Failure> {
        let (zk, dir) = (self.client.zk(), self.dir());
        loop {
            let ready = dir.child(READY);
            let ready = zk.exists_watched(&ready);
            let state = zk.get(self.barrier.as_str());
            let (ready, state) = (ready.await, state.await);
            match ready.and_then(|ready| Ok(Look::new(ready, state?))) {
                Ok(look) => return Ok(look),
                // Another hand took it all away, and our own node with it.
                Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
                // The next request waits in the client until there is a connection again: this does not spin.
                Err(error) if outcome(&error) == Outcome::Unknown => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Leaves, and waits until all have.
    pub(crate) async fn leave(&self, hold: Hold) -> Result<(), LeaveFailure> {
        // The first look at the others travels behind the deletion of the own node, so the last one out sees that it is.
        try_join(
            async { hold.release().await.map_err(LeaveFailure::Release) },
            async { self.over().await.map_err(LeaveFailure::Wait) },
        )
        .await?;
        Ok(())
    }

    /// Waits until the round is over: everybody who was inside has left. Whoever sees that first says so.
    async fn over(&self) -> Result<(), Failure> {
        let (zk, dir) = (self.client.zk(), self.dir());
        loop {
            let ready = dir.child(READY);
            let ready = zk.get_watched(&ready);
            let list = zk.children(dir.as_str());
            let looked = match (ready.await, list.await) {
                (Ok((last, _, watch)), Ok(children)) => Ok((last, watch, children)),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
            let (last, watch, children) = match looked {
                Ok(looked) => looked,
                Err(zk::Error::NO_NODE) => return Ok(()),
                Err(error) if outcome(&error) == Outcome::Unknown => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(inside) = Layout::Bellwether
                .contenders(children)
                .find(|name| !is_after(name, &last))
            else {
                return self.finish().await;
            };
            let ended = tokio::select! {
                biased;
                event = NodeEvent::of(watch) => event,
                event = self.dies(&inside) => event,
            };
            match ended {
                Happened::Deleted => return Ok(()),
                Happened::SessionEnded => return Err(Failure::SessionEnded),
                _ => {}
            }
        }
    }

    /// Waits for the end of a member without a word: not at once, since the last one out tells.
    async fn dies(&self, member: &Name) -> Happened {
        self.client.home().sleep(LOOK_AFTER).await;
        let path = self.dir().child(member);
        if let Ok((_, _, watch)) = self.client.zk().get_watched(&path).await {
            NodeEvent::of(watch).await;
        }
        // Whatever it was: it calls for a look.
        Happened::DataChanged
    }

    /// Moves on to the next generation, unless somebody else has done so.
    async fn finish(&self) -> Result<(), Failure> {
        let (zk, dir) = (self.client.zk(), self.dir());
        let next = Self {
            generation: self.generation + 1,
            ..self.clone()
        };
        let state = State::new(self.size, next.generation).to_data();
        let options = zk::CreateMode::Container.with_acl(self.access.acl());
        let (mut delete_dir, mut create_next) = (true, true);
        loop {
            let mut writer = zk.new_multi();
            writer.delete(&dir.child(READY), None);
            writer.set(self.barrier.as_str(), &state, None);
            if create_next {
                writer.create(next.dir().as_str(), b"", &options);
            }
            if delete_dir {
                writer.delete(dir.as_str(), None);
            }
            match writer.commit().await.map_err(zk::Error::from) {
                Ok(_) => return Ok(()),
                // Somebody was quicker.
                Err(zk::Error::NO_NODE) => return Ok(()),
                // One who came too late stands there still. The server removes the directory when it is empty.
                Err(zk::Error::NOT_EMPTY) => delete_dir = false,
                // Somebody made it by mistake, or the server is too old to know containers.
                Err(zk::Error::NODE_EXISTS | zk::Error::UNIMPLEMENTED) if create_next => {
                    create_next = false;
                }
                // Harmless twice: the second would not find `ready`.
                Err(error) if outcome(&error) == Outcome::Unknown => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn dir(&self) -> NodePath {
        self.barrier.descend(self.generation)
    }
}

impl Look {
    fn new((ready, watch): (Option<zk::Stat>, zk::Watch), state: (Bytes, zk::Stat)) -> Self {
        Self {
            ready: ready.is_none().then(|| NodeEvent::of(watch)),
            state,
        }
    }
}

/// Whether a member came after all were there, as `ready` tells. One whose word cannot be read has counted everybody.
pub(crate) fn is_after(name: &Name, ready: &[u8]) -> bool {
    let last = String::from_utf8(ready.to_vec())
        .ok()
        .and_then(|name| Layout::Bellwether.parse(name));
    last.is_some_and(|last| last.is_before(name))
}
