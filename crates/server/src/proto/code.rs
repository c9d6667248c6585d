//! The error codes that a server sends.

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(i32)]
#[expect(missing_docs, reason = "named as in ZooKeeper's KeeperException.Code")]
pub enum ErrorCode {
    #[error("runtime inconsistency")]
    RuntimeInconsistency = -2,
    #[error("marshalling error")]
    MarshallingError = -5,
    #[error("unimplemented")]
    Unimplemented = -6,
    #[error("bad arguments")]
    BadArguments = -8,
    #[error("no node")]
    NoNode = -101,
    #[error("no auth")]
    NoAuth = -102,
    #[error("bad version")]
    BadVersion = -103,
    #[error("no children for ephemerals")]
    NoChildrenForEphemerals = -108,
    #[error("node exists")]
    NodeExists = -110,
    #[error("not empty")]
    NotEmpty = -111,
    #[error("session expired")]
    SessionExpired = -112,
    #[error("invalid acl")]
    InvalidAcl = -114,
    #[error("auth failed")]
    AuthFailed = -115,
    #[error("no watcher")]
    NoWatcher = -121,
    #[error("reconfig disabled")]
    ReconfigDisabled = -123,
    #[error("session closed because authentication is required")]
    AuthRequired = -124,
    #[error("quota exceeded")]
    QuotaExceeded = -125,
}

impl ErrorCode {
    const ALL: [Self; 17] = [
        Self::RuntimeInconsistency,
        Self::MarshallingError,
        Self::Unimplemented,
        Self::BadArguments,
        Self::NoNode,
        Self::NoAuth,
        Self::BadVersion,
        Self::NoChildrenForEphemerals,
        Self::NodeExists,
        Self::NotEmpty,
        Self::SessionExpired,
        Self::InvalidAcl,
        Self::AuthFailed,
        Self::NoWatcher,
        Self::ReconfigDisabled,
        Self::AuthRequired,
        Self::QuotaExceeded,
    ];

    /// The number on the wire.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The code with this number, if a server sends it.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }
}

impl From<super::jute::Malformed> for ErrorCode {
    fn from(_: super::jute::Malformed) -> Self {
        Self::MarshallingError
    }
}
