//! One member of a group, kept present across sessions.

use bellwether_client as zk;
use bellwether_client::log;
use futures_core::Stream;
use futures_util::stream::unfold;
use tokio::sync::{oneshot, watch};
use tracing::warn;

use crate::error::StateError;
use crate::node::payload::Payload;
use crate::request::follow::read_with_watch;
use crate::request::latecomer::Latecomer;
use crate::request::litter::{Is, Litter};
use crate::request::node_event::NodeEvent;
use crate::request::site::{Site, Visit};
use crate::request::synced_read::caught_up;
use crate::session::call::call;
use crate::session::ephemerals::Room;
use crate::session::id::SessionId;
use crate::session::open_session::Session;
use crate::session::owned_names::Bearing;

/// How long to wait before a refused request is tried again, once the member had joined.
const REFUSED_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Membership in a [`Group`](crate::Group), or a name in [`Names`](crate::Names). When it is lost, it is restored by itself.
///
/// End it with [`leave`](Self::leave), which waits for the servers. A dropped membership ends in the background.
#[derive(Debug)]
#[must_use = "the membership ends when this is dropped"]
pub struct Membership {
    name: String,
    path: String,
    /// How much data one request carries.
    bytes_max: usize,
    wishes: watch::Sender<Wish>,
    report: watch::Receiver<Report>,
}

/// Whether other clients see a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipState {
    /// It is listed, in the session with this id.
    Present(SessionId),
    /// Its session has ended, or its node was deleted. It will be restored.
    Away,
    /// Another member has taken the name meanwhile. This member will be restored when the other has left.
    Displaced,
}

/// The state that the handle wants.
#[derive(Debug)]
struct Wish {
    data: Vec<u8>,
    /// How many there were before.
    number: u64,
    leave: bool,
}

/// The state that was reached.
#[derive(Clone, Copy, Debug)]
struct Report {
    state: MembershipState,
    /// The number of the wish that was last fulfilled.
    fulfilled: u64,
}

impl Membership {
    pub(crate) async fn begin(site: Site, name: String, data: Vec<u8>) -> Result<Self, StateError> {
        let visit = site.visit().await?;
        let path = format!("{}/{name}", site.path());
        let bytes_max = site.bytes_max(&visit, 1).saturating_sub(name.len());
        check_size(&path, &data, bytes_max)?;
        let home = visit.session.home().clone();
        let (wishes, wish) = watch::channel(Wish {
            data,
            number: 0,
            leave: false,
        });
        let (reports, report) = watch::channel(Report {
            state: MembershipState::Away,
            fulfilled: 0,
        });
        let (joined, has_joined) = oneshot::channel();
        let closed = site.refused(zk::Error::SessionEnded(zk::SessionEnd::Closed));
        let keeper = Keeper {
            site,
            name: name.clone(),
            wish,
            reports,
            joined: Some(joined),
            last_session: None,
        };
        // It ends when the handle is dropped and the node is deleted.
        home.spawn(keeper.keep());
        // Dropped while it waits, this leaves again.
        let membership = Self {
            name,
            path,
            bytes_max,
            wishes,
            report,
        };
        match has_joined.await {
            Ok(joined) => joined.map(|()| membership),
            // The task is gone only with its runtime.
            Err(_) => Err(closed),
        }
    }

    /// The name of the member.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether other clients see it now, as far as this process knows.
    #[must_use]
    pub fn state(&self) -> MembershipState {
        self.report.borrow().state
    }

    /// A stream of the states, the current one first. Quick changes may be skipped, but never the last one.
    pub fn states(&self) -> impl Stream<Item = MembershipState> + Send + Unpin + use<> {
        let mut report = self.report.clone();
        report.mark_changed();
        Box::pin(unfold((report, None), |(mut report, last)| async move {
            loop {
                report.changed().await.ok()?;
                let state = report.borrow_and_update().state;
                if last != Some(state) {
                    return Some((state, (report, Some(state))));
                }
            }
        }))
    }

