//! A value that is kept up to date in the background.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use futures_util::stream::{BoxStream, StreamExt};
use tokio::select;
use tokio::sync::watch;
use tracing::warn;

use crate::error::{ConnectError, Error, ErrorKind, Failure};
use crate::request::{PersistentNode, Seen, Watch};
use crate::session::Moment;
use crate::session::runtime::TaskGuard;

/// A value that is kept up to date in the background: [`Config::live`](crate::Config::live), [`Group::live`](crate::Group::live),
/// [`Names::live`](crate::Names::live).
///
/// It works like a receiver of [`tokio::sync::watch`]: [`get`](Self::get) returns the last value that was seen, at once, and
/// [`changed`](Self::changed) waits for another one. Clones share the value, and each remembers which value it has seen. Reading stops when
/// the last clone is dropped.
///
/// It continues over lost connections and session expiry. While there is no connection, other clients may change the value unnoticed: then
/// it [is stale](Self::is_stale) until it has been read again. It never goes back to an older value.
pub struct Live<T> {
    values: watch::Receiver<Arc<T>>,
    stale: watch::Receiver<Option<Moment>>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The name of the call, and the path, in errors.
    at: (&'static str, String),
    end: Arc<OnceLock<Error>>,
    _task: TaskGuard,
}

/// An update from the source of a live value.
pub(crate) enum Update<T> {
    /// The current value, and a mark by which two values can be told apart.
    Now(i64, T),
    /// A new session has followed one that ended.
    Renewed,
}

/// The source of a live value. Its streams begin with the current state.
pub(crate) struct Source<T> {
    pub(crate) node: PersistentNode,
    pub(crate) follow: Box<dyn Fn() -> Stream<T> + Send>,
    pub(crate) is_same: fn((i64, &T), (i64, &T)) -> bool,
}

pub(crate) type Stream<T> = BoxStream<'static, Result<Update<T>, Failure>>;

impl<T: Send + Sync + 'static> Live<T> {
    /// Reads the current state, and follows it from then on.
    pub(crate) async fn start(name: &'static str, source: Source<T>) -> Result<Self, Failure> {
        let opened = source.node.open().await?;
        let mut stream = (source.follow)();
        let (mark, first) = loop {
            match stream.next().await {
                Some(Ok(Update::Now(mark, value))) => break (mark, Arc::new(value)),
                Some(Ok(Update::Renewed)) => {}
                Some(Err(error)) => return Err(error),
                None => unreachable!("a stream ends after an error"),
            }
        };
        let (values, seen) = watch::channel(first);
        let (stale, staleness) = watch::channel(None);
        let end = Arc::new(OnceLock::new());
        let path = source.node.path().to_owned();
        let mut follower = Follower {
            source,
            mark,
            values,
            stale,
        };
        let ended = end.clone();
        let task = opened.session.runtime().spawn_guarded(async move {
            let failure = follower.follow(stream).await;
            // Before the channels are closed.
            let _ = ended.set(failure.of(name, follower.source.node.path()));
            drop(follower);
        });
        Ok(Self {
            values: seen,
            stale: staleness,
            shared: Arc::new(Shared {
                at: (name, path),
                end,
                _task: task,
            }),
        })
    }
}

impl<T: Default + PartialEq + Send + Sync + 'static> Live<T> {
    /// Follows what watches of this site tell.
    pub(crate) async fn watching(
        name: &'static str,
        node: &PersistentNode,
        watch: impl Fn() -> Watch<T> + Send + 'static,
    ) -> Result<Self, Failure> {
        let follow = move || {
            let news = watch().map(|seen| {
                Ok(match seen? {
                    Seen::Value(value) => Update::Now(0, value),
                    Seen::Absent => Update::Now(0, T::default()),
                    Seen::Renewed => Update::Renewed,
                })
            });
            news.boxed()
        };
        let source = Source {
            node: node.clone(),
            follow: Box::new(follow),
            is_same: |(_, one), (_, other)| one == other,
        };
        Self::start(name, source).await
    }
}

