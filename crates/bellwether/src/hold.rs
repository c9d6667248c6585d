//! What every hold promises.

mod attend;
mod in_transit;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use tokio::sync::watch;
use tracing::debug;
use zookeeper_client as zk;

use crate::client::{Client, WeakClient};
use crate::crash_mark::{CrashMark, Parting, Previous};
use crate::error::{Outcome, ReleaseError, WriteError, outcome};
use crate::fenced_write::FencedWrite;
use crate::heart::Pulse;
use crate::home::Running;
use crate::janitor::Litter;
use crate::log;
use crate::node_data::{NodeData, Revocation};
use crate::node_event::OwnWatch;
use crate::own_node::{Known, OwnNode, Removal, amend};
use crate::who::Who;

use self::attend::{attend, is_over, look_again};
pub(crate) use self::in_transit::{InTransit, Undo, acquire_there};

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldState {
    /// It is held.
    Held,
    /// The connection is down. It is still held, and nothing is lost if the connection comes back in time.
    Suspended,
    /// It can no longer be relied on, and never will be again.
    Lost,
}

/// What is held: a place that the servers keep for this session. Guards are smart pointers to it.
#[derive(Debug)]
pub struct Hold {
    /// Before all else: nobody may believe in a hold whose node is being deleted.
    over: Over,
    path: String,
    state: watch::Sender<HoldState>,
    asked: watch::Sender<Option<Revocation>>,
    previous: Previous,
    mark: Option<CrashMark>,
    /// The task that watches over it; it ends with it.
    _watch: Running,
    /// Something to be said on the node, which nobody waits for.
    errand: Option<Running>,
    _pulse: Pulse,
    node: OwnNode,
}

impl Hold {
    /// Begins to watch. `own_watch` is a watch on the node if there is one already.
    pub(crate) fn start(
        path: &str,
        node: OwnNode,
        own_watch: Option<OwnWatch>,
        mark: Option<CrashMark>,
        previous: Previous,
    ) -> Self {
        let (state, _) = watch::channel(HoldState::Held);
        let (asked, _) = watch::channel(None);
        let client = node.client().clone();
        let task = attend(
            client.clone(),
            (node.path().to_owned(), node.czxid()),
            own_watch,
            state.clone(),
            asked.clone(),
        );
        Self {
            over: Over(state.clone()),
            path: path.to_owned(),
            state,
            asked,
            previous,
            mark,
            _watch: client.home().run(task),
            errand: None,
            _pulse: Pulse::new(&client),
            node,
        }
    }

    /// The fencing token: greater than that of every holder before. It is the zxid that created the node.
    ///
    /// Send it along with every write to what the hold guards, and let that refuse a lower one than it has seen:
    /// [`Fence`](crate::Fence).
    #[must_use]
    pub fn token(&self) -> i64 {
        self.node.czxid()
    }

    /// The path of the recipe.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of the node that stands for this hold on the servers, below [`path`](Self::path).
    #[must_use]
    pub fn node(&self) -> &str {
        let path = self.node.path();
        path.rsplit_once('/').map_or(path, |(_, name)| name)
    }

