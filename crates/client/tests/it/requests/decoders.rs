//! Invalid replies: the client does not panic, and reports the outcome as unknown.

use std::io;
use std::time::Duration;

use bellwether_client::{
    Client, CreateMode, Dial, Dialing, Endpoint, Error, MultiError, Stream, WatchMode,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::support::handshake::granted;
use crate::support::place::soon;

const ROUNDS: usize = 3_000;

/// A server that answers each request with a valid header and random bytes.
#[derive(Debug)]
struct Babel(u64);

impl Dial for Babel {
    fn dial(&self, _: &Endpoint) -> Dialing {
        let seed = self.0;
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(64 * 1024);
            tokio::spawn(babble(far, seed));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

async fn babble(mut stream: DuplexStream, seed: u64) -> io::Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    read_frame(&mut stream).await?;
    stream.write_all(&granted(60_000, false)).await?;
    loop {
        let request = read_frame(&mut stream).await?;
        let mut reply = request[..4].to_vec();
        reply.extend(1_i64.to_be_bytes());
        reply.extend(0_i32.to_be_bytes());
        reply.extend(body(&mut random));
        write_frame(&mut stream, &reply).await?;
    }
}

/// Numbers as in records, most of them small, or random bytes.
fn body(random: &mut StdRng) -> Vec<u8> {
    let words = random.random_range(0..40);
    let mut body = Vec::new();
    for _ in 0..words {
        let word: i32 = match random.random_range(0..6) {
            0 => -1,
            1 => random.random(),
            2 => i32::MAX - random.random_range(0..4),
            _ => random.random_range(0..20),
        };
        body.extend(word.to_be_bytes());
    }
    let cut = random.random_range(0..4).min(body.len());
    body.truncate(body.len() - cut);
    body
}

async fn read_frame(stream: &mut DuplexStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; stream.read_u32().await? as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write_frame(stream: &mut DuplexStream, frame: &[u8]) -> io::Result<()> {
    stream
        .write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes())
        .await?;
    stream.write_all(frame).await
}

fn check<T>(result: Result<T, Error>) -> usize {
    match result {
        Ok(_) => 1,
        Err(Error::Unknown) => 0,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_reply_that_cannot_be_decoded_leaves_the_outcome_unknown() {
    let seed = rand::random();
    eprintln!("seed {seed}");
    let connect = Client::connect("babel/chroot")
        .dial(Babel(seed))
        .on_current_runtime();
    let client = connect
        .session_timeout(Duration::from_secs(60))
        .await
        .unwrap();
    let mut decoded = 0;
    for _ in 0..ROUNDS {
        decoded += check(soon(client.create("/n", b"", CreateMode::Persistent)).await);
        decoded += check(client.get("/n").await);
        decoded += check(client.get_watched("/n").await);
        decoded += check(client.exists("/n").await);
        decoded += check(client.exists_watched("/n").await);
        decoded += check(client.children("/n").await);
        decoded += check(client.children_stat("/n").await);
        decoded += check(client.children_stat_watched("/n").await);
        decoded += check(client.acl("/n").await);
        decoded += check(client.count_descendants("/n").await);
        decoded += check(client.ephemerals("/").await);
        decoded += check(client.who_am_i().await);
        check(client.watch("/p", WatchMode::Recursive).await);
        decoded += check(client.new_multi_read().commit().await);
        match client.new_multi().commit().await {
            Ok(_) | Err(MultiError::Refused { .. }) => decoded += 1,
            // A code that is no answer, such as that of an expired session, is passed on.
            Err(MultiError::Request(_)) => {}
        }
    }
    assert!(decoded > ROUNDS, "some are right by chance: {decoded}");
    assert_eq!(client.connections(), 1);
}
