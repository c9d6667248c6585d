//! Clients that send as much as they can, and read all of the replies and events: nothing that they do is forbidden.

use anyhow::{Result, ensure};
use bellwether_testkit::Request;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::attack::Harm;
use crate::wire::Wire;

/// The node that floods write to.
const HOT: &str = "/h";

/// Writes of one transaction, near a megabyte.
pub const CHANGES: usize = 45_000;

/// Levels of the deep path: in a session, more recursive watches on all levels would exceed the limit of their bytes.
pub const LEVELS: usize = 5_500;

/// Requests on the way to the deep path, at a time.
const DEEP_REQUESTS: usize = 50;

/// Bytes of the id of a client that fills the audit log.
const ID_BYTES: usize = 60_000;

/// Makes the nodes that floods of these kinds need.
pub fn prepare(address: &str, kinds: &[Harm]) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    if kinds.iter().any(|kind| kind.is_flood()) {
        wire.call(&Request::create(HOT, ""))?;
    }
    if kinds.contains(&Harm::DeepWatches) {
        let levels: Vec<_> = (1..=LEVELS).map(deep).collect();
        for some in levels.chunks(60) {
            let creates = some.iter().map(|path| Request::create(path, "")).collect();
            wire.call(&Request::Multi(creates))?;
        }
    }
    Ok(())
}

fn deep(levels: usize) -> String {
    "/d".repeat(levels)
}

/// Requests that a client sends again and again: the next ones when these are answered, or without waiting.
struct Flood {
    before: Vec<Request>,
    repeated: Vec<Request>,
    waits: bool,
}

impl Flood {
    fn of(kind: Harm) -> Self {
        let changes = || Request::Multi(vec![Request::set_data(HOT, ""); CHANGES]);
        let watch = |path: String, mode| Request::AddWatch { path, mode };
        let (before, repeated, waits) = match kind {
            Harm::Writes => (vec![], vec![Request::set_data(HOT, vec![b'x'; 100])], false),
            Harm::Reads => (vec![], vec![Request::get_data(HOT)], false),
            Harm::Transactions => (vec![], vec![changes()], false),
            Harm::WatchedChanges => (vec![watch(HOT.to_owned(), 0)], vec![changes()], true),
            Harm::DeepWatches => (
                (1..=LEVELS).map(|levels| watch(deep(levels), 1)).collect(),
                vec![Request::set_data(deep(LEVELS), ""); DEEP_REQUESTS],
                true,
            ),
            Harm::Audit => (
                vec![Request::auth_digest(&format!("{}:", "u".repeat(ID_BYTES)))],
                vec![changes()],
                true,
            ),
            _ => unreachable!("not a flood"),
        };
        Self {
            before,
            repeated,
            waits,
        }
    }
}

/// Floods the server on a connection with a session, until it ends.
pub(super) async fn run(kind: Harm, mut stream: TcpStream) -> Result<()> {
    let flood = Flood::of(kind);
    let frames = |requests: &[Request]| -> BytesMut {
        let frames = requests.iter().map(|request| request.encode(1));
        frames.flatten().collect()
    };
    let (reading, mut writing) = stream.split();
    let mut reading = BufReader::with_capacity(256 << 10, reading);
    for some in flood.before.chunks(DEEP_REQUESTS) {
        writing.write_all(&frames(some)).await?;
        replies(&mut reading, some.len()).await?;
    }
    let bytes = frames(&flood.repeated);
    if flood.waits {
        loop {
            writing.write_all(&bytes).await?;
            replies(&mut reading, flood.repeated.len()).await?;
        }
    }
    // As many as fit into one write, as a client with a buffer would send them.
    let bytes = bytes.repeat((64 << 10) / bytes.len() + 1);
    let send = async {
        loop {
            writing.write_all(&bytes).await?;
        }
    };
    let mut sink = tokio::io::sink();
    tokio::select! {
        sent = send => sent,
        read = tokio::io::copy_buf(&mut reading, &mut sink) => Ok(read.map(drop)?),
    }
}

/// Reads `count` replies, and the events between them.
async fn replies(
    reading: &mut BufReader<tokio::net::tcp::ReadHalf<'_>>,
    count: usize,
) -> Result<()> {
    let mut frame = Vec::new();
    let mut left = count;
    while left > 0 {
        let length = usize::try_from(reading.read_i32().await?)?;
        ensure!(length >= 16, "a frame of {length} bytes");
        frame.resize(length, 0);
        reading.read_exact(&mut frame).await?;
        // The xid of an event is -1.
        if frame[..4] != (-1_i32).to_be_bytes() {
            ensure!(frame[12..16] == [0; 4], "a request of a flood has failed");
            left -= 1;
        }
    }
    Ok(())
}
