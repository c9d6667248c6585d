//! Holds: what every guard of a lock, permit, leadership or claim promises.

pub(crate) mod crash_mark;
pub(crate) mod crash_record;
pub(crate) mod ephemeral_node;
pub(crate) mod fence;
pub(crate) mod fenced_write;
pub(crate) mod guard;
mod held_call;
pub(crate) mod hold_watch;
mod in_transit;
pub(crate) mod parting;
mod release;
mod revocation;
#[cfg(test)]
mod tests;
mod update;
mod watch_over;

pub use self::crash_record::{Crash, Ended, Previous};
pub use self::fence::StaleToken;
pub use self::fenced_write::FencedWrite;
pub use self::hold_watch::HoldState;
pub use crate::node::data::Revocation;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::watch;

use crate::error::{Lost, WriteError};
use crate::hold::crash_mark::CrashMark;
use crate::hold::ephemeral_node::{EphemeralNode, OwnWatch};
use crate::hold::fence::FencingToken;
use crate::hold::hold_watch::HoldWatch;
use crate::hold::release::EndOnDrop;
use crate::hold::watch_over::{WatchedOver, look_again, watch_over};
use crate::node::data::Who;
use crate::request::receipts::Receipts;
use crate::session::liveness::KeepAlive;
use crate::session::runtime::TaskGuard;
use crate::session::slots::{HeldSlot, Slot};
use crate::session::telemetry::call;
use crate::session::{Moment, Session};

pub(crate) use self::in_transit::{InTransit, Undo, acquire_there};

/// Something that this session holds, represented by a node on the servers. Guards are smart pointers to it.
#[derive(Debug)]
pub struct Hold {
    /// Dropped first: no task may see a hold as held while its node is being deleted.
    state: EndOnDrop,
    asked: watch::Sender<Option<Revocation>>,
    previous: Previous,
    mark: Option<CrashMark>,
    /// The task that watches the hold; it ends with the hold.
    _watch: TaskGuard,
    /// A change of the node's data that runs in the background.
    errand: Option<TaskGuard>,
    _keep_alive: KeepAlive,
    /// For fenced writes: set by the first one, unless the recipe has receipts.
    receipts: OnceLock<Receipts>,
    node: EphemeralNode,
    /// Dropped last: the deletion of the node is ahead of what the next task of the session sends.
    slot: Arc<HeldSlot>,
}

impl Hold {
    /// Starts a hold and the task that watches it. `own_watch` is a watch on the node, if one is already set.
    pub(crate) fn start(
        path: &str,
        node: EphemeralNode,
        own_watch: Option<OwnWatch>,
        mark: Option<CrashMark>,
        previous: Previous,
        slot: Option<Slot>,
    ) -> Self {
        let (asked, _) = watch::channel(None);
        let session = node.session().clone();
        let state = HoldWatch::new(path, node.czxid().into(), &session);
        let slot = Arc::new(HeldSlot::new(slot));
        let task = watch_over(
            session.clone(),
            (node.path().to_owned(), node.czxid()),
            own_watch,
            WatchedOver(state.clone()),
            asked.clone(),
            Arc::downgrade(&slot),
        );
        Self {
            state: EndOnDrop(state, Moment::now()),
            asked,
            previous,
            mark,
            _watch: session.runtime().spawn_guarded(task),
            errand: None,
            _keep_alive: KeepAlive::new(&session),
            receipts: OnceLock::new(),
            node,
            slot,
        }
    }

    /// Uses the receipts of the recipe for fenced writes.
    pub(crate) fn with_receipts(mut self, receipts: Receipts) -> Self {
        self.receipts = receipts.into();
        self
    }

