//! Who stands in a line or holds something: the data of a contender's node, in JSON.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// Who made a node, and why: what people see when they ask who holds a lock. It proves nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Who {
    version: u32,
    /// Who is waited for, when chains of waiting are followed: the session, unless a task named itself.
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
    /// When it asked, in milliseconds since 1970 by the clock of that machine.
    #[serde(default)]
    pub since_ms: u64,
    /// A word for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A word for programs: what a candidate stands for, or a leader proclaims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Who {
    /// The name of the user as whom this process runs, or `uid N` for one without a name. The environment may say
    /// anything, so it is not asked.
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

    /// This process, now.
    pub(crate) fn here(session: i64) -> Self {
        Self {
            version: 1,
            owner: format!("{session:x}"),
            host: host().to_owned(),
            pid: std::process::id(),
            user: Some(Self::user_of_process().to_owned()),
            command: None,
            since_ms: now_ms(),
            message: None,
            value: None,
        }
    }

    /// Reads the data of a node; `None` if somebody else's program wrote it.
    #[must_use]
    pub fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// When it asked, by the clock of that machine.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.since_ms)
    }
}

/// The time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    })
}
