//! The steps at which a process may die.

/// A point in the life of a process, by the name that it has on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The coordinator has not begun yet.
    Waiting,
    /// The coordinator has begun the transaction, and decided nothing.
    Begun,
    /// The coordinator has decided.
    Decided,
    /// A bank was asked to prepare.
    Asked,
    /// It has prepared, and not voted.
    Prepared,
    /// It has voted. This is seen from outside: between its handlers a bank runs no code.
    Voted,
    /// It was asked to commit or to abort.
    Told,
    /// It has done so, and has not reported it.
    Applied,
}

impl Step {
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Stops the process here for good if this is its step, and reports that to the process that kills it.
pub(crate) async fn reach(step: Step, stop_at: &str) {
    if step.name() == stop_at {
        eprintln!("stopped");
        std::future::pending::<()>().await;
    }
}
