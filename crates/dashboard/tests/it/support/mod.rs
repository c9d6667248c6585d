//! Shared by all tests: a server, a dashboard on it, and a browser.

mod browser;
mod http;
mod scene;
mod town;

pub(crate) use browser::Browser;
pub(crate) use http::request;
pub(crate) use scene::{Scene, Stage, TOKEN, gallery};
pub(crate) use town::town;

use std::time::Duration;

/// Time limit of every wait in a test, for busy machines.
pub(crate) const LONG: Duration = Duration::from_secs(20);
