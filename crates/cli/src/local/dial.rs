//! Connects a session to the local server, which is started if it does not run.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether::zk::{Dial, Dialing, Endpoint, Stream};
use tokio::net::UnixStream;

use crate::local::Folder;

/// Opens streams to the local server. If the server was killed, the session finds the next one, or starts it, and continues there: the
/// server's data is on disk.
#[derive(Clone, Debug)]
pub(crate) struct LocalDial(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: Folder,
    /// A stream for the first attempt, because a server may take longer to start than an attempt may last.
    ready: Mutex<Option<UnixStream>>,
}

impl LocalDial {
    pub(crate) fn new(folder: Folder, ready: UnixStream) -> Self {
        Self(Arc::new(Inner {
            folder,
            ready: Mutex::new(Some(ready)),
        }))
    }
}

impl Inner {
    async fn connect(&self) -> io::Result<UnixStream> {
        let ready = self
            .ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match ready {
            Some(ready) => Ok(ready),
            None => {
                let found = self.folder.find_or_start().await;
                found.map_err(|error| io::Error::other(format!("{error:#}")))
            }
        }
    }
}

impl Dial for LocalDial {
    fn dial(&self, _: &Endpoint) -> Dialing {
        let inner = self.0.clone();
        Box::pin(async move {
            let stream: Box<dyn Stream> = Box::new(inner.connect().await?);
            Ok(stream)
        })
    }
}
