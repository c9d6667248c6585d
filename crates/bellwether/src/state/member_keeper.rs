//! The task that keeps one member of a group present, across sessions.

use std::convert::Infallible;
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use tokio::sync::{oneshot, watch};
use tracing::warn;

use crate::error::{ErrorKind, Failure};
use crate::request::{Content, OpenNode, PersistentNode, read_with_watch};
use crate::session::cleaner::{Is, Latecomer, Leftover};
use crate::session::retry::{NodeEvent, read_synced};
use crate::session::runtime::SessionRuntime;
use crate::session::{NameReservation, Reserved, Session};
use crate::state::group::MembershipState;

/// The pause before a refused request is tried again, once the member had joined.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The state that the handle wants.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) data: Vec<u8>,
    /// The number of wishes before it.
    pub(super) number: u64,
    pub(super) leave: bool,
}

/// The state that was reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) state: MembershipState,
    /// The number of the wish that was last fulfilled.
    pub(super) fulfilled: u64,
}

/// The part of a member that lasts from one session of the member to the next.
pub(super) struct MemberKeeper {
    group: PersistentNode,
    name: String,
    wish: watch::Receiver<Wish>,
    reports: watch::Sender<Report>,
    /// The call that waits for the first success.
    joined: Option<oneshot::Sender<Result<(), Failure>>>,
    /// The session that the node was in before.
    last_session: Option<i64>,
}

/// The reason why the work in a session ended.
enum StayEnd {
    SessionEnded(zk::Error),
    /// Nothing is left to do.
    Done,
}

impl MemberKeeper {
    /// Starts the task. It ends when the handle is dropped and the node is deleted. What this returns tells when the member has joined, or
    /// why it has not.
    pub(super) fn start(
        runtime: &SessionRuntime,
        group: PersistentNode,
        name: String,
        wish: watch::Receiver<Wish>,
        reports: watch::Sender<Report>,
    ) -> oneshot::Receiver<Result<(), Failure>> {
        let (joined, has_joined) = oneshot::channel();
        let keeper = Self {
            group,
            name,
            wish,
            reports,
            joined: Some(joined),
            last_session: None,
        };
        runtime.spawn_detached(keeper.keep());
        has_joined
    }

    async fn keep(mut self) {
        loop {
            let opened = tokio::select! {
                biased;
                opened = self.group.open_in_time() => opened,
                () = left(self.wish.clone()) => return,
            };
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => return self.give_up(error),
            };
            let Err(interrupted) = self.stay(&opened).await;
            match interrupted {
                StayEnd::Done => return,
                StayEnd::SessionEnded(error) => {
                    self.last_session = Some(opened.session.session_id());
                    self.tell(MembershipState::Away);
                    if let Err(error) = self.group.again(&opened, error).await {
                        return self.give_up(error);
                    }
                }
            }
        }
    }

    /// Works in one session, from its beginning to its end.
    async fn stay(&mut self, opened: &OpenNode) -> Result<Infallible, StayEnd> {
        let mut stay = Stay::begin(self, opened).await?;
        loop {
            stay.turn().await?;
        }
    }

    /// Makes sure that a node of this session at the path is ours, and not another member's.
    async fn reserve_name(
        &mut self,
        session: &Session,
        node: &str,
    ) -> Result<NameReservation, StayEnd> {
        if let Some(reservation) = NameReservation::take(session, node) {
            return Ok(reservation);
        }
        if self.joined.is_some() {
            return Err(self.name_is_taken());
        }
        self.tell(MembershipState::Displaced);
        tokio::select! {
            biased;
            reservation = NameReservation::wait(session, node) => Ok(reservation),
            () = left(self.wish.clone()) => Err(StayEnd::Done),
            () = session.ended() => Err(StayEnd::SessionEnded(zk::Error::SessionEnded(zk::SessionEnd::Expired))),
        }
    }

    fn name_is_taken(&mut self) -> StayEnd {
        self.give_up(Failure::elsewhere(self.path(), ErrorKind::NameTaken));
        StayEnd::Done
    }

    /// Waits until the node changes, or the handle wants another state.
    async fn rest(&mut self, event: NodeEvent) {
        tokio::select! {
            biased;
            _ = event => {}
            // An error means that the handle is gone.
            _ = self.wish.changed() => {}
        }
    }

    fn wish(&mut self) -> Wish {
        let is_dropped = self.wish.has_changed().is_err();
        let mut wish = self.wish.borrow_and_update().clone();
        wish.leave |= is_dropped;
        wish
    }

    /// A refused join returns the error; a member that is refused later retries.
    async fn refused(&mut self, opened: &OpenNode, error: zk::Error) -> Result<(), StayEnd> {
        if self.joined.is_some() {
            let error = self.group.failed(error);
            self.give_up(error);
            return Err(StayEnd::Done);
        }
        let (path, name) = (self.group.path().to_owned(), self.name.clone());
        log::emit(move || warn!(path, name, %error, "member is kept out"));
        if self.wish().leave {
            return Err(StayEnd::Done);
        }
        opened.session.runtime().sleep(REFUSED_PAUSE).await;
        Ok(())
    }

    fn fulfilled(&mut self, session: i64, number: u64) {
        self.reports.send_replace(Report {
            state: MembershipState::Present(session.into()),
            fulfilled: number,
        });
        if let Some(joined) = self.joined.take() {
            // If the handle is gone, the member leaves.
            let _ = joined.send(Ok(()));
        }
    }

    fn tell(&self, state: MembershipState) {
        self.reports.send_modify(|report| report.state = state);
    }

    fn give_up(&mut self, failure: Failure) {
        match self.joined.take() {
            Some(joined) => drop(joined.send(Err(failure))),
            None => {
                let (path, name) = (self.group.path().to_owned(), self.name.clone());
                let error = failure.of("group.join", &path);
                log::emit(move || warn!(path, name, %error, "membership ends"));
            }
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.group.path(), self.name)
    }
}

