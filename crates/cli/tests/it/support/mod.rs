//! Shared by tests: servers, commands as processes, terminals and lines seen from outside.

#[macro_use]
pub(crate) mod bellwether;
#[macro_use]
pub(crate) mod servers;

pub(crate) mod home;
pub(crate) mod line;
pub(crate) mod on_tree;
pub(crate) mod screen;
pub(crate) mod shell;
