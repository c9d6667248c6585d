//! Failures that stop a running server, and threads whose panic is one.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::watch;

use crate::client::Connections;

/// Why a running server stopped by itself.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum Failure {
    /// The log can no longer be written, so no write can be acknowledged. Check the disk and start again.
    #[error("cannot write the log")]
    Log(#[source] Arc<io::Error>),
    /// A thread of the server panicked. This is a bug. Acknowledged writes are on disk. Start again.
    #[error("the {thread} thread panicked: {message}")]
    Panicked {
        thread: &'static str,
        message: String,
    },
}

/// Stops the server on a failure that it cannot survive.
#[derive(Debug, Clone)]
pub(crate) struct Alarm {
    connections: Arc<Connections>,
    failure: watch::Sender<Option<Failure>>,
}

impl Alarm {
    /// An alarm that closes all `connections`, and the receiver of the reason.
    pub(crate) fn new(connections: Arc<Connections>) -> (Self, watch::Receiver<Option<Failure>>) {
        let (failure, appears) = watch::channel(None);
        let alarm = Self {
            connections,
            failure,
        };
        (alarm, appears)
    }

    /// Stops the server. The first failure is the one reported.
    pub(crate) fn raise(&self, failure: Failure) {
        tracing::error!(%failure, "the server is stopping, no more writes are acknowledged");
        // Clients must not wait for replies, and no new ones may connect.
        self.connections.close_all();
        self.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }

    /// Starts a thread whose panic stops the server: without that thread, clients would wait for ever.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let alarm = self.clone();
        let guarded = move || {
            // State that `work` leaves behind is used only by threads that then fail as well.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                alarm.raise(Failure::Panicked {
                    thread: name,
                    message: message(&*panic),
                });
            }
        };
        thread::Builder::new().name(name.into()).spawn(guarded)
    }
}

/// Message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
