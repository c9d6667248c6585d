//! A ZooKeeper client that says what happened to each request.
//!
//! - **The caller writes.** A request is written to the socket on the caller's thread; requests of a [`Client::batch`] are sent
//!   in one packet. A session thread reads, and keeps the heartbeat also while the program blocks.
//! - **Four kinds of failure** ([`Error`]): refused by the server, not sent, outcome unknown, session ended. A caller knows which requests may be
//!   sent again.
//! - **Watches survive reconnects**, one-shot ([`Watch`]), persistent and recursive ([`PersistentWatch`]). A dropped handle removes its watch
//!   from the server.
//! - **Proof of life** ([`Client::life`]): until when the servers cannot have expired the session.
//! - **`close` ends the session at once** ([`Client::close`]).
//!
//! Features, none of which is on by default:
//!
//! - `tls`: TLS 1.2 and 1.3 by rustls (`Connect::tls` with `TlsOptions`): authorities from a file or the system, client
//!   certificates, and the name of the server verified.
//! - `sasl`: SASL DIGEST-MD5 (`Connect::sasl_digest_md5`), as Java's client and kazoo speak it.
//! - `simulation`: a thread may run sessions on a simulated clock (`bellwether-sim`).
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

mod clock;
mod connect;
mod core;
#[cfg(test)]
mod cost;
mod driver;
#[doc(hidden)]
pub mod environment;
mod error;
mod four_letter;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod handle;
#[doc(hidden)]
pub mod log;
mod options;
#[doc(hidden)]
pub mod process;
#[cfg(feature = "sasl")]
mod sasl;
mod session_thread;

pub use bellwether_wire::acl::{Acl, Id};
pub use bellwether_wire::event::EventKind;
pub use bellwether_wire::path::check as check_path;
pub use bellwether_wire::stat::Stat;
pub use clock::Moment;
pub use connect::Connect;
pub use core::features::Feature;
pub use core::life::Life;
pub use driver::shared::SessionState;
pub use driver::stream::{Dial, Dialing, Resolving, Sockets, Stream};
#[cfg(feature = "tls")]
pub use driver::tls::TlsDial;
pub use error::{Attempts, ConnectError, Error, ErrorCode, Invalid, PathError, SessionEnd};
pub use four_letter::four_letter_word;
pub use handle::client::Client;
pub use handle::create::{CreateMode, CreateOptions, Created};
pub use handle::multi::{Multi, MultiError, MultiRead, MultiReadResult, MultiReply, MultiResult};
pub use handle::reply::Reply;
pub use handle::watch::{Event, PersistentEvent, PersistentWatch, Watch, WatchMode};
pub use options::address::{Address, Endpoint};
pub use options::session::{Credential, Limits, OVERLOAD_PAUSE, SessionKey};
#[cfg(feature = "tls")]
pub use options::tls::TlsOptions;
pub use process::is_session_thread;
pub use session_thread::session_thread;

/// The rights of an access list.
pub mod acl {
    pub use bellwether_wire::acl::{ADMIN, ALL, CREATE, DELETE, READ, WRITE};
}