    /// Changes the data, and waits until other clients can see it: one round trip while it is present.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only ends the wait: the data will be changed.
    ///
    /// # Errors
    ///
    /// [`StateError::TooLarge`] if it does not fit into one request, [`StateError::Refused`] if the client is closed, or the runtime of its
    /// session has ended.
    pub async fn update(&self, data: impl Into<Vec<u8>>) -> Result<(), StateError> {
        call!("group.update", self.path)
            .run(self.update_untraced(data))
            .await
    }

    async fn update_untraced(&self, data: impl Into<Vec<u8>>) -> Result<(), StateError> {
        let data = data.into();
        check_size(&self.path, &data, self.bytes_max)?;
        let mut number = 0;
        self.wishes.send_modify(|wish| {
            wish.data = data;
            wish.number += 1;
            number = wish.number;
        });
        let mut report = self.report.clone();
        let fulfilled = report.wait_for(|report| report.fulfilled >= number).await;
        match fulfilled {
            Ok(_) => Ok(()),
            Err(_) => Err(StateError::Refused {
                path: self.path.clone(),
                source: zk::Error::SessionEnded(zk::SessionEnd::Closed),
            }),
        }
    }

    /// As [`update`](Self::update), with a value: a [`String`], an [`Instance`](crate::state::Instance), or [`Json`](crate::Json) of a type of your
    /// own.
    ///
    /// # Cancel safety
    ///
    /// As [`update`](Self::update).
    ///
    /// # Errors
    ///
    /// [`StateError::Unreadable`] if the value cannot be encoded; else as [`update`](Self::update).
    pub async fn update_with<T: Payload>(&self, value: &T) -> Result<(), StateError> {
        let data = value.to_bytes().map_err(|source| StateError::Unreadable {
            path: self.path.clone(),
            source,
        })?;
        self.update(data).await
    }

    /// Leaves, and waits until the servers have acknowledged it, or the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background.
    pub async fn leave(self) {
        call!("group.leave", self.path)
            .wait(async move {
                self.wishes.send_modify(|wish| wish.leave = true);
                // The task has ended when it has nothing more to tell.
                let mut report = self.report.clone();
                while report.changed().await.is_ok() {}
            })
            .await;
    }
}

/// Servers close the connection on a request that is too large, and would do so at each retry.
fn check_size(path: &str, data: &[u8], bytes_max: usize) -> Result<(), StateError> {
    match data.len() <= bytes_max {
        true => Ok(()),
        false => Err(StateError::TooLarge {
            path: path.to_owned(),
            bytes: data.len(),
            bytes_max,
        }),
    }
}

/// Reconciles the node with the wanted state: it reads, does the next step, and reads again. So a lost reply needs no special care.
struct Keeper {
    site: Site,
    name: String,
    wish: watch::Receiver<Wish>,
    reports: watch::Sender<Report>,
    /// The call that waits for the first success.
    joined: Option<oneshot::Sender<Result<(), StateError>>>,
    /// The session that the node was in before.
    last_session: Option<i64>,
}

/// Why the work in a session ended.
enum Interrupted {
    SessionEnded(zk::Error),
    /// Nothing is left to do.
    Done,
}

/// What the last look found.
enum Standing {
    /// Our node, with this data.
    Own(Vec<u8>),
    /// There is no node, or another member's node that may be gone by now.
    Missing,
}

impl Keeper {
    async fn keep(mut self) {
        loop {
            let visit = tokio::select! {
                biased;
                visit = self.site.visit_in_time() => visit,
                () = left(self.wish.clone()) => return,
            };
            let visit = match visit {
                Ok(visit) => visit,
                Err(error) => return self.give_up(error),
            };
            let Err(interrupted) = self.stay(&visit).await;
            match interrupted {
                Interrupted::Done => return,
                Interrupted::SessionEnded(error) => {
                    self.last_session = Some(visit.session.session_id());
                    self.tell(MembershipState::Away);
                    if let Err(error) = self.site.again(&visit, error).await {
                        return self.give_up(error);
                    }
                }
            }
        }
    }

