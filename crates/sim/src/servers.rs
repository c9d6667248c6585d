//! The servers that simulated processes connect to.

use std::cell::RefCell;
use std::rc::Rc;

use crate::ensemble::EnsembleEvent;
use crate::world::{Event, Parts};

/// The servers of a simulation. They run between the tasks of the processes, and take no time.
pub(crate) trait Servers {
    /// Handles an event of a connection or among the servers.
    fn happen(&mut self, it: &mut Parts, event: Event);
}

impl<S: Servers> Servers for Rc<RefCell<S>> {
    fn happen(&mut self, it: &mut Parts, event: Event) {
        self.borrow_mut().happen(it, event);
    }
}

/// An event among the servers.
#[derive(Debug)]
pub(crate) enum ServerEvent {
    Ensemble(EnsembleEvent),
}
