//! The present run, as all parts of a simulation know it.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use bellwether_testkit::history::Moment;

use crate::servers::{AnyServers, Census};
use crate::world::{Core, Ms, in_history};

/// The present run, for its observer.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) core: Rc<Core>,
    pub(crate) servers: Rc<RefCell<AnyServers>>,
}

thread_local! {
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

impl Stage {
    /// A run begins on this thread.
    pub(crate) fn enter(self) {
        STAGE.with(|present| present.borrow_mut().replace(self));
    }

    /// The run on this thread is over.
    pub(crate) fn leave() {
        STAGE.with(|present| present.borrow_mut().take());
    }

    pub(crate) fn with<T>(act: impl FnOnce(&Self) -> T) -> T {
        let stage = STAGE.with(|stage| stage.borrow().clone());
        act(&stage.expect("a simulation runs on this thread"))
    }

    /// The present moment of the run.
    pub(crate) fn now() -> Ms {
        Self::with(|stage| stage.core.now())
    }

    /// The present moment, as used in histories.
    pub(crate) fn moment() -> Moment {
        in_history(Self::now())
    }

    pub(crate) fn census() -> Census {
        Self::with(|stage| stage.servers.borrow().census())
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stage")
    }
}
