//! Records what clients send, and what becomes of it, in words that are the same in every run.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use bellwether_client::{Dial, Dialing, Endpoint, Stream};
use bellwether_wire::code::ErrorCode;
use bellwether_wire::connect::ConnectReply;
use bellwether_wire::event::{self, EVENT_XID};
use bellwether_wire::jute::{Malformed, Reader};
use bellwether_wire::multi::{Ops, ReadOp, ResultHeader, WriteOp};
use bellwether_wire::op::Op;
use bellwether_wire::reply::ReplyHeader;
use bellwether_wire::request::{
    Create, PathNumber, PathVersion, PathWatch, RequestHeader, SetData,
};
use bellwether_wire::stat::Stat;
use bellwether_wire::{acl, frame};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::names::Names;

/// The recording of one scenario.
#[derive(Clone, Default)]
pub(super) struct Tape(Arc<Mutex<Recording>>);

#[derive(Default)]
struct Recording {
    steps: Vec<TapeStep>,
    is_on: bool,
    names: Names,
    conns: Vec<TapedConn>,
}

/// A part of a scenario: one verb.
#[derive(Clone)]
pub(super) struct TapeStep {
    pub(super) title: String,
    lines: Vec<Line>,
    /// How many lines there were when the verb returned.
    returned: Option<usize>,
}

/// A request or an event.
#[derive(Clone)]
struct Line {
    /// The client, and the number of its packet in this step. Events have no number.
    who: char,
    packet: Option<usize>,
    text: String,
    /// What becomes of a request.
    outcome: Option<String>,
    /// What is in it: the data of a node, or the parts of a multi.
    details: Vec<String>,
}

struct TapedConn {
    who: char,
    sent: BytesMut,
    received: BytesMut,
    has_asked: bool,
    is_greeted: bool,
    /// Where the handshake is on the tape.
    handshake: Option<Place>,
    /// Requests without an answer: xid, operation, and where they are on the tape.
    pending: VecDeque<(i32, Op, Option<Place>)>,
    /// The last packet, as long as nothing has arrived since: its step and its number.
    packet: Option<(usize, usize)>,
}

/// The place of a line: its step, and its number there.
type Place = (usize, usize);

/// A network whose connections are recorded.
#[derive(Debug, Clone)]
pub(super) struct Tap<D> {
    pub(super) dial: D,
    pub(super) tape: Tape,
    /// The client, by a letter.
    pub(super) who: char,
}

impl<D: Dial> Dial for Tap<D> {
    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        let (tape, who) = (self.tape.clone(), self.who);
        let dialing = self.dial.dial(endpoint);
        Box::pin(async move {
            let stream = dialing.await?;
            let conn = tape.connect(who);
            Ok(Box::new(Tapped { stream, tape, conn }) as Box<dyn Stream>)
        })
    }
}

struct Tapped {
    stream: Box<dyn Stream>,
    tape: Tape,
    conn: usize,
}

impl AsyncRead for Tapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.tape.lock().receive(self.conn, &buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.tape.lock().send(self.conn, &buf[..bytes]);
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tape")
    }
}

impl Tape {
    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap()
    }

    /// Begins a step. Between steps, nothing is recorded.
    pub(super) fn begin(&self, title: &str) {
        let mut it = self.lock();
        it.is_on = true;
        it.names.begin();
        it.steps.push(TapeStep {
            title: title.to_owned(),
            lines: Vec::new(),
            returned: None,
        });
    }

    /// The verb of the present step has returned.
    pub(super) fn returned(&self) {
        if let Some(step) = self.lock().steps.last_mut() {
            step.returned = Some(step.lines.len());
        }
    }

    /// Ends a step.
    pub(super) fn end(&self) {
        self.lock().is_on = false;
    }

    /// The steps so far.
    pub(super) fn take(&self) -> Vec<TapeStep> {
        std::mem::take(&mut self.lock().steps)
    }

    fn connect(&self, who: char) -> usize {
        let mut it = self.lock();
        it.conns.push(TapedConn {
            who,
            sent: BytesMut::new(),
            received: BytesMut::new(),
            has_asked: false,
            is_greeted: false,
            handshake: None,
            pending: VecDeque::new(),
            packet: None,
        });
        it.conns.len() - 1
    }
}