    /// Works in one session, from its beginning to its end.
    async fn stay(&mut self, visit: &Visit) -> Result<std::convert::Infallible, Interrupted> {
        let session = &visit.session;
        let node = visit.node.child(&self.name);
        // Creates without an answer: they may bring the member back when it has left. Dropped after the name is free.
        let mut late = None;
        let _bearing = self.bear(session, &node).await?;
        let Some(_room) = Room::reserve(session, node.len()) else {
            self.give_up(StateError::TooManyEphemerals {
                path: format!("{}/{}", self.site.path(), self.name),
                bytes: session.ephemerals().bytes(),
            });
            return Err(Interrupted::Done);
        };
        let mut standing = Standing::Missing;
        // A node of this session may be ours, from a create whose reply has not arrived.
        let mut in_doubt = false;
        // The zxid of the node that we have created.
        let mut created = None;
        // The last request may have been answered by a server that was ahead of the current one.
        let mut is_behind = false;
        loop {
            let (data, number, leave) = self.wish();
            let connection = session.zk().connections();
            // Sent ahead of the look, and answered before it.
            let step = self.step(visit, &node, &standing, &data, leave);
            let (step, look) = match is_behind {
                true => {
                    let look = caught_up(session.zk(), &node, || read_with_watch(session, &node));
                    tokio::join!(step, look)
                }
                false => tokio::join!(step, read_with_watch(session, &node)),
            };
            let look = match &step {
                // Then the look has gone to the next server alone.
                Err(error) if error.is_transient() => Err(*error),
                _ => look,
            };
            is_behind = look.is_err();
            let taken = matches!(&step, Err(zk::Error::NODE_EXISTS)) && !in_doubt;
            match step {
                Ok(czxid) => {
                    in_doubt |= matches!(standing, Standing::Missing);
                    created = czxid.or(created);
                }
                // The look tells.
                Err(zk::Error::NO_NODE | zk::Error::NODE_EXISTS) => {}
                Err(error @ zk::Error::SessionEnded(_)) => {
                    return Err(Interrupted::SessionEnded(error));
                }
                Err(error) if error.is_transient() => {
                    in_doubt |= error.is_in_doubt();
                    if matches!(standing, Standing::Missing) && error.is_in_doubt() {
                        let litter = Litter::Departed {
                            path: node.clone(),
                            session: session.downgrade(),
                        };
                        late.get_or_insert_with(|| Latecomer::new(session, litter, connection));
                    }
                }
                Err(error) => self.refused(visit, error).await?,
            }
            let (content, event) = match look {
                Ok(seen) => seen,
                Err(error) => match error {
                    error if error.is_transient() => {
                        // Our node may be gone by now, and another member's node may be there: nothing is deleted or overwritten before the
                        // next read.
                        in_doubt |= matches!(standing, Standing::Own(_));
                        standing = Standing::Missing;
                        continue;
                    }
                    zk::Error::SessionEnded(_) => return Err(Interrupted::SessionEnded(error)),
                    error => {
                        if let Some(czxid) = created.take_if(|_| self.joined.is_some()) {
                            take_back(session, &node, czxid).await;
                        }
                        self.refused(visit, error).await?;
                        continue;
                    }
                },
            };
            let owner = content.as_ref().map(|(_, stat)| stat.ephemeral_owner);
            let is_own = owner == Some(session.session_id());
            standing = match content {
                _ if leave && !is_own => return Err(Interrupted::Done),
                None => {
                    in_doubt = false;
                    self.tell(MembershipState::Away);
                    Standing::Missing
                }
                Some((found, _)) if is_own && !(taken && self.joined.is_some()) => {
                    if found == data && !leave {
                        self.fulfilled(session.session_id(), number);
                        self.rest(event).await;
                    }
                    Standing::Own(found.to_vec())
                }
                Some(_) if self.joined.is_some() => return Err(self.name_is_taken()),
                Some(_) => {
                    // The node of our own previous session ends with that session.
                    self.tell(match owner == self.last_session {
                        true => MembershipState::Away,
                        false => MembershipState::Displaced,
                    });
                    self.rest(event).await;
                    Standing::Missing
                }
            };
        }
    }

