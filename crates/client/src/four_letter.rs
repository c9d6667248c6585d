//! Four-letter words, which servers answer without a session.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Sends a four-letter word, such as `srvr` or `mntr`, to the server at the other end of the stream that `connecting` opens, and returns
/// its answer.
///
/// # Cancel safety
///
/// Dropping the future closes the stream.
///
/// # Errors
///
/// The stream failed, or there was no answer within three seconds.
pub async fn four_letter_word<S: AsyncRead + AsyncWrite + Unpin>(
    connecting: impl Future<Output = io::Result<S>>,
    word: &str,
) -> io::Result<String> {
    let asked = timeout(ANSWER_MAX, async {
        let mut stream = connecting.await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    });
    asked.await.unwrap_or_else(|_| {
        let what = format!("no answer within {ANSWER_MAX:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    })
}
