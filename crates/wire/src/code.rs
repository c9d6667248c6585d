//! The error codes that a server sends.

/// Why a request failed: every code that a server of the protocol sends, ensembles included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(i32)]
#[expect(missing_docs, reason = "named as in ZooKeeper's KeeperException.Code")]
pub enum ErrorCode {
    #[error("system error")]
    SystemError = -1,
    #[error("runtime inconsistency")]
    RuntimeInconsistency = -2,
    #[error("data inconsistency")]
    DataInconsistency = -3,
    #[error("connection loss")]
    ConnectionLoss = -4,
    #[error("marshalling error")]
    MarshallingError = -5,
    #[error("unimplemented")]
    Unimplemented = -6,
    #[error("operation timeout")]
    OperationTimeout = -7,
    #[error("bad arguments")]
    BadArguments = -8,
    #[error("unknown session")]
    UnknownSession = -12,
    #[error("no quorum of the new configuration is connected")]
    NewConfigNoQuorum = -13,
    #[error("another reconfiguration is in progress")]
    ReconfigInProgress = -14,
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
    #[error("session moved to another server")]
    SessionMoved = -118,
    #[error("the server is read-only")]
    NotReadOnly = -119,
    #[error("no ephemeral nodes on a local session")]
    EphemeralOnLocalSession = -120,
    #[error("no watcher")]
    NoWatcher = -121,
    #[error("request timeout")]
    RequestTimeout = -122,
    #[error("reconfig disabled")]
    ReconfigDisabled = -123,
    #[error("session closed because authentication is required")]
    AuthRequired = -124,
    #[error("quota exceeded")]
    QuotaExceeded = -125,
    #[error("the server is overloaded")]
    ThrottledOp = -127,
}

impl ErrorCode {
    const ALL: [Self; 29] = [
        Self::SystemError,
        Self::RuntimeInconsistency,
        Self::DataInconsistency,
        Self::ConnectionLoss,
        Self::MarshallingError,
        Self::Unimplemented,
        Self::OperationTimeout,
        Self::BadArguments,
        Self::UnknownSession,
        Self::NewConfigNoQuorum,
        Self::ReconfigInProgress,
        Self::NoNode,
        Self::NoAuth,
        Self::BadVersion,
        Self::NoChildrenForEphemerals,
        Self::NodeExists,
        Self::NotEmpty,
        Self::SessionExpired,
        Self::InvalidAcl,
        Self::AuthFailed,
        Self::SessionMoved,
        Self::NotReadOnly,
        Self::EphemeralOnLocalSession,
        Self::NoWatcher,
        Self::RequestTimeout,
        Self::ReconfigDisabled,
        Self::AuthRequired,
        Self::QuotaExceeded,
        Self::ThrottledOp,
    ];

    /// The number on the wire.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The code with this number, or `None` if it is unknown.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }
}

impl From<crate::jute::Malformed> for ErrorCode {
    fn from(_: crate::jute::Malformed) -> Self {
        Self::MarshallingError
    }
}
