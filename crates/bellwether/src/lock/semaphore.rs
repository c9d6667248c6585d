//! The semaphore: permits, and contenders that wait for admission.

use std::time::Duration;

use bellwether_client as zk;

use crate::error::{Error, ErrorKind, Failure, OtherUse};
use crate::hold::{Hold, acquire_in_session, guard_of_a_hold};
use crate::line::contender::{Contender, Mode};
use crate::line::name::{Kind, Name, read_limit};
use crate::line::{WaitQueue, Waiting, line_options};
use crate::node::NodePath;
use crate::node::data::NodeData;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::retry::{Happened, NodeEvent, Retry, found, until_answered};
use crate::session::telemetry::call;

/// A number of permits, handed out in order of arrival.
///
/// # What it guarantees
///
/// Among contenders that use this semaphore through the same servers, the number of permits that are held never exceeds the limit at the
/// time of the last grant. Each guard has its own fencing [token](Hold::token), and [`lost`](Hold::lost) resolves before the servers can
/// grant the permits to another contender.
///
/// # What it does not
///
/// It is advisory, as [`Lock`](crate::Lock) is. A lowered limit revokes no permits: it applies to the next contenders. A contender that wants
/// more permits than the limit waits until the limit is raised, and all contenders behind it wait too.
///
/// # Node layout
///
/// The path is a persistent directory, whose data is the limit in decimal digits; contenders are ephemeral sequential nodes in
/// it, named `permit<number>-<session>-<acquisition>-<sequence>`.
///
/// # Fairness
///
/// Strict: no contender overtakes another, even if it wants fewer permits. The first contenders in line hold as many permits as fit; the
/// first waiter watches the directory, and each waiter behind it watches the waiter before it, so a release wakes one waiter.
///
/// # Session loss
///
/// As [`Lock`](crate::Lock).
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Semaphore};
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let downloads = Semaphore::new(client, "/limits/downloads", 5);
/// let permit = downloads.acquire().await?;
/// permit.release().await?;
/// // Also while contenders wait, and for all users.
/// downloads.set_limit(10).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    wait_queue: WaitQueue,
    /// The limit for a semaphore that does not exist yet.
    first_limit: u32,
}