impl Recording {
    fn send(&mut self, conn: usize, bytes: &[u8]) {
        self.conns[conn].sent.extend_from_slice(bytes);
        while let Some(frame) = frame::take(&mut self.conns[conn].sent, usize::MAX).unwrap() {
            if std::mem::replace(&mut self.conns[conn].has_asked, true) {
                self.request(conn, &frame).unwrap();
            } else {
                let place = self.add_request(conn, "connect".to_owned(), Vec::new());
                self.conns[conn].handshake = place;
            }
        }
    }

    fn receive(&mut self, conn: usize, bytes: &[u8]) {
        self.conns[conn].received.extend_from_slice(bytes);
        while let Some(frame) = frame::take(&mut self.conns[conn].received, usize::MAX).unwrap() {
            if std::mem::replace(&mut self.conns[conn].is_greeted, true) {
                self.answer(conn, &frame).unwrap();
            } else {
                let granted = ConnectReply::decode(&frame).unwrap();
                let who = self.conns[conn].who;
                self.names.session(granted.session_id, who);
                self.conns[conn].packet = None;
                let place = self.conns[conn].handshake;
                self.set_outcome(place, "a session".to_owned());
            }
        }
    }

    /// Writes a request down, unless the tape stands still. Returns its place.
    fn add_request(&mut self, conn: usize, text: String, details: Vec<String>) -> Option<Place> {
        let conn = &mut self.conns[conn];
        let at = self.steps.len().checked_sub(1).filter(|_| self.is_on)?;
        let lines = &mut self.steps[at].lines;
        let packet = match conn.packet {
            Some((step, packet)) if step == at => packet,
            _ => {
                let own = lines.iter().filter(|line| line.who == conn.who);
                own.filter_map(|line| line.packet).max().unwrap_or(0) + 1
            }
        };
        conn.packet = Some((at, packet));
        lines.push(Line {
            who: conn.who,
            packet: Some(packet),
            text,
            outcome: None,
            details,
        });
        Some((at, lines.len() - 1))
    }

    /// Notes what became of a request that is on the tape.
    fn set_outcome(&mut self, place: Option<Place>, outcome: String) {
        if let Some((step, line)) = place {
            self.steps[step].lines[line].outcome = Some(outcome);
        }
    }

    fn request(&mut self, conn: usize, frame: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(frame);
        let RequestHeader { xid, op } = RequestHeader::decode(&mut reader)?;
        let op = Op::from_number(op).ok_or(Malformed)?;
        if op == Op::Ping {
            return Ok(());
        }
        let (text, details) = describe(&mut self.names, op, &mut reader)?;
        let place = self.add_request(conn, text, details);
        self.conns[conn].pending.push_back((xid, op, place));
        Ok(())
    }

    fn answer(&mut self, conn: usize, frame: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader)?;
        if header.xid == EVENT_XID {
            let (kind, path) = event::decode(&mut reader)?;
            let it = &mut self.conns[conn];
            it.packet = None;
            let text = format!("event: {kind:?} {}", self.names.of(&path));
            if let Some(step) = self.steps.last_mut().filter(|_| self.is_on) {
                step.lines.push(Line {
                    who: it.who,
                    packet: None,
                    text,
                    outcome: None,
                    details: Vec::new(),
                });
            }
            return Ok(());
        }
        let pending = &mut self.conns[conn].pending;
        let Some(place) = pending.iter().position(|sent| sent.0 == header.xid) else {
            // A heartbeat.
            return Ok(());
        };
        let (_, op, place) = pending.remove(place).ok_or(Malformed)?;
        self.conns[conn].packet = None;
        let outcome = match header.err {
            0 => outcome(&mut self.names, op, &mut reader)?,
            err => name_of(err),
        };
        self.set_outcome(place, outcome);
        Ok(())
    }
}

