//! What all guards have in common.

use std::ops::Deref;

use super::Hold;

/// A guard of any recipe: it derefs to a [`Hold`] and converts into one. For code that works with every kind of guard.
///
/// ```no_run
/// # use bellwether::{Guard, Hold};
/// # use bellwether::error::ReleaseError;
/// async fn finish(guard: impl Guard) -> Result<(), ReleaseError> {
///     println!("held {} with token {}", guard.path(), guard.token());
///     guard.into().release().await
/// }
/// ```
pub trait Guard: Deref<Target = Hold> + Into<Hold> + Send + Sync + 'static {}

impl<G: Deref<Target = Hold> + Into<Hold> + Send + Sync + 'static> Guard for G {}

/// Makes a struct with a field `hold` a guard, which is released by a method of the given name.
macro_rules! guard_of_a_hold {
    ($guard:ident, $release:ident) => {
        impl $guard {
            /// Releases it and waits for the server's acknowledgement, over any number of reconnects. Every [watch](crate::Hold::watch) of
            /// it reports the end before the request is sent.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future leaves the rest to the background, as dropping the guard does.
            ///
            /// # Errors
            ///
            /// See [`ReleaseError`](crate::error::ReleaseError): the hold has ended all the same, but perhaps before this call.
            pub async fn $release(self) -> Result<(), $crate::error::ReleaseError> {
                self.hold.release().await
            }
        }

        impl From<$guard> for $crate::hold::Hold {
            /// The hold without its guard type, for code that handles all guards alike.
            fn from(guard: $guard) -> Self {
                guard.hold
            }
        }

        impl $crate::hold::Undo for $guard {
            fn undo(self) {
                self.hold.undo();
            }
        }

        impl std::ops::Deref for $guard {
            type Target = $crate::hold::Hold;

            fn deref(&self) -> &$crate::hold::Hold {
                &self.hold
            }
        }
    };
}

/// For guards whose hold may have a crash mark.
macro_rules! release_unrepaired {
    ($guard:ident) => {
        impl $guard {
            /// As [`release`](Self::release), but leaves the mark of the crash that [`previous`](crate::Hold::previous) reported, so that the
            /// next holder sees it again: for a holder that saw it and did not repair.
            ///
            /// # Cancel safety
            ///
            /// As [`release`](Self::release).
            ///
            /// # Errors
            ///
            /// As [`release`](Self::release).
            pub async fn release_unrepaired(self) -> Result<(), $crate::error::ReleaseError> {
                self.hold.release_unrepaired().await
            }
        }
    };
}

pub(crate) use {guard_of_a_hold, release_unrepaired};
