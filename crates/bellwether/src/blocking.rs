//! The recipes for programs without `async`.
//!
//! Sessions run on the session thread, and the futures of this crate only wait for it, so they can be awaited without a runtime:
//! [`Wait::wait`] takes the place of `.await`, and [`iter`] turns a stream into an iterator. There is no second set of types.
//!
//! ```no_run
//! use bellwether::blocking::Wait;
//! use bellwether::{Lock, connect};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = connect("127.0.0.1:2181").wait()?;
//!     let guard = Lock::new(&client, "/jobs/nightly").acquire().wait()?;
//!     println!("running with token {}", guard.token());
//!     if guard.is_held() {
//!         // The next piece of work.
//!     }
//!     guard.release().wait()?;
//!     client.close().wait();
//!     Ok(())
//! }
//! ```
//!
//! A loop that works under a hold asks [`is_held`](crate::Hold::is_held) before each step; a thread beside it can wait for
//! [`lost`](crate::Hold::lost).

use std::future::IntoFuture;
use std::panic::catch_unwind;

use futures_core::Stream;
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::session::runtime::block_on;

/// Waits for a future on the current thread.
pub trait Wait: IntoFuture + Sized {
    /// Blocks the thread until the future is done.
    ///
    /// # Panics
    ///
    /// In asynchronous code of tokio, which has to `.await` instead: other tasks of the thread would stand still, and the future may wait for
    /// one of them. Code that cannot may call this in [`spawn_blocking`](tokio::task::spawn_blocking), or in `block_in_place` on a runtime
    /// with several threads.
    #[track_caller]
    fn wait(self) -> Self::Output {
        assert!(
            may_block(),
            "`wait` was called in asynchronous code, and may wait for a task that it holds up: use `.await`, or call it in `tokio::task::spawn_blocking`"
        );
        block_on(self.into_future())
    }
}

impl<F: IntoFuture> Wait for F {}

/// Returns whether the current thread may block: it does not poll tasks of a tokio runtime at this moment.
fn may_block() -> bool {
    // Only tokio knows, and tells by a panic of its own. A thread of `spawn_blocking` is in a runtime too, and may block.
    Handle::try_current().is_err()
        || catch_unwind(|| drop(Mutex::const_new(()).blocking_lock())).is_ok()
}

/// The items of a stream, each waited for on the current thread. As [`Wait::wait`], not for asynchronous code.
pub fn iter<S: Stream + Unpin>(mut stream: S) -> impl Iterator<Item = S::Item> {
    std::iter::from_fn(move || stream.next().wait())
}
