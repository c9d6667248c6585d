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

use futures_core::Stream;
use futures_util::StreamExt;

use crate::session::home::block_on;

/// Waits for a future on the current thread.
pub trait Wait: IntoFuture + Sized {
    /// Blocks the thread until the future is done. Not for asynchronous tasks, which have to `.await` instead: they would block other
    /// tasks.
    fn wait(self) -> Self::Output {
        block_on(self.into_future())
    }
}

impl<F: IntoFuture> Wait for F {}

/// The items of a stream, each waited for on the current thread.
pub fn iter<S: Stream + Unpin>(mut stream: S) -> impl Iterator<Item = S::Item> {
    std::iter::from_fn(move || stream.next().wait())
}