impl Semaphore {
    /// A semaphore at a path. The limit is stored on the server; `first_limit` is stored if there is none yet. Nothing is sent, nor is the
    /// path checked, until permits are acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>, first_limit: u32) -> Self {
        Self {
            wait_queue: WaitQueue::new(client, path),
            first_limit,
        }
    }

    line_options!();

    /// Waits for one permit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The node is deleted in the background, or with the session at the
    /// latest; a later call joins the end of the line.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `InUse`, `TooLarge`, `TooManyEphemerals`, `SequenceUsedUp`, `NoSession`,
    /// `SessionEnded`, `Disconnected`, `Full`, `Removed`, `Refused`.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.acquire_many(1).await
    }

    /// Waits for several permits, which are acquired and released together. 0 counts as 1.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit, Error> {
        self.acquire_within(permits, None).await
    }

    /// Does the same as [`acquire`](Self::acquire), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the limit has passed; else as [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Permit, Error> {
        self.acquire_many_timeout(1, limit).await
    }

    /// Does the same as [`acquire_many`](Self::acquire_many), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    pub async fn acquire_many_timeout(
        &self,
        permits: u32,
        limit: Duration,
    ) -> Result<Permit, Error> {
        self.acquire_within(permits, Some(limit)).await
    }

    async fn acquire_within(&self, permits: u32, limit: Option<Duration>) -> Result<Permit, Error> {
        let runtime = self.wait_queue.options.client.runtime();
        let this = self.clone();
        let acquired = async move {
            let session = this.wait_queue.session().await?;
            let contender = this.enter(&session, permits.max(1)).await?;
            this.admit(contender, permits.max(1)).await
        };
        call!("semaphore.acquire", self.path())
            .waits(&self.wait_queue.options.client, limit)
            .hold(acquire_in_session(runtime, acquired))
            .await
    }

    /// Acquires a permit if one is free and no contender waits; `None` otherwise.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.try_acquire_many(1).await
    }

    /// Acquires several permits if they are free and no contender waits; `None` otherwise.
    ///
    /// Reads the line first, so that a refused try writes nothing.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>, Error> {
        call!("semaphore.try_acquire", self.path())
            .try_hold(async {
                let this = self.clone();
                let tried = async move { this.attempt(permits).await };
                acquire_in_session(self.wait_queue.options.client.runtime(), tried).await
            })
            .await
    }

    async fn attempt(&self, permits: u32) -> Result<Option<Permit>, Failure> {
        let session = self.wait_queue.session().await?;
        let permits = permits.max(1);
        let dir = self.wait_queue.dir()?;
        let limit = session.zk().get(dir.as_str());
        let before = self.wait_queue.contenders(&session).await?;
        // A failed look is ignored: the next request reports the reason.
        if let Ok((data, _)) = limit.await
            && let Some(limit) = read_limit(&data)
            && weight(&before) + u64::from(permits) > limit
        {
            return Ok(None);
        }
        let mut applicant = Applicant::new(
            self.enter(&session, permits).await?,
            permits,
            self.first_limit,
        );
        if !applicant.is_admitted().await? {
            return Ok(None);
        }
        self.permit(applicant).await.map(Some)
    }

    /// Joins the end of the line for a permit, and returns without waiting for its turn: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn join(&self) -> Result<Waiting<Permit>, Error> {
        self.join_many(1).await
    }

    /// Joins the end of the line for several permits, and returns without waiting for its turn: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn join_many(&self, permits: u32) -> Result<Waiting<Permit>, Error> {
        call!("semaphore.join", self.path())
            .run(async {
                let semaphore = self.clone();
                let session = self.wait_queue.session().await?;
                let permits = permits.max(1);
                let contender = self.enter(&session, permits).await?;
                let take = async move |contender| semaphore.admit(contender, permits).await;
                Ok(Waiting::new(&self.wait_queue, contender, take))
            })
            .await
    }

    /// The limit: how many permits there are, in use or not.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`, `InUse`.
    pub async fn limit(&self) -> Result<u32, Error> {
        call!("semaphore.limit", self.path())
            .run(async {
                let session = self.wait_queue.session().await?;
                let dir = self.wait_queue.dir()?;
                let read = until_answered(|| session.zk().get(dir.as_str())).await;
                match found(read)? {
                    Some((data, _)) if !data.is_empty() => {
                        let limit = read_limit(&data).and_then(|limit| u32::try_from(limit).ok());
                        Ok(limit.ok_or(NO_LIMIT)?)
                    }
                    _ => Ok(self.first_limit),
                }
            })
            .await
    }

    /// Changes the limit for all users. Waiters are admitted if they fit now; holders keep their permits, even beyond a lower limit.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the limit may have been changed or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn set_limit(&self, limit: u32) -> Result<(), Error> {
        call!("semaphore.set_limit", self.path())
            .run(async {
                let (dir, data) = (self.wait_queue.dir()?, limit.to_string());
                let session = self.wait_queue.session().await?;
                Ok(self.set_data(&session, &dir, data.as_bytes()).await?)
            })
            .await
    }

    /// Writes the limit once. If the reply is lost, a second write could overwrite a limit that another client has set meanwhile; so each
    /// write is made at the version that was read, and the next read shows whether it took effect.
    async fn set_data(
        &self,
        session: &Session,
        dir: &NodePath,
        limit: &[u8],
    ) -> Result<(), zk::Error> {
        let access = &self.wait_queue.options.access;
        let mut retry = Retry::limited();
        let mut in_doubt = None;
        loop {
            let read = until_answered(|| session.zk().get(dir.as_str())).await;
            let Some((data, stat)) = found(read)? else {
                let made = session.make_kept_directory(dir, limit, access).await;
                retry.again_after(made)?;
                continue;
            };
            // After two writes, ours may have been the first.
            let is_overwritten =
                in_doubt.is_some_and(|version| stat.version.wrapping_sub(version) > 1);
            if data == limit || is_overwritten {
                return Ok(());
            }
            let set = session.zk().set(dir.as_str(), limit, Some(stat.version));
            match set.await {
                Ok(_) => return Ok(()),
                Err(zk::Error::BAD_VERSION | zk::Error::NO_NODE) => retry.again_after(Ok(()))?,
                Err(error) => {
                    in_doubt = Some(stat.version);
                    retry.again(error)?;
                }
            }
        }
    }

    async fn enter(&self, session: &Session, permits: u32) -> Result<Contender, Failure> {
        let kind = Kind::Permit(permits);
        let limit = self.first_limit;
        self.wait_queue
            .join_limited(session, kind, Mode::COUNTED, limit)
            .await
    }

    async fn admit(&self, contender: Contender, permits: u32) -> Result<Permit, Failure> {
        let mut applicant = Applicant::new(contender, permits, self.first_limit);
        applicant.wait_for_admission().await?;
        self.permit(applicant).await
    }

    async fn permit(&self, applicant: Applicant) -> Result<Permit, Failure> {
        let Applicant {
            contender, permits, ..
        } = applicant;
        let (who, is_followed) = (contender.who().clone(), contender.is_followed());
        let mut hold = self.wait_queue.turn(contender).await?;
        // Tells the waiters behind that this contender waits no more. If none was behind at the look that admitted it, later contenders see
        // it in their own first look.
        if is_followed {
            hold.update_in_background(who, |data| data.granted = true);
        }
        Ok(Permit { hold, permits })
    }
}

