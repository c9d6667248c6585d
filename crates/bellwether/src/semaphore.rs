//! The semaphore.

mod applicant;

use std::ops::Deref;
use std::time::Duration;

use bellwether_client as zk;

use crate::client::Client;
use crate::contender::{Contender, Rule, TRIES_MAX};
use crate::error::{AcquireError, LimitError, ReleaseError};
use crate::hold::Hold;
use crate::lease;
use crate::name::{Kind, Layout};
use crate::path::NodePath;
use crate::terms::{Terms, layout_option, line_options};
use crate::waiting::Waiting;

use self::applicant::{Applicant, Denial, weight};

/// A number of permits, handed out in the order of arrival.
///
/// # What it guarantees
///
/// Among contenders that use this semaphore through the same servers, the permits that are held are never more than the
/// limit was when the last of them was given. Each has a [token](Hold::token) of its own, and [`lost`](Hold::lost) resolves
/// before the servers can give it to another.
///
/// # What it does not
///
/// In the [layout](Self::layout) of another library, each permit is had alone, and the limit is the one that each user gives.
/// It is advisory, as [`Lock`](crate::Lock) is. A lowered limit takes nothing back: it counts for those who come next. A
/// contender that wants more permits than there are waits until the limit is raised, and all behind it wait too.
///
/// # Node layout
///
/// The path is a persistent directory, whose data is the limit in decimal digits; contenders are ephemeral sequential nodes in
/// it, named `permit<number>-<session>-<acquisition>-<sequence>`.
///
/// # Fairness
///
/// Strict: nobody overtakes, not even where a later contender wants less. Those first in line hold as many permits as fit; the
/// first who waits watches the directory, and each one behind it the one before, so a release wakes one whichever holder it
/// was.
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
/// // While people wait, and for all of them.
/// downloads.set_limit(10).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    terms: Terms,
    /// The limit for a semaphore that is not there yet.
    first_limit: u32,
}

