//! Receives notes from within a job, which the keeper records.
//!
//! The keeper listens on an abstract Unix socket with a random name, so no file is left behind however it ends. Every user of the host
//! can connect to such a socket, so both ends check the user id of the other.

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

/// The longest note. The next holder gets it in an environment variable, which Linux limits to 128 KiB.
pub(crate) const BYTES_MAX: usize = 64 * 1024;

/// The variable with the name of the keeper's socket.
pub(crate) const VARIABLE: &str = "BELLWETHER_KEEPER";

/// The answer when a note is recorded. Any other answer is the reason why not; no answer means that the keeper has ended.
const RECORDED: &str = "recorded";

/// The time limit for sending a note: other callers wait meanwhile.
const SPEAK_LIMIT: Duration = Duration::from_secs(5);

/// The keeper's end.
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

    /// The name of the socket.
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

/// Reads a note, records it, and answers.
async fn answer(mut caller: UnixStream, hold: &Hold) -> io::Result<()> {
    check_peer(&caller)?;
    let mut note = Vec::new();
    // `send` refuses longer notes.
    let mut limited = (&mut caller).take(BYTES_MAX as u64);
    let read = timeout(SPEAK_LIMIT, limited.read_to_end(&mut note)).await;
    read.map_err(|_| io::ErrorKind::TimedOut)??;
    let answer = match hold.note(&note).await {
        Ok(()) => RECORDED.to_owned(),
        Err(error) => error.to_string(),
    };
    caller.write_all(answer.as_bytes()).await
}

/// Sends a note of at most [`BYTES_MAX`] to a keeper, and waits until it is recorded. `Err` with the reason if it is not.
pub(crate) fn send(keeper: &str, note: &[u8]) -> io::Result<Result<(), String>> {
    let mut socket = StdStream::connect_addr(&address(keeper)?)?;
    check_peer(&socket)?;
    socket.write_all(note)?;
    socket.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    match &*answer {
        RECORDED => Ok(Ok(())),
        "" => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(Err(answer)),
    }
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Refuses other users except root.
fn check_peer(socket: impl AsFd) -> io::Result<()> {
    let peer = socket_peercred(socket)?.uid;
    match peer.is_root() || peer == getuid() || peer == geteuid() {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
