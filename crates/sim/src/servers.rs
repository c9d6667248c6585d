//! The servers that simulated processes connect to.

mod embedded;
mod ensemble;

use bytes::Bytes;

use crate::faults::Fault;
use crate::world::{ConnId, Event, Ms, Parts, ServerEvent, Servers, Trace};

pub(crate) use embedded::Embedded;
pub use embedded::EmbeddedSettings;
pub(crate) use ensemble::Ensemble;
pub use ensemble::EnsembleSettings;

/// What one kind of servers does with connections.
pub(crate) trait Serve {
    /// A run begins.
    fn begin(&mut self, it: &mut Parts);

    /// Whether `server` accepts a connection.
    fn accept(&mut self, it: &mut Parts, server: usize, conn: ConnId) -> bool;

    /// Bytes have arrived.
    fn receive(&mut self, it: &mut Parts, server: usize, conn: ConnId, bytes: &Bytes);

    /// A client has closed its connection.
    fn hang_up(&mut self, server: usize, conn: ConnId);

    /// An event among the servers.
    fn handle(&mut self, it: &mut Parts, event: ServerEvent);
}

/// What is left on the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Census {
    /// Paths of all nodes, except those that always exist.
    pub(crate) nodes: Vec<String>,
    /// Paths of those that belong to sessions.
    pub(crate) ephemerals: Vec<String>,
    /// Open sessions.
    pub(crate) sessions: usize,
    /// Armed watches, on all members.
    pub(crate) watches: usize,
}

/// The servers of a run, of one kind or the other.
#[derive(Debug)]
pub(crate) struct AnyServers {
    kind: ServersKind,
    has_begun: bool,
}

#[derive(Debug)]
enum ServersKind {
    Ensemble(Box<Ensemble>),
    Embedded(Box<Embedded>),
}

impl AnyServers {
    pub(crate) fn ensemble(ensemble: Ensemble) -> Self {
        Self::new(ServersKind::Ensemble(Box::new(ensemble)))
    }

    pub(crate) fn embedded(embedded: Embedded) -> Self {
        Self::new(ServersKind::Embedded(Box::new(embedded)))
    }

    fn new(kind: ServersKind) -> Self {
        Self {
            kind,
            has_begun: false,
        }
    }

    /// What is left on the servers.
    pub(crate) fn census(&self) -> Census {
        match &self.kind {
            ServersKind::Ensemble(ensemble) => ensemble.census(),
            ServersKind::Embedded(embedded) => embedded.census(),
        }
    }

    /// What a server itself did wrong.
    pub(crate) fn wrong(&self) -> Option<String> {
        match &self.kind {
            ServersKind::Ensemble(_) => None,
            ServersKind::Embedded(embedded) => embedded.wrong(),
        }
    }

    /// A fault of a server. `short` is the session timeout that servers grant after [`Fault::ShortSessions`].
    pub(crate) fn suffer(&mut self, it: &mut Parts, fault: Fault, short: Ms) {
        match &mut self.kind {
            ServersKind::Ensemble(ensemble) => ensemble.suffer(it, fault, short),
            ServersKind::Embedded(embedded) => embedded.suffer(it, fault, short),
        }
    }

    /// Ends all faults.
    pub(crate) fn calm(&mut self, it: &mut Parts) {
        match &mut self.kind {
            ServersKind::Ensemble(ensemble) => ensemble.calm(it),
            ServersKind::Embedded(embedded) => embedded.calm(it),
        }
    }

    fn kind(&mut self) -> &mut dyn Serve {
        match &mut self.kind {
            ServersKind::Ensemble(ensemble) => &mut **ensemble,
            ServersKind::Embedded(embedded) => &mut **embedded,
        }
    }
}

impl Servers for AnyServers {
    fn happen(&mut self, it: &mut Parts, event: Event) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.kind().begin(it);
        }
        happen(self.kind(), it, event);
    }
}

/// Keeps the state of connections, and passes on what servers hear.
pub(crate) fn happen(servers: &mut dyn Serve, it: &mut Parts, event: Event) {
    match event {
        Event::Connects(conn) => {
            let Some(server) = it.net.conn(conn).map(|conn| conn.server) else {
                return;
            };
            let is_taken = servers.accept(it, server, conn);
            it.trace.add(it.now, 2, 2 * conn + u64::from(is_taken), || {
                format!("connection {conn} at server {server}: {is_taken}")
            });
            let now = it.now;
            it.net.answer(&mut it.agenda, now, conn, is_taken);
        }
        Event::Accepted(conn) => {
            it.trace.add(it.now, 20, conn, || {
                format!("connection {conn} is accepted, and its server is paused")
            });
            it.net.accepted(conn);
        }
        Event::Up(conn) => {
            let Some(bytes) = it.net.arrived_up(conn) else {
                return;
            };
            let sum = Trace::bytes(&bytes);
            it.trace.add(it.now, 3, conn ^ sum, || {
                let count = bytes.len();
                format!("{count} bytes to the server on connection {conn}, sum {sum:x}")
            });
            if let Some(server) = it.net.conn(conn).map(|conn| conn.server) {
                servers.receive(it, server, conn, &bytes);
            }
        }
        Event::Down(conn) => {
            let bytes = it.net.arrive_down(conn).unwrap_or_default();
            let sum = Trace::bytes(&bytes);
            it.trace.add(it.now, 4, conn ^ sum, || {
                let count = bytes.len();
                format!("{count} bytes to the process on connection {conn}, sum {sum:x}")
            });
        }
        Event::HangsUp(conn) => {
            let server = it.net.conn(conn).map(|conn| conn.server);
            if let Some(server) = server
                && it.net.hung_up(conn)
            {
                it.trace.add(it.now, 5, conn, || {
                    format!("server {server} hears of the end of connection {conn}")
                });
                servers.hang_up(server, conn);
            }
        }
        Event::Ends(conn, end) => {
            let sum = conn ^ Trace::value(&end);
            it.trace
                .add(it.now, 6, sum, || format!("connection {conn}: {end:?}"));
            it.net.ends(conn, end);
        }
        Event::Server(event) => {
            let sum = Trace::value(&event);
            it.trace.add(it.now, 7, sum, || format!("{event:?}"));
            servers.handle(it, event);
        }
        Event::Wake(_) => {}
    }
}
