//! Holds: what every guard of a lock, permit, leadership or claim promises, from the grant to the release.

pub(crate) mod crash_mark;
pub(crate) mod ephemeral_node;
pub(crate) mod fence;
pub(crate) mod hold_watch;

pub use self::crash_mark::{Crash, Ended, Previous};
pub use self::fence::{FencedWrite, StaleToken};
pub use self::hold_watch::HoldState;
pub use crate::node::data::Revocation;

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use futures_util::{StreamExt, poll};
use tokio::sync::watch;
use tracing::debug;

use crate::error::{Error, ErrorKind, Failure, Lost};
use crate::events::Events;
use crate::hold::crash_mark::{CrashMark, Parting};
use crate::hold::ephemeral_node::{EphemeralNode, KnownData, OwnWatch, Removal, update};
use crate::hold::fence::FencingToken;
use crate::hold::hold_watch::{HoldWatch, WatchedOver, longest_sleep, watch_over};
use crate::node::data::{NodeData, Who};
use crate::request::receipts::Receipts;
use crate::session::cleaner::Leftover;
use crate::session::liveness::KeepAlive;
use crate::session::runtime::{SessionRuntime, TaskGuard};
use crate::session::slots::{HeldSlot, Slot};
use crate::session::telemetry::{self, Call, Outcome, call};
use crate::session::{Moment, Session};

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
    /// The receipts of fenced writes: set by the first one, unless the recipe has receipts.
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

    /// Returns whether it is held at this moment, as far as this process can know. Compares clocks: a process that was paused gets the true
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
    pub fn states(&self) -> Events<HoldState> {
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

    /// Returns the time for which the hold remains valid if the servers do not answer again.
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
                    Some(left) => {
                        session
                            .runtime()
                            .sleep(left.min(longest_sleep(session)))
                            .await
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = self.lost() => {}
            () = watched => {}
        }
    }

    /// Returns how the previous hold ended. [`Previous::Unknown`] unless the recipe has a crash mark.
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
    /// [`ErrorKind::Unsupported`] if the hold has no crash mark, [`ErrorKind::TooLarge`] beyond 64 KiB; else as [`FencedWrite::commit`].
    pub async fn note(&self, note: impl AsRef<[u8]>) -> Result<(), Error> {
        call!("hold.note", self.path())
            .of(self)
            .run(async {
                Failure::check_size(note.as_ref().len())?;
                match &self.mark {
                    Some(mark) => mark.note(self.write(), note.as_ref()).await,
                    None => Err(NO_MARK.into()),
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
    pub async fn tell_ending(&self, how: &str) -> Result<(), Error> {
        call!("hold.tell_ending", self.path())
            .of(self)
            .run(async {
                Failure::check_size(how.len())?;
                match &self.mark {
                    Some(mark) => mark.tell_ending(self.write(), how).await,
                    None => Err(NO_MARK.into()),
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

    /// Changes the data of the node, in the background.
    pub(crate) fn update_in_background(
        &mut self,
        who: Who,
        word: impl Fn(&mut NodeData) + Send + Sync + 'static,
    ) {
        let session = self.node.session().clone();
        let node = self.node.path().to_owned();
        let runtime = session.runtime().clone();
        self.errand = Some(runtime.spawn_guarded(async move {
            let said = update(
                session.zk(),
                &node,
                KnownData::created_by(&who),
                &Parting::Plain,
                word,
            )
            .await;
            if let Err(error) = said {
                log::emit(move || {
                    debug!(node, %error, "the hold ended before its word was said");
                });
            }
        }));
    }

    /// Makes an exclusive hold a shared one: marks the node as downgraded, and clears the crash mark in the same multi.
    pub(crate) async fn downgrade(mut self, who: &Who) -> Result<Self, Failure> {
        let parting = self.clean_end();
        match self
            .node
            .update(KnownData::created_by(who), &parting, |data| {
                data.downgraded = true;
            })
            .await
        {
            Ok(_) => {
                self.mark = None;
                self.slot.free();
                Ok(self)
            }
            Err(error) => {
                let kind = match error {
                    zk::Error::SessionEnded(_) => ErrorKind::LostWithSession,
                    zk::Error::NO_NODE => ErrorKind::NotHeld,
                    error => ErrorKind::refused(error),
                };
                Err(kind.into())
            }
        }
    }

    /// Changes the data of the node, and waits for the acknowledgement.
    pub(crate) async fn update(
        &self,
        known: KnownData,
        word: impl Fn(&mut NodeData),
    ) -> Result<KnownData, Failure> {
        if !self.is_held() {
            return Err(ErrorKind::NotHeld.into());
        }
        let amended = self.node.update(known, &Parting::Plain, word).await;
        amended.map_err(|error| {
            let kind = match error {
                zk::Error::SessionEnded(_) => ErrorKind::LostWithSession,
                zk::Error::NO_NODE => ErrorKind::NotHeld,
                error if error.is_transient() => ErrorKind::OutcomeUnknown(error),
                error => ErrorKind::refused(error),
            };
            kind.into()
        })
    }

    /// Releases it and waits for the server's acknowledgement, over any number of reconnects.
    ///
    /// Dropping a guard also deletes the node, but does not wait, and leaves the crash mark: the next holder sees a crash. If the request is
    /// lost with the connection, it is sent again in the background; if the process exits first, the next holder waits until the session
    /// expires.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `NotHeld`, `LostWithSession`, `Refused`: the hold has ended all the same, but perhaps before this
    /// call.
    pub async fn release(self) -> Result<(), Error> {
        let parting = self.clean_end();
        self.release_by(parting).await
    }

    /// Does the same as [`release`](Self::release), but keeps the crash mark that [`previous`](Self::previous) reported, so that the next
    /// holder sees it again. For a holder that saw the crash and did not repair it.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub async fn release_unrepaired(self) -> Result<(), Error> {
        let parting = match &self.mark {
            Some(mark) => mark.unrepaired_end(),
            None => Parting::Plain,
        };
        self.release_by(parting).await
    }

    async fn release_by(self, parting: Parting) -> Result<(), Error> {
        let call = call!("hold.release", self.path()).of(&self);
        call.run(self.end(parting)).await
    }

    fn clean_end(&self) -> Parting {
        match &self.mark {
            Some(mark) => mark.clean_end(),
            None => Parting::Plain,
        }
    }

    /// Deletes the node of a lost hold in the background, while its guard still exists.
    pub(crate) fn abandon(&self) {
        let leftover = Leftover::Node(self.node.path().to_owned());
        self.node.session().cleaner().remove(leftover);
    }

    /// Ends the hold in this process, before a request that deletes its node.
    pub(crate) fn end_here(&self) {
        self.state.note(HoldState::Released);
    }

    /// Ends the hold without a request: the node is known to be gone.
    pub(crate) fn forget(self) {
        self.node.forget();
    }

    /// Ends, in the background, a hold that its caller never received: deletes the node and restores the mark.
    pub(crate) fn undo(self) {
        let Self {
            state, node, mark, ..
        } = self;
        drop(state);
        if let Some(mark) = mark {
            node.undo(mark.into_marking());
        }
    }

    async fn end(self, parting: Parting) -> Result<(), Failure> {
        let Self {
            state,
            node,
            // Kept until the end: the deletion triggers its watch, which would otherwise have to be removed.
            _watch,
            slot,
            ..
        } = self;
        drop(state);
        let mut removed = pin!(node.remove(&parting));
        // The first poll sends the deletion, and the next task of the session joins the line behind it.
        let sent = poll!(&mut removed);
        drop(slot);
        let removal = match sent {
            Poll::Ready(removal) => removal,
            Poll::Pending => removed.await,
        };
        match removal {
            Removal::Done => Ok(()),
            Removal::WasGone => Err(ErrorKind::NotHeld.into()),
            Removal::SessionEnded => Err(ErrorKind::LostWithSession.into()),
            Removal::Refused(source) => Err(ErrorKind::refused(source).into()),
        }
    }

    /// Resolves when another client asks this holder to release, also if the request came before the hold began. The holder may release or
    /// continue; the hold is taken away only if the request has a [grace](Revocation::grace).
    ///
    /// ```no_run
    /// # async fn run(guard: bellwether::LockGuard, mut work: impl AsyncFnMut()) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     tokio::select! {
    ///         () = work() => {}
    ///         asked = guard.revoked() => {
    ///             println!("releasing, as asked by {:?}", asked.by);
    ///             return Ok(guard.release().await?);
    ///         }
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if a request has come meanwhile.
    pub async fn revoked(&self) -> Revocation {
        match self.revocations().next().await {
            Some(asked) => asked,
            // Cannot happen: this hold owns the sender of the channel.
            None => std::future::pending().await,
        }
    }

    /// The requests to release, as a stream: the latest request so far, then each newer one that is seen in time. A request without a grace
    /// may be followed by one with a grace. The stream ends with the hold.
    pub fn revocations(&self) -> Events<Revocation> {
        let mut asked = self.asked.subscribe();
        asked.mark_changed();
        Events::from_stream(unfold(asked, |mut asked| async {
            loop {
                asked.changed().await.ok()?;
                let request = asked.borrow_and_update().clone();
                if let Some(request) = request {
                    return Some((request, asked));
                }
            }
        }))
    }

    /// The latest request to release, if there is one.
    #[must_use]
    pub fn revocation(&self) -> Option<Revocation> {
        self.asked.borrow().clone()
    }
}

/// The state of a hold. When it is dropped, the hold ends in this process, before the servers receive a request.
#[derive(Debug)]
struct EndOnDrop(HoldWatch, Moment);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if self.0.is_forked() {
            return;
        }
        self.0.note(HoldState::Released);
        telemetry::hold_ended(Moment::now() - self.1);
    }
}

impl Deref for EndOnDrop {
    type Target = HoldWatch;

    fn deref(&self) -> &HoldWatch {
        &self.0
    }
}

/// A hold that can be undone as if it had never existed: the crash mark becomes what it was before.
pub(crate) trait Undo {
    fn undo(self);
}

impl Undo for Hold {
    fn undo(self) {
        self.undo();
    }
}

impl<T: Undo> Undo for Option<T> {
    fn undo(self) {
        if let Some(held) = self {
            held.undo();
        }
    }
}

impl<T: Undo, E> Undo for Result<T, E> {
    fn undo(self) {
        self.ok().undo();
    }
}

/// A guard that its caller has not received yet. If it is dropped before it arrives, it is undone: a plain drop would leave a crash mark,
/// although no work was done under the hold.
#[derive(Debug)]
pub(crate) struct InTransit<T: Undo>(Option<T>);

impl<T: Undo> InTransit<T> {
    pub(crate) fn new(held: T) -> Self {
        Self(Some(held))
    }

    pub(crate) fn arrive(mut self) -> T {
        self.0.take().expect("it arrives once")
    }
}

impl<T: Undo> Deref for InTransit<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it has not arrived")
    }
}

impl<T: Undo> DerefMut for InTransit<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it has not arrived")
    }
}

