//! Commands that show holders, waiters and problems, and end holds.

pub(crate) mod dashboard;
pub(crate) mod doctor;
pub(crate) mod leader;
pub(crate) mod locks;
pub(crate) mod revoke;
pub(crate) mod why;
