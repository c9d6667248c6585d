//! The clock that deadlines are kept on.

pub(crate) use bellwether_client::Moment;