impl Semaphore {
    /// A semaphore at a path. The limit is the one that is stored on the server; `first_limit` is stored if there is none yet.
    /// Nothing is sent, nor is the path checked, until permits are acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>, first_limit: u32) -> Self {
        Self {
            terms: Terms::new(client, path),
            first_limit,
        }
    }

    line_options!();
    layout_option!();

    /// Waits for one permit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The node is deleted in the background, or with the session at the
    /// latest; a later call queues at the end.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    pub async fn acquire(&self) -> Result<Permit, AcquireError> {
        self.acquire_many(1).await
    }

    /// Waits for several permits, which come and go together. None at all counts as one.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit, AcquireError> {
        if self.terms.layout != Layout::Bellwether {
            self.only_one(permits)?;
            let hold = lease::acquire(&self.terms, self.first_limit).await?;
            return Ok(Permit { hold, permits: 1 });
        }
        let this = self.clone();
        let acquired = async move {
            let contender = this.enter(permits.max(1)).await?;
            this.admit(contender, permits.max(1)).await
        };
        self.terms.client.home().there(acquired).await
    }

    /// As [`acquire_many`](Self::acquire_many), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] when the limit has passed; else as [`acquire`](Self::acquire).
    pub async fn acquire_timeout(
        &self,
        permits: u32,
        limit: Duration,
    ) -> Result<Permit, AcquireError> {
        self.terms.within(limit, self.acquire_many(permits)).await
    }

    /// Takes permits if they are free and nobody waits; `None` otherwise.
    ///
    /// Looks first, so that a try in vain writes nothing.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, permits: u32) -> Result<Option<Permit>, AcquireError> {
        let this = self.clone();
        let tried = async move { this.attempt(permits).await };
        self.terms.client.home().there(tried).await
    }

    async fn attempt(&self, permits: u32) -> Result<Option<Permit>, AcquireError> {
        if self.terms.layout != Layout::Bellwether {
            self.only_one(permits)?;
            let hold = lease::try_acquire(&self.terms, self.first_limit).await?;
            return Ok(hold.map(|hold| Permit { hold, permits: 1 }));
        }
        let permits = permits.max(1);
        let dir = self.terms.dir()?;
        let limit = self.terms.client.zk().get(dir.as_str());
        let before = self.terms.contenders().await?;
        // A look that fails tells nothing: the next step hears why.
        if let Ok((data, _)) = limit.await
            && let Some(limit) = read_limit(&data)
            && weight(&before) + u64::from(permits) > limit
        {
            return Ok(None);
        }
        let mut applicant = Applicant::new(self.enter(permits).await?, permits, self.first_limit);
        let admitted = applicant.is_admitted().await;
        if !admitted.map_err(|denial| self.denied(denial))? {
            return Ok(None);
        }
        self.permit(applicant).await.map(Some)
    }

    /// Takes a place at the end of the line for permits, and returns without waiting for its turn: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn join(&self, permits: u32) -> Result<Waiting<Permit>, AcquireError> {
        let semaphore = self.clone();
        if self.terms.layout != Layout::Bellwether {
            self.only_one(permits)?;
            let contender = lease::join(&self.terms).await?;
            return Ok(Waiting::new(
                &self.terms,
                contender,
                async move |contender| {
                    let Self { terms, first_limit } = semaphore;
                    let hold = lease::take(&terms, contender, first_limit).await?;
                    Ok(Permit { hold, permits: 1 })
                },
            ));
        }
        let permits = permits.max(1);
        let contender = self.enter(permits).await?;
        Ok(Waiting::new(
            &self.terms,
            contender,
            async move |contender| semaphore.admit(contender, permits).await,
        ))
    }

    /// How many permits there are, in use or not.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`LimitError`].
    pub async fn limit(&self) -> Result<u32, LimitError> {
        if self.terms.layout != Layout::Bellwether {
            return Ok(self.first_limit);
        }
        let path = &self.terms.path;
        match self.terms.client.zk().get(self.dir()?.as_str()).await {
            Ok((data, _)) if data.is_empty() => Ok(self.first_limit),
            Ok((data, _)) => read_limit(&data)
                .and_then(|limit| u32::try_from(limit).ok())
                .ok_or_else(|| LimitError::NoLimit { path: path.clone() }),
            Err(zk::Error::NO_NODE) => Ok(self.first_limit),
            Err(source) => Err(LimitError::Failed {
                path: path.clone(),
                source,
            }),
        }
    }

    /// Changes how many permits there are, for everybody. Those who wait are let in if they fit now; those who hold more
    /// than the new limit keep it.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the limit may have been changed or not.
    ///
    /// # Errors
    ///
    /// See [`LimitError`].
    pub async fn set_limit(&self, limit: u32) -> Result<(), LimitError> {
        let Terms {
            client,
            access,
            path,
            layout,
            ..
        } = &self.terms;
        if *layout != Layout::Bellwether {
            return Err(LimitError::NotInLayout { path: path.clone() });
        }
        let (dir, data) = (self.dir()?, limit.to_string());
        let set = async || {
            let set = client.zk().set(dir.as_str(), data.as_bytes(), None);
            set.await.map(drop)
        };
        let mut done = set().await;
        for _ in 0..TRIES_MAX {
            if done != Err(zk::Error::NO_NODE) {
                break;
            }
            let made = client.make_kept_directory(&dir, data.as_bytes(), access);
            done = match made.await {
                // Somebody may have been quicker, with another limit; or what stands above was removed while it was made.
                Ok(()) | Err(zk::Error::NO_NODE) => set().await,
                Err(error) => Err(error),
            };
        }
        done.map_err(|source| LimitError::Failed {
            path: path.clone(),
            source,
        })
    }

    fn dir(&self) -> Result<NodePath, LimitError> {
        match NodePath::parse(&self.terms.path) {
            Ok(path) => Ok(self.terms.client.resolve(&path)),
            Err(source) => Err(LimitError::BadPath {
                path: self.terms.path.clone(),
                source,
            }),
        }
    }

    fn denied(&self, denial: Denial) -> AcquireError {
        match denial {
            Denial::NoLimit => AcquireError::NoLimit {
                path: self.terms.path.clone(),
            },
            Denial::Failed(failure) => self.terms.error(failure),
        }
    }

    fn only_one(&self, permits: u32) -> Result<(), AcquireError> {
        match permits {
            0 | 1 => Ok(()),
            _ => Err(AcquireError::NotInLayout {
                path: self.terms.path.clone(),
            }),
        }
    }

    async fn enter(&self, permits: u32) -> Result<Contender, AcquireError> {
        let kind = Kind::Permit(permits);
        let limit = self.first_limit;
        self.terms.join_limited(kind, Rule::COUNTED, limit).await
    }

    async fn admit(&self, contender: Contender, permits: u32) -> Result<Permit, AcquireError> {
        let mut applicant = Applicant::new(contender, permits, self.first_limit);
        let admitted = applicant.wait_for_admission().await;
        admitted.map_err(|denial| self.denied(denial))?;
        self.permit(applicant).await
    }

    async fn permit(&self, applicant: Applicant) -> Result<Permit, AcquireError> {
        let Applicant {
            contender, permits, ..
        } = applicant;
        let (who, is_followed) = (contender.who().clone(), contender.is_followed());
        let mut hold = self.terms.turn(contender).await?;
        // Those behind are told that this one waits no more. Where nobody was behind at the look that let it in, whoever comes
        // later sees as much from a look of their own.
        if is_followed {
            hold.say(who, |data| data.granted = true);
        }
        Ok(Permit { hold, permits })
    }
}

/// The limit that the data of a semaphore's directory tells.
pub(crate) fn read_limit(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data).ok()?.trim().parse().ok()
}

/// Permits of a [`Semaphore`]; what they promise is told at [`Hold`].
#[derive(Debug)]
#[must_use = "the permits are given back when this is dropped"]
pub struct Permit {
    hold: Hold,
    permits: u32,
}

impl Permit {
    /// How many there are.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Gives them back and waits for the server's acknowledgement, over any number of reconnects.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the permits does.
    ///
    /// # Errors
    ///
    /// See [`ReleaseError`]: the hold has ended all the same, but perhaps before this call.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release().await
    }
}

impl Deref for Permit {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}
