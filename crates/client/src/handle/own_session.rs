//! A session as its handles reach it: a forked child finds one that has ended.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clock::Moment;
use crate::core::session::{Identity, Session};
use crate::driver::shared::Shared;
use crate::error::SessionEnd;
use crate::options::session::Limits;
use crate::process::{Native, Process};

/// The session of all clones of a handle. Each use compares processes first, before any lock.
#[derive(Debug)]
pub(crate) struct OwnSession {
    shared: Native<Arc<Shared>>,
    /// What a forked child finds instead.
    ended: OnceLock<Box<Shared>>,
}

impl OwnSession {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared: Native::new(shared),
            ended: OnceLock::new(),
        }
    }

    pub(crate) fn process(&self) -> Process {
        self.shared.process()
    }
}

impl Deref for OwnSession {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        match self.process().is_forked() {
            true => self.ended.get_or_init(|| Box::new(ended())),
            false => &self.shared,
        }
    }
}

/// A session that never lived: it has no id, no connection and no proof of life.
fn ended() -> Shared {
    let identity = Identity {
        id: 0,
        password: [0; 16],
    };
    let session = Session::new(
        Moment::from_nanos(0),
        Duration::ZERO,
        Some(identity),
        Vec::new(),
        Limits::default(),
    );
    let shared = Shared::new(session);
    shared.with(|session| session.finish(SessionEnd::Forked));
    shared
}
