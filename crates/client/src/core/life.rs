//! What answered requests prove about the life of a session.
//!
//! A single server expires sessions by the clock that it answers with: any answer is proof. In an ensemble only the leader expires
//! sessions, and a follower answers reads by itself for a while after it was cut off. Neither does a write renew the session: what
//! renews it is that the leader *hears* of the session. Three facts of Apache's servers prove that it has:
//!
//! 1. Every half tick the leader asks each follower which sessions were active (`Leader.lead`, `LearnerHandler.ping`). These questions
//!    and the commits go the same way, in order. So when a write is answered, the follower has reported all activity up to the
//!    last question before that commit: up to half a tick before the write was sent. A session timeout has two ticks at least.
//! 2. The reports and the requests go the same way back, in order. So when the answer to that write is followed by another request that
//!    passes the leader, and that is answered too, the leader has received the report.
//! 3. A handshake renews the session on the leader (`LearnerHandler`, REVALIDATE). A committed write behind it shows that it was still
//!    the leader.
//!
//! One answered write alone proves less: if nothing passes from leader to follower for most of a session timeout, the write can pass the
//! leader right before the session expires.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;

/// Proof of life: when the latest answered requests were *sent*, and the timeout that the servers keep at least.
///
/// A server expires a session no earlier than `timeout` after it last heard from it. A single server has heard from it at `any` or
/// later, the leader of an ensemble at `heard` or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// When the latest answered request of any kind was sent.
    pub any: Moment,
    /// When the latest answered write was sent. A write that the leader refused counts: the quorum has seen it.
    pub write: Moment,
    /// When the latest request was sent of which the leader of an ensemble is known to have heard, directly or through its follower.
    pub heard: Moment,
    /// When the write was sent that proves `heard`.
    pub proven: Moment,
    /// The session timeout. Each reconnect negotiates it again, so it may get shorter. It does not get longer than it was when the
    /// session was opened: only that timeout is in the log, and a restarted server or the next leader returns to it.
    pub timeout: Duration,
}

impl Life {
    /// When to give the session up: its timeout, and a quarter of it for a server that expires late, have passed in silence.
    fn gone(&self) -> Moment {
        self.any + self.timeout + self.timeout / 4
    }
}

/// How far a request has come that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    Server,
    Leader,
    Quorum,
}

/// A session timeout has this many half ticks at least.
const HALF_TICKS: u32 = 4;
/// How many answers are remembered in a session timeout. Answers between them count as the one before.
const ANSWERS: u32 = 32;

/// Keeps the proof of life of one session.
#[derive(Debug)]
pub(crate) struct Proof {
    life: Life,
    /// When the handshake of this connection was sent.
    connected: Moment,
    /// When requests on this connection were sent and answered, oldest first.
    answers: VecDeque<Answered>,
    /// From when on the next answer is remembered.
    remember_from: Moment,
    unconfirmed: Option<Unconfirmed>,
}

#[derive(Debug)]
struct Answered {
    sent: Moment,
    at: Moment,
}

/// A write or handshake that was answered: the leader hears of the session, if a further request reaches it.
#[derive(Debug)]
struct Unconfirmed {
    sent: Moment,
    answered: Moment,
    /// When the request was sent that the leader hears of.
    hears: Moment,
    confirmed_by: Reach,
}

impl Proof {
    /// A session that is opened by a request sent at `sent`. It goes through the quorum.
    pub(crate) fn new(sent: Moment, timeout: Duration) -> Self {
        Self {
            life: Life {
                any: sent,
                write: sent,
                heard: sent,
                proven: sent,
                timeout,
            },
            connected: sent,
            answers: VecDeque::new(),
            remember_from: sent,
            unconfirmed: None,
        }
    }

    pub(crate) fn life(&self) -> Life {
        self.life
    }

    pub(crate) fn is_gone(&self, now: Moment) -> bool {
        now >= self.life.gone()
    }

    /// A handshake took the session to another connection. It proves no more than a read: the server may follow a leader that
    /// others have replaced.
    pub(crate) fn reattached(&mut self, now: Moment, sent: Moment, timeout: Duration) {
        self.life.any = self.life.any.max(sent);
        self.life.timeout = timeout;
        self.connected = sent;
        self.answers.clear();
        self.remember_from = sent;
        self.unconfirmed = Some(Unconfirmed {
            sent,
            answered: now,
            hears: sent,
            confirmed_by: Reach::Quorum,
        });
    }

