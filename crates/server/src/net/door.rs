//! The door: a thread that accepts connections from the network, does TLS handshakes and receives first messages.
//!
//! Its priority is lower than that of the threads that serve sessions. So a flood of connections, handshakes or noise takes the CPU time that
//! sessions leave. A connection moves to the runtime of the server when its first message has arrived; over TLS, when the handshake is done.
//! Unix sockets have no door: they stay usable during an attack from the network.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use bytes::BytesMut;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::accept::accept;
use super::connection::{self, Over, Ready};
use super::handshake;
use super::input::Input;
use super::listener::Listener;
use crate::alarm::Alarm;
use crate::client::{Admitted, ReadHalf, Socket};
use crate::engine::Engine;
use crate::priority;

/// A client at the door.
#[derive(Debug)]
enum Guest {
    /// Its first message has arrived, or its TLS handshake is done.
    Ready {
        socket: Socket,
        admitted: Admitted,
        received: BytesMut,
        greeted_by: Instant,
    },
    /// Its TLS handshake has failed, for the audit log. The door does not write it: others wait for the lock of the log.
    Refused(Admitted),
}

/// Clients that come from the door.
#[derive(Debug)]
pub(crate) struct Guests(mpsc::UnboundedReceiver<Guest>);

/// Starts the thread. It ends when `stop` changes.
pub(crate) async fn open(
    engine: Arc<Engine>,
    listeners: Vec<Listener>,
    stop: watch::Receiver<bool>,
    alarm: &Alarm,
) -> io::Result<(JoinHandle<()>, Guests)> {
    let (sender, guests) = mpsc::unbounded_channel();
    let (begun, beginning) = oneshot::channel();
    let thread = alarm.spawn("door", move || {
        priority::lower(&engine.stats.meters);
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(begun.send(Err(error))),
        };
        runtime.block_on(async {
            let listeners: io::Result<Vec<_>> =
                listeners.into_iter().map(Listener::move_here).collect();
            match listeners {
                Err(error) => drop(begun.send(Err(error))),
                Ok(listeners) => {
                    drop(begun.send(Ok(())));
                    attend(&engine, listeners, &stop, &sender).await;
                }
            }
        });
    })?;
    beginning.await.map_err(io::Error::other)??;
    Ok((thread, Guests(guests)))
}

/// The work of the thread.
async fn attend(
    engine: &Arc<Engine>,
    listeners: Vec<Listener>,
    stop: &watch::Receiver<bool>,
    guests: &mpsc::UnboundedSender<Guest>,
) {
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let (engine, stop, guests) = (engine.clone(), stop.clone(), guests.clone());
        accepting.spawn(async move {
            let receive =
                |socket, admitted| receive(engine.clone(), socket, admitted, guests.clone());
            accept(&engine, listener, stop, receive).await;
        });
    }
    while let Some(ended) = accepting.join_next().await {
        ended.expect("accepting connections does not panic");
    }
}

/// Receives the first message of a connection, and passes it on.
async fn receive(
    engine: Arc<Engine>,
    socket: Socket,
    admitted: Admitted,
    guests: mpsc::UnboundedSender<Guest>,
) {
    let peer = admitted.clone();
    let greeted_by = Instant::now() + engine.config().handshake_timeout;
    let shaken = tokio::select! {
        biased;
        // The server is stopping.
        () = peer.outbox.ended() => return,
        shaken = timeout_at(greeted_by, socket.shake_hands()) => shaken,
    };
    let Ok(Ok(socket)) = shaken else {
        engine.stats.tls_handshakes_failed.fetch_add(1, Relaxed);
        tracing::debug!(address = %peer.address, ?shaken, "TLS handshake failed");
        if engine.audit.is_some() {
            // Fails only while the server stops.
            let _ = guests.send(Guest::Refused(admitted));
        }
        return;
    };
    let received = timeout_at(greeted_by, first_message(&engine, socket, &admitted));
    if let Ok(Ok((socket, received))) = received.await {
        let _ = guests.send(Guest::Ready {
            socket,
            admitted,
            received,
            greeted_by,
        });
    }
}

/// Receives the first message, unless it comes over TLS.
async fn first_message(
    engine: &Engine,
    socket: Socket,
    admitted: &Admitted,
) -> Result<(Socket, BytesMut), Over> {
    let Socket::Tcp(tcp) = socket else {
        return Ok((socket, BytesMut::new()));
    };
    let (reading, writing) = tcp.into_split();
    let mut input = Input::new(ReadHalf::Tcp(reading), admitted.share());
    let frame_bytes_max = engine.frame_bytes_max.load(Relaxed);
    while !handshake::has_arrived(&input.bytes, admitted, frame_bytes_max)? {
        input.fill(admitted).await?;
    }
    let (reading, received) = input.end();
    let ReadHalf::Tcp(reading) = reading else {
        unreachable!("it was put in above");
    };
    let tcp = reading.reunite(writing).expect("both halves of one socket");
    Ok((Socket::Tcp(tcp), received))
}

impl Guests {
    /// Serves the clients until the door is closed. Then closes their connections, and returns when they have ended.
    pub(crate) async fn serve(mut self, engine: Arc<Engine>) {
        let mut serving = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(_) = serving.join_next() => {}
                guest = self.0.recv() => match guest {
                    Some(guest) => drop(serving.spawn(welcome(engine.clone(), guest))),
                    None => break,
                },
            }
        }
        engine.connections.close_all();
        while serving.join_next().await.is_some() {}
    }
}

async fn welcome(engine: Arc<Engine>, guest: Guest) {
    match guest {
        Guest::Ready {
            socket,
            admitted,
            received,
            greeted_by,
        } => {
            let socket = match socket.move_here() {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!(address = %admitted.address, %error, "cannot serve a connection");
                    return;
                }
            };
            let ready = Ready {
                opened: socket.open(),
                admitted,
                received,
                greeted_by,
            };
            connection::serve(engine, ready).await;
        }
        Guest::Refused(admitted) => {
            if let Some(audit) = &engine.audit {
                audit.note(&admitted, "tlsHandshake", false);
            }
        }
    }
}

/// Accepts and serves connections without a door, until `stop` changes and they have ended.
pub(crate) async fn without_door(
    engine: Arc<Engine>,
    listener: Listener,
    stop: watch::Receiver<bool>,
) {
    let serve = |socket: Socket, admitted| {
        let ready = Ready {
            opened: socket.open(),
            admitted,
            received: BytesMut::new(),
            greeted_by: Instant::now() + engine.config().handshake_timeout,
        };
        connection::serve(engine.clone(), ready)
    };
    accept(&engine, listener, stop, serve).await;
}