impl<T: Undo> Drop for InTransit<T> {
    fn drop(&mut self) {
        self.0.take().undo();
    }
}

/// Acquires on the thread of the session, as [`SessionRuntime::run`]. A grant is undone if its caller has dropped the call.
///
/// Boxed, because otherwise the future of each caller would contain the future of a whole acquisition.
pub(crate) fn acquire_in_session<T, F>(
    runtime: &SessionRuntime,
    acquired: F,
) -> impl Future<Output = T> + Send + use<T, F>
where
    T: Undo + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let granted: BoxFuture<'static, InTransit<T>> =
        Box::pin(async { InTransit::new(acquired.await) });
    let runtime = runtime.clone();
    async move { runtime.run(granted).await.arrive() }
}

/// A guard of any recipe: it derefs to a [`Hold`] and converts into one. For code that works with every kind of guard.
///
/// ```no_run
/// # use bellwether::{Guard, Hold};
/// # use bellwether::Error;
/// async fn finish(guard: impl Guard) -> Result<(), Error> {
///     println!("held {} with token {}", guard.path(), guard.token());
///     guard.into().release().await
/// }
/// ```
pub trait Guard: Deref<Target = Hold> + Into<Hold> + Send + Sync + 'static {}

impl<G: Deref<Target = Hold> + Into<Hold> + Send + Sync + 'static> Guard for G {}

