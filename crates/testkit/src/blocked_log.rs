//! A log subscriber that blocks, like one with a full pipe.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{SetGlobalDefaultError, set_global_default};
use tracing::{Event, Metadata, Subscriber};

/// Blocks each thread that logs a line, or begins a span, with a certain text, as a full pipe does. Dropping it releases them.
#[derive(Debug)]
pub struct BlockedLog {
    entered: Arc<Notify>,
    _release: Sender<()>,
}

impl BlockedLog {
    /// Installs itself as the log subscriber of this process. Blocks on lines and spans of targets that begin with `target` if a field or the
    /// message contains `text`.
    ///
    /// # Errors
    ///
    /// If the process already has a log subscriber.
    pub fn install(
        target: &'static str,
        text: impl Into<String>,
    ) -> Result<Self, SetGlobalDefaultError> {
        let (release, released) = channel();
        let entered = Arc::new(Notify::new());
        set_global_default(Blocking {
            target,
            text: text.into(),
            entered: Arc::clone(&entered),
            released: Mutex::new(released),
        })?;
        Ok(Self {
            entered,
            _release: release,
        })
    }

    /// Waits until a thread is blocked.
    pub async fn blocks(&self) {
        self.entered.notified().await;
    }
}

struct Blocking {
    target: &'static str,
    text: String,
    entered: Arc<Notify>,
    released: Mutex<Receiver<()>>,
}

impl Blocking {
    fn block_on(&self, line: &Line) {
        if line.0.contains(&self.text) {
            self.entered.notify_one();
            let released = self.released.lock();
            // An error means that the log was dropped.
            let _ = released.unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}

impl Subscriber for Blocking {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(self.target)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.block_on(&line);
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(String::new());
        span.record(&mut line);
        self.block_on(&line);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// All fields of a line.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{value:?} ");
    }
}
