//! A session against a model of a server and of a network, without either.

use std::collections::VecDeque;

use bellwether_wire::event::{self, EventKind};
use bellwether_wire::jute::Reader;
use bytes::{BufMut as _, Bytes};
use proptest::prelude::*;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::core::watches::{Kind, Listener};

const TIMEOUT_MS: i32 = 10_000;

fn session(limits: Limits) -> Session {
    Session::new(at(0), Duration::from_secs(10), None, Vec::new(), limits)
}

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn granted() -> ConnectReply {
    ConnectReply {
        timeout_ms: TIMEOUT_MS,
        session_id: 7,
        password: [0; 16],
    }
}

/// A reply without its length.
fn reply(xid: i32, zxid: i64, err: i32, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(xid);
    frame.put_i64(zxid);
    frame.put_i32(err);
    frame.extend_from_slice(body);
    frame.freeze()
}

fn event_frame(kind: EventKind, path: &str) -> Bytes {
    let mut body = BytesMut::new();
    event::encode(kind, path, &mut body);
    reply(event::EVENT_XID, -1, 0, &body)
}

/// What happens to a session.
#[derive(Clone, Debug)]
enum Step {
    /// A caller makes a request; every third one arms a watch.
    Request(u8),
    /// The socket accepts some bytes.
    Write(usize),
    /// The server answers its oldest request.
    Answer {
        err: bool,
    },
    Event(u8),
    Disconnect,
    Connect,
    Tick(u16),
    DropWatch,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => any::<u8>().prop_map(Step::Request),
        6 => (1_usize..200).prop_map(Step::Write),
        8 => any::<bool>().prop_map(|err| Step::Answer { err }),
        2 => any::<u8>().prop_map(Step::Event),
        1 => Just(Step::Disconnect),
        2 => Just(Step::Connect),
        2 => any::<u16>().prop_map(Step::Tick),
        2 => Just(Step::DropWatch),
        1 => (0..20_u8).prop_map(|n| if n == 0 { Step::Close } else { Step::DropWatch }),
    ];
    prop::collection::vec(step, 1..200)
}

const PATHS: [&str; 3] = ["/", "/a", "/a/b"];

/// A caller that waits: the number of its request, and where its answer arrives.
struct Caller {
    number: u64,
    answer: oneshot::Receiver<Answer>,
}