    /// Runs a future while this is held. When the hold ends before the future is done, the future is dropped at its next await and [`Lost`]
    /// is returned.
    ///
    /// The clock is compared before each poll of the future: after a pause of the process that outlasted the hold, no further step of it
    /// runs. A step that is paused half-way continues until its next await: for that case there is the fencing [token](Self::token).
    /// Between steps that do not await, check [`is_held`](Self::is_held).
    ///
    /// ```no_run
    /// # use bellwether::LockGuard;
    /// # async fn nightly(token: bellwether::FencingToken) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn run(guard: LockGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// guard.run(nightly(guard.token())).await??;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// That of the future. The hold is not touched.
    ///
    /// # Errors
    ///
    /// [`Lost`] if the hold was over before the future was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        self.state.run(work).await
    }

    /// A handle for other tasks and threads that reports whether this is still held. It can be cloned, and does not extend the hold.
    #[must_use]
    pub fn watch(&self) -> HoldWatch {
        self.state.0.clone()
    }

    /// The fencing token: greater than the token of every earlier holder. It is the zxid that created the node.
    ///
    /// Send it with every write to the resource that the hold protects, and let the resource refuse a lower token than it has seen:
    /// [`Fence`](crate::Fence).
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.node.czxid().into()
    }

    /// The path of the recipe.
    #[must_use]
    pub fn path(&self) -> &str {
        self.state.path()
    }

    /// The name of the node that stands for this hold on the servers, below [`path`](Self::path).
    #[must_use]
    pub fn node(&self) -> &str {
        let path = self.node.path();
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }

    /// Whether it is held at this moment, as far as this process can know. Compares clocks: a process that was paused gets the true
    /// answer when it asks after the pause. A virtual machine that was paused may not: its clocks need not have advanced. Then only the
    /// fencing [token](Self::token) protects.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state.is_held()
    }

    /// The state at this moment.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.state.state()
    }

    /// The state as a stream: the current one first, then each change that is seen in time. It ends with [`HoldState::Lost`], or with
    /// [`HoldState::Released`] when the guard is released or dropped.
    pub fn states(&self) -> impl Stream<Item = HoldState> + Send + Unpin + use<> {
        self.state.states()
    }

    /// Resolves when the hold can no longer be relied on: another client deleted the node, the session has ended, or the servers have not
    /// answered for so long that it may end soon. Stop the work then; [`run`](Self::run) does that by itself.
    ///
    /// It resolves before the servers can grant the next hold, as long as this process runs. A paused process cannot know: for that case
    /// there is the fencing [token](Self::token). A deletion by another client is noticed right after it.
    ///
    /// Each poll compares clocks before it waits. In `tokio::select!`, write `biased;` and this branch first: then no other branch runs
    /// after a pause that outlasted the hold.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if the hold was lost meanwhile.
    pub async fn lost(&self) {
        self.state.lost().await;
    }

    /// How long the hold remains valid if the servers do not answer again.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        match self.state().is_over() {
            true => Duration::ZERO,
            false => self.node.session().liveness().deadline().left(),
        }
    }

    /// Resolves when the hold is lost, or will be lost within `ahead` unless the servers answer: early enough for an orderly stop.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call looks again.
    pub async fn expiring(&self, ahead: Duration) {
        let session = self.node.session();
        let watched = async {
            loop {
                match self.time_left().checked_sub(ahead) {
                    None | Some(Duration::ZERO) => return,
                    Some(left) => session.runtime().sleep(left.min(look_again(session))).await,
                }
            }
        };
        tokio::select! {
            biased;
            () = self.lost() => {}
            () = watched => {}
        }
    }

    /// How the previous hold ended. [`Previous::Unknown`] unless the recipe has a crash mark.
    #[must_use]
    pub fn previous(&self) -> &Previous {
        &self.previous
    }

    /// Records in the crash mark how far the work is, for the next holder, which may have to repair it. Only the last note is kept.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the note may have been written or not.
    ///
    /// # Errors
    ///
    /// [`WriteError::NoMark`] if the hold has no crash mark, [`WriteError::TooLarge`] beyond 64 KiB; else as
    /// [`FencedWrite::commit`].
    pub async fn note(&self, note: impl AsRef<[u8]>) -> Result<(), WriteError> {
        call!("hold.note", self.path())
            .of(self)
            .run(async {
                WriteError::check_size(note.as_ref().len())?;
                match &self.mark {
                    Some(mark) => mark.note(self.write(), note.as_ref()).await,
                    None => Err(WriteError::NoMark),
                }
            })
            .await
    }

    /// Records for the next holder how this hold ended, such as `killed (SIGKILL)`, if it is not released. The text is stored in the crash
    /// mark, as [`Crash::ended`](crate::hold::Crash::ended).
    ///
    /// # Cancel safety
    ///
    /// As [`note`](Self::note).
    ///
    /// # Errors
    ///
    /// As [`note`](Self::note).
    pub async fn tell_ending(&self, how: &str) -> Result<(), WriteError> {
        call!("hold.tell_ending", self.path())
            .of(self)
            .run(async {
                WriteError::check_size(how.len())?;
                match &self.mark {
                    Some(mark) => mark.tell_ending(self.write(), how).await,
                    None => Err(WriteError::NoMark),
                }
            })
            .await
    }

    /// The session of the hold.
    pub(crate) fn session(&self) -> &Session {
        self.node.session()
    }

    /// The identity in the node of the hold; `None` if the node cannot be read.
    pub(crate) async fn who(&self) -> Option<Who> {
        let (data, _) = self.node.session().zk().get(self.node.path()).await.ok()?;
        Who::from_data(&data)
    }

    /// Begins a transaction that succeeds only while this hold is held.
    pub fn write(&self) -> FencedWrite<'_> {
        let receipts = self.receipts.get_or_init(|| self.node.new_receipts());
        FencedWrite::new(&self.node, receipts)
    }
}
