//! Compares every frame of the model with the recorded one.

use std::collections::BTreeMap;

use bellwether_testkit::{Body, Frame, MultiResult};
use bellwether_wire::connect::ConnectReply;
use bellwether_wire::frame;
use bellwether_wire::stat::Stat;

use super::history::Connection;
use super::replay::Replay;
use super::step::Step;

const FRAME_BYTES_MAX: usize = 1 << 20;

impl Replay<'_> {
    /// Compares what the model has sent with what was received.
    pub(super) fn compare(&mut self, step: Step) -> Result<(), String> {
        for number in 0..self.lines.len() {
            let connection = &self.history.connections[number];
            let line = &mut self.lines[number];
            line.input.unsplit(self.it.net.take_inbox(line.id));
            while let Ok(Some(bytes)) = frame::take(&mut line.input, FRAME_BYTES_MAX) {
                let of = || format!("connection {number} of client {}", connection.client);
                if !std::mem::replace(&mut line.is_greeted, true) {
                    let made = ConnectReply::decode(&bytes).map_err(|why| why.to_string())?;
                    let granted = made.is_session().then_some(made.timeout_ms);
                    let expected = connection.greeting.and_then(|greeting| greeting.granted);
                    let expected = expected.map(|(_, timeout_ms)| timeout_ms);
                    if granted != expected {
                        return Err(format!(
                            "{}: the model grants {granted:?}, not {expected:?}",
                            of()
                        ));
                    }
                    continue;
                }
                let Some(expected) = connection.received.get(line.explained) else {
                    // It was lost on the way.
                    continue;
                };
                let op_of = |xid| {
                    let mut requests = connection.requests.iter();
                    requests.find(|sent| sent.xid == xid)?.request.op()
                };
                let made = Frame::decode(&bytes, op_of).map_err(|why| why.to_string())?;
                let made = plain(made, &self.recorded);
                let real = plain(expected.frame.clone(), &BTreeMap::new());
                if made != real {
                    let frame = line.explained;
                    return Err(format!(
                        "{}: frame {frame} is {real:?}; the model sends {made:?}",
                        of()
                    ));
                }
                line.explained += 1;
            }
        }
        self.is_answered(step)
    }

    /// A request that the schedule has given its place is answered there.
    fn is_answered(&self, step: Step) -> Result<(), String> {
        match step {
            Step::Read(number, place) | Step::Synced(number, place)
                if !self.has_reply(number, place) =>
            {
                let member = &self.model.members[self.history.connections[number].member];
                let id = self.lines[number].id;
                let is_open = self.it.net.conn(id).is_some_and(|conn| conn.is_open);
                let mut syncs = member.syncs.iter();
                let upto = syncs.find(|(_, conn, ..)| *conn == id).map(|sync| sync.0);
                Err(format!(
                    "the model does not answer it yet: its connection is open: {is_open}, it waits for write {upto:?} of {}",
                    member.applied
                ))
            }
            _ => Ok(()),
        }
    }

    fn has_reply(&self, number: usize, place: usize) -> bool {
        let connection: &Connection = &self.history.connections[number];
        let xid = connection.requests[place].xid;
        let explained = &connection.received[..self.lines[number].explained];
        explained
            .iter()
            .any(|one| matches!(&one.frame, Frame::Reply(reply) if reply.xid == xid))
    }

    pub(super) fn is_complete(&self) -> Result<(), String> {
        for (number, connection) in self.history.connections.iter().enumerate() {
            let line = &self.lines[number];
            let client = connection.client;
            if connection.greeting.is_some() && !line.is_greeted {
                return Err(format!(
                    "connection {number} of client {client}: the model does not answer its handshake"
                ));
            }
            if let Some(left) = connection.received.get(line.explained) {
                let frame = line.explained;
                return Err(format!(
                    "connection {number} of client {client}: the model does not send frame {frame}, {left:?}"
                ));
            }
        }
        Ok(())
    }
}

/// A frame without its bytes, and with the recorded sessions as owners.
fn plain(mut frame: Frame, sessions: &BTreeMap<i64, i64>) -> Frame {
    if let Frame::Reply(reply) = &mut frame {
        reply.bytes.clear();
        if let Ok(body) = &mut reply.outcome {
            rename(body, sessions);
        }
    }
    frame
}

fn rename(body: &mut Body, sessions: &BTreeMap<i64, i64>) {
    let stat = |stat: &mut Stat| {
        if let Some(recorded) = sessions.get(&stat.ephemeral_owner) {
            stat.ephemeral_owner = *recorded;
        }
    };
    match body {
        Body::Stat(one)
        | Body::PathStat(_, one)
        | Body::DataStat(_, one)
        | Body::ChildrenStat(_, one) => stat(one),
        Body::Multi(results) => {
            for result in results {
                if let MultiResult::Done(_, body) = result {
                    rename(body, sessions);
                }
            }
        }
        _ => {}
    }
}
