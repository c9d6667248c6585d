//! One of the two servers, and what its clients see.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_testkit::{Body, Frame, MultiResult, RawClient, Reply, Request, WatchEvent};
use bellwether_wire::acl::Acl;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::op::Op;
use bellwether_wire::stat::Stat;
use bytes::Bytes;

use super::plan::{Plan, Step};
use crate::apache::vocabulary::SUPER;

/// The digest of the superuser, as a server setting.
pub(super) const SUPER_DIGEST: &str = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";

/// Far longer than any reply takes, and shorter than the timeout of a silent session.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Nodes that cannot be deleted.
const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// A server with the clients of the current plan.
#[derive(Debug)]
pub(super) struct Side {
    address: SocketAddr,
    janitor: RawClient,
    clients: Vec<RawClient>,
    /// All sessions of the plan, to identify owners by their index.
    sessions: Vec<i64>,
    /// Zxid at the start of the plan.
    base_zxid: i64,
}

/// What one session saw during one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    /// Number of the step, and its session.
    pub(super) label: String,
    pub(super) seen: Vec<Seen>,
}

/// A frame from the server, without what differs between servers: times are zero and owners are numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    Reply {
        xid: i32,
        zxid: i64,
        outcome: Result<Body, ErrorCode>,
        /// The body after an error; only a few errors have one.
        behind_error: Option<Body>,
    },
    Event(WatchEvent),
    Closed,
    /// Whether the session continues.
    Reattached(bool),
    /// No reply in time, or an impossible one. Always wrong, even if both servers do it.
    Failed(String),
}

impl Side {
    pub(super) async fn new(address: SocketAddr) -> Result<Self> {
        let mut janitor = RawClient::connect(address).await?;
        janitor.call(Request::auth_digest(SUPER)).await?.ok()?;
        Ok(Self {
            address,
            janitor,
            clients: Vec::new(),
            sessions: Vec::new(),
            base_zxid: 0,
        })
    }

    /// The zxid of the last write.
    pub(super) async fn zxid(&mut self) -> Result<i64> {
        Ok(self.janitor.call(Request::Ping).await?.zxid)
    }

    /// Uses up zxids with writes that fail.
    pub(super) async fn burn_zxids(&mut self, count: usize) -> Result<()> {
        let failing = vec![Request::delete("/nowhere/at all"); count];
        self.ask_janitor(&failing).await.map(drop)
    }

    /// Runs a plan on a clean tree, and leaves a clean tree.
    pub(super) async fn run(&mut self, plan: &Plan) -> Result<Vec<Moment>> {
        self.base_zxid = self.zxid().await?;
        self.sessions.clear();
        let mut moments = Vec::new();
        if let Err(error) = self.play(plan, &mut moments).await {
            moments.push(Moment {
                label: "broken off".into(),
                seen: vec![Seen::Failed(format!("{error:#}"))],
            });
        }
        // Sessions left open would expire some time and take a zxid then.
        for client in std::mem::take(&mut self.clients) {
            let mut client = client.reattach(self.address).await?;
            if !client.is_refused() {
                client.call(Request::CloseSession).await?;
            }
        }
        self.clean_up().await.context("cleaning up")?;
        Ok(moments)
    }

