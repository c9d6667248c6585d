//! Calls into a session: requests, credentials, close.

use bellwether_wire::op::Op;
use bellwether_wire::request;
use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use super::{ANY_WATCH, Delivery, Session};
use crate::clock::Moment;
use crate::core::requests::{Answer, Pending, Slot};
use crate::core::watches::{Arming, Kind, Listener, Watches};
use crate::error::{Error, Invalid, SessionEnd};
use crate::options::session::{Credential, OVERLOAD_PAUSE};

impl Session {
    /// Accepts a request. Its bytes are in [`out`](Self::out) afterwards, or wait for a connection.
    pub(crate) fn request(
        &mut self,
        now: Moment,
        op: Op,
        watch: Option<(Kind, &str, Listener)>,
        body: impl FnOnce(&mut BytesMut),
    ) -> Result<(oneshot::Receiver<Answer>, Option<u64>), Error> {
        self.take(now, op, watch, None, body)
    }

    /// Removes all watches at a path: from the server and, when it has answered, from their handles.
    pub(crate) fn remove_watches(
        &mut self,
        now: Moment,
        path: &str,
    ) -> Result<oneshot::Receiver<Answer>, Error> {
        let removes = Some(path.to_owned());
        let taken = self.take(now, Op::RemoveWatches, None, removes, |out| {
            request::put_path_number(out, path, ANY_WATCH);
        });
        taken.map(|(receiver, _)| receiver)
    }

    fn take(
        &mut self,
        now: Moment,
        op: Op,
        watch: Option<(Kind, &str, Listener)>,
        removes: Option<String>,
        body: impl FnOnce(&mut BytesMut),
    ) -> Result<(oneshot::Receiver<Answer>, Option<u64>), Error> {
        self.check_open()?;
        if self.features.lacks(op) {
            return Err(Error::UNIMPLEMENTED);
        }
        if self.requests.len() >= self.limits.requests_max
            || self.out.len() + self.requests.waiting_bytes() > self.limits.buffered_bytes_max
        {
            self.refuses_until = now + OVERLOAD_PAUSE;
        }
        // Also when there is room again: a request may rely on one that was made before it.
        if now < self.refuses_until {
            return Err(Error::Invalid(Invalid::TooManyRequests));
        }
        let is_up = self.is_up();
        let mut apart = BytesMut::new();
        let out = if is_up { &mut self.out } else { &mut apart };
        let start = out.len();
        let xid = self.requests.next_xid();
        request::put(out, xid, op, body);
        let bytes = out.len() - start - 4;
        if bytes > self.limits.request_bytes_max {
            out.truncate(start);
            return Err(Error::Invalid(Invalid::TooLarge {
                bytes,
                bytes_max: self.limits.request_bytes_max,
            }));
        }
        let arming = watch.map(|(kind, path, listener)| self.watches.begin(kind, path, listener));
        let id = arming.as_ref().map(|arming| arming.id);
        if is_up {
            put_watch_flag(&mut self.watches, arming.as_ref(), &mut self.out);
        }
        let (sender, receiver) = oneshot::channel();
        let pending = Pending {
            xid,
            op,
            sent: now,
            end: 0,
            slot: Slot::Caller(sender),
            arming,
            removes,
        };
        self.requests.count();
        match is_up {
            true => self.enqueue(now, pending),
            false => self.requests.push_waiting(pending, apart),
        }
        Ok((receiver, id))
    }

    /// Authenticates, now and on each later connection.
    pub(crate) fn auth(
        &mut self,
        now: Moment,
        credential: Credential,
    ) -> Result<oneshot::Receiver<Answer>, Error> {
        self.check_open()?;
        let (sender, receiver) = oneshot::channel();
        if self.is_up() {
            self.put_auth(&credential, Some(sender));
            self.last_sent = now;
        } else {
            // It is sent with the other credentials on the next connection, and its outcome is unknown until then.
            self.deliveries
                .push(Delivery::Reply(sender, Ok(Bytes::new())));
        }
        if !self.credentials.contains(&credential) {
            self.credentials.push(credential);
        }
        Ok(receiver)
    }

    /// A watch handle was dropped.
    pub(crate) fn drop_watch(&mut self, now: Moment, kind: Kind, path: &str, id: u64) {
        let removal = self.watches.dropped(kind, path, id);
        self.remove(now, removal);
    }

    pub(crate) fn has_other_watch_mode(&self, kind: Kind, path: &str) -> bool {
        self.watches.has_other_mode(kind, path)
    }

    /// Ends the session: earlier requests are still answered, later ones refused.
    pub(crate) fn close(&mut self, now: Moment) {
        if self.closing || self.end.is_some() {
            return;
        }
        self.closing = true;
        // Without a connection, the close is sent on the next one, behind the requests that wait. That may be the first connection: a
        // handshake in flight may have opened a session already.
        if self.is_up() {
            self.put_close(now);
        }
    }

    /// Whether new requests are refused: the session has ended, or is to.
    pub(crate) fn is_closed(&self) -> bool {
        self.check_open().is_err()
    }

    fn check_open(&self) -> Result<(), Error> {
        match (self.end, self.closing) {
            (Some(end), _) => Err(Error::SessionEnded(end)),
            (None, true) => Err(Error::SessionEnded(SessionEnd::Closed)),
            (None, false) => Ok(()),
        }
    }

    /// A number for a request that the driver sends itself, before the session has the connection.
    #[cfg(feature = "sasl")]
    pub(crate) fn next_xid(&mut self) -> i32 {
        self.requests.next_xid()
    }
}

/// Finishes the frame of a request that arms a watch, when it goes to the connection: if a persistent watch delivers its events, the
/// request asks the server for no watch. The flag is the last byte of such a frame.
pub(super) fn put_watch_flag(watches: &mut Watches, arming: Option<&Arming>, frame: &mut BytesMut) {
    let Some(arming) = arming else { return };
    watches.sent(arming);
    if watches.is_covered(arming.kind, &arming.path)
        && let Some(flag) = frame.last_mut()
    {
        *flag = 0;
    }
}