/// Permits of a [`Semaphore`]; see [`Hold`] for what they promise.
#[derive(Debug)]
#[must_use = "the permits are released when this is dropped"]
pub struct Permit {
    hold: Hold,
    permits: u32,
}

impl Permit {
    /// Returns the number of permits that this guard holds.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }
}

guard_of_a_hold!(Permit, release);

/// Returns the number of permits that these want together.
fn weight<'a>(names: impl IntoIterator<Item = &'a Name>) -> u64 {
    let permits = names.into_iter().map(|name| u64::from(name.permits()));
    permits.sum()
}

/// A contender for permits.
struct Applicant {
    contender: Contender,
    permits: u32,
    first_limit: u32,
    /// True if it watches the whole line, because all contenders before it have their permits, or may have. A change of the limit does not
    /// change that.
    is_first: bool,
    /// Kept over wake-ups by other things.
    limit_watch: Option<NodeEvent>,
}

impl Applicant {
    fn new(contender: Contender, permits: u32, first_limit: u32) -> Self {
        Self {
            contender,
            permits,
            first_limit,
            is_first: false,
            limit_watch: None,
        }
    }

    async fn wait_for_admission(&mut self) -> Result<(), Failure> {
        while !self.is_admitted().await? {
            self.is_first |= weight(self.contender.lower()) <= self.limit().await?.0;
            if self.is_first {
                self.wait_for_the_line().await?;
            } else {
                self.wait_for_the_one_before().await?;
            }
        }
        Ok(())
    }

    /// Returns whether the contenders before it leave enough permits, as of the last look. Contenders behind it do not count, since none
    /// overtakes.
    async fn is_admitted(&mut self) -> Result<bool, Failure> {
        let (limit, _) = self.limit().await?;
        Ok(weight(self.contender.lower()) + u64::from(self.permits) <= limit)
    }

    /// The limit, and the zxid that set it, as of the last look. Sets it if it was never set.
    async fn limit(&mut self) -> Result<(u64, i64), Failure> {
        loop {
            let (data, stat) = match self.contender.directory() {
                Some(directory) => directory,
                None => {
                    self.contender.list().await?;
                    continue;
                }
            };
            if !data.is_empty() {
                let limit = read_limit(data).ok_or(NO_LIMIT)?;
                return Ok((limit, stat.mzxid));
            }
            let (zk, dir) = (self.contender.session().zk(), self.contender.dir());
            let limit = self.first_limit.to_string();
            let set = zk.set(dir.as_str(), limit.as_bytes(), Some(stat.version));
            match set.await {
                // The next look shows the limit that was set.
                Ok(_) | Err(zk::Error::BAD_VERSION) => {}
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(error.into()),
            }
            self.contender.list().await?;
        }
    }

    /// First waiter in line: reads the line with watches, and waits until a holder leaves or the limit changes.
    async fn wait_for_the_line(&mut self) -> Result<(), Failure> {
        let limit_watch = self.limit_watch.take();
        let (mut line, mut limit) = self.contender.watch_line(limit_watch).await?;
        if self.is_admitted().await? {
            return Ok(());
        }
        let event = tokio::select! {
            biased;
            event = &mut line => {
                self.limit_watch = Some(limit);
                event
            }
            event = &mut limit => event,
        };
        match event {
            Happened::SessionEnded => Err(ErrorKind::SessionEnded.into()),
            _ => Ok(()),
        }
    }

    /// Behind another waiter: waits until that waiter is admitted or leaves.
    async fn wait_for_the_one_before(&mut self) -> Result<(), Failure> {
        let (_, limit_set_at) = self.limit().await?;
        let Some(before) = self.contender.nearest() else {
            return Ok(());
        };
        let path = self.contender.dir().child(before);
        let zk = self.contender.session().zk();
        match zk.get_watched(&path).await {
            // A contender from before the last change of the limit may have been admitted by the earlier limit.
            Ok((data, stat, _)) if stat.czxid < limit_set_at || is_granted(&data) => {
                self.is_first = true;
                Ok(())
            }
            Ok((_, _, watch)) => match self.contender.wait(NodeEvent::of(watch)).await? {
                Happened::Deleted => self.contender.list().await,
                // Admitted, or its data changed: watching the line is safe in both cases.
                _ => {
                    self.is_first = true;
                    Ok(())
                }
            },
            Err(error) if error == zk::Error::NO_NODE || error.is_transient() => {
                self.contender.list().await
            }
            Err(error) => Err(error.into()),
        }
    }
}

const NO_LIMIT: ErrorKind = ErrorKind::InUse(OtherUse::NoLimit);

fn is_granted(data: &[u8]) -> bool {
    NodeData::from_data(data).is_some_and(|data| data.granted)
}
