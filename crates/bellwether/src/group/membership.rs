//! One member of a group, for as long as it wants to be.

use bellwether_client as zk;
use bellwether_client::log;
use futures_core::Stream;
use futures_util::stream::unfold;
use tokio::sync::{oneshot, watch};
use tracing::warn;

use crate::borne::Bearing;
use crate::catch_up::caught_up;
use crate::client::Client;
use crate::ephemerals::Room;
use crate::error::{Outcome, outcome};
use crate::janitor::Litter;
use crate::node_event::NodeEvent;
use crate::state::{Site, StateError, Visit, read_with_watch};

/// How long to wait before a refused request is tried again, once the member had joined.
const REFUSED_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// A place in a [`Group`](crate::Group), or a name in [`Names`](crate::Names). It comes back by itself whenever it is lost.
///
/// Give it up with [`leave`](Self::leave), which waits for the servers. Dropped, it is given up in the background.
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

/// Whether the others see a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipState {
    /// It is listed, in the session with this id.
    Present(i64),
    /// Its session has ended, or its node was deleted. It will be back.
    Away,
    /// Somebody else has taken the name meanwhile. It will be back when that one has gone.
    Displaced,
}

/// What is to be.
#[derive(Debug)]
struct Wish {
    data: Vec<u8>,
    /// How many there were before.
    number: u64,
    leave: bool,
}

/// What is.
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
        let home = visit.client.home().clone();
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
        // It ends when nobody wishes anything any more, and the node is gone.
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

    /// The name under which the others see it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the others see it now, as far as this end knows.
    #[must_use]
    pub fn state(&self) -> MembershipState {
        self.report.borrow().state
    }

    /// The states as they change, the present one first. What followed fast may be left out, but never the last one.
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

    /// Changes the data, and waits until the others can see it: one round trip while it is present.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only ends the wait: the data will be changed.
    ///
    /// # Errors
    ///
    /// [`StateError::TooLarge`] if it does not fit into one request, [`StateError::Refused`] if the runtime of the session has
    /// ended.
    pub async fn update(&self, data: impl Into<Vec<u8>>) -> Result<(), StateError> {
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

    /// Leaves, and waits until the servers have acknowledged it, or the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background.
    pub async fn leave(self) {
        self.wishes.send_modify(|wish| wish.leave = true);
        // The task has ended when it has nothing more to tell.
        let mut report = self.report.clone();
        while report.changed().await.is_ok() {}
    }
}

/// Servers close the connection on a request that is too large, and would do so each time that it is sent again.
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

/// Makes what is equal to what is to be: it looks, does the next step, and looks again. So a lost reply needs nothing
/// more.
struct Keeper {
    site: Site,
    name: String,
    wish: watch::Receiver<Wish>,
    reports: watch::Sender<Report>,
    /// Who waits for the first success.
    joined: Option<oneshot::Sender<Result<(), StateError>>>,
    /// The session that the node was in before.
    last_session: Option<i64>,
}

/// Why a session is no longer worked with.
enum Interrupted {
    SessionEnded(zk::Error),
    /// Nothing is left to do.
    Done,
}

/// What the last look found.
enum Standing {
    /// Our node, with this data.
    Own(Vec<u8>),
    /// No node, or another's that may have gone meanwhile.
    Missing,
}

