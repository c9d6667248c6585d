//! The simulated network: connections that delay bytes, hold them back, and break at any byte.

mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::{Agenda, Event, Ms, Process};

pub(crate) use stream::SimDial;

/// One connection between a process and a server.
pub(crate) type ConnId = u64;

/// All connections, and the behaviour of the network.
#[derive(Debug)]
pub(crate) struct Net {
    last: ConnId,
    conns: BTreeMap<ConnId, Conn>,
    pub(crate) random: StdRng,
    /// Latency of a message.
    pub(crate) latency: Range<Ms>,
    /// Nothing passes between a process and a server before this time.
    held: BTreeMap<(Process, usize), Ms>,
    /// Nothing passes to or from a server before this time.
    held_servers: BTreeMap<usize, Ms>,
    /// A server does nothing before this time. Its machine accepts connections and bytes.
    paused: BTreeMap<usize, Ms>,
    /// Nothing reaches a process before this time, while the servers receive from it.
    deaf: BTreeMap<Process, Ms>,
    /// Nothing reaches the servers from a process before this time, while the process receives from them.
    mute: BTreeMap<Process, Ms>,
    /// Until when answers to a process take longer, and by how much.
    late: BTreeMap<Process, (Ms, Ms)>,
}

/// A connection as both ends see it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) server: usize,
    pub(crate) process: Process,
    up: Pipe,
    down: Pipe,
    /// Bytes that have arrived at the process.
    inbox: BytesMut,
    /// How it ended, once the process knows it.
    client_end: Option<End>,
    /// The server has accepted it, and does not know of its end.
    pub(crate) is_open: bool,
    /// The machine of the server has accepted it.
    is_accepted: bool,
    /// Bytes sent from now on do not arrive.
    is_broken: bool,
    /// The process has dropped its end.
    is_let_go: bool,
    waiting: Option<Waker>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Refused,
    Closed,
    Reset,
}

/// Bytes in flight in one direction.
#[derive(Debug, Default)]
struct Pipe {
    chunks: VecDeque<Bytes>,
    /// Arrival of the last of them: bytes do not overtake each other.
    last_arrival: Ms,
}

impl Net {
    pub(crate) fn new(random: StdRng, latency: Range<Ms>) -> Self {
        Self {
            last: 0,
            conns: BTreeMap::new(),
            random,
            latency,
            held: BTreeMap::new(),
            held_servers: BTreeMap::new(),
            paused: BTreeMap::new(),
            deaf: BTreeMap::new(),
            mute: BTreeMap::new(),
            late: BTreeMap::new(),
        }
    }

