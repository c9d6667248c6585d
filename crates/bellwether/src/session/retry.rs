//! Retries: requests that are sent again until the servers have answered. All decisions about another try are made here.
//!
//! A request without an answer was sent or not. If it was not, it had no effect ([`zk::Error::NotSent`]). If it was, it may have taken
//! effect ([`zk::Error::Unknown`]): it is *in doubt*, and the next try must be idempotent, or find out about the first. A server or a client
//! with too many requests answers that it has done nothing ([`zk::Error::is_overload`]).
//!
//! [`zk::Error::is_transient`] says which errors allow another try, for the loops in other files too. None of them spins: while there is no
//! connection, the next request waits in the client; and an overload is reported only after a round trip or a pause.

use std::pin::Pin;
use std::task::{Context, Poll};

use bellwether_client as zk;
use futures_util::FutureExt as _;

use crate::session::liveness::elections;
use crate::session::telemetry;

/// The number of tries of one step over broken connections and vanished directories before it gives up.
const TRIES_MAX: usize = 20;

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Retry {
    left: usize,
    in_doubt: bool,
}

impl Retry {
    /// Returns the retries of a step that may fail: gives up after [`TRIES_MAX`] tries.
    pub(crate) fn limited() -> Self {
        Self {
            left: TRIES_MAX,
            in_doubt: false,
        }
    }

    /// Returns the retries of a request that has to succeed, over any number of reconnects. It ends with the session at the latest.
    pub(crate) fn unlimited() -> Self {
        Self {
            left: usize::MAX,
            in_doubt: false,
        }
    }

    /// Returns whether an earlier try may have taken effect, because it was sent and its reply was lost.
    pub(crate) fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Allows another try after an error that is not an answer.
    ///
    /// # Errors
    ///
    /// The error itself, if it is an answer or the end of the session, or if there were tries enough.
    pub(crate) fn again(&mut self, error: zk::Error) -> Result<(), zk::Error> {
        self.in_doubt |= error == zk::Error::Unknown;
        match error.is_transient() {
            true => self.count(error),
            false => Err(error),
        }
    }

    /// Does the same as [`again`](Self::again), after something that the request needs was made or read. That is idempotent, and puts the
    /// request itself in no doubt. What was made may be missing again: servers remove empty directories.
    pub(crate) fn again_after(&mut self, made: Result<(), zk::Error>) -> Result<(), zk::Error> {
        match made {
            Ok(()) | Err(zk::Error::NO_NODE) => self.count(zk::Error::NO_NODE),
            Err(error) if error.is_transient() => self.count(error),
            Err(error) => Err(error),
        }
    }

    /// Sends a request that is idempotent until it is answered.
    pub(crate) async fn answer<T, F>(
        mut self,
        mut request: impl FnMut() -> F,
    ) -> Result<T, zk::Error>
    where
        F: Future<Output = Result<T, zk::Error>>,
    {
        loop {
            match request().await {
                Err(error) => self.again(error)?,
                answer => return answer,
            }
        }
    }

    /// Allows another try after an answer that another client may have caused in between.
    pub(crate) fn count(&mut self, error: zk::Error) -> Result<(), zk::Error> {
        self.left -= 1;
        if self.left == 0 {
            return Err(error);
        }
        if error.is_transient() {
            telemetry::retried();
        }
        Ok(())
    }
}

/// Sends a request that is idempotent, most often a read, until it is answered; gives up after [`TRIES_MAX`] tries.
pub(crate) async fn until_answered<T, F>(request: impl FnMut() -> F) -> Result<T, zk::Error>
where
    F: Future<Output = Result<T, zk::Error>>,
{
    Retry::limited().answer(request).await
}

