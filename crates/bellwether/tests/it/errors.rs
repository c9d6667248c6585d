//! Which errors are transient: every variant of every error enum.

use std::time::Duration;

use bellwether::error::{
    AcquireError, BarrierError, CandidacyError, ClearError, ConnectError, ContentionError,
    LimitError, PathError, ReleaseError, StateError, WriteError,
};
use bellwether::queue::{PutError, SettleError, TakeError};
use bellwether::two_phase::{ParticipateError, TransactionError};
use bellwether::zk;

const LIMIT: Duration = Duration::from_secs(1);
const REFUSED: zk::Error = zk::Error::Refused(zk::ErrorCode::NoAuth);
const EXPIRED: zk::Error = zk::Error::SessionEnded(zk::SessionEnd::Expired);
const CLOSED: zk::Error = zk::Error::SessionEnded(zk::SessionEnd::Closed);
const LOST: zk::Error = zk::Error::Unknown;

fn path() -> String {
    "/path".to_owned()
}

/// No session, for a transient and for a permanent reason.
fn no_session<E>(error: impl Fn(ConnectError) -> E) -> [(E, bool); 2] {
    [
        (error(ConnectError::Lost(LOST)), true),
        (error(ConnectError::Closed), false),
    ]
}

/// Checks what `is_transient` returns for each error.
macro_rules! transient {
    ($error:ident, $rows:expr) => {
        for (error, expected) in $rows {
            let error: $error = error;
            assert_eq!(error.is_transient(), expected, "{error:?}");
        }
    };
}

/// Rows for variants where only the path matters.
macro_rules! rows {
    ($error:ident: $($variant:ident { $($field:ident : $value:expr),* } => $expected:expr),* $(,)?) => {
        [$(($error::$variant { path: path(), $($field: $value),* }, $expected)),*]
    };
}

#[test]
fn acquire_error_is_transient_where_the_same_call_may_succeed() {
    use AcquireError as E;
    transient!(
        E,
        no_session(|source| E::NoSession {
            path: path(),
            source
        })
    );
    transient!(
        E,
        rows!(E:
            BadPath { source: PathError::Root } => false,
            TimedOut { limit: LIMIT } => true,
            Removed {} => true,
            Lost {} => true,
            SessionEnded {} => true,
            Disconnected { source: LOST } => true,
            SequenceUsedUp {} => false,
            LineFull { depth: 3 } => true,
            OtherRecipe { recipe: "a semaphore" } => false,
            OtherLayout { library: "kazoo" } => false,
            TooLarge { bytes: 2, bytes_max: 1 } => false,
            NoLimit {} => false,
            HoldsReadSide {} => false,
            NotTogether { reason: "it is on other servers" } => false,
            TooManyEphemerals { bytes: 2 } => false,
            Refused { source: REFUSED } => false,
        )
    );
}

#[test]
fn stand_error_is_transient_as_its_source_is() {
    transient!(CandidacyError, no_session(CandidacyError::NoSession));
    let no_part = |error: AcquireError, expected| (CandidacyError::NoPart(error), expected);
    transient!(
        CandidacyError,
        [
            no_part(AcquireError::Removed { path: path() }, true),
            no_part(AcquireError::NoLimit { path: path() }, false),
        ]
    );
}

#[test]
fn release_error_is_transient_where_the_hold_had_ended() {
    transient!(
        ReleaseError,
        rows!(ReleaseError:
            NotHeld {} => true,
            SessionEnded {} => true,
            Refused { source: REFUSED } => false,
        )
    );
}

#[test]
fn write_error_is_transient_only_where_nothing_was_written() {
    use WriteError as E;
    let rows = [
        (E::NotHeld, true),
        (E::SessionEnded, false),
        (E::OutcomeUnknown { source: LOST }, false),
        (
            E::BadPath {
                path: path(),
                source: PathError::Root,
            },
            false,
        ),
        (E::NoMark, false),
        (E::NotFenced, false),
        (E::TooManyEphemerals { bytes: 2 }, false),
        (
            E::TooLarge {
                bytes: 2,
                bytes_max: 1,
            },
            false,
        ),
        (
            E::Refused {
                index: 0,
                source: REFUSED,
            },
            false,
        ),
    ];
    transient!(E, rows);
}

#[test]
fn looks_and_settings_are_transient_where_no_server_refused() {
    transient!(
        ClearError,
        no_session(|source| ClearError::NoSession {
            path: path(),
            source
        })
    );
    transient!(
        ClearError,
        rows!(ClearError:
            BadPath { source: PathError::Root } => false,
            Held { who: None } => true,
            Failed { source: LOST } => true,
            Failed { source: EXPIRED } => true,
            Failed { source: CLOSED } => false,
            Failed { source: REFUSED } => false,
        )
    );
    transient!(
        LimitError,
        no_session(|source| LimitError::NoSession {
            path: path(),
            source
        })
    );
    transient!(
        LimitError,
        rows!(LimitError:
            BadPath { source: PathError::Root } => false,
            NoLimit {} => false,
            Failed { source: LOST } => true,
            Failed { source: REFUSED } => false,
        )
    );
    transient!(
        ContentionError,
        no_session(|source| ContentionError::NoSession {
            path: path(),
            source
        })
    );
    transient!(
        ContentionError,
        rows!(ContentionError:
            BadPath { source: PathError::Root } => false,
            Failed { source: EXPIRED } => true,
            Failed { source: REFUSED } => false,
        )
    );
}