    /// Makes sure that a node of this session at the path is ours, and not another member's.
    async fn bear(&mut self, session: &Session, node: &str) -> Result<Bearing, Interrupted> {
        if let Some(bearing) = Bearing::take(session, node) {
            return Ok(bearing);
        }
        if self.joined.is_some() {
            return Err(self.name_is_taken());
        }
        self.tell(MembershipState::Displaced);
        tokio::select! {
            biased;
            bearing = Bearing::wait(session, node) => Ok(bearing),
            () = left(self.wish.clone()) => Err(Interrupted::Done),
            () = session.ended() => Err(Interrupted::SessionEnded(zk::Error::SessionEnded(zk::SessionEnd::Expired))),
        }
    }

    fn name_is_taken(&mut self) -> Interrupted {
        self.give_up(StateError::NameTaken {
            path: format!("{}/{}", self.site.path(), self.name),
        });
        Interrupted::Done
    }

    /// The next request, which leaves when this is first polled. The zxid of the node, if it creates one.
    async fn step(
        &self,
        visit: &Visit,
        node: &str,
        standing: &Standing,
        data: &[u8],
        leave: bool,
    ) -> Result<Option<i64>, zk::Error> {
        let zk = visit.session.zk();
        match standing {
            Standing::Own(_) if leave => zk.delete(node, None).await.map(|()| None),
            Standing::Own(found) if found == data => Ok(None),
            // Only we write it, so this is idempotent.
            Standing::Own(_) => zk.set(node, data, None).await.map(|_| None),
            Standing::Missing if leave => Ok(None),
            Standing::Missing => {
                let options = zk::CreateMode::Ephemeral.with_acl(self.site.access().acl());
                match zk.create(node, data, &options).await {
                    Ok(created) => Ok(Some(created.stat.czxid)),
                    Err(zk::Error::NO_NODE) => {
                        let made = self.site.make_node(visit).await;
                        // The node is made in the next step.
                        made.and(Err(zk::Error::NO_NODE))
                    }
                    Err(error) => Err(error),
                }
            }
        }
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

    fn wish(&mut self) -> (Vec<u8>, u64, bool) {
        let is_dropped = self.wish.has_changed().is_err();
        let wish = self.wish.borrow_and_update();
        (wish.data.clone(), wish.number, wish.leave || is_dropped)
    }

    /// A refused join returns the error; a member that is refused later retries.
    async fn refused(&mut self, visit: &Visit, error: zk::Error) -> Result<(), Interrupted> {
        if self.joined.is_some() {
            let error = self.site.refused(error);
            self.give_up(error);
            return Err(Interrupted::Done);
        }
        let (path, name) = (self.site.path().to_owned(), self.name.clone());
        log::emit(move || warn!(path, name, %error, "member is kept out"));
        if self.wish().2 {
            return Err(Interrupted::Done);
        }
        visit.session.home().sleep(REFUSED_PAUSE).await;
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

    fn give_up(&mut self, error: StateError) {
        match self.joined.take() {
            Some(joined) => drop(joined.send(Err(error))),
            None => {
                let (path, name) = (self.site.path().to_owned(), self.name.clone());
                log::emit(move || warn!(path, name, %error, "membership ends"));
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
        let litter = Litter::At(node.to_owned(), Is::Created(czxid));
        session.janitor().remove(litter);
    }
}

/// Resolves when the member is to leave.
async fn left(mut wish: watch::Receiver<Wish>) {
    // An error means that the handle is gone.
    let _ = wish.wait_for(|wish| wish.leave).await;
}