/// Makes a missing node `None`.
pub(crate) fn found<T>(answer: Result<T, zk::Error>) -> Result<Option<T>, zk::Error> {
    match answer {
        Err(zk::Error::NO_NODE) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Syncs the server with the leader and then reads, in one round trip: for answers to questions, which may be outdated on arrival.
///
/// A leader takes a sync for a read, and may be some milliseconds behind the writes that its followers have answered already. So a recipe
/// must not act on what such a read shows: see [`read_linearizable`].
pub(crate) async fn read_synced<T, R>(
    zk: &zk::Client,
    path: &str,
    read: impl FnOnce() -> R,
) -> Result<T, zk::Error>
where
    R: Future<Output = Result<T, zk::Error>>,
{
    // Created after the sync, and so sent after it, in one packet.
    let (sync, read) = zk.batch(|zk| (zk.sync(path), read()));
    let (sync, read) = tokio::join!(sync, read);
    after(sync.map(drop), read)
}

/// Reads what every write has left that was answered before, in one round trip: for decisions.
///
/// In an ensemble a write goes ahead of the read. The leader puts it behind all earlier writes, and the server of this session applies it
/// before it answers the read.
pub(crate) async fn read_linearizable<T, R>(
    zk: &zk::Client,
    path: &str,
    read: impl FnOnce() -> R,
) -> Result<T, zk::Error>
where
    R: Future<Output = Result<T, zk::Error>>,
{
    // A single server answers in the order of its writes.
    if elections(zk.last_zxid()) == 0 {
        return read_synced(zk, path, read).await;
    }
    let (written, read) = zk.batch(|zk| {
        // A multi goes through the quorum even if it contains only a check.
        let mut multi = zk.new_multi();
        multi.check("/", None);
        (multi.commit(), read())
    });
    let (written, read) = tokio::join!(written, read);
    after(written.map(drop).map_err(zk::Error::from), read)
}

/// The result of a read that is only valid behind another request.
fn after<T>(first: Result<(), zk::Error>, read: Result<T, zk::Error>) -> Result<T, zk::Error> {
    match first {
        // The read may have reached the next server alone.
        Err(error) if !error.is_refusal() => Err(error),
        // A request that is refused for its content has passed the leader too.
        _ => read,
    }
}

/// The news of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// The session has ended, and its watches report nothing more.
    SessionEnded,
}

impl From<Result<zk::Event, zk::Error>> for Happened {
    fn from(event: Result<zk::Event, zk::Error>) -> Self {
        match event {
            Ok(event) => match event.kind {
                zk::EventKind::NodeCreated => Self::Created,
                zk::EventKind::NodeDeleted => Self::Deleted,
                zk::EventKind::NodeDataChanged => Self::DataChanged,
                zk::EventKind::NodeChildrenChanged => Self::ChildrenChanged,
            },
            Err(_) => Self::SessionEnded,
        }
    }
}

/// Resolves with the first change of a node, or the end of the session. Dropped, the watch is removed from the server.
#[derive(Debug)]
pub(crate) struct NodeEvent(zk::Watch);

impl NodeEvent {
    pub(crate) fn of(watch: zk::Watch) -> Self {
        Self(watch)
    }

    /// The watch itself, unless the event has come already.
    pub(crate) fn unless_told(mut self) -> Option<Self> {
        match (&mut self).now_or_never() {
            Some(_) => None,
            None => Some(self),
        }
    }
}

impl Future for NodeEvent {
    type Output = Happened;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Happened> {
        Pin::new(&mut self.0).poll(cx).map(Happened::from)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_what_was_sent_is_in_doubt() {
        let mut retry = Retry::limited();
        retry.again(zk::Error::NotSent).unwrap();
        let too_many = zk::Error::Invalid(zk::Invalid::TooManyRequests);
        retry.again(too_many).unwrap();
        retry.again_after(Err(zk::Error::Unknown)).unwrap();
        assert!(!retry.in_doubt());
        retry.again(zk::Error::Unknown).unwrap();
        assert!(retry.in_doubt());
        retry.again(zk::Error::NotSent).unwrap();
        assert!(retry.in_doubt(), "the try before it was sent");
    }

    #[test]
    fn answers_and_ended_sessions_end_the_tries() {
        let ended = zk::Error::SessionEnded(zk::SessionEnd::Expired);
        for error in [zk::Error::NO_NODE, zk::Error::NO_AUTH, ended] {
            assert_eq!(Retry::unlimited().again(error), Err(error));
        }
        let refused = Err(zk::Error::NO_AUTH);
        assert_eq!(Retry::limited().again_after(refused), refused);
    }

    #[test]
    fn last_error_is_returned_when_there_were_tries_enough() {
        let mut sent = 0;
        let never = until_answered(|| {
            sent += 1;
            ready(Err::<(), _>(zk::Error::Unknown))
        });
        assert_eq!(never.now_or_never(), Some(Err(zk::Error::Unknown)));
        assert_eq!(sent, TRIES_MAX);
        let mut retry = Retry::limited();
        for _ in 1..TRIES_MAX {
            retry.again_after(Ok(())).unwrap();
        }
        assert_eq!(retry.again_after(Ok(())), Err(zk::Error::NO_NODE));
    }
}
