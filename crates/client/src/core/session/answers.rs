//! Frames from the server: replies and events.

use bellwether_wire::event;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::reply::ReplyHeader;
use bytes::Bytes;

use super::{AUTH_XID, Broken, Delivery, PING_XID, SILENCES_ATTENTIVE, Session};
use crate::clock::Moment;
use crate::core::features::Features;
use crate::core::life::Reach;
use crate::core::requests::{Answer, Pending, Slot};
use crate::core::watches::{Arming, Event, Removal};
use crate::error::{Error, ErrorCode, SessionEnd};

impl Session {
    /// Reads one frame from the server.
    pub(crate) fn frame(&mut self, now: Moment, bytes: &Bytes) -> Result<(), Broken> {
        self.last_heard = now;
        self.has_answered = true;
        let mut reader = Reader::new(bytes);
        let header = ReplyHeader::decode(&mut reader).map_err(|_| Broken::Protocol)?;
        self.last_zxid = self.last_zxid.max(header.zxid);
        if header.xid != event::EVENT_XID {
            self.answered_zxid = self.answered_zxid.max(header.zxid);
        }
        match header.xid {
            event::EVENT_XID => {
                let (kind, path) = event::decode(&mut reader).map_err(|_| Broken::Protocol)?;
                self.fire(now, &Event { kind, path });
                Ok(())
            }
            PING_XID => {
                if let Some(sent) = self.pings.pop_front() {
                    self.proof.answered(now, sent, Reach::Server);
                    self.is_slow &= now - sent > self.life().timeout / SILENCES_ATTENTIVE;
                }
                Ok(())
            }
            AUTH_XID => self.auth_answered(header.err),
            xid => {
                let pending = match Error::of_code(header.err) {
                    // An unknown operation is refused before earlier requests are answered (`ZooKeeperServer.submitRequestNow`).
                    Error::UNIMPLEMENTED => self.requests.take(xid),
                    _ => self.requests.answer(xid),
                };
                let pending = pending.ok_or(Broken::Protocol)?;
                let body = bytes.slice_ref(reader.rest());
                self.answered(now, pending, header.err, body)
            }
        }
    }

    fn fire(&mut self, now: Moment, event: &Event) {
        let (notices, removal) = self.watches.fire(event);
        let notices = notices.into_iter().map(Delivery::Notice);
        self.deliveries.extend(notices);
        self.remove(now, removal);
    }

    fn answered(
        &mut self,
        now: Moment,
        pending: Pending,
        err: i32,
        body: Bytes,
    ) -> Result<(), Broken> {
        let answer = match err {
            0 => Ok(body),
            err => Err(Error::of_code(err)),
        };
        self.features.learn(pending.op, &answer);
        let is_fatal = Features::is_fatal(pending.op, &answer);
        if let Err(Error::SessionEnded(end)) = answer {
            self.fail(pending, Error::SessionEnded(end));
            self.finish(end);
            return Err(Broken::Ended);
        }
        match answer {
            Err(Error::Unknown) => {}
            // Only that server has seen it, not the quorum.
            Err(Error::Refused(code)) if is_local(code) => {
                self.proof.answered(now, pending.sent, Reach::Server);
            }
            _ => {
                let reach = match pending.op {
                    Op::Sync => Reach::Leader,
                    op if op.is_write() => Reach::Quorum,
                    _ => Reach::Server,
                };
                self.proof.answered(now, pending.sent, reach);
            }
        }
        if let Some(arming) = pending.arming {
            let removal = self.watch_answered(pending.op, arming, &answer);
            self.remove(now, removal);
        }
        if let (Some(path), Ok(_)) = (&pending.removes, &answer) {
            self.watches.removed(path);
        }
        match pending.slot {
            Slot::Caller(sender) => self.deliveries.push(Delivery::Reply(sender, answer)),
            Slot::Nobody => {}
            Slot::Rearmed => {
                self.rearming = self.rearming.saturating_sub(1);
                if self.rearming == 0 {
                    self.rearm_zxid = None;
                }
            }
            Slot::Close => {
                self.finish(SessionEnd::Closed);
                return Err(Broken::Ended);
            }
        }
        if is_fatal {
            // What is sent from now on waits for the next connection, and is not lost with this one.
            self.disconnected();
            return Err(Broken::UnknownOperation);
        }
        Ok(())
    }

    /// Success arms a watch; exists also arms it on a missing node.
    fn watch_answered(&mut self, op: Op, arming: Arming, answer: &Answer) -> Option<Removal> {
        match answer {
            Ok(_) => self.watches.armed(arming, false),
            Err(Error::Refused(ErrorCode::NoNode)) if op == Op::Exists => {
                self.watches.armed(arming, true)
            }
            Err(_) => self.watches.not_armed(&arming),
        }
    }

    fn auth_answered(&mut self, err: i32) -> Result<(), Broken> {
        let slot = self.auths.pop_front().ok_or(Broken::Protocol)?;
        let answer = match err {
            0 => Ok(Bytes::new()),
            err => Err(Error::of_code(err)),
        };
        let failed = answer.is_err();
        if let Some(sender) = slot {
            self.deliveries.push(Delivery::Reply(sender, answer));
        }
        if failed {
            self.finish(SessionEnd::AuthFailed);
            return Err(Broken::Ended);
        }
        Ok(())
    }
}

/// Whether a server refuses with this code by itself, before the leader and the quorum have seen the request.
fn is_local(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Unimplemented
            | ErrorCode::NotReadOnly
            | ErrorCode::EphemeralOnLocalSession
            | ErrorCode::ThrottledOp
    )
}