impl<T> Live<T> {
    /// The last value that was seen, without waiting.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        self.values.borrow().clone()
    }

    /// Waits for a value that this receiver has not seen yet. Values that changed quickly may be skipped, but never the last one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call returns at once if there is a new value.
    ///
    /// # Errors
    ///
    /// If the servers refuse to show it from now on, or the client is closed; the value stays stale. [`ErrorKind`]:
    /// `BadPath`, `TooLarge`, `NoSession`, `Refused`.
    pub async fn changed(&mut self) -> Result<(), Error> {
        let changed = self.values.changed().await;
        changed.map_err(|_| self.end())
    }

    /// Returns whether the value may have changed unnoticed: there is no connection, or the value has not been read again since, or the
    /// data cannot be decoded.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale_for().is_some()
    }

    /// Returns how long the value has been stale; `None` if it is not.
    #[must_use]
    pub fn stale_for(&self) -> Option<Duration> {
        let since = *self.stale.borrow();
        since.map(|since| Moment::now() - since)
    }

    /// Waits until the value is not stale.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    ///
    /// # Errors
    ///
    /// As [`changed`](Self::changed).
    pub async fn fresh(&self) -> Result<(), Error> {
        let mut stale = self.stale.clone();
        let fresh = stale.wait_for(Option::is_none).await;
        match fresh {
            Ok(_) => Ok(()),
            Err(_) => Err(self.end()),
        }
    }

    fn end(&self) -> Error {
        let end = self.shared.end.get().cloned();
        // It ends without an error only with the runtime of its session.
        end.unwrap_or_else(|| {
            let (name, path) = &self.shared.at;
            Failure::from(ConnectError::Closed).of(name, path)
        })
    }
}

struct Follower<T> {
    source: Source<T>,
    /// The mark of the last value.
    mark: i64,
    values: watch::Sender<Arc<T>>,
    stale: watch::Sender<Option<Moment>>,
}

impl<T> Follower<T> {
    /// Follows until the servers refuse, or the client is closed.
    async fn follow(&mut self, stream: Stream<T>) -> Failure {
        let mut stream = Some(stream);
        loop {
            let followed = self.follow_connection(stream.take()).await;
            self.set_stale();
            if let Err(error) = followed {
                return error;
            }
        }
    }

    /// Follows as long as nothing can be missed, which is one connection. Without a stream from before, it begins with a new one, whose
    /// first value is read through that connection.
    async fn follow_connection(&mut self, stream: Option<Stream<T>>) -> Result<(), Failure> {
        let opened = self.source.node.open_in_time().await?;
        let zk = opened.session.zk();
        let mut states = zk.states();
        let is_connected = |state: &zk::SessionState| *state == zk::SessionState::Connected;
        let _ = states
            .wait_for(|state| is_connected(state) || state.is_ended())
            .await;
        let connections = zk.connections();
        let mut stream = stream.unwrap_or_else(|| (self.source.follow)());
        while is_connected(&zk.state()) && zk.connections() == connections {
            select! {
                biased;
                news = stream.next() => match news {
                    Some(Ok(Update::Now(mark, value))) => {
                        self.show(mark, value);
                        self.stale.send_if_modified(|stale| stale.take().is_some());
                    }
                    Some(Err(Failure { kind: ErrorKind::Unreadable(source), path })) => {
                        let path = path.unwrap_or_else(|| self.source.node.path().to_owned());
                        log::emit(move || {
                            let error: &dyn std::error::Error = &*source;
                            warn!(path, error, "value cannot be read; the last one stays");
                        });
                        self.set_stale();
                    }
                    Some(Err(error)) => return Err(error),
                    Some(Ok(Update::Renewed)) | None => return Ok(()),
                },
                _ = states.changed() => {}
            }
        }
        Ok(())
    }

    fn show(&mut self, mark: i64, value: T) {
        let is_same = {
            let known = self.values.borrow();
            (self.source.is_same)((self.mark, &known), (mark, &value))
        };
        if !is_same {
            self.mark = mark;
            self.values.send_replace(Arc::new(value));
        }
    }

    fn set_stale(&self) {
        self.stale.send_if_modified(|stale| {
            let is_new = stale.is_none();
            stale.get_or_insert_with(Moment::now);
            is_new
        });
    }
}

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self {
            values: self.values.clone(),
            stale: self.stale.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("value", &self.get())
            .field("stale_for", &self.stale_for())
            .finish_non_exhaustive()
    }
}
