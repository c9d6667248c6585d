//! Error types, one for each family of calls. Variants differ by what the caller should do.

mod barrier;
mod hold;
mod line;
mod state;

pub use self::barrier::BarrierError;
pub use self::hold::{Lost, ReleaseError, WriteError};
pub use self::line::{AcquireError, CandidacyError, ClearError, ContentionError, LimitError};
pub use self::state::StateError;
pub use crate::node::path::PathError;
pub use bellwether_client::ConnectError;