impl TapeStep {
    /// What is sent in all, then requests and events, one a line.
    pub(super) fn text(&self) -> String {
        let mut text = self.costs() + "\n";
        if !self.lines.is_empty() {
            text += "\n";
        }
        for (number, line) in self.lines.iter().enumerate() {
            if self.returned == Some(number) {
                text += "     it returns\n";
            }
            let packet = line.packet.map(|packet| packet.to_string());
            let packet = packet.unwrap_or_default();
            let arrow = match &line.outcome {
                Some(outcome) => format!(" -> {outcome}"),
                None => String::new(),
            };
            writeln!(text, "{}{packet:<3} {}{arrow}", line.who, line.text).unwrap();
            for detail in &line.details {
                writeln!(text, "         {detail}").unwrap();
            }
        }
        text
    }

    /// How many requests are sent in how many packets, by each client, until the verb returns.
    fn costs(&self) -> String {
        let lines = &self.lines[..self.returned.unwrap_or(self.lines.len())];
        let mut clients: Vec<char> = lines.iter().map(|line| line.who).collect();
        clients.sort_unstable();
        clients.dedup();
        let counted = clients.iter().filter_map(|who| {
            let own = lines.iter().filter(|line| line.who == *who);
            let packets: Vec<usize> = own.filter_map(|line| line.packet).collect();
            let packed = packets.iter().max()?;
            Some(format!(
                "{who} sends {} in {}",
                counted(packets.len(), "request"),
                counted(*packed, "packet")
            ))
        });
        let counted: Vec<String> = counted.collect();
        match counted.is_empty() {
            true => "nothing is sent".to_owned(),
            false => counted.join(", "),
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn name_of(err: i32) -> String {
    match ErrorCode::from_number(err) {
        Some(code) => format!("{code:?}"),
        None => format!("error {err}"),
    }
}

/// The name of an operation, as in the documentation of ZooKeeper.
fn verb(op: Op) -> String {
    let name = format!("{op:?}");
    name[..1].to_lowercase() + &name[1..]
}

/// A request in words, and what is in it.
fn describe(
    names: &mut Names,
    op: Op,
    reader: &mut Reader<'_>,
) -> Result<(String, Vec<String>), Malformed> {
    let name = verb(op);
    let details = Vec::new();
    Ok(match op {
        Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
            create(names, op, &Create::decode(op, reader)?)
        }
        Op::Delete | Op::Check => (versioned(names, op, &PathVersion::decode(reader)?), details),
        Op::SetData => set(names, &SetData::decode(reader)?),
        Op::Exists | Op::GetData | Op::GetChildren | Op::GetChildren2 => {
            let PathWatch { path, watch } = PathWatch::decode(reader)?;
            let watch = if watch { "  watch" } else { "" };
            (format!("{name} {}{watch}", names.path(&path)), details)
        }
        Op::AddWatch | Op::RemoveWatches | Op::CheckWatches => {
            let PathNumber { path, number } = PathNumber::decode(reader)?;
            let kind = match (op, number) {
                (Op::AddWatch, 0) => "persistent",
                (Op::AddWatch, _) => "recursive",
                (_, 1) => "child",
                (_, 2) => "data",
                _ => "any",
            };
            (format!("{name} {}  {kind}", names.path(&path)), details)
        }
        Op::Multi | Op::MultiRead => (name, parts(names, &Ops::decode(reader)?)),
        Op::Sync | Op::GetAcl | Op::GetEphemerals | Op::GetAllChildrenNumber => (
            format!("{name} {}", names.path(&reader.ustring()?)),
            details,
        ),
        _ => (name, details),
    })
}

fn create(names: &mut Names, op: Op, create: &Create<'_>) -> (String, Vec<String>) {
    // A sequential node gets its number from the server.
    const MODES: [&str; 7] = [
        "",
        "  ephemeral",
        "  sequential",
        "  ephemeral sequential",
        "  container",
        "  ttl",
        "  ttl sequential",
    ];
    let mode = usize::try_from(create.flags).ok();
    let mode = mode
        .and_then(|mode| MODES.get(mode).copied())
        .unwrap_or("  ?");
    let mut list = create.acl.iter().flatten();
    let is_open = list.all(|acl| acl.perms == acl::ALL);
    let access = if is_open { "" } else { "  restricted" };
    let mode = if op == Op::CreateContainer { "" } else { mode };
    let text = format!("{} {}{mode}{access}", verb(op), names.path(&create.path));
    (text, names.data(create.data))
}

fn versioned(names: &mut Names, op: Op, body: &PathVersion<'_>) -> String {
    let version = version(body.version);
    format!("{} {}{version}", verb(op), names.path(&body.path))
}

fn set(names: &mut Names, body: &SetData<'_>) -> (String, Vec<String>) {
    let text = format!(
        "setData {}{}",
        names.path(&body.path),
        version(body.version)
    );
    (text, names.data(body.data))
}

fn version(version: i32) -> String {
    match version {
        -1 => String::new(),
        version => format!("  version {version}"),
    }
}

fn parts(names: &mut Names, ops: &Ops<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |(text, data): (String, Vec<String>)| {
        lines.push(text);
        lines.extend(data.into_iter().map(|data| format!("    {data}")));
    };
    match ops {
        Ops::Empty => {}
        Ops::Writes(writes) => {
            for write in writes {
                add(match write {
                    WriteOp::Create(op, body) => create(names, *op, body),
                    WriteOp::Delete(body) => (versioned(names, Op::Delete, body), Vec::new()),
                    WriteOp::Check(body) => (versioned(names, Op::Check, body), Vec::new()),
                    WriteOp::SetData(body) => set(names, body),
                });
            }
        }
        Ops::Reads(reads) => {
            for read in reads {
                let (name, read) = match read {
                    ReadOp::GetData(read) => ("getData", read),
                    ReadOp::GetChildren(read) => ("getChildren", read),
                };
                add((format!("{name} {}", names.path(&read.path)), Vec::new()));
            }
        }
    }
    lines
}

/// What a successful answer says.
fn outcome(names: &mut Names, op: Op, reader: &mut Reader<'_>) -> Result<String, Malformed> {
    Ok(match op {
        Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
            let path = reader.string()?;
            format!("created {}", names.of(last(&path)))
        }
        Op::SetData | Op::Exists => seen(reader)?,
        Op::GetData => {
            reader.buffer()?;
            seen(reader)?
        }
        Op::GetChildren | Op::GetChildren2 => children(names, reader)?,
        Op::GetEphemerals => format!("{} of them", reader.strings()?.len()),
        Op::Multi | Op::MultiRead => results(names, op, reader)?,
        _ => "ok".to_owned(),
    })
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn seen(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    Ok(format!("version {}", Stat::decode(reader)?.version))
}

fn children(names: &mut Names, reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let mut children = reader.strings()?;
    children.sort_unstable();
    let children: Vec<String> = children.iter().map(|name| names.of(name)).collect();
    Ok(format!("[{}]", children.join(", ")))
}

/// The results of a multi: of one that failed, the failure; of reads, each result.
fn results(names: &mut Names, op: Op, reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let mut results = Vec::new();
    let mut failed = None;
    loop {
        let result = match ResultHeader::decode(reader)? {
            ResultHeader::End => break,
            ResultHeader::Failed(0) => "-".to_owned(),
            ResultHeader::Failed(err) => {
                let name = name_of(err);
                failed.get_or_insert((results.len() + 1, name.clone()));
                name
            }
            ResultHeader::Done(Op::Create2) => {
                let created = outcome(names, Op::Create2, reader)?;
                Stat::decode(reader)?;
                created
            }
            ResultHeader::Done(Op::Delete | Op::Check) => "ok".to_owned(),
            ResultHeader::Done(op) => outcome(names, op, reader)?,
        };
        results.push(result);
    }
    Ok(match (op, failed) {
        (Op::MultiRead, _) => results.join("; "),
        (_, None) => "ok".to_owned(),
        (_, Some((part, name))) => format!("{name} at {part}"),
    })
}
