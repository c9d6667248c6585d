//! A way to the server that can be closed, in one direction or in both.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::place::soon;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Requests pass and what comes back is swallowed.
    Deaf,
    /// Nothing passes, and connections stay open; requests are kept for [`Proxy::until_swallowed`].
    Silent,
    /// Connections are closed, and new ones at once.
    Cut,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    /// The way, and how often connections were cut: two changes in a row would be seen as one.
    way: watch::Sender<(Way, u32)>,
    swallowed: watch::Receiver<Vec<u8>>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (way, ways) = watch::channel((Way::Open, 0));
        let (swallow, swallowed) = watch::channel(Vec::new());
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(carry(client, server, ways.clone(), swallow.clone()));
            }
        });
        Self {
            address,
            way,
            swallowed,
            task,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_modify(|(now, _)| *now = way);
    }

    /// Waits until these bytes were among the requests that did not arrive.
    pub(crate) async fn until_swallowed(&self, bytes: &[u8]) {
        let seen = |all: &Vec<u8>| all.windows(bytes.len()).any(|window| window == bytes);
        soon(self.swallowed.clone().wait_for(seen)).await.unwrap();
    }

    /// Cuts what is connected; new connections pass.
    pub(crate) fn cut_and_open(&self) {
        self.way.send_modify(|(way, cuts)| {
            *way = Way::Open;
            *cuts += 1;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    mut ways: watch::Receiver<(Way, u32)>,
    swallow: watch::Sender<Vec<u8>>,
) {
    let (_, cuts_before) = *ways.borrow();
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    loop {
        let (way, cuts) = *ways.borrow_and_update();
        if way == Way::Cut || cuts != cuts_before {
            return;
        }
        let carried = tokio::select! {
            changed = ways.changed() => changed.map_err(std::io::Error::other),
            length = client.read(&mut up) => match length {
                Ok(0) | Err(_) => return,
                Ok(length) if way == Way::Silent => {
                    swallow.send_modify(|all| all.extend_from_slice(&up[..length]));
                    Ok(())
                }
                Ok(length) => server.write_all(&up[..length]).await,
            },
            length = server.read(&mut down) => match length {
                Ok(0) | Err(_) => return,
                Ok(_) if way != Way::Open => Ok(()),
                Ok(length) => client.write_all(&down[..length]).await,
            },
        };
        if carried.is_err() {
            return;
        }
    }
}
