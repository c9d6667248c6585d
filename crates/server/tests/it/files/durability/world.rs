//! Clients of successive servers on the same data, and what they know.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bellwether_server::StartError;
use bellwether_testkit::{Create, Model, RawClient, Request};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::comparison::{compare_trees, last_zxid, timeless};
use super::disks::Disks;

/// What clients know, across servers on the same data.
pub(super) struct World {
    /// Everything acknowledged or observed.
    pub(super) model: Model,
    /// Requests without a reply, in order: a prefix of them may have taken effect.
    pub(super) unanswered: Vec<Write>,
    sessions: Vec<RawClient>,
    ended: Vec<RawClient>,
    /// Whether the last server started serving, and why it stopped.
    pub(super) started: bool,
    pub(super) failure: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Write {
    Open,
    Request(i64, Request),
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            model: Model::new(),
            unanswered: Vec::new(),
            sessions: Vec::new(),
            ended: Vec::new(),
            started: false,
            failure: None,
        }
    }

    /// Starts a server, compares its data with what must be there, and writes until `writes` are done or it stops. Returns true if all were
    /// done.
    pub(super) async fn live_on(
        &mut self,
        disks: &Disks,
        rng: &mut StdRng,
        writes: usize,
    ) -> Result<bool> {
        self.started = false;
        let server = match disks.start().await {
            Ok(server) => server,
            Err(error) => {
                return match &error {
                    StartError::Data(bellwether_server::RecoveryError::Disk(_)) => Ok(false),
                    _ => Err(error).context("it did not start"),
                };
            }
        };
        self.started = true;
        let address = server.addresses()[0];
        self.compare(address).await?;
        let completed = self.write(address, rng, writes).await?;
        if !completed {
            let failure = within_limit(server.failed()).await?;
            let source = std::error::Error::source(&failure).context("no reason")?;
            self.failure = Some(source.to_string());
            for session in &mut self.sessions {
                session.closed().await?;
            }
        }
        server.shutdown().await;
        Ok(completed)
    }

    /// Finds out how many unanswered requests took effect, and compares everything else.
    async fn compare(&mut self, address: SocketAddr) -> Result<()> {
        let zxid = last_zxid(address).await?;
        let done = usize::try_from(zxid - self.model.zxid())
            .with_context(|| format!("{:#x} was acknowledged, not {zxid:#x}", self.model.zxid()))?;
        let unanswered = std::mem::take(&mut self.unanswered);
        ensure!(
            done <= unanswered.len(),
            "more was done than was asked for: {zxid:#x}"
        );
        for write in &unanswered[..done] {
            match write {
                Write::Open => self.model.open_session(),
                Write::Request(session, request) => {
                    let _ = self.model.apply(*session, 0, request);
                    if *request == Request::CloseSession {
                        self.end(*session);
                    }
                }
            }
        }
        for client in &self.ended {
            let again = client.reattach(address).await?;
            ensure!(again.is_refused(), "a session is back that was closed");
        }
        for client in &mut self.sessions {
            let again = client.reattach(address).await?;
            ensure!(
                !again.is_refused(),
                "session {:#x} is gone",
                client.session_id()
            );
            *client = again;
        }
        if let Some(client) = self.sessions.first_mut() {
            compare_trees(client, &mut self.model).await?;
        }
        Ok(())
    }

    fn end(&mut self, session: i64) {
        let ended = self
            .sessions
            .extract_if(.., |client| client.session_id() == session);
        self.ended.extend(ended);
    }

    /// Returns false if the server stops before everything is written.
    async fn write(
        &mut self,
        address: SocketAddr,
        rng: &mut StdRng,
        writes: usize,
    ) -> Result<bool> {
        let mut written = 0;
        while written < writes {
            if self.sessions.is_empty() || self.sessions.len() < 4 && rng.random_bool(0.1) {
                written += 1;
                let Ok(client) = RawClient::connect(address).await else {
                    self.unanswered.push(Write::Open);
                    return Ok(false);
                };
                self.model.open_session();
                self.sessions.push(client);
                continue;
            }
            let mut requests: Vec<_> = (0..rng.random_range(1..7))
                .map(|_| any_write(rng))
                .collect();
            if rng.random_bool(0.03) {
                requests.push(Request::CloseSession);
            }
            written += requests.len();
            let session = rng.random_range(0..self.sessions.len());
            if !self.write_all(session, requests).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn write_all(&mut self, session: usize, requests: Vec<Request>) -> Result<bool> {
        let client = &mut self.sessions[session];
        let id = client.session_id();
        let sent = client.send_all(&requests).await.is_ok();
        let mut answered = 0;
        while sent && answered < requests.len() {
            let Ok(reply) = client.receive_reply().await else {
                break;
            };
            let request = &requests[answered];
            let expected = self.model.apply(id, 0, request).map(timeless);
            let outcome = reply.outcome.map(timeless);
            ensure!(
                outcome == expected,
                "{request:?}: {outcome:?}, not {expected:?}"
            );
            ensure!(
                reply.zxid == self.model.zxid(),
                "{request:?}: {:#x}, not {:#x}",
                reply.zxid,
                self.model.zxid()
            );
            answered += 1;
        }
        if answered == requests.len() {
            if requests.last() == Some(&Request::CloseSession) {
                self.end(id);
            }
            return Ok(true);
        }
        let rest = requests.into_iter().skip(answered);
        self.unanswered
            .extend(rest.map(|request| Write::Request(id, request)));
        Ok(false)
    }
}

/// A random write: few paths, so that it often fails, and sizes around those of sectors.
fn any_write(rng: &mut StdRng) -> Request {
    if rng.random_bool(0.2) {
        let count = rng.random_range(2..5);
        return Request::Multi((0..count).map(|_| any_simple_write(rng)).collect());
    }
    any_simple_write(rng)
}

fn any_simple_write(rng: &mut StdRng) -> Request {
    let mut path = format!("/{}", rng.random_range(0..4));
    if rng.random_bool(0.5) {
        path.push_str(&format!("/{}", rng.random_range(0..3)));
    }
    let bytes = [0, 5, 200, 450, 600, 1500][rng.random_range(0..6)];
    // Zeros too: a sector of zeros looks like one that was never written.
    let data = vec![rng.random_range(0..3); bytes];
    match rng.random_range(0..10) {
        0..4 => Request::create(path, data),
        4 => Request::create_ephemeral(path),
        5 => Request::create_mode(path, data, Create::PERSISTENT_SEQUENTIAL),
        6..8 => Request::set_data(path, data),
        8 => Request::Check { path, version: 0 },
        _ => Request::delete(path),
    }
}

async fn within_limit<T>(future: impl Future<Output = T>) -> Result<T> {
    let limit = Duration::from_secs(10);
    Ok(tokio::time::timeout(limit, future).await?)
}