    /// A request was answered that was sent at `sent`.
    pub(crate) fn answered(&mut self, now: Moment, sent: Moment, reach: Reach) {
        self.life.any = self.life.any.max(sent);
        if reach == Reach::Quorum {
            self.life.write = self.life.write.max(sent);
        }
        let confirms = |write: &Unconfirmed| sent > write.answered && reach >= write.confirmed_by;
        if let Some(write) = self.unconfirmed.take_if(|write| confirms(write)) {
            self.life.heard = self.life.heard.max(write.hears);
            self.life.proven = self.life.proven.max(write.sent);
        }
        if reach == Reach::Quorum && self.unconfirmed.is_none() {
            self.unconfirmed = Some(Unconfirmed {
                sent,
                answered: now,
                hears: self.reported_before(sent),
                // The next leader keeps each session for its whole timeout, from a time after this write.
                confirmed_by: Reach::Leader,
            });
        }
        self.remember(now, sent);
    }

    /// When the latest request was sent that had arrived half a tick before `sent`.
    fn reported_before(&self, sent: Moment) -> Moment {
        let half_tick = self.life.timeout / HALF_TICKS;
        let mut answers = self.answers.iter().rev();
        let last = answers.find(|answer| answer.at + half_tick <= sent);
        last.map_or(self.connected, |answer| answer.sent)
    }

    fn remember(&mut self, now: Moment, sent: Moment) {
        if now < self.remember_from {
            return;
        }
        let timeout = self.life.timeout;
        self.remember_from = now + timeout / ANSWERS;
        let is_old = |first: &Answered| now - first.at > timeout;
        if self.answers.front().is_some_and(is_old) {
            self.answers.pop_front();
        }
        self.answers.push_back(Answered { sent, at: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_millis(1_000);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_millis(ms)
    }

    /// A session that is opened at 0 and pings every 50 ms until `until`.
    fn pinged(until: u64) -> Proof {
        let mut proof = Proof::new(at(0), T);
        for sent in (50..until).step_by(50) {
            proof.answered(at(sent + 2), at(sent), Reach::Server);
        }
        proof
    }

    #[test]
    fn leader_hears_of_a_session_by_the_second_request_that_passes_it() {
        let mut proof = pinged(1_000);
        proof.answered(at(1_010), at(1_000), Reach::Quorum);
        assert_eq!(proof.life().write, at(1_000));
        assert_eq!(proof.life().heard, at(0), "the report may be under way");
        proof.answered(at(1_015), at(1_012), Reach::Server);
        assert_eq!(proof.life().heard, at(0), "a read proves nothing");
        proof.answered(at(1_030), at(1_020), Reach::Leader);
        // The ping of 700 was answered a half tick before the write, that of 750 was not.
        assert_eq!(proof.life().heard, at(700));
        assert_eq!(proof.life().proven, at(1_000));
    }

    #[test]
    fn request_sent_before_the_answer_to_a_write_confirms_nothing() {
        let mut proof = pinged(1_000);
        proof.answered(at(1_010), at(1_000), Reach::Quorum);
        proof.answered(at(1_011), at(1_005), Reach::Quorum);
        assert_eq!(proof.life().heard, at(0));
        proof.answered(at(1_021), at(1_011), Reach::Quorum);
        assert_eq!(proof.life().heard, at(700));
    }

    #[test]
    fn pause_of_the_client_is_not_taken_for_activity() {
        let mut proof = pinged(1_000);
        // No ping for most of the timeout: the follower had nothing to report.
        proof.answered(at(1_810), at(1_800), Reach::Quorum);
        proof.answered(at(1_830), at(1_820), Reach::Leader);
        assert_eq!(proof.life().heard, at(950));
    }

    #[test]
    fn handshake_counts_once_a_write_behind_it_is_committed() {
        let mut proof = pinged(1_000);
        proof.reattached(at(1_410), at(1_400), T);
        proof.answered(at(1_430), at(1_420), Reach::Leader);
        assert_eq!(proof.life().heard, at(0), "a deposed leader answers, too");
        proof.answered(at(1_450), at(1_440), Reach::Quorum);
        assert_eq!(proof.life().heard, at(1_400));
    }

    #[test]
    fn memory_of_a_busy_session_is_bounded() {
        let mut proof = Proof::new(at(0), T);
        for sent in 0..100_000 {
            proof.answered(at(sent + 1), at(sent), Reach::Quorum);
        }
        assert!(proof.answers.len() <= 40, "{}", proof.answers.len());
        let behind = at(100_000) - proof.life().heard;
        assert!(behind < T / 3, "{behind:?}");
    }
}
