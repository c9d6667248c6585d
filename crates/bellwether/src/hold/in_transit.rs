//! A guard on its way from the session's thread to its caller.

use std::ops::{Deref, DerefMut};

use super::Hold;
use crate::home::Home;

/// What can be undone as if it had never been held: without a crash mark, or with the one that was there before.
pub(crate) trait Undo {
    fn undo(self);
}

impl Undo for Hold {
    fn undo(self) {
        self.undo();
    }
}

impl<T: Undo> Undo for Option<T> {
    fn undo(self) {
        if let Some(held) = self {
            held.undo();
        }
    }
}

impl<T: Undo, E> Undo for Result<T, E> {
    fn undo(self) {
        self.ok().undo();
    }
}

/// Something held that its caller does not have yet. Dropped before it arrives, it is undone: a drop alone would leave a crash mark,
/// though nobody ever worked under the hold.
#[derive(Debug)]
pub(crate) struct InTransit<T: Undo>(Option<T>);

impl<T: Undo> InTransit<T> {
    pub(crate) fn new(held: T) -> Self {
        Self(Some(held))
    }

    pub(crate) fn arrive(mut self) -> T {
        self.0.take().expect("it arrives once")
    }
}

impl<T: Undo> Deref for InTransit<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it has not arrived")
    }
}

impl<T: Undo> DerefMut for InTransit<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it has not arrived")
    }
}

impl<T: Undo> Drop for InTransit<T> {
    fn drop(&mut self) {
        self.0.take().undo();
    }
}

/// Acquires where the session lives, as [`Home::there`]. A grant whose caller has gone is undone.
pub(crate) async fn acquire_there<T: Undo + Send + 'static>(
    home: &Home,
    acquired: impl Future<Output = T> + Send + 'static,
) -> T {
    let granted = async { InTransit::new(acquired.await) };
    home.there(granted).await.arrive()
}