/// Resolves when the member is to leave.
async fn left(mut wish: watch::Receiver<Wish>) {
    // An error means that the handle is gone.
    let _ = wish.wait_for(|wish| wish.leave).await;
}

/// The work in one session. It reconciles the node with the wanted state: it does the next step, looks, and does the next one. So a lost
/// reply needs no special care.
struct Stay<'a> {
    keeper: &'a mut MemberKeeper,
    opened: &'a OpenNode,
    node: String,
    last_seen: LastSeen,
    /// A node of this session may be ours, from a create whose reply has not arrived.
    in_doubt: bool,
    /// The zxid of the node that we have created.
    created: Option<i64>,
    /// The last request may have been answered by a server that was ahead of the current one.
    is_behind: bool,
    _reserved: Reserved,
    _name: NameReservation,
    /// Creates without an answer: they may bring the member back when it has left. Dropped last, when the name is free.
    late: Option<Latecomer>,
}

/// The result of the last look.
enum LastSeen {
    /// Our node, with this data.
    Own(Vec<u8>),
    /// There is no node, or another member's node that may be gone by now.
    Missing,
}

type ReadNode = Result<(Option<Content>, NodeEvent), zk::Error>;

impl<'a> Stay<'a> {
    async fn begin(keeper: &'a mut MemberKeeper, opened: &'a OpenNode) -> Result<Self, StayEnd> {
        let session = &opened.session;
        let node = opened.path.child(&keeper.name);
        let reservation = keeper.reserve_name(session, &node).await?;
        let Some(reserved) = session.ephemeral_quota().reserve(node.len()) else {
            let bytes = session.ephemeral_quota().bytes();
            let kind = ErrorKind::TooManyEphemerals { bytes };
            keeper.give_up(Failure::elsewhere(keeper.path(), kind));
            return Err(StayEnd::Done);
        };
        Ok(Self {
            keeper,
            opened,
            node,
            last_seen: LastSeen::Missing,
            in_doubt: false,
            created: None,
            is_behind: false,
            _reserved: reserved,
            _name: reservation,
            late: None,
        })
    }

    /// Makes one step and one look, and then a rest if nothing is left to do.
    async fn turn(&mut self) -> Result<(), StayEnd> {
        let wish = self.keeper.wish();
        let connection = self.session().zk().connections();
        let (step, look) = self.step_and_look(&wish).await;
        self.is_behind = look.is_err();
        let is_taken = matches!(&step, Err(zk::Error::NODE_EXISTS)) && !self.in_doubt;
        self.stepped(step, connection).await?;
        match look {
            Ok((content, event)) => self.reconcile(&wish, content, event, is_taken).await,
            Err(error) => self.not_seen(error).await,
        }
    }