    async fn play(&mut self, plan: &Plan, moments: &mut Vec<Moment>) -> Result<()> {
        for _ in 0..plan.sessions {
            let client = self.open().await?;
            self.clients.push(client);
        }
        for (index, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Send { who, requests } => {
                    if requests.iter().any(may_close_unanswered) {
                        let seen = self.send(*who, &[Request::Ping]).await?;
                        moments.push(Moment::new(index, *who, seen));
                    }
                    let seen = self.send(*who, requests).await?;
                    moments.push(Moment::new(index, *who, seen));
                }
                Step::Reattach { who } => {
                    let seen = vec![self.reattach(*who).await?];
                    moments.push(Moment::new(index, *who, seen));
                }
                Step::Reopen { who } => {
                    self.close(index, *who, moments).await?;
                    self.clients[*who] = self.open().await?;
                }
            }
        }
        while !self.clients.is_empty() {
            let who = self.clients.len() - 1;
            self.close(plan.steps.len(), who, moments).await?;
            self.clients.pop();
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<RawClient> {
        let mut client = RawClient::connect(self.address).await?;
        client.set_deadline(ANSWER_MAX);
        self.sessions.push(client.session_id());
        Ok(client)
    }

    /// Sends requests and waits for their replies, or for the end of the connection.
    async fn send(&mut self, who: usize, requests: &[Request]) -> Result<Vec<Seen>> {
        let requests: Vec<_> = requests.iter().map(|r| self.with_zxid(r)).collect();
        self.clients[who].send_all(&requests).await?;
        let mut seen = Vec::new();
        let mut unanswered = requests.len();
        let mut closing = false;
        while unanswered > 0 || closing {
            let frame = self.clients[who].receive_or_close().await?;
            let Some(frame) = frame else {
                seen.push(Seen::Closed);
                seen.push(self.reattach(who).await?);
                break;
            };
            if let Frame::Reply(reply) = &frame {
                let request = &requests[requests.len() - unanswered];
                unanswered -= 1;
                // The zxid marks an unknown operation: other operations may be unimplemented, too.
                closing = reply.outcome == Err(ErrorCode::AuthFailed) || reply.zxid == -1;
                seen.push(self.see_reply(reply.clone(), Some(request)));
            } else {
                seen.push(self.see(frame));
            }
        }
        Ok(seen)
    }

    async fn reattach(&mut self, who: usize) -> Result<Seen> {
        let mut client = self.clients[who].reattach(self.address).await?;
        client.set_deadline(ANSWER_MAX);
        let agreed = !client.is_refused();
        self.clients[who] = if agreed { client } else { self.open().await? };
        Ok(Seen::Reattached(agreed))
    }

    /// Closes a session. Its ephemeral nodes are deleted in any order, so their events are sorted: earlier events are received before,
    /// later ones separately.
    async fn close(&mut self, index: usize, who: usize, moments: &mut Vec<Moment>) -> Result<()> {
        self.settle(index, None, moments).await?;
        let client = &mut self.clients[who];
        client.send(&Request::CloseSession).await?;
        let mut seen = Vec::new();
        while let Some(frame) = self.clients[who].receive_or_close().await? {
            seen.push(self.see(frame));
        }
        seen.sort_by_key(Seen::sorting_key);
        moments.push(Moment::new(index, who, seen));
        let settled = moments.len();
        self.settle(index, Some(who), moments).await?;
        for moment in &mut moments[settled..] {
            moment.seen.sort_by_key(Seen::sorting_key);
        }
        Ok(())
    }

    /// Waits until all sessions except a closed one have received everything.
    async fn settle(
        &mut self,
        index: usize,
        closed: Option<usize>,
        moments: &mut Vec<Moment>,
    ) -> Result<()> {
        for who in (0..self.clients.len()).filter(|who| Some(*who) != closed) {
            let seen = self.send(who, &[Request::Ping]).await?;
            moments.push(Moment::new(index, who, seen));
        }
        Ok(())
    }

    fn with_zxid(&self, request: &Request) -> Request {
        let mut request = request.clone();
        if let Request::SetWatches(lists) | Request::SetWatches2(lists) = &mut request {
            lists.relative_zxid += self.base_zxid;
        }
        request
    }

    fn see(&self, frame: Frame) -> Seen {
        match frame {
            Frame::Event(event) => Seen::Event(event),
            Frame::Reply(reply) => self.see_reply(reply, None),
        }
    }

    fn see_reply(&self, reply: Reply, request: Option<&Request>) -> Seen {
        let op = request.and_then(Request::op);
        let decode = |bytes: Bytes| {
            let body = op.and_then(|op| Body::decode(op, &bytes).ok());
            body.unwrap_or(Body::Raw(bytes))
        };
        let outcome = reply.outcome.map(|body| match body {
            // Replies to raw requests mostly have the usual form.
            Body::Raw(bytes) => decode(bytes),
            body => body,
        });
        let behind_error =
            (outcome.is_err() && !reply.bytes.is_empty()).then(|| decode(reply.bytes));
        let comparable = |body: Body| self.with_owners(body.without_times());
        Seen::Reply {
            xid: reply.xid,
            zxid: reply.zxid,
            outcome: outcome.map(comparable),
            behind_error: behind_error.map(comparable),
        }
    }

    fn with_owners(&self, mut body: Body) -> Body {
        match &mut body {
            Body::Stat(stat)
            | Body::PathStat(_, stat)
            | Body::DataStat(_, stat)
            | Body::ChildrenStat(_, stat)
            | Body::AclStat(_, stat) => self.number_owner(stat),
            Body::Multi(results) => {
                for result in results {
                    if let MultiResult::Done(_, body) = result {
                        *body = self.with_owners(std::mem::replace(body, Body::None));
                    }
                }
            }
            _ => {}
        }
        body
    }

    fn number_owner(&self, stat: &mut Stat) {
        let place = self
            .sessions
            .iter()
            .position(|id| *id == stat.ephemeral_owner);
        if let Some(place) = place {
            stat.ephemeral_owner = i64::try_from(place).unwrap() + 1;
        }
    }

    /// Deletes everything, and opens sessions that were closed.
    async fn clean_up(&mut self) -> Result<()> {
        let mut found = Vec::new();
        let mut level = vec![String::from("/")];
        while !level.is_empty() {
            let requests: Vec<_> = level.iter().map(Request::get_children).collect();
            let mut below = Vec::new();
            for (path, reply) in level.iter().zip(self.ask_janitor(&requests).await?) {
                let Body::Children(names) = reply.ok()? else {
                    unreachable!("getChildren answers with children");
                };
                let prefix = path.trim_end_matches('/');
                below.extend(names.iter().map(|name| format!("{prefix}/{name}")));
            }
            found.append(&mut level);
            level = below;
        }
        let (reserved, mut others): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|path| RESERVED.contains(&&**path));
        others.reverse();
        let open = reserved.iter().filter(|path| !path.ends_with("config"));
        let requests: Vec<_> = others
            .iter()
            .map(Request::delete)
            .chain(open.map(|path| Request::SetAcl {
                path: path.clone(),
                acl: vec![Acl::open()],
                version: -1,
            }))
            .collect();
        for (request, reply) in requests.iter().zip(self.ask_janitor(&requests).await?) {
            reply.ok().with_context(|| format!("{request:?}"))?;
        }
        Ok(())
    }

    async fn ask_janitor(&mut self, requests: &[Request]) -> Result<Vec<Reply>> {
        self.janitor.send_all(requests).await?;
        let mut replies = Vec::new();
        for _ in requests {
            replies.push(self.janitor.receive_reply().await?);
        }
        Ok(replies)
    }
}

/// Whether the server may close the connection instead of replying. Neither server then first writes what waits for the client (Apache:
/// `NIOServerCnxn.doIO` reads before it writes, and `close` drops what is queued). So whether an event of a moment ago arrives before the
/// close is a race: it must be received before.
fn may_close_unanswered(request: &Request) -> bool {
    let op = Op::from_number(request.number());
    matches!(op, Some(Op::Auth | Op::Sasl))
}

impl Moment {
    fn new(index: usize, who: usize, seen: Vec<Seen>) -> Self {
        Self {
            label: format!("step {index}, session {who}"),
            seen,
        }
    }
}

impl Seen {
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Sorts events by content, before everything else.
    fn sorting_key(&self) -> (bool, String, i32) {
        match self {
            Self::Event(event) => (false, event.path.clone(), event.kind as i32),
            _ => (true, String::new(), 0),
        }
    }
}
