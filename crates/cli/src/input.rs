//! What is typed or piped while a session is open. A thread of its own reads it: the runtime goes on with heartbeats and
//! signals, and does not wait for a read that may never end when the command does.

use std::io::{self, BufRead};

use tokio::sync::oneshot;

use crate::output::Output;

/// Waits for a line.
pub(crate) async fn line() -> io::Result<String> {
    apart(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok(line)
    })
    .await
}

/// Asks whether to go on. If not, says what that means.
pub(crate) async fn agreed(question: &str, otherwise: &str, output: Output) -> io::Result<bool> {
    output.ask(format_args!("{question} [y/N] "));
    let agreed = matches!(line().await?.trim(), "y" | "Y" | "yes");
    if !agreed {
        output.say(otherwise);
    }
    Ok(agreed)
}

/// Waits for the end of stdin, whatever comes before it; for ever if it cannot be read, as from the background of a
/// terminal.
pub(crate) async fn end() {
    let end = apart(|| io::copy(&mut io::stdin().lock(), &mut io::sink())).await;
    if end.is_err() {
        std::future::pending().await
    }
}

/// What came first on stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    End,
    Bytes,
}

/// As [`end`], but returns at the first byte too.
pub(crate) async fn end_or_bytes() -> Heard {
    match apart(|| Ok(io::stdin().lock().fill_buf()?.is_empty())).await {
        Ok(true) => Heard::End,
        Ok(false) => Heard::Bytes,
        Err(_) => std::future::pending().await,
    }
}

async fn apart<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        // Nobody may wait any more.
        let _ = sender.send(read());
    });
    receiver.await.map_err(io::Error::other)?
}
