//! Why a command on the tree did not do what was asked: what failed, on what, and what to do next.

use std::fmt;

use bellwether::{AcquireError, PutError, StateError, zk};

use crate::exit::Exit;

/// From about here on servers refuse requests, unless `jute.maxbuffer` says otherwise.
const LONG_BYTES: usize = 1_000_000;

/// An error that knows its exit code, and perhaps a next step.
#[derive(Debug)]
pub(crate) struct Refusal {
    what: String,
    hint: Option<String>,
    exit: Exit,
}

impl Refusal {
    /// The answer is no.
    pub(crate) fn no(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
            exit: Exit::No,
        }
    }

    /// There is nothing that could be answered about.
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self {
            exit: Exit::Missing,
            ..Self::no(what)
        }
    }

    /// What was asked makes no sense.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::no(what)
        }
    }

    /// Bellwether could not do it.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failed,
            ..Self::no(what)
        }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// What the server answered to `verb` on `path`.
    pub(crate) fn of(verb: Verb, path: &str, error: zk::Error) -> Self {
        let what = |why: &str| format!("cannot {verb} {path}: {why}");
        match error {
            zk::Error::NoNode if verb == Verb::Create => {
                Self::no(what("the node above it is missing"))
                    .hint("--parents makes what is missing above it")
            }
            zk::Error::NoNode => Self::no(what("no such node"))
                .hint("`bellwether tree --depth 2` shows what there is"),
            zk::Error::NodeExists => Self::no(what("it exists already"))
                .hint(format!("`bellwether set {path}` changes its data")),
            zk::Error::NotEmpty => {
                Self::no(what("it has children")).hint("-r deletes what is below it too")
            }
            zk::Error::BadVersion => Self::no(what("it has another version"))
                .hint(format!("`bellwether stat {path}` shows which")),
            zk::Error::NoAuth => Self::no(what("you may not"))
                .hint("--auth proves who you are; `bellwether acl get` shows who may"),
            zk::Error::InvalidAcl => Self::no(what("the server does not take the access list"))
                .hint("the scheme auth wants an identity, proved by --auth"),
            zk::Error::NoChildrenForEphemerals => Self::no(what(
                "the node above it is ephemeral and cannot have children",
            )),
            zk::Error::QuotaExceeded => Self::no(what("it would exceed a quota")),
            zk::Error::Unimplemented => Self::no(what("the server does not know how"))
                .hint("times to live want extended types: `bellwether serve --extended-types`"),
            zk::Error::ConnectionLoss if verb.writes() => Self::failed(what(
                "the connection was lost, and it may have been done or not",
            ))
            .hint("look before you try again"),
            error => Self::failed(what(&error.to_string())),
        }
    }

    /// What is known besides of a request with so much data: one that is too long, servers answer by hanging up.
    pub(crate) fn with_data(self, bytes: usize) -> Self {
        if self.exit == Exit::Failed && bytes >= LONG_BYTES {
            self.hint(format!(
                "servers take about 1 MiB unless told otherwise, and this is {bytes} bytes"
            ))
        } else {
            self
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// What to do next.
    pub(crate) fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Refusal {}

/// Of what can go wrong with a value or a name, some is an answer.
pub(crate) fn of_state(error: StateError) -> anyhow::Error {
    match error {
        StateError::NameTaken { .. } | StateError::TooLarge { .. } => {
            Refusal::no(error.to_string()).into()
        }
        error => error.into(),
    }
}

/// The same for a place in a line: a path that is in use as something else is a mistake of the user.
pub(crate) fn of_acquire(error: AcquireError) -> anyhow::Error {
    match error {
        AcquireError::OtherRecipe { ref path, .. } => Refusal::usage(error.to_string())
            .hint(format!("`bellwether locks {path}` shows by whom"))
            .into(),
        error => error.into(),
    }
}

/// The same for an item or a task.
pub(crate) fn of_put(error: PutError) -> anyhow::Error {
    match error {
        PutError::Full { .. } | PutError::TooLarge { .. } => Refusal::no(error.to_string()).into(),
        error => error.into(),
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    List,
    Watch,
    Set,
    Create,
    Delete,
    SetAcl,
}

impl Verb {
    fn writes(self) -> bool {
        matches!(self, Self::Set | Self::Create | Self::Delete | Self::SetAcl)
    }

    /// Names the path in the error of an answer.
    pub(crate) fn on(self, path: &str) -> impl FnOnce(zk::Error) -> Refusal {
        move |error| Refusal::of(self, path, error)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Set => "set",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::SetAcl => "set the access list of",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_no_is_1_and_a_lost_connection_is_a_failure() {
        let missing = Refusal::of(Verb::Read, "/a", zk::Error::NoNode);
        assert_eq!(missing.to_string(), "cannot read /a: no such node");
        assert_eq!(missing.exit(), Exit::No);
        let lost = Refusal::of(Verb::Set, "/a", zk::Error::ConnectionLoss);
        assert_eq!(lost.exit(), Exit::Failed);
        assert!(lost.to_string().contains("may have been done or not"));
        assert!(lost.next_step().is_some());
    }
}
