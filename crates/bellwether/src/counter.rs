//! A number that many add to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether_client as zk;
use futures_util::StreamExt;

use crate::access::Access;
use crate::client::Client;
use crate::clock::Moment;
use crate::receipt::Written;
use crate::state::{Follow, NotWritten, Seen, Site, StateError, Watch, set_at};

/// How long a value that was seen is added to without another look.
const TRUSTED_FOR: Duration = Duration::from_secs(3);

/// A number in a node, which many clients may add to. Clones share what they know of it.
///
/// # What it guarantees
///
/// An addition that was acknowledged was made exactly once, however often the connection broke. The value is the sum of all
/// additions that were made.
///
/// # What it does not
///
/// When the session ends between a request and its answer, nobody can say whether the addition was made:
/// [`StateError::OutcomeUnknown`]. Additions of many clients at once stand in each other's way: each is made on a value that
/// was read before, and tried again when another came between.
///
/// A node that is deleted and made again counts its versions from the start, and the servers cannot tell it from the one before. If
/// others reset a counter by deletion and have brought it to the very version that this one saw in the last few seconds, their
/// additions are written over. Reset it by [`compare_and_set`](Self::compare_and_set) instead.
///
/// # Node layout
///
/// The path is a persistent node with the number in decimal digits; where it is missing, the value is 0. Beside it stand
/// `receipt-…`, ephemeral nodes, one for each addition that a client has under way at once.
///
/// # Fairness
///
/// None: of two additions at once, the one whose request comes first is made first, and the other one tries again.
///
/// # Session loss
///
/// The next call opens another session.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Counter, StateError};
/// # async fn run(client: &Client) -> Result<(), StateError> {
/// let visitors = Counter::new(client, "/stats/visitors");
/// let now = visitors.add(1).await?;
/// # let _ = now;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Counter {
    site: Site,
    /// The value as it was last seen, so that additions in a row need no read if nobody else was there.
    known: Arc<Mutex<Option<Known>>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    value: i64,
    /// `None` if the node is missing.
    version: Option<i32>,
    /// When it was asked for or written.
    at: Moment,
}

impl Known {
    /// Whether a node of this version is still the one that was seen, as far as can be: one that was made anew begins at version
    /// 0, and needs time to come to another.
    fn is_trusted(&self) -> bool {
        self.version != Some(0) && Moment::now() - self.at < TRUSTED_FOR
    }
}

/// How an attempt to write ended.
enum Attempt {
    Written,
    /// Somebody else has written since the value was read.
    Overtaken,
}

impl Counter {
    /// A counter at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            site: Site::new(client, path.into()),
            known: Arc::default(),
        }
    }

    /// Who may touch the nodes. Everybody unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            site: self.site.with_access(Access::new(acl)),
            ..self
        }
    }

    /// The value, as the server that this client is connected to knows it: one round trip.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn get(&self) -> Result<i64, StateError> {
        Ok(self.read().await?.value)
    }

    /// Adds to the value, exactly once, and returns the sum: one round trip if this counter has added in the last seconds and nobody
    /// else since, two if it is long ago, and three for each who came between.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been made or not, once at most.
    ///
    /// # Errors
    ///
    /// See [`StateError`]. Only after [`OutcomeUnknown`](StateError::OutcomeUnknown) it may have been made.
    pub async fn add(&self, by: i64) -> Result<i64, StateError> {
        let mut known = self.trusted();
        loop {
            let from = match known {
                Some(known) => known,
                None => self.read().await?,
            };
            let Some(sum) = from.value.checked_add(by) else {
                // What is known may be old; what was just read is not.
                match known.take() {
                    Some(_) => continue,
                    None => {
                        return Err(StateError::OutOfRange {
                            path: self.site.path().to_owned(),
                        });
                    }
                }
            };
            match self.write(from, sum).await? {
                Attempt::Written => return Ok(sum),
                Attempt::Overtaken => known = None,
            }
        }
    }

    /// Sets the value if it is what is expected, exactly once, and tells whether it did.
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub async fn compare_and_set(&self, expected: i64, value: i64) -> Result<bool, StateError> {
        let mut known = self.trusted();
        loop {
            let from = match known.take() {
                Some(known) if known.value == expected => known,
                // What is known may be old, so only what is read now can say no.
                _ => self.read().await?,
            };
            if from.value != expected {
                return Ok(false);
            }
            if let Attempt::Written = self.write(from, value).await? {
                return Ok(true);
            }
        }
    }

    /// The value as it changes: the present one first. See [`Watch`]. A missing node is 0.
    pub fn watch(&self) -> Watch<i64> {
        let site = self.site.clone();
        let seen = Follow::new(self.site.clone()).stream();
        Watch::new(seen.map(move |seen| match seen? {
            Seen::Value((data, _)) => parse(&site, &data).map(Seen::Value),
            Seen::Absent => Ok(Seen::Value(0)),
            Seen::Renewed => Ok(Seen::Renewed),
        }))
    }

    async fn read(&self) -> Result<Known, StateError> {
        loop {
            let visit = self.site.visit().await?;
            let at = Moment::now();
            let known = match visit.client.zk().get(visit.node.as_str()).await {
                Ok((data, stat)) => Known {
                    value: parse(&self.site, &data)?,
                    version: Some(stat.version),
                    at,
                },
                Err(zk::Error::NO_NODE) => Known {
                    value: 0,
                    version: None,
                    at,
                },
                Err(error) => {
                    self.site.again(&visit, error).await?;
                    continue;
                }
            };
            *self.known() = Some(known);
            return Ok(known);
        }
    }

    async fn write(&self, from: Known, value: i64) -> Result<Attempt, StateError> {
        let at = Moment::now();
        let data = value.to_string();
        let options = zk::CreateMode::Persistent.with_acl(self.site.access().acl());
        let written = self
            .site
            .once(data.len(), |writer, node| match from.version {
                Some(version) => set_at(writer, node.as_str(), data.as_bytes(), version),
                None => writer.create(node.as_str(), data.as_bytes(), &options),
            });
        match written.await {
            Ok(written) => {
                let version = match (written, from.version) {
                    (Written::Answered(_), Some(version)) => Some(Some(version.wrapping_add(1))),
                    (Written::Answered(_), None) => Some(Some(0)),
                    // Time has passed, and others may have written.
                    (Written::ByReceipt, _) => None,
                };
                *self.known() = version.map(|version| Known { value, version, at });
                Ok(Attempt::Written)
            }
            Err(NotWritten::Refused(
                zk::Error::BAD_VERSION | zk::Error::NODE_EXISTS | zk::Error::NO_NODE,
            )) => {
                *self.known() = None;
                Ok(Attempt::Overtaken)
            }
            Err(NotWritten::Refused(source)) => Err(self.site.refused(source)),
            Err(NotWritten::Failed(error)) => Err(error),
        }
    }

    fn trusted(&self) -> Option<Known> {
        self.known().filter(Known::is_trusted)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads decimal digits; a node without data is 0, as tools that make empty nodes mean it.
fn parse(site: &Site, data: &[u8]) -> Result<i64, StateError> {
    if data.is_empty() {
        return Ok(0);
    }
    let digits = std::str::from_utf8(data).map_err(|error| site.unreadable(error))?;
    digits
        .trim()
        .parse()
        .map_err(|error| site.unreadable(error))
}
