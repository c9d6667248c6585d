//! Notes from within a job, for the keeper to record.
//!
//! The keeper listens on a socket that has a random name instead of a file, so nothing is left behind however it ends. Such names
//! are open to everybody on the host, so both ends look who the other one is.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::time::Duration;

use bellwether::Hold;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{geteuid, getuid};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// The longest note. The next holder gets it in a variable, which systems limit to 128 KiB.
pub(crate) const BYTES_MAX: usize = 64 * 1024;

/// Where a job finds its keeper.
pub(crate) const VARIABLE: &str = "BELLWETHER_KEEPER";

/// How long one who has called may take to speak: others wait behind it.
const SPEAK_LIMIT: Duration = Duration::from_secs(5);

/// The end of the keeper.
#[derive(Debug)]
pub(crate) struct Notes {
    name: String,
    listener: UnixListener,
}

impl Notes {
    pub(crate) fn listen() -> io::Result<Self> {
        let mut random = [0; 16];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!("bellwether-{:032x}", u128::from_ne_bytes(random));
        let listener = StdListener::bind_addr(&address(&name)?)?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { name, listener })
    }

    /// What the variable of the job says.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Records notes with a hold, one after the other, until dropped.
    pub(crate) async fn record(&self, hold: &Hold) -> Infallible {
        loop {
            let caller = match self.listener.accept().await {
                Ok((caller, _)) => caller,
                Err(error) => {
                    tracing::warn!(%error, "no more notes are recorded");
                    return pending().await;
                }
            };
            if let Err(error) = answer(caller, hold).await {
                tracing::debug!(%error, "a note was not recorded");
            }
        }
    }
}

/// Reads a note, and answers with nothing when it is recorded, or else with the reason why not.
async fn answer(mut caller: UnixStream, hold: &Hold) -> io::Result<()> {
    check_peer(&caller)?;
    let mut note = Vec::new();
    // Callers that keep to the limit have nothing cut off.
    let mut limited = (&mut caller).take(BYTES_MAX as u64);
    let read = timeout(SPEAK_LIMIT, limited.read_to_end(&mut note)).await;
    read.map_err(|_| io::ErrorKind::TimedOut)??;
    match hold.note(&note).await {
        Ok(()) => caller.shutdown().await,
        Err(error) => caller.write_all(error.to_string().as_bytes()).await,
    }
}

/// Sends a note of at most [`BYTES_MAX`] to a keeper and waits until it is recorded; the reason if it is not.
pub(crate) fn send(keeper: &str, note: &[u8]) -> io::Result<Result<(), String>> {
    let mut socket = StdStream::connect_addr(&address(keeper)?)?;
    check_peer(&socket)?;
    socket.write_all(note)?;
    socket.shutdown(Shutdown::Write)?;
    let mut refusal = String::new();
    socket.read_to_string(&mut refusal)?;
    Ok(match refusal.is_empty() {
        true => Ok(()),
        false => Err(refusal),
    })
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Refuses anybody but this user, and root.
fn check_peer(socket: impl AsFd) -> io::Result<()> {
    let peer = socket_peercred(socket)?.uid;
    match peer.is_root() || peer == getuid() || peer == geteuid() {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
