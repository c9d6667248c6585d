//! The identity of a contender or holder: the data of its node, in JSON.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bellwether_client::environment;
use serde::{Deserialize, Serialize};

use crate::node::times::now_ms;

/// Who created a node, and why: what people see when they ask who holds a lock. It is not authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Who {
    version: u32,
    /// The owner, by which a search for deadlocks tells waiters and holders apart: the session, unless `owner` was set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The name of the machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The id of the process.
    #[serde(default)]
    pub pid: u32,
    /// The user, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The command under the hold, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// When it joined the line, in milliseconds since 1970 by the clock of its machine.
    #[serde(default)]
    pub since_ms: u64,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A value for programs: such as the address that a candidate or leader publishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Who {
    /// The name of the user that this process runs as, or `uid N` for a user without a name. The environment is not used, since it may
    /// contain anything.
    #[must_use]
    pub fn user_of_process() -> &'static str {
        static USER: OnceLock<String> = OnceLock::new();
        // Looked up once, before the first hold of the process: the user database may be slow to answer.
        USER.get_or_init(|| {
            let uid = nix::unistd::geteuid();
            match nix::unistd::User::from_uid(uid) {
                Ok(Some(user)) => user.name,
                _ => format!("uid {uid}"),
            }
        })
    }

    /// The name of the host on which this process runs.
    #[must_use]
    pub fn host_of_process() -> &'static str {
        static HOST: OnceLock<String> = OnceLock::new();
        HOST.get_or_init(|| {
            let system = nix::sys::utsname::uname().expect("every system has a name");
            system.nodename().to_string_lossy().into_owned()
        })
    }

    /// This process, now.
    pub(crate) fn here(session: i64) -> Self {
        let (host, user, pid) = environment::identity().unwrap_or_else(|| {
            let (host, user) = (Self::host_of_process(), Self::user_of_process());
            (host.to_owned(), user.to_owned(), std::process::id())
        });
        Self {
            version: 1,
            owner: format!("{session:x}"),
            host,
            pid,
            user: Some(user),
            command: None,
            since_ms: now_ms(),
            message: None,
            value: None,
        }
    }

    /// Decodes the data of a node; `None` if another program wrote it.
    #[must_use]
    pub fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// When it joined the line, by the clock of its machine.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.since_ms)
    }
}
