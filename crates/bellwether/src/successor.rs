//! The session that follows one that has ended.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use crate::client::Client;
use crate::connect::Connect;
use crate::error::ConnectError;

type Attempt = BoxFuture<'static, Result<Client, ConnectError>>;

/// The next session: opened once, in one attempt at a time, which all who ask at the same time wait for.
#[derive(Clone, Default)]
pub(crate) struct Successor(Arc<Opening>);

#[derive(Default)]
struct Opening {
    opened: OnceLock<Client>,
    /// The attempt under way. Those who wait for it keep it, and when they have gone it is given up.
    under_way: Mutex<Option<WeakShared<Attempt>>>,
}

impl Successor {
    /// The session, if it has been opened.
    pub(crate) fn get(&self) -> Option<&Client> {
        self.0.opened.get()
    }

    /// Opens the session, or waits for whoever does. If that fails, all who waited are told so.
    pub(crate) async fn open(&self, options: &Connect) -> Result<Client, ConnectError> {
        self.attempt(options).await
    }

    fn attempt(&self, options: &Connect) -> Shared<Attempt> {
        let under_way = self.0.under_way.lock();
        let mut under_way = under_way.unwrap_or_else(PoisonError::into_inner);
        let present = under_way.as_ref().and_then(WeakShared::upgrade);
        if let Some(attempt) = present.filter(|attempt| attempt.peek().is_none()) {
            return attempt;
        }
        // Set before its attempt was through, so no second one begins behind it.
        if let Some(opened) = self.get() {
            return std::future::ready(Ok(opened.clone())).boxed().shared();
        }
        let (successor, options) = (self.clone(), options.clone());
        let attempt = async move {
            let opened = options.open().await?;
            Ok(successor.0.opened.get_or_init(|| opened).clone())
        };
        let attempt = attempt.boxed().shared();
        *under_way = attempt.downgrade();
        attempt
    }
}

impl fmt::Debug for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Successor")
            .field("opened", &self.get())
            .finish_non_exhaustive()
    }
}