impl Keeper {
    async fn keep(mut self) {
        loop {
            let visit = tokio::select! {
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
                    self.last_session = Some(visit.client.session_id());
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
        let client = &visit.client;
        let node = visit.node.child(&self.name);
        let _bearing = self.bear(client, &node).await?;
        let Some(_room) = Room::reserve(client, node.len()) else {
            self.give_up(StateError::TooManyEphemerals {
                path: format!("{}/{}", self.site.path(), self.name),
                bytes: client.ephemerals().bytes(),
            });
            return Err(Interrupted::Done);
        };
        let mut standing = Standing::Missing;
        // A node of this session may be the one that we have created, though we have not seen it yet.
        let mut in_doubt = false;
        // The zxid of the node that we have created.
        let mut created = None;
        // The last request may have gone through a server that knows more than this one.
        let mut is_behind = false;
        loop {
            let (data, number, leave) = self.wish();
            // Sent ahead of the look, and answered before it.
            let step = self.step(visit, &node, &standing, &data, leave);
            let (step, look) = match is_behind {
                true => {
                    let look = caught_up(client.zk(), &node, || read_with_watch(client, &node));
                    tokio::join!(step, look)
                }
                false => tokio::join!(step, read_with_watch(client, &node)),
            };
            let look = match &step {
                // Then the look has gone to the next server alone.
                Err(error) if outcome(error) == Outcome::Unknown => Err(*error),
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
                Err(error) => match outcome(&error) {
                    Outcome::Unknown => in_doubt = true,
                    Outcome::SessionEnded => return Err(Interrupted::SessionEnded(error)),
                    Outcome::Refused => self.refused(visit, error).await?,
                },
            }
            let (content, event) = match look {
                Ok(seen) => seen,
                Err(error) => match outcome(&error) {
                    Outcome::Unknown => {
                        // Our node may be gone by now, and another's stand there: nothing is deleted or written over
                        // before the next look.
                        in_doubt |= matches!(standing, Standing::Own(_));
                        standing = Standing::Missing;
                        continue;
                    }
                    Outcome::SessionEnded => return Err(Interrupted::SessionEnded(error)),
                    Outcome::Refused => {
                        if let Some(czxid) = created.take_if(|_| self.joined.is_some()) {
                            take_back(client, &node, czxid).await;
                        }
                        self.refused(visit, error).await?;
                        continue;
                    }
                },
            };
            let owner = content.as_ref().map(|(_, stat)| stat.ephemeral_owner);
            let is_own = owner == Some(client.session_id());
            standing = match content {
                _ if leave && !is_own => return Err(Interrupted::Done),
                None => {
                    in_doubt = false;
                    self.tell(MembershipState::Away);
                    Standing::Missing
                }
                Some((found, _)) if is_own && !(taken && self.joined.is_some()) => {
                    if found == data && !leave {
                        self.fulfilled(client.session_id(), number);
                        self.rest(event).await;
                    }
                    Standing::Own(found.to_vec())
                }
                Some(_) if self.joined.is_some() => return Err(self.name_is_taken()),
                Some(_) => {
                    // What our own last session has left will go with it.
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
    async fn bear(&mut self, client: &Client, node: &str) -> Result<Bearing, Interrupted> {
        if let Some(bearing) = Bearing::take(client, node) {
            return Ok(bearing);
        }
        if self.joined.is_some() {
            return Err(self.name_is_taken());
        }
        self.tell(MembershipState::Displaced);
        tokio::select! {
            bearing = Bearing::wait(client, node) => Ok(bearing),
            () = left(self.wish.clone()) => Err(Interrupted::Done),
            () = client.ended() => Err(Interrupted::SessionEnded(zk::Error::SessionEnded(zk::SessionEnd::Expired))),
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
        let zk = visit.client.zk();
        match standing {
            Standing::Own(_) if leave => zk.delete(node, None).await.map(|()| None),
            Standing::Own(found) if found == data => Ok(None),
            // Only we write it, so this is harmless twice.
            Standing::Own(_) => zk.set(node, data, None).await.map(|_| None),
            Standing::Missing if leave => Ok(None),
            Standing::Missing => {
                let options = zk::CreateMode::Ephemeral.with_acl(self.site.access().acl());
                match zk.create(node, data, &options).await {
                    Ok(created) => Ok(Some(created.stat.czxid)),
                    Err(zk::Error::NO_NODE) => {
                        let made = visit.client.make_directory(&visit.node, self.site.access());
                        // The node is made in the next step.
                        made.await.and(Err(zk::Error::NO_NODE))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Waits until something happens to the node, or something else is wished.
    async fn rest(&mut self, event: NodeEvent) {
        tokio::select! {
            _ = event => {}
            // An error means that nobody wishes anything any more.
            _ = self.wish.changed() => {}
        }
    }

    fn wish(&mut self) -> (Vec<u8>, u64, bool) {
        let is_dropped = self.wish.has_changed().is_err();
        let wish = self.wish.borrow_and_update();
        (wish.data.clone(), wish.number, wish.leave || is_dropped)
    }

    /// Who joins is told; a member that is refused later tries again.
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
        visit.client.home().sleep(REFUSED_PAUSE).await;
        Ok(())
    }

    fn fulfilled(&mut self, session: i64, number: u64) {
        self.reports.send_replace(Report {
            state: MembershipState::Present(session),
            fulfilled: number,
        });
        if let Some(joined) = self.joined.take() {
            // Who joined may have gone, and then leaves.
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

/// Deletes the node of a member that cannot be one, because it may not look at it. It was just created, so this is the one
/// that stands there; once a reply is lost, only a look can tell.
async fn take_back(client: &Client, node: &str, czxid: i64) {
    if let Err(error) = client.zk().delete(node, None).await
        && outcome(&error) == Outcome::Unknown
    {
        let litter = Litter::Created(node.to_owned(), czxid);
        client.janitor().remove(litter);
    }
}

/// Resolves when the member is to leave.
async fn left(mut wish: watch::Receiver<Wish>) {
    // An error means that nobody wishes anything any more.
    let _ = wish.wait_for(|wish| wish.leave).await;
}
