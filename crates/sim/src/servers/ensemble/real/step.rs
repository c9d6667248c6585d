//! A step of the model in a replay.

use bellwether_testkit::Frame;

use super::history::{Connection, History, Sent};

/// A step of the model. Connections, requests and writes are named by their places in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The leader proposes a write.
    Propose(usize),
    /// A member makes a write visible.
    Apply(usize, usize),
    /// A client connects, with the session that it has.
    Attach(usize),
    /// A member receives a request of a connection.
    Receive(usize, usize),
    /// A member executes a read.
    Read(usize, usize),
    /// A member receives the leader's answer to a sync.
    Synced(usize, usize),
    /// The leader is lost, and the leader of this place is elected.
    Elect(usize),
    /// A member is killed, if it is not already, and returns.
    Restart(usize),
}

impl Step {
    /// The client of the session, if the step belongs to one.
    pub(super) fn client(self, history: &History) -> Option<usize> {
        let own = match self {
            Step::Propose(write) | Step::Apply(_, write) => {
                let session = history.txns[write].session_id;
                let mut connections = history.connections.iter();
                connections.find(|one| one.granted() == Some(session))
            }
            Step::Attach(number)
            | Step::Receive(number, _)
            | Step::Read(number, _)
            | Step::Synced(number, _) => history.connections.get(number),
            Step::Elect(_) | Step::Restart(_) => None,
        };
        own.map(|connection| connection.client)
    }

    /// The step in words.
    pub(super) fn describe(self, history: &History) -> String {
        let request = |number: usize, place: usize| {
            let connection: &Connection = &history.connections[number];
            let Sent { xid, request, .. } = &connection.requests[place];
            let client = connection.client;
            let member = connection.member;
            let replies = connection
                .received
                .iter()
                .filter_map(|one| match &one.frame {
                    Frame::Reply(reply) if reply.xid == *xid => Some(reply),
                    _ => None,
                });
            let reply = replies.map(|reply| format!("{:#x} {:?}", reply.zxid, reply.outcome));
            let reply = reply.last().unwrap_or_default();
            format!("client {client}, connection {number} to member {member}, {request:?}: {reply}")
        };
        match self {
            Step::Propose(write) => {
                let txn = &history.txns[write];
                format!(
                    "write {:#x} of session {:#x}: {:?}",
                    txn.zxid, txn.session_id, txn.body
                )
            }
            Step::Apply(member, write) => {
                let zxid = history.txns[write].zxid;
                format!("write {zxid:#x}, as member {member} shows it,")
            }
            Step::Attach(number) => {
                let connection = &history.connections[number];
                let Connection { client, member, .. } = connection;
                format!("client {client}, connection {number} to member {member}, its handshake")
            }
            Step::Receive(number, place)
            | Step::Read(number, place)
            | Step::Synced(number, place) => request(number, place),
            Step::Elect(era) => format!("election {era}"),
            Step::Restart(member) => format!("restart of member {member}"),
        }
    }
}