/// Makes a struct with a field `hold` a guard, which is released by a method of the given name.
macro_rules! guard_of_a_hold {
    ($guard:ident, $release:ident) => {
        impl $guard {
            /// Releases it and waits for the server's acknowledgement, over any number of reconnects. Every [watch](crate::Hold::watch) of
            /// it reports the end before the request is sent.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future leaves the rest to the background, as dropping the guard does.
            ///
            /// # Errors
            ///
            /// See [`Hold::release`](crate::Hold::release): the hold has ended all the same, but perhaps before this call.
            pub async fn $release(self) -> Result<(), $crate::error::Error> {
                self.hold.release().await
            }
        }

        impl From<$guard> for $crate::hold::Hold {
            /// The hold without its guard type, for code that handles all guards alike.
            fn from(guard: $guard) -> Self {
                guard.hold
            }
        }

        impl $crate::hold::Undo for $guard {
            fn undo(self) {
                self.hold.undo();
            }
        }

        impl std::ops::Deref for $guard {
            type Target = $crate::hold::Hold;

            fn deref(&self) -> &$crate::hold::Hold {
                &self.hold
            }
        }
    };
}

/// Defines `release_unrepaired` for guards whose hold may have a crash mark.
macro_rules! release_unrepaired {
    ($guard:ident) => {
        impl $guard {
            /// Does the same as [`release`](Self::release), but leaves the mark of the crash that [`previous`](crate::Hold::previous)
            /// reported, so that the next holder sees it again: for a holder that saw it and did not repair.
            ///
            /// # Cancel safety
            ///
            /// As [`release`](Self::release).
            ///
            /// # Errors
            ///
            /// As [`release`](Self::release).
            pub async fn release_unrepaired(self) -> Result<(), $crate::error::Error> {
                self.hold.release_unrepaired().await
            }
        }
    };
}

pub(crate) use {guard_of_a_hold, release_unrepaired};

impl Call {
    /// A call about a hold.
    pub(crate) fn of(self, hold: &Hold) -> Self {
        self.with_token(hold.token().number())
    }

    /// Runs a call that acquires: its outcome is `held`, with the token.
    pub(crate) fn hold<G: Deref<Target = Hold>>(
        self,
        call: impl Future<Output = Result<G, Failure>>,
    ) -> impl Future<Output = Result<G, Error>> {
        self.run_to(call, |guard| held(guard))
    }

    /// Does the same as [`hold`](Self::hold), for a call that does not wait: `none` if another contender is in the way.
    pub(crate) fn try_hold<G: Deref<Target = Hold>>(
        self,
        call: impl Future<Output = Result<Option<G>, Failure>>,
    ) -> impl Future<Output = Result<Option<G>, Error>> {
        self.run_to(call, |guard| {
            guard.as_ref().map_or(Outcome::NONE, |guard| held(guard))
        })
    }
}

const NO_MARK: ErrorKind = ErrorKind::Unsupported {
    reason: "the hold has no crash mark",
};

fn held(hold: &Hold) -> Outcome {
    Outcome::held(hold.token().number())
}
