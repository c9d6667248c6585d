//! Reads stdin on a separate thread while a session is open, so that heartbeats and signals do not wait for it, and neither does the end
//! of the command.

use std::io::{self, BufRead};

use tokio::sync::oneshot;

use crate::output::Output;

/// Reads a line.
pub(crate) async fn line() -> io::Result<String> {
    apart(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok(line)
    })
    .await
}

/// Asks for confirmation. Prints `otherwise` if the answer is no.
pub(crate) async fn agreed(question: &str, otherwise: &str, output: Output) -> io::Result<bool> {
    output.ask(format_args!("{question} [y/N] "));
    let agreed = matches!(line().await?.trim(), "y" | "Y" | "yes");
    if !agreed {
        output.say(otherwise);
    }
    Ok(agreed)
}

/// Waits for the end of stdin; for ever if it cannot be read, as in the background of a terminal.
pub(crate) async fn end() {
    let end = apart(|| io::copy(&mut io::stdin().lock(), &mut io::sink())).await;
    if end.is_err() {
        std::future::pending().await
    }
}

/// What stdin has first.
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
        // The receiver may be gone.
        let _ = sender.send(read());
    });
    receiver.await.map_err(io::Error::other)?
}
