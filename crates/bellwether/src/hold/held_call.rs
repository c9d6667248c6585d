//! Calls that acquire: their spans carry the fencing token.

use std::error::Error;
use std::ops::Deref;

use crate::hold::Hold;
use crate::session::telemetry::{Call, Outcome};

impl Call {
    /// A call about a hold.
    pub(crate) fn of(self, hold: &Hold) -> Self {
        self.with_token(hold.token().number())
    }

    /// Runs a call that acquires: its outcome is `held`, with the token.
    pub(crate) fn hold<G: Deref<Target = Hold>, E: Error>(
        self,
        call: impl Future<Output = Result<G, E>>,
    ) -> impl Future<Output = Result<G, E>> {
        self.run_to(call, |guard| held(guard))
    }

    /// As [`hold`](Self::hold), for a call that does not wait: `none` if another contender is in the way.
    pub(crate) fn try_hold<G: Deref<Target = Hold>, E: Error>(
        self,
        call: impl Future<Output = Result<Option<G>, E>>,
    ) -> impl Future<Output = Result<Option<G>, E>> {
        self.run_to(call, |guard| {
            guard.as_ref().map_or(Outcome::NONE, |guard| held(guard))
        })
    }
}

fn held(hold: &Hold) -> Outcome {
    Outcome::held(hold.token().number())
}
