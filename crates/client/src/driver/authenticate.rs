//! The SASL exchange of a new connection, before anything else is sent on it.

use std::io;

use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::reply::ReplyHeader;
use bellwether_wire::request;
use bytes::BytesMut;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use tokio::io::AsyncWriteExt as _;

use crate::driver::establish::{not_zookeeper, read_frame};
use crate::driver::stream::Stream;
use crate::error::{Error, SessionEnd};
use crate::sasl::{DigestMd5, SaslError};

/// Authenticates `user` on a connection whose handshake is done. A refusal is a [`SaslError`] inside the error.
pub(super) async fn authenticate(
    user: &DigestMd5,
    stream: &mut Box<dyn Stream>,
    input: &mut BytesMut,
    mut next_xid: impl FnMut() -> i32,
) -> io::Result<()> {
    let challenge = exchange(stream, input, next_xid(), &[]).await?;
    let mut nonce = [0; 16];
    OsRng.try_fill_bytes(&mut nonce).map_err(io::Error::other)?;
    let cnonce = format!("{:032x}", u128::from_be_bytes(nonce));
    let response = user
        .respond(&challenge, &cnonce)
        .map_err(io::Error::other)?;
    let proof = exchange(stream, input, next_xid(), &response.token).await?;
    response.check(&proof).map_err(io::Error::other)
}

/// Why the user is not authenticated, if `error` is such a refusal.
pub(super) fn refusal(error: &io::Error) -> Option<SaslError> {
    error.get_ref()?.downcast_ref().copied()
}

/// Sends a token and reads the token in the answer.
async fn exchange(
    stream: &mut Box<dyn Stream>,
    input: &mut BytesMut,
    xid: i32,
    token: &[u8],
) -> io::Result<Vec<u8>> {
    let mut out = BytesMut::new();
    request::put(&mut out, xid, Op::Sasl, |out| request::put_sasl(out, token));
    stream.write_all(&out).await?;
    stream.flush().await?;
    let frame = read_frame(stream, input).await?;
    let mut reader = Reader::new(&frame);
    let header = ReplyHeader::decode(&mut reader).map_err(|_| not_zookeeper())?;
    match header.err {
        0 if header.xid == xid => {}
        0 => return Err(not_zookeeper()),
        err => {
            return Err(match Error::of_code(err) {
                Error::SessionEnded(SessionEnd::AuthFailed) => io::Error::other(SaslError::Refused),
                error => io::Error::other(error),
            });
        }
    }
    match reader.buffer() {
        Ok(Some(token)) => Ok(token.to_vec()),
        // Apache's answer to any token where SASL is not configured (ZooKeeperServer.processSasl).
        Ok(None) => Err(io::Error::other(SaslError::NotConfigured)),
        Err(_) => Err(not_zookeeper()),
    }
}