    pub(crate) fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(&id)
    }

    /// Number of connections of all processes.
    pub(crate) fn open(&self) -> usize {
        self.conns.values().filter(|conn| !conn.is_let_go).count()
    }

    /// The connections of a process, or of all.
    pub(crate) fn of(&self, process: Option<Process>) -> Vec<ConnId> {
        let of_it = |conn: &Conn| process.is_none_or(|process| conn.process == process);
        self.conns
            .iter()
            .filter(|(_, conn)| of_it(conn))
            .map(|(id, _)| *id)
            .collect()
    }

    /// When bytes that a process sends now reach a server.
    fn arrival_up(&mut self, now: Ms, process: Process, server: usize) -> Ms {
        let mute = self.mute.get(&process).copied().unwrap_or(0);
        self.arrival(now.max(mute), process, server)
    }

    /// When bytes that a server sends now reach a process.
    fn arrival_down(&mut self, now: Ms, process: Process, server: usize) -> Ms {
        let deaf = self.deaf.get(&process).copied().unwrap_or(0);
        let late = self.late.get(&process).filter(|(until, _)| now < *until);
        let delay = late.map_or(0, |(_, delay)| *delay);
        self.arrival(now.max(deaf) + delay, process, server)
    }

    /// Arrival time of bytes that pass in either direction from now on.
    fn arrival(&mut self, now: Ms, process: Process, server: usize) -> Ms {
        let open_at = self.open_at(process, server);
        now.max(open_at) + self.random.random_range(self.latency.clone())
    }

    /// When bytes pass between a process and a server.
    pub(crate) fn open_at(&self, process: Process, server: usize) -> Ms {
        let paused = self.paused.get(&server).copied().unwrap_or(0);
        self.reaches_at(process, server).max(paused)
    }

    /// When bytes pass between a process and the machine of a server.
    fn reaches_at(&self, process: Process, server: usize) -> Ms {
        let held = self.held.get(&(process, server)).copied().unwrap_or(0);
        let server = self.held_servers.get(&server).copied().unwrap_or(0);
        held.max(server)
    }

    /// Holds bytes sent from now on between a process and a server until `until`.
    pub(crate) fn hold(&mut self, process: Process, server: usize, until: Ms) {
        let held = self.held.entry((process, server)).or_default();
        *held = (*held).max(until);
    }

    /// Holds bytes that servers send to a process from now on until `until`.
    pub(crate) fn deafen(&mut self, process: Process, until: Ms) {
        let held = self.deaf.entry(process).or_default();
        *held = (*held).max(until);
    }

    /// Holds bytes that a process sends from now on until `until`.
    pub(crate) fn mute(&mut self, process: Process, until: Ms) {
        let held = self.mute.entry(process).or_default();
        *held = (*held).max(until);
    }

    /// Delays bytes that servers send to a process before `until`.
    pub(crate) fn delay(&mut self, process: Process, until: Ms, delay: Ms) {
        self.late.insert(process, (until, delay));
    }

    /// Pauses a server until `until`.
    pub(crate) fn pause_server(&mut self, server: usize, until: Ms) {
        let paused = self.paused.entry(server).or_default();
        *paused = (*paused).max(until);
    }

    /// Stops the machine of a server until `until`.
    pub(crate) fn hold_server(&mut self, server: usize, until: Ms) {
        let held = self.held_servers.entry(server).or_default();
        *held = (*held).max(until);
    }

    /// Ends all holds. Bytes in flight arrive as planned.
    pub(crate) fn calm(&mut self) {
        self.held.clear();
        self.held_servers.clear();
        self.paused.clear();
        self.deaf.clear();
        self.mute.clear();
        self.late.clear();
    }

    /// A process opens a connection.
    pub(crate) fn connect(
        &mut self,
        agenda: &mut Agenda<Event>,
        now: Ms,
        process: Process,
        server: usize,
    ) -> ConnId {
        self.last += 1;
        let id = self.last;
        // Both ends must hear each other.
        let deaf = self.deaf.get(&process).copied().unwrap_or(0);
        let at = self.arrival_up(now.max(deaf), process, server);
        let up = Pipe {
            last_arrival: at,
            ..Pipe::default()
        };
        self.conns.insert(
            id,
            Conn {
                server,
                process,
                up,
                down: Pipe::default(),
                inbox: BytesMut::new(),
                client_end: None,
                is_open: false,
                is_accepted: false,
                is_broken: false,
                is_let_go: false,
                waiting: None,
            },
        );
        agenda.put(at, Event::Connects(id));
        if self.paused.contains_key(&server) {
            let mute = self.mute.get(&process).copied().unwrap_or(0);
            let from = now
                .max(deaf)
                .max(mute)
                .max(self.reaches_at(process, server));
            let accepted = from + self.random.random_range(self.latency.clone());
            agenda.put(accepted.min(at), Event::Accepted(id));
        }
        id
    }

    /// The machine of a server that is paused has accepted a connection.
    pub(crate) fn accepted(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.is_accepted = true;
            if let Some(waker) = conn.waiting.take() {
                waker.wake();
            }
        }
    }

    /// The server has accepted or refused the connection.
    pub(crate) fn answer(&mut self, agenda: &mut Agenda<Event>, now: Ms, id: ConnId, taken: bool) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        conn.is_open = taken;
        conn.is_accepted = false;
        if !taken {
            conn.is_broken = true;
            let (process, server) = (conn.process, conn.server);
            let at = self.arrival_down(now, process, server);
            agenda.put(at, Event::Ends(id, End::Refused));
            self.forget(id);
        } else if let Some(waker) = conn.waiting.take() {
            waker.wake();
        }
    }

    /// A load balancer has sent a connection to another server than the one that its address names.
    pub(crate) fn reroute(&mut self, id: ConnId, server: usize) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.server = server;
        }
    }

    /// The process sends bytes.
    pub(crate) fn send_up(
        &mut self,
        agenda: &mut Agenda<Event>,
        now: Ms,
        id: ConnId,
        bytes: Bytes,
    ) {
        let Some(conn) = self.conns.get(&id) else {
            return;
        };
        if conn.is_broken {
            return;
        }
        let arrival = self.arrival_up(now, conn.process, conn.server);
        if let Some(conn) = self.conns.get_mut(&id) {
            let at = conn.up.put(arrival, bytes);
            agenda.put(at, Event::Up(id));
        }
    }

    /// A server sends bytes.
    pub(crate) fn send_down(
        &mut self,
        agenda: &mut Agenda<Event>,
        now: Ms,
        id: ConnId,
        bytes: Bytes,
    ) {
        let Some(conn) = self.conns.get(&id) else {
            return;
        };
        if conn.is_broken {
            return;
        }
        let arrival = self.arrival_down(now, conn.process, conn.server);
        if let Some(conn) = self.conns.get_mut(&id) {
            let at = conn.down.put(arrival, bytes);
            agenda.put(at, Event::Down(id));
        }
    }

    /// Bytes that have arrived at the server, if the connection still exists.
    pub(crate) fn arrived_up(&mut self, id: ConnId) -> Option<Bytes> {
        let conn = self.conns.get_mut(&id)?;
        conn.up.chunks.pop_front().filter(|_| conn.is_open)
    }

    /// Bytes arrive at the process. Returns them, if the process still has the connection.
    pub(crate) fn arrive_down(&mut self, id: ConnId) -> Option<Bytes> {
        let conn = self.conns.get_mut(&id)?;
        let bytes = conn.down.chunks.pop_front()?;
        if conn.client_end.is_some() {
            return None;
        }
        conn.inbox.extend_from_slice(&bytes);
        if let Some(waker) = conn.waiting.take() {
            waker.wake();
        }
        Some(bytes)
    }

    /// Takes the bytes that have arrived at the process.
    #[cfg(test)]
    pub(crate) fn take_inbox(&mut self, id: ConnId) -> BytesMut {
        let conn = self.conns.get_mut(&id);
        conn.map(|conn| conn.inbox.split()).unwrap_or_default()
    }

    /// The server closes a connection, after the bytes it has sent.
    pub(crate) fn close_by_server(&mut self, agenda: &mut Agenda<Event>, now: Ms, id: ConnId) {
        let Some(conn) = self.conns.get(&id) else {
            return;
        };
        let arrival = self.arrival_down(now, conn.process, conn.server);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.is_open = false;
            conn.is_broken = true;
            let at = arrival.max(conn.down.last_arrival);
            agenda.put(at, Event::Ends(id, End::Closed));
            self.forget(id);
        }
    }

    /// The process closes a connection, after the bytes it has sent.
    pub(crate) fn close_by_client(&mut self, agenda: &mut Agenda<Event>, now: Ms, id: ConnId) {
        let Some(conn) = self.conns.get(&id) else {
            return;
        };
        if conn.is_broken {
            // The server knows already, or never will.
            return;
        }
        let arrival = self.arrival_up(now, conn.process, conn.server);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.client_end = Some(End::Closed);
            conn.is_broken = true;
            agenda.put(arrival.max(conn.up.last_arrival), Event::HangsUp(id));
        }
    }

    /// The process has dropped its end.
    fn let_go(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.is_let_go = true;
            self.forget(id);
        }
    }

    /// Removes a connection that neither end has any more.
    fn forget(&mut self, id: ConnId) {
        let is_over = |conn: &Conn| conn.is_let_go && !conn.is_open && !conn.is_accepted;
        if self.conns.get(&id).is_some_and(is_over) {
            self.conns.remove(&id);
        }
    }

    /// Breaks a connection now: a part of the bytes in flight arrives, which may end inside a frame. The process learns it at once, the
    /// server after `server_hears`, if ever.
    pub(crate) fn cut(
        &mut self,
        agenda: &mut Agenda<Event>,
        now: Ms,
        id: ConnId,
        server_hears: Option<Ms>,
    ) {
        let random = &mut self.random;
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if conn.is_broken {
            return;
        }
        conn.is_broken = true;
        conn.up.truncate(random);
        conn.down.truncate(random);
        match server_hears {
            Some(after) => agenda.put(conn.up.last_arrival.max(now + after), Event::HangsUp(id)),
            None if !conn.is_open => agenda.put(conn.up.last_arrival.max(now), Event::HangsUp(id)),
            // The server learns it when the session moves or expires.
            None => {}
        }
        let at = now.max(conn.down.last_arrival);
        agenda.put(at, Event::Ends(id, End::Reset));
    }

    /// The machine of the server has died: nothing more passes, and nothing tells the process. At `until` the machine is back, and resets a
    /// connection that it does not know.
    pub(crate) fn lose_server(
        &mut self,
        agenda: &mut Agenda<Event>,
        now: Ms,
        id: ConnId,
        until: Ms,
    ) {
        let Some(conn) = self.conns.get(&id) else {
            return;
        };
        if conn.is_broken {
            return;
        }
        let arrival = self.arrival_down(until.max(now), conn.process, conn.server);
        let random = &mut self.random;
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.is_broken = true;
            conn.is_open = false;
            conn.down.truncate(random);
            let at = arrival.max(conn.down.last_arrival);
            agenda.put(at, Event::Ends(id, End::Reset));
            self.forget(id);
        }
    }

    /// Connections that have ended without the knowledge of their servers.
    pub(crate) fn half_open(&self) -> Vec<ConnId> {
        let conns = self.conns.iter();
        let half_open = conns.filter(|(_, conn)| conn.is_broken && conn.is_open);
        half_open.map(|(id, _)| *id).collect()
    }

    /// The server has learned of the end.
    pub(crate) fn hung_up(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else {
            return false;
        };
        let was_open = std::mem::take(&mut conn.is_open);
        self.forget(id);
        was_open
    }

    /// The process learns of the end.
    pub(crate) fn ends(&mut self, id: ConnId, end: End) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.client_end.get_or_insert(end);
            if let Some(waker) = conn.waiting.take() {
                waker.wake();
            }
        }
    }
}

impl Pipe {
    /// Appends a chunk, and returns its arrival time.
    fn put(&mut self, arrival: Ms, bytes: Bytes) -> Ms {
        self.chunks.push_back(bytes);
        self.last_arrival = self.last_arrival.max(arrival);
        self.last_arrival
    }

    /// Drops everything after some byte. The number of chunks stays the same: each has an event of its own.
    fn truncate(&mut self, random: &mut StdRng) {
        let bytes: usize = self.chunks.iter().map(Bytes::len).sum();
        let mut left = random.random_range(0..=bytes);
        for chunk in &mut self.chunks {
            chunk.truncate(left);
            left -= chunk.len();
        }
    }
}
