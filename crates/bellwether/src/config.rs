//! One value that many read and few write.

use std::fmt;
use std::marker::PhantomData;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::StreamExt;

use crate::access::Access;
use crate::client::Client;
use crate::queue::Payload;
use crate::state::{Follow, NotWritten, Seen, Site, StateError, Watch, set_at};

/// A value in a node: bytes, text, or any type of serde's in [`Json`](crate::Json).
///
/// For several values that belong together see [`ConfigFolder`](crate::ConfigFolder).
///
/// # What it guarantees
///
/// A write that was acknowledged was made exactly once, and never again over a later one, however often the connection broke.
/// A [watch](Self::watch) ends on the latest value, tells when it is deleted, and never goes back.
///
/// # What it does not
///
/// A watch may leave out values that followed each other fast. [`get`](Self::get) shows what the server that this client is
/// connected to knows, which may be a moment behind. A node that is deleted and made again counts its versions
/// from the start, so a [`compare_and_set`](Self::compare_and_set) with a version of before may hit it: set a value that says
/// *nothing* rather than delete, where that matters.
///
/// # Node layout
///
/// The path is a persistent node with the value. Beside it stand `receipt-…`, ephemeral nodes, one for each write that a client
/// has under way at once.
///
/// # Fairness
///
/// None: the last write wins, or with [`compare_and_set`](Self::compare_and_set) the first.
///
/// # Session loss
///
/// The next call opens another session; a watch does by itself, and says so.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Config, Json, Seen, StateError};
/// use futures_util::StreamExt;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Limits {
///     requests_max: u32,
/// }
///
/// # async fn run(client: &Client) -> Result<(), StateError> {
/// let limits = Config::<Json<Limits>>::new(client, "/app/limits");
/// limits.set(&Json(Limits { requests_max: 100 })).await?;
/// let mut changes = limits.watch();
/// while let Some(change) = changes.next().await {
///     match change? {
///         Seen::Value(entry) => println!("at most {} now", entry.value.0.requests_max),
///         Seen::Absent => println!("no limit"),
///         _ => {}
///     }
/// }
/// # Ok(()) }
/// ```
pub struct Config<T = Vec<u8>> {
    site: Site,
    holds: PhantomData<fn(T) -> T>,
}

/// A value, and which one it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<T> {
    /// The value.
    pub value: T,
    /// For [`Config::compare_and_set`].
    pub version: Version,
}

/// Tells one state of a node from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(i32);

impl Version {
    /// The number that servers show for it.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }
}

impl From<i32> for Version {
    /// The version that servers show as this number.
    fn from(number: i32) -> Self {
        Self(number)
    }
}

impl<T: Payload + Send + 'static> Config<T> {
    /// A value at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            site: Site::new(client, path.into()),
            holds: PhantomData,
        }
    }

    pub(crate) fn at(site: Site) -> Self {
        Self {
            site,
            holds: PhantomData,
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

    /// The value now; `None` if there is none. One round trip.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn get(&self) -> Result<Option<Entry<T>>, StateError> {
        loop {
            let visit = self.site.visit().await?;
            match visit.client.zk().get(visit.node.as_str()).await {
                Ok(content) => return decode(&self.site, content).map(Some),
                Err(zk::Error::NO_NODE) => return Ok(None),
                Err(error) => self.site.again(&visit, error).await?,
            }
        }
    }

    /// Sets the value, exactly once, whatever it was: one round trip where there was one.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been made or not, once at most.
    ///
    /// # Errors
    ///
    /// See [`StateError`]. Only after [`OutcomeUnknown`](StateError::OutcomeUnknown) it may have been made.
    pub async fn set(&self, value: &T) -> Result<(), StateError> {
        let data = self.encode(value)?;
        loop {
            match self
                .write(&data, |writer, node| writer.set(node, &data, None))
                .await
            {
                Ok(()) => return Ok(()),
                Err(NotWritten::Refused(zk::Error::NO_NODE)) => {}
                Err(error) => return Err(self.error(error)),
            }
            match self.create_data(&data).await {
                Ok(()) => return Ok(()),
                // Somebody made it meanwhile; this one is later, and wins.
                Err(NotWritten::Refused(zk::Error::NODE_EXISTS)) => {}
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// Sets the value where there is none, exactly once, and tells whether it did.
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub async fn create(&self, value: &T) -> Result<bool, StateError> {
        let data = self.encode(value)?;
        match self.create_data(&data).await {
            Ok(()) => Ok(true),
            Err(NotWritten::Refused(zk::Error::NODE_EXISTS)) => Ok(false),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Sets the value if it is still the one of that version, exactly once: the new version, or `None` if somebody has
    /// changed or deleted it.
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub async fn compare_and_set(
        &self,
        version: Version,
        value: &T,
    ) -> Result<Option<Version>, StateError> {
        let data = self.encode(value)?;
        match self
            .write(&data, |writer, node| set_at(writer, node, &data, version.0))
            .await
        {
            Ok(()) => Ok(Some(Version(version.0.wrapping_add(1)))),
            Err(NotWritten::Refused(zk::Error::BAD_VERSION | zk::Error::NO_NODE)) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Deletes the value, exactly once, and tells whether there was one.
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub async fn delete(&self) -> Result<bool, StateError> {
        match self
            .write(&[], |writer, node| writer.delete(node, None))
            .await
        {
            Ok(()) => Ok(true),
            Err(NotWritten::Refused(zk::Error::NO_NODE)) => Ok(false),
            Err(error) => Err(self.error(error)),
        }
    }

    /// The value as it changes: the present one first. See [`Watch`].
    ///
    /// Data that cannot be read is an error in the stream, which goes on.
    pub fn watch(&self) -> Watch<Entry<T>> {
        let site = self.site.clone();
        let seen = Follow::new(self.site.clone()).stream();
        Watch::new(seen.map(move |seen| match seen? {
            Seen::Value(content) => decode(&site, content).map(Seen::Value),
            Seen::Absent => Ok(Seen::Absent),
            Seen::Renewed => Ok(Seen::Renewed),
        }))
    }

    async fn create_data(&self, data: &[u8]) -> Result<(), NotWritten> {
        let options = zk::CreateMode::Persistent.with_acl(self.site.access().acl());
        self.write(data, |writer, node| writer.create(node, data, &options))
            .await
    }

    async fn write(
        &self,
        data: &[u8],
        fill: impl Fn(&mut zk::Multi<'_>, &str),
    ) -> Result<(), NotWritten> {
        let fill =
            |writer: &mut zk::Multi<'_>, node: &crate::path::NodePath| fill(writer, node.as_str());
        self.site.once(data.len(), fill).await.map(drop)
    }

    fn encode(&self, value: &T) -> Result<Vec<u8>, StateError> {
        value
            .to_bytes()
            .map_err(|error| self.site.unreadable(error))
    }

    fn error(&self, error: NotWritten) -> StateError {
        match error {
            NotWritten::Refused(source) => self.site.refused(source),
            NotWritten::Failed(error) => error,
        }
    }
}

fn decode<T: Payload>(site: &Site, content: (Bytes, zk::Stat)) -> Result<Entry<T>, StateError> {
    let (data, stat) = content;
    match T::from_bytes(data.to_vec()) {
        Ok(value) => Ok(Entry {
            value,
            version: Version(stat.version),
        }),
        Err(error) => Err(site.unreadable(error)),
    }
}

impl<T> Clone for Config<T> {
    fn clone(&self) -> Self {
        Self {
            site: self.site.clone(),
            holds: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Config<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("path", &self.site.path())
            .finish_non_exhaustive()
    }
}
