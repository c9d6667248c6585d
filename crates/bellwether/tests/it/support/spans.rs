//! The spans of the library's calls in this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Metadata, Subscriber};

/// A call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) name: &'static str,
    pub(crate) path: String,
    pub(crate) token: Option<i64>,
    pub(crate) outcome: String,
    pub(crate) error: Option<String>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.path, self.outcome)
    }
}

/// Records all calls of the library, in the order in which they ended.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Recorded>);

#[derive(Default)]
struct Recorded {
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, (&'static str, Fields)>>,
    ended: Mutex<Vec<Ended>>,
}

impl Calls {
    /// Records this process from now on.
    pub(crate) fn install() -> Self {
        let calls = Self::default();
        set_global_default(Recording(calls.clone())).unwrap();
        calls
    }

    /// The calls that have ended since the last look.
    pub(crate) fn take(&self) -> Vec<Ended> {
        std::mem::take(&mut self.0.ended.lock().unwrap())
    }
}

struct Recording(Calls);

impl Subscriber for Recording {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("bellwether")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::default();
        span.record(&mut fields);
        let mut open = self.0.0.open.lock().unwrap();
        open.insert(id, (span.metadata().name(), fields));
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut open = self.0.0.open.lock().unwrap();
        let (_, fields) = open.get_mut(&id.into_u64()).unwrap();
        values.record(fields);
    }

    fn try_close(&self, id: Id) -> bool {
        // Clones of a span are dropped in the call itself: the outcome is recorded before the last one.
        let mut open = self.0.0.open.lock().unwrap();
        let is_ended =
            (open.get(&id.into_u64())).is_some_and(|(_, fields)| fields.0.contains_key("outcome"));
        if is_ended {
            let (name, Fields(mut fields)) = open.remove(&id.into_u64()).unwrap();
            self.0.0.ended.lock().unwrap().push(Ended {
                name,
                path: fields.remove("path").unwrap(),
                token: fields.remove("token").map(|token| token.parse().unwrap()),
                outcome: fields.remove("outcome").unwrap(),
                error: fields.remove("error"),
            });
        }
        is_ended
    }

    fn event(&self, _: &Event<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
