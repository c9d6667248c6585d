//! What stops a running server, and threads whose panic does.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::watch;

use crate::connections::Connections;

/// Why a running server stopped by itself.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum Failure {
    /// The log cannot be written any more, so that nothing can be acknowledged. Look after the disk and start again.
    #[error("cannot write the log")]
    Log(#[source] Arc<io::Error>),
    /// A part of the server failed. That is a bug; what was acknowledged is on disk. Start again.
    #[error("the {thread} thread panicked: {message}")]
    Panicked {
        thread: &'static str,
        message: String,
    },
}

/// Stops the server when something fails without which it cannot go on.
#[derive(Debug, Clone)]
pub(crate) struct Alarm {
    connections: Arc<Connections>,
    failure: watch::Sender<Option<Failure>>,
}

impl Alarm {
    /// An alarm that closes all `connections`, and the place where the reason appears.
    pub(crate) fn new(connections: Arc<Connections>) -> (Self, watch::Receiver<Option<Failure>>) {
        let (failure, appears) = watch::channel(None);
        let alarm = Self {
            connections,
            failure,
        };
        (alarm, appears)
    }

    /// Stops the server. The first failure is the one that is told.
    pub(crate) fn raise(&self, failure: Failure) {
        tracing::error!(%failure, "the server stops, nothing more is acknowledged");
        // Nobody is to wait for an answer any more, and nobody to come for another.
        self.connections.close_all();
        self.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(failure);
            is_first
        });
    }

    /// Starts a thread whose panic stops the server: half of one would keep clients waiting for ever.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let alarm = self.clone();
        let guarded = move || {
            // Nothing of what `work` has left is used any more but by others that fail as well then.
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

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