    /// Whether it is held at this moment, as far as this end can know. Compares clocks; a paused process that asks when it
    /// wakes gets the true answer.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state() != HoldState::Lost
    }

    /// How it stands at this moment.
    #[must_use]
    pub fn state(&self) -> HoldState {
        if is_over(self.node.client()) {
            self.state.send_replace(HoldState::Lost);
        }
        *self.state.borrow()
    }

    /// How it stands, as a stream: the present state first, then each change that is seen in time. It ends with
    /// [`HoldState::Lost`].
    pub fn states(&self) -> impl Stream<Item = HoldState> + Send + Unpin + use<> {
        let _ = self.state();
        let mut states = self.state.subscribe();
        states.mark_changed();
        Box::pin(unfold(Some(states), |states| async {
            let mut states = states?;
            // An error says that the guard is gone, and with it all that could be told.
            states.changed().await.ok()?;
            let state = *states.borrow_and_update();
            let more = (state != HoldState::Lost).then_some(states);
            Some((state, more))
        }))
    }

    /// Resolves when the hold can no longer be relied on: another hand deleted the node, the session has ended, or it has
    /// been unheard of for so long that it may end soon. Stop the work then.
    ///
    /// It resolves before the servers can grant the next one, as long as this process runs. One that is paused cannot
    /// know: that is what the [token](Self::token) is for. And a deletion by another hand is told at once, which is after it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if the hold was lost meanwhile.
    pub async fn lost(&self) {
        if self.is_held() {
            let mut states = self.state.subscribe();
            // An error cannot happen: the other end of the channel is in this very hold.
            let _ = states.wait_for(|state| *state == HoldState::Lost).await;
        }
    }

    /// How long the hold is good for if no more answers come from the servers.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        match self.state() {
            HoldState::Lost => Duration::ZERO,
            _ => self.node.client().heart().deadline().left(),
        }
    }

    /// Resolves when the hold is lost, or will be within this time unless an answer comes: early enough to stop in order.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call looks again.
    pub async fn expiring(&self, ahead: Duration) {
        let client = self.node.client();
        let watched = async {
            loop {
                match self.time_left().checked_sub(ahead) {
                    None | Some(Duration::ZERO) => return,
                    Some(left) => client.home().sleep(left.min(look_again(client))).await,
                }
            }
        };
        tokio::select! {
            () = self.lost() => {}
            () = watched => {}
        }
    }

    /// Resolves when somebody asks to let go, also if that was before the hold began. The holder agrees by releasing, or goes
    /// on; nothing is taken away, unless the request tells of a [grace](Revocation::grace).
    ///
    /// ```no_run
    /// # async fn run(guard: bellwether::LockGuard, mut work: impl AsyncFnMut()) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     tokio::select! {
    ///         () = work() => {}
    ///         asked = guard.revoked() => {
    ///             println!("let go as asked by {:?}", asked.by);
    ///             return Ok(guard.release().await?);
    ///         }
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if somebody has asked meanwhile.
    pub async fn revoked(&self) -> Revocation {
        match self.revocations().next().await {
            Some(asked) => asked,
            // That cannot happen: the other end of the channel is in this very hold.
            None => std::future::pending().await,
        }
    }

    /// The requests to let go, as a stream: the last one that there is by now, then each newer one that is seen in time, for one
    /// who only asks may be followed by one who takes the hold away. It ends with the hold.
    pub fn revocations(&self) -> impl Stream<Item = Revocation> + Send + Unpin + use<> {
        let mut asked = self.asked.subscribe();
        asked.mark_changed();
        Box::pin(unfold(asked, |mut asked| async {
            loop {
                asked.changed().await.ok()?;
                let request = asked.borrow_and_update().clone();
                if let Some(request) = request {
                    return Some((request, asked));
                }
            }
        }))
    }

    /// The request to let go, if there is one by now.
    #[must_use]
    pub fn revocation(&self) -> Option<Revocation> {
        self.asked.borrow().clone()
    }

    /// How the hold before this one ended. [`Previous::Unknown`] unless a crash mark was asked for.
    #[must_use]
    pub fn previous(&self) -> &Previous {
        &self.previous
    }

    /// Records in the crash mark how far the work is, for the one who has to repair it if this holder dies. The last note
    /// counts.
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
        WriteError::check_size(note.as_ref().len())?;
        match &self.mark {
            Some(mark) => mark.note(&self.node, note.as_ref()).await,
            None => Err(WriteError::NoMark),
        }
    }

    /// Tells whoever holds next how this hold ended, in words such as `killed (SIGKILL)`, if it is not released: kept with the
    /// crash mark, as [`Crash::ended`](crate::Crash::ended).
    ///
    /// # Cancel safety
    ///
    /// As [`note`](Self::note).
    ///
    /// # Errors
    ///
    /// As [`note`](Self::note).
    pub async fn tell_ending(&self, how: &str) -> Result<(), WriteError> {
        WriteError::check_size(how.len())?;
        match &self.mark {
            Some(mark) => mark.tell_ending(&self.node, how).await,
            None => Err(WriteError::NoMark),
        }
    }

    /// What the own node says of its holder; `None` if it cannot be read.
    pub(crate) async fn who(&self) -> Option<Who> {
        let (data, _) = self
            .node
            .client()
            .zk()
            .get_data(self.node.path())
            .await
            .ok()?;
        Who::from_data(&data)
    }

    /// Begins a transaction that succeeds only while this hold is held.
    pub fn write(&self) -> FencedWrite<'_> {
        FencedWrite::new(&self.node)
    }

    /// Adds a word to the data of the node, in the background.
    pub(crate) fn say(&mut self, who: Who, word: impl Fn(&mut NodeData) + Send + Sync + 'static) {
        let client = self.node.client().clone();
        let node = self.node.path().to_owned();
        let home = client.home().clone();
        self.errand = Some(home.run(async move {
            let said = amend(
                client.zk(),
                &node,
                Known::created_by(&who),
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

    /// Makes an exclusive hold a shared one: says so on the node, and clears the crash mark in the same step.
    pub(crate) async fn downgrade(mut self, who: &Who) -> Result<Self, ReleaseError> {
        let parting = self.clean_end();
        match self
            .node
            .amend(Known::created_by(who), &parting, |data| {
                data.downgraded = true;
            })
            .await
        {
            Ok(_) => {
                self.mark = None;
                Ok(self)
            }
            Err(error) => {
                let path = self.path.clone();
                Err(match outcome(&error) {
                    Outcome::SessionEnded => ReleaseError::SessionEnded { path },
                    _ if error == zk::Error::NoNode => ReleaseError::NotHeld { path },
                    _ => ReleaseError::Refused {
                        path,
                        source: error,
                    },
                })
            }
        }
    }

    pub(crate) fn watch(&self) -> HoldWatch {
        HoldWatch::new(&self.state, self.node.client())
    }

    /// Adds a word to the data of the node, and waits until it is there.
    pub(crate) async fn amend(
        &self,
        known: Known,
        word: impl Fn(&mut NodeData),
    ) -> Result<Known, WriteError> {
        if !self.is_held() {
            return Err(WriteError::NotHeld);
        }
        let amended = self.node.amend(known, &Parting::Plain, word).await;
        amended.map_err(|source| match (outcome(&source), &source) {
            (Outcome::SessionEnded, _) => WriteError::SessionEnded,
            (_, zk::Error::NoNode) => WriteError::NotHeld,
            _ => WriteError::Refused { index: 0, source },
        })
    }

    /// Ends the hold cleanly and waits for the acknowledgement.
    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        let parting = self.clean_end();
        self.end(parting).await
    }

    /// Ends the hold and leaves the crash mark of the one before, if there was one.
    pub(crate) async fn release_unrepaired(self) -> Result<(), ReleaseError> {
        let parting = match &self.mark {
            Some(mark) => mark.unrepaired_end(),
            None => Parting::Plain,
        };
        self.end(parting).await
    }

    fn clean_end(&self) -> Parting {
        match &self.mark {
            Some(mark) => mark.clean_end(),
            None => Parting::Plain,
        }
    }

    /// Removes the node of a hold that is lost, in the background, though its guard is still there.
    pub(crate) fn abandon(&self) {
        let litter = Litter::Node(self.node.path().to_owned());
        self.node.client().janitor().remove(litter);
    }

    /// Ends the hold without a word: the node is known to be gone.
    pub(crate) fn forget(self) {
        self.node.forget();
    }

    /// Ends a hold that its caller never had, in the background: the node goes, and the mark is as it was before.
    pub(crate) fn undo(self) {
        let Self {
            over, node, mark, ..
        } = self;
        drop(over);
        if let Some(mark) = mark {
            node.undo(mark.into_marking());
        }
    }

    async fn end(self, parting: Parting) -> Result<(), ReleaseError> {
        let Self {
            over,
            path,
            node,
            // Kept until the end: the deletion uses up its watch, which would else have to be removed.
            _watch,
            ..
        } = self;
        drop(over);
        match node.remove(&parting).await {
            Removal::Done => Ok(()),
            Removal::WasGone => Err(ReleaseError::NotHeld { path }),
            Removal::SessionEnded => Err(ReleaseError::SessionEnded { path }),
            Removal::Refused(source) => Err(ReleaseError::Refused { path, source }),
        }
    }
}

/// Ends a hold at this end, before the servers hear of it.
#[derive(Debug)]
struct Over(watch::Sender<HoldState>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.send_replace(HoldState::Lost);
    }
}

/// Knows of a hold, and neither holds nor keeps anything. It outlives the hold, and copies are cheap.
#[derive(Clone, Debug)]
pub(crate) struct HoldWatch {
    state: watch::Sender<HoldState>,
    client: WeakClient,
}

impl HoldWatch {
    fn new(state: &watch::Sender<HoldState>, client: &Client) -> Self {
        Self {
            state: state.clone(),
            client: client.downgrade(),
        }
    }

    /// As [`Hold::is_held`].
    pub(crate) fn is_held(&self) -> bool {
        if self.client.upgrade().is_none_or(|client| is_over(&client)) {
            // Recorded: a late answer of the servers would else make it held again.
            self.state.send_replace(HoldState::Lost);
        }
        *self.state.borrow() != HoldState::Lost
    }

    /// As [`Hold::lost`].
    pub(crate) async fn lost(&self) {
        if self.is_held() {
            let mut state = self.state.subscribe();
            // An error cannot happen: the other end of the channel is in this very watch.
            let _ = state.wait_for(|state| *state == HoldState::Lost).await;
        }
    }
}
