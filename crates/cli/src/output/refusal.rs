//! The error of a command: what failed, a hint, and the exit code. It can also be the context of another error.

use std::error::Error;
use std::fmt;

use bellwether::error::{ConnectError, OtherUse, PathError};
use bellwether::queue::RecordedOrder;
use bellwether::{ErrorKind, zk};

use crate::exit::Exit;

/// Servers refuse requests from about this size on, unless `jute.maxbuffer` is larger.
const LONG_BYTES: usize = 1_000_000;

/// The next step without a chroot.
const CHROOT_MISSING: &str = "was it renamed? Without it in --connect, `bellwether tree --depth 1` shows what there is, and `create -p` creates it";

const ACCESS_DENIED: &str = "authenticate with --auth; `bellwether acl get` shows the access list";

const ACCESS_LIST_REFUSED: &str = "the scheme `auth` needs an identity, such as that of --auth";

const STORES_NO_MORE: &str = "`bellwether doctor` says whether the server's disk is nearly full or its tree at its limit; deletes still work";

/// An error with an exit code, and perhaps a hint.
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

    /// There is no such thing. For commands whose exit code 1 is an answer about an existing one, as in `tx wait`.
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self {
            exit: Exit::Missing,
            ..Self::no(what)
        }
    }

    /// A mistake of the user.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::no(what)
        }
    }

    /// A failure.
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

    /// The error of a command whose chroot does not exist, so that nothing else does.
    pub(crate) fn no_chroot(chroot: &str) -> Self {
        Self::no(format!("the chroot in --connect does not exist: {chroot}")).hint(CHROOT_MISSING)
    }

    /// The error of a request that tried `verb` on `path`.
    pub(crate) fn of(verb: Verb, path: &str, error: zk::Error) -> Self {
        let what = |why: &str| format!("cannot {verb} {path}: {why}");
        match error {
            zk::Error::NO_NODE if verb == Verb::Create => {
                Self::no(what("its parent does not exist"))
                    .hint("--parents creates missing parents")
            }
            // The root always exists, unless it is a chroot.
            zk::Error::NO_NODE if path == "/" => {
                Self::no(format!("cannot {verb} /: the chroot in --connect does not exist"))
                    .hint(CHROOT_MISSING)
            }
            zk::Error::NO_NODE => Self::no(what("no such node"))
                .hint("`bellwether tree --depth 2` lists nodes"),
            zk::Error::NODE_EXISTS => Self::no(what("the node exists already"))
                .hint(format!("`bellwether set {path}` changes its data")),
            zk::Error::NOT_EMPTY => {
                Self::no(what("the node has children")).hint("-r also deletes the nodes below it")
            }
            zk::Error::BAD_VERSION => Self::no(what("its version differs"))
                .hint(format!("`bellwether stat {path}` shows the version")),
            zk::Error::NO_AUTH => Self::no(what("access denied")).hint(ACCESS_DENIED),
            zk::Error::Refused(zk::ErrorCode::InvalidAcl) => {
                Self::no(what("the server refused the access list")).hint(ACCESS_LIST_REFUSED)
            }
            zk::Error::NO_CHILDREN_FOR_EPHEMERALS => Self::no(what(
                "its parent is ephemeral and cannot have children",
            )),
            zk::Error::Refused(zk::ErrorCode::QuotaExceeded) => {
                Self::no(what("this would exceed a quota, or what the server can store"))
                    .hint(STORES_NO_MORE)
            }
            zk::Error::UNIMPLEMENTED => {
                Self::no(what("the server does not support this")).hint(match verb {
                    Verb::Watch => "persistent watches need ZooKeeper 3.6 or later",
                    _ => {
                        "containers need ZooKeeper 3.5.3 or later, nodes with a time to live also extended types: \
                         `bellwether serve --extended-types`"
                    }
                })
            }
            zk::Error::Unknown if verb.writes() => Self::failed(what(
                "the connection was lost; the change may have been made or not",
            ))
            .hint("look at the node before you try again"),
            error => Self::failed(what(&error.to_string())),
        }
    }

    /// Adds a hint if the request had too much data: servers close the connection then, without an error.
    pub(crate) fn with_data(self, bytes: usize) -> Self {
        if self.exit == Exit::Failed && bytes >= LONG_BYTES {
            self.hint(format!(
                "servers accept about 1 MiB by default, and this request has {bytes} bytes"
            ))
        } else {
            self
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The same error with another exit code.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Refusal {}

/// Whether a server has refused to store something for lack of quota, disk or memory.
pub(crate) fn is_over_quota(error: &anyhow::Error) -> bool {
    let (_, hint) = meaning(error);
    hint.as_deref() == Some(STORES_NO_MORE)
}

/// The exit code that an error means, and what to do about it. Some errors of the library are answers, not failures.
pub(crate) fn meaning(error: &anyhow::Error) -> (Exit, Option<String>) {
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        return (refusal.exit, refusal.hint.clone());
    }
    let recipe = error.downcast_ref::<bellwether::Error>();
    let (path, call) = recipe.map_or(("", ""), |recipe| (&recipe.path, recipe.call()));
    match recipe.map(|recipe| &recipe.kind) {
        Some(
            ErrorKind::NameTaken
            | ErrorKind::OutOfRange
            | ErrorKind::AlreadyBegun
            | ErrorKind::NotFound
            | ErrorKind::NotASite { .. }
            | ErrorKind::Undecided,
        ) => return (Exit::No, None),
        // Not in a line, where the data is about the caller.
        Some(ErrorKind::Full { .. } | ErrorKind::TooLarge { .. }) if stores(call) => {
            return (Exit::No, None);
        }
        Some(ErrorKind::InUse(other)) => {
            if let Some(hint) = other_use_hint(other, path, call) {
                return (Exit::Usage, Some(hint));
            }
        }
        _ => {}
    }
    let is_bad_path = error
        .chain()
        .any(|cause| cause.downcast_ref::<PathError>().is_some());
    let kind = recipe.map(|recipe| &recipe.kind);
    let has_bad_sites =
        matches!(kind, Some(ErrorKind::BadSize { .. })) && call.starts_with("transaction.");
    let exit = if is_bad_path || has_bad_sites {
        Exit::Usage
    } else {
        Exit::Failed
    };
    let hint = match error.downcast_ref() {
        Some(ConnectError::Unreachable { attempts, .. }) => Some(unreachable_hint(attempts)),
        _ => refusal_hint(error).map(str::to_owned),
    };
    (exit, hint)
}

/// Whether a call stores data of the user, which may be too large or too much: that is an answer.
fn stores(call: &str) -> bool {
    match call.split_once('.') {
        Some(("queue" | "tasks", verb)) => {
            verb.starts_with("put") || matches!(verb, "add" | "revive" | "retry")
        }
        Some((recipe, _)) => matches!(
            recipe,
            "cache" | "config" | "config_folder" | "counter" | "group" | "names"
        ),
        None => false,
    }
}

/// What to do about a path that is in use in another way; `None` if that is a failure.
fn other_use_hint(other: &OtherUse, path: &str, call: &str) -> Option<String> {
    Some(match other {
        OtherUse::Recipe(_) | OtherUse::Layout(_) => {
            format!("`bellwether locks {path}` shows who uses it")
        }
        OtherUse::NoLimit => format!(
            "a semaphore has its limit there: `bellwether get {path}` prints what there is, `bellwether set {path} M` sets the limit"
        ),
        OtherUse::Members { .. } => format!(
            "all callers name the same --size; to change it, wait until none is there, and run: bellwether rm -r {path}"
        ),
        OtherUse::Order(order) => match order {
            _ if !stores(call) => "leave --order out",
            RecordedOrder::Priority => "give the item a --priority",
            RecordedOrder::Due => "give the item a --delay",
            _ => "leave --priority and --delay out, or use another path",
        }
        .to_owned(),
        _ => return None,
    })
}

/// What to do about a recipe's error that is about access.
fn refusal_hint(error: &anyhow::Error) -> Option<&'static str> {
    let mut causes = error.chain().filter_map(<dyn Error>::downcast_ref);
    causes.find_map(|cause| match *cause {
        zk::Error::NO_AUTH => Some(ACCESS_DENIED),
        zk::Error::Refused(zk::ErrorCode::InvalidAcl) => Some(ACCESS_LIST_REFUSED),
        zk::Error::Refused(zk::ErrorCode::QuotaExceeded) => Some(STORES_NO_MORE),
        _ => None,
    })
}

fn unreachable_hint(attempts: &zk::Attempts) -> String {
    let is_denied = |(host, reason): (&str, &str)| {
        host.starts_with("unix:") && reason.contains("Permission denied")
    };
    let hint = match attempts.iter().any(is_denied) {
        true => {
            "the server admits only its own user; `bellwether serve --unix-users all` admits every user of the host"
        }
        false => {
            "`bellwether serve --listen ADDRESS:PORT` starts a server; without --connect, commands use a local server"
        }
    };
    hint.to_owned()
}

/// What a request tried.
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

    /// Makes an error of the answer to a request on a path.
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
        let missing = Refusal::of(Verb::Read, "/a", zk::Error::NO_NODE);
        assert_eq!(missing.to_string(), "cannot read /a: no such node");
        assert_eq!(missing.exit(), Exit::No);
        let lost = Refusal::of(Verb::Set, "/a", zk::Error::Unknown);
        assert_eq!(lost.exit(), Exit::Failed);
        assert!(lost.to_string().contains("may have been made or not"));
        assert!(lost.hint.is_some());
    }
}
