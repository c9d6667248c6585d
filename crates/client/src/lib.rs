//! A ZooKeeper client that says what happened to each request.
//!
//! - **The caller writes.** A request goes to the socket on the thread that makes it; requests made together leave together
//!   ([`Client::batch`]). A session thread reads, and keeps the heartbeat whatever the program does.
//! - **Four kinds of failure** ([`Error`]): refused by the server, not sent, outcome unknown, session ended. A caller knows what may be
//!   sent again.
//! - **Watches survive reconnects**, one-shot ([`Watch`]), persistent and recursive ([`PersistentWatch`]). A dropped handle is
//!   removed from the server.
//! - **Proof of life** ([`Client::life`]): until when the servers cannot have expired the session.
//! - **Close means close** ([`Client::close`]).
//!
//! Features, none of which is on by default:
//!
//! - `tls`: TLS 1.2 and 1.3 by rustls (`Connect::tls` with `TlsOptions`): authorities from a file or the system, client
//!   certificates, and the name of the server verified.
//! - `sasl`: SASL DIGEST-MD5 (`Connect::sasl_digest_md5`), as Java's client and kazoo speak it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use bellwether_client::{Client, CreateMode, Error};
//!
//! # let server = bellwether_server::Server::builder().start().await?;
//! # let address = server.connect_string();
//! let client = Client::connect(address).await?;
//! client.create("/greeting", b"hello", CreateMode::Persistent).await?;
//! let (data, stat, watch) = client.get_watched("/greeting").await?;
//! assert_eq!((&data[..], stat.version), (&b"hello"[..], 0));
//!
//! client.set("/greeting", b"bye", Some(stat.version)).await?;
//! assert_eq!(watch.await?.path, "/greeting");
//! assert_eq!(client.delete("/greeting", Some(0)).await, Err(Error::BAD_VERSION));
//! client.close().await;
//! # server.shutdown().await;
//! # Ok(()) }
//! ```

mod address;
mod client;
mod clock;
mod connect;
mod core;
#[cfg(test)]
mod cost;
mod create;
mod driver;
mod error;
mod features;
#[doc(hidden)]
pub mod log;
mod multi;
mod ops;
mod options;
mod reply;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(feature = "tls")]
mod tls_options;
mod watch;

pub use address::{Address, Endpoint};
pub use bellwether_wire::acl::{Acl, Id};
pub use bellwether_wire::event::EventKind;
pub use bellwether_wire::path::check as check_path;
pub use bellwether_wire::stat::Stat;
pub use client::Client;
pub use clock::Moment;
pub use connect::Connect;
pub use core::features::Feature;
pub use core::life::Life;
pub use create::{CreateMode, CreateOptions, Created};
pub use driver::shared::SessionState;
pub use driver::stream::{Dial, Dialing, Sockets, Stream};
pub use driver::thread::{is_session_thread, session_thread};
pub use error::{Attempts, ConnectError, Error, ErrorCode, Invalid, PathError, SessionEnd};
pub use multi::{Multi, MultiError, MultiRead, MultiReadResult, MultiReply, MultiResult};
pub use options::{Credential, Limits, SessionKey};
pub use reply::Reply;
#[cfg(feature = "tls")]
pub use tls_options::TlsOptions;
pub use watch::{Event, PersistentEvent, PersistentWatch, Watch, WatchMode};

/// The rights of an access list.
pub mod acl {
    pub use bellwether_wire::acl::{ADMIN, ALL, CREATE, DELETE, READ, WRITE};
}
