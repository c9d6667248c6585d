//! TLS: certificates from files, handshakes, and connections that any thread may write to.

mod acceptor;
mod certificates;
mod pages;
mod stream;
mod subject;

pub(crate) use acceptor::{Acceptor, LoadedCertificates, Secured};
pub use certificates::TlsError;
pub use pages::PageTls;
pub(crate) use stream::{TlsReadHalf, TlsWriteHalf};
#[cfg(feature = "fuzz")]
pub(crate) use {certificates::load, subject::of as subject_of};