#[test]
fn barrier_error_is_transient_where_the_same_call_may_succeed() {
    use BarrierError as E;
    transient!(
        E,
        no_session(|source| E::NoSession {
            path: path(),
            source
        })
    );
    transient!(
        E,
        [(
            E::BadSize {
                size: 0,
                size_max: 1
            },
            false
        )]
    );
    transient!(
        E,
        rows!(E:
            BadPath { source: PathError::Root } => false,
            SizeDiffers { theirs: 1, ours: 2 } => false,
            NotABarrier {} => false,
            TimedOut { limit: LIMIT } => true,
            Removed {} => true,
            SessionEnded {} => true,
            Disconnected { source: LOST } => true,
            OutcomeUnknown { source: LOST } => false,
            TooLarge { bytes: 2, bytes_max: 1 } => false,
            Crowded { depth: 3 } => true,
            TooManyEphemerals { bytes: 2 } => false,
            Refused { source: REFUSED } => false,
        )
    );
}

#[test]
fn state_error_is_transient_where_the_same_call_may_succeed() {
    use StateError as E;
    transient!(
        E,
        no_session(|source| E::NoSession {
            path: path(),
            source
        })
    );
    transient!(
        E,
        rows!(E:
            BadPath { source: PathError::Root } => false,
            NameTaken {} => true,
            TooLarge { bytes: 2, bytes_max: 1 } => false,
            OutOfRange {} => false,
            TooManyEphemerals { bytes: 2 } => false,
            Unreadable { source: "no number".into() } => false,
            OutcomeUnknown { source: LOST } => false,
            Refused { source: REFUSED } => false,
        )
    );
}

#[test]
fn put_and_take_errors_are_transient_where_the_same_call_may_succeed() {
    transient!(
        PutError,
        no_session(|source| PutError::NoSession {
            path: path(),
            source
        })
    );
    transient!(
        PutError,
        rows!(PutError:
            BadPath { source: PathError::Root } => false,
            Full { depth: 3 } => true,
            TooLarge { bytes: 2, bytes_max: 1 } => false,
            NotWritable { source: "no text".into() } => false,
            SequenceUsedUp {} => false,
            TooManyEphemerals { bytes: 2 } => false,
            SessionEnded {} => true,
            OutcomeUnknown { source: LOST } => false,
            Disconnected { source: LOST } => true,
            Refused { source: REFUSED } => false,
        )
    );
    transient!(
        TakeError,
        no_session(|source| TakeError::NoSession {
            path: path(),
            source
        })
    );
    transient!(
        TakeError,
        rows!(TakeError:
            BadPath { source: PathError::Root } => false,
            TimedOut { limit: LIMIT } => true,
            SessionEnded {} => true,
            LineFull { depth: 3 } => true,
            TooLarge { bytes: 2, bytes_max: 1 } => false,
            SequenceUsedUp {} => false,
            TooManyEphemerals { bytes: 2 } => false,
            Disconnected { source: LOST } => true,
            Refused { source: REFUSED } => false,
        )
    );
}

#[test]
fn settle_error_is_transient_where_the_item_is_delivered_again() {
    let item = || "item-1".to_owned();
    transient!(
        SettleError,
        rows!(SettleError:
            NotClaimed { item: item() } => true,
            SessionEnded { item: item() } => true,
            TooLarge { item: item(), bytes: 2, bytes_max: 1 } => false,
            Refused { item: item(), source: REFUSED } => false,
        )
    );
}

#[test]
fn transaction_errors_are_transient_where_something_is_waited_for() {
    use TransactionError as E;
    let unknown = || StateError::OutcomeUnknown {
        path: path(),
        source: LOST,
    };
    transient!(
        E,
        rows!(E:
            BadSites { sites: 0, sites_max: 1 } => false,
            AlreadyBegun {} => false,
            NotFound {} => false,
            NotASite { site: "a".to_owned() } => false,
            Undecided {} => true,
            NotDone { sites: Vec::new() } => true,
            TimedOut { limit: LIMIT } => true,
        )
    );
    transient!(
        E,
        [
            (unknown().into(), true),
            (StateError::NameTaken { path: path() }.into(), true),
            (
                StateError::Refused {
                    path: path(),
                    source: REFUSED
                }
                .into(),
                false
            ),
        ]
    );
    transient!(
        ParticipateError,
        [
            (E::from(unknown()).into(), true),
            (E::NotFound { path: path() }.into(), false),
            (ParticipateError::Handler("disk full".into()), false),
        ]
    );
}