    fn session(&self) -> &'a Session {
        &self.opened.session
    }

    async fn step_and_look(&self, wish: &Wish) -> (Result<Option<i64>, zk::Error>, ReadNode) {
        let (session, node) = (self.session(), &self.node);
        // Sent ahead of the look, and answered before it.
        let step = self.step(wish);
        let (step, look) = match self.is_behind {
            true => {
                let look = read_synced(session.zk(), node, || read_with_watch(session, node));
                tokio::join!(step, look)
            }
            false => tokio::join!(step, read_with_watch(session, node)),
        };
        match step {
            // Then the look has gone to the next server alone.
            Err(error) if error.is_transient() => (step, Err(error)),
            _ => (step, look),
        }
    }

    /// The next request, which leaves when this is first polled. The zxid of the node, if it creates one.
    async fn step(&self, wish: &Wish) -> Result<Option<i64>, zk::Error> {
        let (zk, node, data) = (self.session().zk(), &self.node, &wish.data);
        match &self.last_seen {
            LastSeen::Own(_) if wish.leave => zk.delete(node, None).await.map(|()| None),
            LastSeen::Own(found) if found == data => Ok(None),
            // Only we write it, so this is idempotent.
            LastSeen::Own(_) => zk.set(node, data, None).await.map(|_| None),
            LastSeen::Missing if wish.leave => Ok(None),
            LastSeen::Missing => {
                let group = &self.keeper.group;
                let options = zk::CreateMode::Ephemeral.with_acl(group.access().acl());
                match zk.create(node, data, &options).await {
                    Ok(created) => Ok(Some(created.stat.czxid)),
                    Err(zk::Error::NO_NODE) => {
                        let made = group.make_node(self.opened).await;
                        // The node is made in the next step.
                        made.and(Err(zk::Error::NO_NODE))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Takes note of how the step ended, which was sent through the connection of this number.
    async fn stepped(
        &mut self,
        step: Result<Option<i64>, zk::Error>,
        connection: u64,
    ) -> Result<(), StayEnd> {
        let is_missing = matches!(self.last_seen, LastSeen::Missing);
        match step {
            Ok(czxid) => {
                self.in_doubt |= is_missing;
                self.created = czxid.or(self.created);
            }
            // The look tells.
            Err(zk::Error::NO_NODE | zk::Error::NODE_EXISTS) => {}
            Err(error @ zk::Error::SessionEnded(_)) => {
                return Err(StayEnd::SessionEnded(error));
            }
            Err(error) if error.is_transient() => {
                self.in_doubt |= error.is_in_doubt();
                if is_missing && error.is_in_doubt() && self.late.is_none() {
                    let session = self.session();
                    let leftover = Leftover::Departed {
                        path: self.node.clone(),
                        session: session.downgrade(),
                    };
                    self.late = Some(Latecomer::new(session, leftover, connection));
                }
            }
            Err(error) => self.keeper.refused(self.opened, error).await?,
        }
        Ok(())
    }

    /// Compares what is there with what is wanted. If they agree, it waits for the next change of either.
    async fn reconcile(
        &mut self,
        wish: &Wish,
        content: Option<Content>,
        event: NodeEvent,
        is_taken: bool,
    ) -> Result<(), StayEnd> {
        let id = self.session().session_id();
        let keeper = &mut *self.keeper;
        let owner = content.as_ref().map(|(_, stat)| stat.ephemeral_owner);
        let is_own = owner == Some(id);
        self.last_seen = match content {
            _ if wish.leave && !is_own => return Err(StayEnd::Done),
            None => {
                self.in_doubt = false;
                keeper.tell(MembershipState::Away);
                LastSeen::Missing
            }
            Some((found, _)) if is_own && !(is_taken && keeper.joined.is_some()) => {
                if found == wish.data && !wish.leave {
                    keeper.fulfilled(id, wish.number);
                    keeper.rest(event).await;
                }
                LastSeen::Own(found.to_vec())
            }
            Some(_) if keeper.joined.is_some() => return Err(keeper.name_is_taken()),
            Some(_) => {
                // The node of our own previous session ends with that session.
                keeper.tell(match owner == keeper.last_session {
                    true => MembershipState::Away,
                    false => MembershipState::Displaced,
                });
                keeper.rest(event).await;
                LastSeen::Missing
            }
        };
        Ok(())
    }

    async fn not_seen(&mut self, error: zk::Error) -> Result<(), StayEnd> {
        match error {
            error if error.is_transient() => {
                // Our node may be gone by now, and another member's node may be there: nothing is deleted or overwritten before the next
                // read.
                self.in_doubt |= matches!(self.last_seen, LastSeen::Own(_));
                self.last_seen = LastSeen::Missing;
                Ok(())
            }
            zk::Error::SessionEnded(_) => Err(StayEnd::SessionEnded(error)),
            error => {
                let is_joining = self.keeper.joined.is_some();
                if let Some(czxid) = self.created.take_if(|_| is_joining) {
                    take_back(self.session(), &self.node, czxid).await;
                }
                self.keeper.refused(self.opened, error).await
            }
        }
    }
}

/// Deletes the node of a member that has no permission to read it. The node was just created, so it is certainly ours; after a lost reply
/// only a read could tell.
async fn take_back(session: &Session, node: &str, czxid: i64) {
    if let Err(error) = session.zk().delete(node, None).await
        && error.is_transient()
    {
        let leftover = Leftover::At(node.to_owned(), Is::Created(czxid));
        session.cleaner().remove(leftover);
    }
}
