//! The line that locks, semaphores and elections wait in.

pub(crate) mod counts;
mod crowd;
mod directories;
mod interop;
mod leaving;
mod not_sent;
mod options;
mod order;
mod recovery;