/// The world around one session.
struct World {
    session: Session,
    now: u64,
    zxid: i64,
    /// Bytes on their way to the server, and requests that it has read: xid, operation, body.
    wire: BytesMut,
    read: VecDeque<(i32, i32, Bytes)>,
    callers: VecDeque<Caller>,
    last_number: u64,
    watches: Vec<(Kind, &'static str, u64)>,
}

impl World {
    fn new() -> Self {
        Self {
            session: session(Limits::default()),
            now: 1,
            zxid: 0,
            wire: BytesMut::new(),
            read: VecDeque::new(),
            callers: VecDeque::new(),
            last_number: 0,
            watches: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let now = at(self.now);
        match step {
            Step::Request(choice) => self.request(choice),
            Step::Write(bytes) if self.session.is_up() => self.write(bytes),
            Step::Answer { err } if self.session.is_up() => self.answer(err),
            Step::Event(choice) if self.session.is_up() => {
                let kinds = [
                    EventKind::NodeCreated,
                    EventKind::NodeDeleted,
                    EventKind::NodeDataChanged,
                    EventKind::NodeChildrenChanged,
                ];
                let kind = kinds[usize::from(choice) % 4];
                let path = PATHS[usize::from(choice) / 4 % 3];
                self.session.frame(now, &event_frame(kind, path)).unwrap();
            }
            Step::Disconnect => self.disconnect(),
            Step::Connect if !self.session.is_up() && self.session.end().is_none() => {
                self.session.connected(now, now, granted()).unwrap();
            }
            Step::Tick(ms) => {
                self.now += u64::from(ms % 2_000);
                let is_broken = self.session.is_up() && self.session.tick(at(self.now)).is_err();
                if is_broken {
                    self.disconnect();
                }
            }
            Step::DropWatch => {
                if let Some((kind, path, id)) = self.watches.pop() {
                    self.session.drop_watch(now, kind, path, id);
                }
            }
            Step::Close => self.session.close(now),
            _ => {}
        }
        self.deliver(None);
    }

    fn request(&mut self, choice: u8) {
        self.last_number += 1;
        let number = self.last_number;
        let path = PATHS[usize::from(choice) % 3];
        let kinds = [Kind::Data, Kind::Child, Kind::Persistent, Kind::Recursive];
        let kind = kinds[usize::from(choice) / 3 % 4];
        let (op, watch) = match choice % 3 {
            0 => {
                let (sender, _) = oneshot::channel();
                let listener = match kind {
                    Kind::Data | Kind::Child => Listener::OneShot(sender),
                    _ => Listener::Stream(crate::core::events::event_queue(10).0),
                };
                let op = match kind {
                    Kind::Data => Op::Exists,
                    Kind::Child => Op::GetChildren,
                    _ => Op::AddWatch,
                };
                (op, Some((kind, path, listener)))
            }
            1 => (Op::SetData, None),
            _ => (Op::GetData, None),
        };
        let taken = self.session.request(at(self.now), op, watch, |out| {
            out.extend_from_slice(&number.to_be_bytes());
            // Where the flag of a watch would be.
            out.extend_from_slice(&[1]);
        });
        match taken {
            Ok((answer, id)) => {
                self.callers.push_back(Caller { number, answer });
                if let Some(id) = id {
                    self.watches.push((kind, path, id));
                }
            }
            Err(error) => assert!(error.is_session_end(), "{error:?}"),
        }
    }

    /// The socket accepts bytes, and the server reads whole requests.
    fn write(&mut self, bytes: usize) {
        let bytes = bytes.min(self.session.out().len());
        self.wire.extend_from_slice(&self.session.out()[..bytes]);
        self.session.wrote(bytes);
        while let Some(frame) = frame::take(&mut self.wire, 1 << 20).unwrap() {
            let mut reader = Reader::new(&frame);
            let header = request::RequestHeader::decode(&mut reader).unwrap();
            let body = frame.slice_ref(reader.rest());
            self.read.push_back((header.xid, header.op, body));
        }
    }

    fn answer(&mut self, err: bool) {
        let Some((xid, op, body)) = self.read.pop_front() else {
            return;
        };
        self.zxid += 1;
        let now = at(self.now);
        let err = if err && xid > 0 && op != Op::CloseSession.number() {
            -101
        } else {
            0
        };
        // The answer echoes the request, so that a mix-up is noticed.
        let body = if err == 0 { &body[..] } else { &[] };
        let result = self.session.frame(now, &reply(xid, self.zxid, err, body));
        match op == Op::CloseSession.number() {
            true => assert_eq!(result, Err(Broken::Ended)),
            false => assert_eq!(result, Ok(())),
        }
    }

    fn disconnect(&mut self) {
        // Requests that the server has read completely may have taken effect; the others cannot.
        let read: Vec<_> = self.read.drain(..).map(|(_, _, body)| body).collect();
        self.wire.clear();
        self.session.disconnected();
        self.deliver(Some(&read));
    }

    /// Delivers answers and events. Answers come in the order of requests, to the right callers.
    fn deliver(&mut self, lost: Option<&[Bytes]>) {
        for delivery in self.session.take_deliveries() {
            let Delivery::Reply(sender, answer) = delivery else {
                continue;
            };
            let told = answer.clone();
            sender.send(answer).expect("its caller waits");
            let mut first = self.callers.pop_front().expect("somebody asked");
            assert_eq!(first.answer.try_recv(), Ok(told.clone()), "not the oldest");
            let number = first.number.to_be_bytes();
            match told {
                Ok(body) => assert_eq!(body[..8], number),
                Err(Error::Unknown | Error::NotSent) => {
                    let lost = lost.expect("a connection was lost");
                    let was_read = lost
                        .iter()
                        .any(|body| body.len() == 9 && body[..8] == number);
                    assert_eq!(told == Err(Error::Unknown), was_read);
                }
                Err(Error::Refused(_) | Error::SessionEnded(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        for caller in &mut self.callers {
            assert_eq!(caller.answer.try_recv(), Err(TryRecvError::Empty));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_has_one_answer_in_order_whatever_happens(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.session.finish(SessionEnd::RuntimeGone);
        world.deliver(Some(&[]));
        prop_assert!(world.callers.is_empty(), "the end answers everything");
    }

    #[test]
    fn no_frame_makes_a_session_panic(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..20),
        xids in prop::collection::vec((-5..8_i32, -130..2_i32), 1..20),
    ) {
        let mut session = session(Limits::default());
        session.connected(at(1), at(1), granted()).unwrap();
        let mut answers = Vec::new();
        for number in 0..5_u8 {
            let (sender, _receiver) = oneshot::channel();
            let watch = (number % 2 == 0).then_some((Kind::Data, "/a", Listener::OneShot(sender)));
            let taken = session.request(at(1), Op::Exists, watch, |out| out.extend_from_slice(&[1]));
            answers.push(taken.unwrap().0);
        }
        for bytes in &frames {
            let _ = session.frame(at(2), &Bytes::from(bytes.clone()));
        }
        for ((xid, err), bytes) in xids.iter().zip(frames.iter().cycle()) {
            let _ = session.frame(at(3), &reply(*xid, 1, *err, bytes));
        }
        session.finish(SessionEnd::Closed);
        let replies = session.take_deliveries().into_iter();
        let replies = replies.filter(|delivery| matches!(delivery, Delivery::Reply(..)));
        prop_assert_eq!(replies.count(), answers.len(), "one answer each");
    }
}

/// The first of two setWatches is answered with a newer zxid, then the connection is lost: the server has not checked the watches
/// in the second.
#[test]
fn a_reconnect_counts_from_the_last_zxid_that_all_watches_were_told_of() {
    let mut session = session(Limits::default());
    session.connected(at(1), at(1), granted()).unwrap();
    let mut listeners = Vec::new();
    for number in 0..2_000_i32 {
        let path = format!("/{number:0100}");
        let (sender, receiver) = oneshot::channel();
        listeners.push(receiver);
        let watch = Some((Kind::Data, path.as_str(), Listener::OneShot(sender)));
        let taken = session.request(at(1), Op::GetData, watch, |out| out.extend_from_slice(&[1]));
        drop(taken.unwrap());
        session.frame(at(1), &reply(number + 1, 5, 0, &[])).unwrap();
    }
    let reconnect = |session: &mut Session| {
        session.disconnected();
        session.connected(at(2), at(2), granted()).unwrap();
        let mut out = BytesMut::from(session.out());
        let mut frames = Vec::new();
        while let Some(frame) = frame::take(&mut out, 1 << 20).unwrap() {
            let mut reader = Reader::new(&frame);
            let xid = request::RequestHeader::decode(&mut reader).unwrap().xid;
            frames.push((xid, reader.long().unwrap()));
        }
        frames
    };
    let frames = reconnect(&mut session);
    assert!(frames.len() >= 2 && frames.iter().all(|(_, zxid)| *zxid == 5));
    session
        .frame(at(2), &reply(frames[0].0, 9, 0, &[]))
        .unwrap();
    let frames = reconnect(&mut session);
    assert!(frames.iter().all(|(_, zxid)| *zxid == 5), "{frames:?}");
    for (xid, _) in frames {
        session.frame(at(2), &reply(xid, 9, 0, &[])).unwrap();
    }
    let frames = reconnect(&mut session);
    assert!(frames.iter().all(|(_, zxid)| *zxid == 9), "{frames:?}");
}

/// Apache 3.9 puts the zxid of the transaction into each of its events. The connection is lost between two of them.
#[test]
fn a_reconnect_does_not_count_from_the_zxid_of_an_event() {
    let mut session = session(Limits::default());
    session.connected(at(1), at(1), granted()).unwrap();
    let mut listeners = Vec::new();
    for (xid, kind, op, path) in [
        (1, Kind::Data, Op::Exists, "/a/b"),
        (2, Kind::Child, Op::GetChildren, "/a"),
    ] {
        let (sender, receiver) = oneshot::channel();
        listeners.push(receiver);
        let watch = Some((kind, path, Listener::OneShot(sender)));
        let taken = session.request(at(1), op, watch, |out| out.extend_from_slice(&[1]));
        drop(taken.unwrap());
        session.frame(at(1), &reply(xid, 5, 0, &[])).unwrap();
    }
    let mut created = BytesMut::new();
    event::encode(EventKind::NodeCreated, "/a/b", &mut created);
    let created = reply(event::EVENT_XID, 6, 0, &created);
    session.frame(at(1), &created).unwrap();
    assert_eq!(session.last_zxid(), 6);
    session.disconnected();
    session.connected(at(2), at(2), granted()).unwrap();
    let mut out = BytesMut::from(session.out());
    let frame = frame::take(&mut out, 1 << 20).unwrap().unwrap();
    let mut reader = Reader::new(&frame);
    let header = request::RequestHeader::decode(&mut reader).unwrap();
    assert_eq!(header.op, Op::SetWatches.number());
    assert_eq!(reader.long(), Ok(5), "NodeChildrenChanged may be lost");
}

/// The server closes the connection then, so earlier requests get no answer, and later ones wait for the next connection.
#[test]
fn unknown_operation_is_refused_ahead_of_earlier_requests() {
    let mut session = session(Limits::default());
    session.connected(at(1), at(1), granted()).unwrap();
    let send = |session: &mut Session, op| {
        let taken = session.request(at(1), op, None, |_| {});
        taken.map(|(answer, _)| answer)
    };
    let mut earlier = send(&mut session, Op::SetData).unwrap();
    let mut unknown = send(&mut session, Op::MultiRead).unwrap();
    let written = session.out().len();
    session.wrote(written);
    let refused = session.frame(at(2), &reply(2, 5, -6, &[]));
    assert_eq!(refused, Err(Broken::UnknownOperation));
    let mut later = send(&mut session, Op::SetData).unwrap();
    for delivery in session.take_deliveries() {
        if let Delivery::Reply(sender, answer) = delivery {
            sender.send(answer).unwrap();
        }
    }
    assert_eq!(unknown.try_recv(), Ok(Err(Error::UNIMPLEMENTED)));
    assert_eq!(earlier.try_recv(), Ok(Err(Error::Unknown)));
    assert_eq!(later.try_recv(), Err(TryRecvError::Empty));
    assert!(session.out().is_empty());
    assert_eq!(session.feature(Feature::MultiRead), Some(false));
    let again = send(&mut session, Op::MultiRead);
    assert_eq!(again.map(drop), Err(Error::UNIMPLEMENTED));
    session.connected(at(3), at(3), granted()).unwrap();
    assert!(!session.out().is_empty(), "the later request");
}

/// The server has heard no more of the session than the answered pings, so later ones on the way to it prove nothing.
#[test]
fn t93_late_answer_to_a_ping_counts_from_that_ping() {
    let mut session = session(Limits::default());
    session.connected(at(0), at(0), granted()).unwrap();
    let pings = [2_000, 4_000, 6_000];
    let answered = |session: &mut Session, now| {
        session.frame(at(now), &reply(PING_XID, 1, 0, &[])).unwrap();
        session.life().any
    };
    session.tick(at(pings[0])).unwrap();
    session.tick(at(pings[1])).unwrap();
    assert_eq!(answered(&mut session, 4_500), at(pings[0]));
    session.tick(at(pings[2])).unwrap();
    assert_eq!(answered(&mut session, 6_100), at(pings[1]));
    assert_eq!(answered(&mut session, 6_200), at(pings[2]));
    assert_eq!(answered(&mut session, 6_300), at(pings[2]), "of no ping");
    session.tick(at(8_000)).unwrap();
    session.disconnected();
    session.connected(at(9_000), at(9_000), granted()).unwrap();
    assert_eq!(answered(&mut session, 9_100), at(9_000), "of no ping");
}

#[test]
fn pings_without_answers_are_bounded() {
    let mut session = session(Limits::default());
    session.connected(at(0), at(0), granted()).unwrap();
    for ms in (2_000..4_000_000).step_by(2_000) {
        // Events show that the server lives.
        let event = event_frame(EventKind::NodeCreated, "/a");
        session.frame(at(ms), &event).unwrap();
        session.tick(at(ms)).unwrap();
    }
    let ping = 12;
    assert!(session.out().len() <= PINGS_MAX * ping);
}

/// Ticks until the server is given up, and returns when.
fn given_up(session: &mut Session, mut ms: u64) -> u64 {
    loop {
        match session.tick(at(ms)) {
            Ok(next) => ms += u64::try_from(next.as_millis()).unwrap().max(1),
            Err(broken) => {
                assert_eq!(broken, Broken::Silent);
                return ms;
            }
        }
    }
}

#[test]
fn t92_attentive_session_gives_a_silent_server_up_after_a_quarter_of_its_timeout() {
    let mut session = session(Limits::default());
    session.set_pings_per_timeout(20);
    session.connected(at(0), at(0), granted()).unwrap();
    let (ping, short, long) = (500, 2_500, 5_000);
    let is_after = |given_up: u64, silence: u64| (silence..silence + 20).contains(&given_up);
    let after = given_up(&mut session, 0);
    assert!(is_after(after, ping + long), "{after}");

    session.set_attentive(true);
    let began = 10_000;
    session.connected(at(began), at(began), granted()).unwrap();
    let after = given_up(&mut session, began) - began;
    assert!(is_after(after, ping + short), "{after}");

    // The next server is as slow: it is not given up as soon.
    let began = 20_000;
    session.connected(at(began), at(began), granted()).unwrap();
    session.tick(at(began + ping)).unwrap();
    let answered = began + ping + short + 1;
    session.tick(at(answered)).unwrap();
    let answer = reply(PING_XID, 1, 0, &[]);
    session.frame(at(answered), &answer).unwrap();
    let after = given_up(&mut session, answered) - answered;
    assert!(is_after(after, long), "{after}");

    // The next one answers soon.
    let began = 40_000;
    session.connected(at(began), at(began), granted()).unwrap();
    session.tick(at(began + ping)).unwrap();
    session.frame(at(began + 600), &answer).unwrap();
    let after = given_up(&mut session, began + 600) - began;
    assert!(is_after(after, 2 * ping + short), "{after}");
}

#[test]
fn server_that_is_sending_a_large_reply_is_not_silent() {
    let mut session = session(Limits::default());
    session.set_attentive(true);
    session.connected(at(0), at(0), granted()).unwrap();
    let taken = session.request(at(0), Op::GetData, None, |_| {});
    for ms in (0..60_000).step_by(1_000) {
        session.tick(at(ms)).unwrap();
        session.heard_part(at(ms));
    }
    drop(taken);
    given_up(&mut session, 60_000);
}
