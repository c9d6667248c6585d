//! How a session gets a connection: a stream to one of the servers, and the handshake on it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bellwether_wire::connect::ConnectReply;
use bellwether_wire::frame;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};
#[cfg(feature = "sasl")]
use tracing::error;
use tracing::{debug, info};

use crate::clock::Moment;
use crate::core::hosts::Hosts;
use crate::core::session::{Broken, put_handshake};
#[cfg(feature = "sasl")]
use crate::driver::authenticate;
use crate::driver::carry::carry;
use crate::driver::dials::{Dials, Opened, STAGGER, open_first};
use crate::driver::shared::Shared;
use crate::driver::stream::{Dial, Stream};
#[cfg(feature = "tls")]
use crate::driver::tls::TlsLayer;
use crate::environment;
use crate::error::{Attempts, ConnectError, SessionEnd};
use crate::log;
use crate::options::address::Endpoint;

/// The longest reply to a handshake.
const HANDSHAKE_BYTES_MAX: usize = 1024;
/// The minimum time for an attempt with one server, also for short sessions.
const ATTEMPT_MIN: Duration = Duration::from_millis(500);
/// The shortest and the longest interval at which a session without a connection checks its clock.
const TURN_MIN: Duration = Duration::from_millis(10);
const TURN_MAX: Duration = Duration::from_secs(3600);

/// The first connection, for which a caller waits.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) report: oneshot::Sender<Result<(), ConnectError>>,
    pub(crate) limit: Duration,
    /// Give up after one attempt at each server.
    pub(crate) fail_fast: bool,
}

impl Opening {
    /// The time left until the caller's limit.
    fn left(&self, began: Moment) -> Duration {
        self.limit.saturating_sub(Moment::now() - began)
    }
}

/// Carries one session from its first connection to its end.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dial: Arc<dyn Dial>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<TlsLayer>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) allow_read_only: bool,
    /// Authenticated on each connection.
    #[cfg(feature = "sasl")]
    pub(crate) sasl: Option<crate::sasl::DigestMd5>,
    pub(crate) reply_bytes_max: usize,
}

/// An established connection, and the bytes that arrived after its handshake.
type Established = (Box<dyn Stream>, BytesMut);

impl Driver {
    /// Runs until the session has ended.
    pub(crate) async fn run(self, opening: Opening) {
        // If the runtime drops this task, this guard tells the callers.
        let _end = EndOnDrop(Arc::clone(&self.shared));
        let mut random = environment::rng();
        let mut hosts = Hosts::new(self.endpoints.clone(), &mut random);
        let mut opening = Some((opening, Moment::now(), Attempts::default()));
        let mut dials = Dials::new();
        let mut last_address = None;
        loop {
            if self.give_up(&mut opening, 0) {
                return;
            }
            let limit = self.attempt_limit();
            if let Some(endpoint) = hosts.next() {
                dials.begin(endpoint, |endpoint| {
                    Box::pin(self.open(endpoint.clone(), limit, last_address.clone()))
                });
            }
            let is_last_round = matches!(&opening, Some((first, ..)) if first.fail_fast);
            let wait = match hosts.has_next() {
                true => STAGGER,
                false if is_last_round => Duration::MAX,
                // After that, only the look-up of a name can be under way.
                false => limit + STAGGER,
            };
            let first = timeout(within(opening.as_ref(), wait), dials.next());
            let (endpoint, opened) = match self.keeping_time(first).await {
                Ok(Some(first)) => first,
                // Another server beside those that are late.
                Err(_) if hosts.has_next() => continue,
                Ok(None) | Err(_) => {
                    for late in dials.endpoints() {
                        if !is_known(opening.as_ref(), late) {
                            note(&mut opening, late, "timed out");
                        }
                    }
                    let pause = hosts.failed(&mut random);
                    if self.give_up(&mut opening, hosts.failed_rounds()) {
                        return;
                    }
                    self.pause(within(opening.as_ref(), pause)).await;
                    continue;
                }
            };
            let left = within(opening.as_ref(), limit);
            let attempt = self.attempt(&endpoint, opened, left, &mut last_address);
            let failure = match self.keeping_time(attempt).await {
                Ok((stream, input)) => {
                    dials.clear();
                    if let Some((opening, ..)) = opening.take() {
                        // A caller that is gone has closed the session.
                        let _ = opening.report.send(Ok(()));
                    }
                    self.connected(&endpoint, stream, input).await;
                    if self.shared.state().is_ended() {
                        return;
                    }
                    // A server that accepts sessions and drops them counts as one that refuses.
                    if self.shared.look(|session| session.has_answered()) {
                        hosts.succeeded(&mut random);
                    }
                    self.pause(Hosts::after_loss(&mut random)).await;
                    continue;
                }
                Err(failure) => failure,
            };
            let reason = reason(&failure);
            let (server, error) = (endpoint.to_string(), reason.clone());
            log::emit(move || debug!(endpoint = server, error, "no connection"));
            // An attempt that the caller's limit cut short says less than an earlier complete one.
            let is_cut_short = failure.kind() == io::ErrorKind::TimedOut && left < limit;
            if !(is_cut_short && is_known(opening.as_ref(), &endpoint)) {
                note(&mut opening, &endpoint, &reason);
            }
            if self.shared.state().is_ended() {
                self.report_end(opening, reason);
                return;
            }
        }
    }

    /// Waits between two rounds, or until the session ends.
    async fn pause(&self, pause: Duration) {
        let mut states = self.shared.states();
        let ended = states.wait_for(|state| state.is_ended());
        let _ = self.keeping_time(timeout(pause, ended)).await;
    }

    /// Waits for `future`, and meanwhile fails requests that have waited for a connection too long.
    async fn keeping_time<T>(&self, future: impl Future<Output = T>) -> T {
        tokio::pin!(future);
        let limit = self.shared.look(|session| session.request_timeout());
        let Some(limit) = limit else {
            // Thousands of sessions without a connection should not wake up needlessly.
            return future.await;
        };
        let mut turns = interval((limit / 4).clamp(TURN_MIN, TURN_MAX));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                done = &mut future => return done,
                _ = turns.tick() => {
                    self.shared.with(|session| session.tick_down(Moment::now()));
                }
            }
        }
    }

    /// The time limit of a stream and of a handshake: each server gets an equal share of half the session timeout.
    fn attempt_limit(&self) -> Duration {
        let session_timeout = self.shared.look(|session| session.life().timeout);
        let servers = u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX);
        (session_timeout / 2 / servers).max(ATTEMPT_MIN)
    }

    /// Whether to give up: the caller's limit has passed, or the session's.
    fn give_up(&self, opening: &mut Option<(Opening, Moment, Attempts)>, rounds: u32) -> bool {
        let now = Moment::now();
        if self.shared.state().is_ended() {
            self.report_end(opening.take(), "the session is over".to_owned());
            return true;
        }
        if let Some((first, began, _)) = opening {
            if first.report.is_closed() {
                // No caller waits any more, and this attempt has opened nothing.
                self.shared
                    .with(|session| session.finish(SessionEnd::Closed));
                return true;
            }
            let is_over = first.left(*began).is_zero() || (first.fail_fast && rounds > 0);
            if is_over && let Some((first, began, attempts)) = opening.take() {
                let after = Moment::now() - began;
                let _ = first
                    .report
                    .send(Err(ConnectError::Unreachable { after, attempts }));
                self.shared
                    .with(|session| session.finish(SessionEnd::Closed));
            }
            return is_over;
        }
        let is_gone = self.shared.with(|session| session.tick_down(now));
        if is_gone {
            log::emit(|| info!("no server was reached for longer than the session is kept"));
            self.shared
                .with(|session| session.finish(SessionEnd::Expired));
        }
        is_gone
    }

    fn report_end(&self, opening: Option<(Opening, Moment, Attempts)>, reason: String) {
        let Some((opening, began, attempts)) = opening else {
            return;
        };
        let error = match self.shared.look(|session| session.end()) {
            Some(SessionEnd::AuthFailed) => ConnectError::AuthFailed { reason },
            Some(SessionEnd::Expired) => ConnectError::SessionExpired,
            _ => ConnectError::Unreachable {
                after: Moment::now() - began,
                attempts,
            },
        };
        let _ = opening.report.send(Err(error));
    }

    /// Opens a stream to a server. The look-up of its name is not part of the time limit: it is as slow for the next attempt. The address
    /// that was used last is tried last.
    fn open(
        &self,
        endpoint: Endpoint,
        limit: Duration,
        last_address: Option<Endpoint>,
    ) -> impl Future<Output = io::Result<Opened>> + Send + 'static {
        let dial = Arc::clone(&self.dial);
        #[cfg(feature = "tls")]
        let tls = self.tls.clone();
        async move {
            let mut addresses = dial.resolve(&endpoint).await?;
            addresses.sort_by_key(|address| Some(address) == last_address.as_ref());
            let opened = async {
                let (address, stream) = open_first(&*dial, addresses).await?;
                #[cfg(feature = "tls")]
                let stream = match tls {
                    Some(tls) => tls.over(&endpoint, stream).await?,
                    None => stream,
                };
                Ok((address, stream))
            };
            timeout(limit, opened).await.unwrap_or_else(|_| timed_out())
        }
    }

    /// One attempt with one server, up to the reply to the handshake. A handshake moves the session, so there is one at a time.
    async fn attempt(
        &self,
        endpoint: &Endpoint,
        opened: io::Result<Opened>,
        limit: Duration,
        last_address: &mut Option<Endpoint>,
    ) -> io::Result<Established> {
        let (address, stream) = opened?;
        *last_address = Some(address);
        let answered = timeout(limit, self.handshake(endpoint, stream)).await;
        answered.unwrap_or_else(|_| timed_out())
    }

    async fn handshake(
        &self,
        #[cfg_attr(
            not(feature = "sasl"),
            expect(unused_variables, reason = "for its log")
        )]
        endpoint: &Endpoint,
        mut stream: Box<dyn Stream>,
    ) -> io::Result<Established> {
        let request = self.shared.look(|session| session.connect_request());
        let sent = Moment::now();
        stream
            .write_all(&put_handshake(&request, self.allow_read_only))
            .await?;
        stream.flush().await?;
        let mut input = BytesMut::new();
        let reply = read_frame(&mut stream, &mut input).await?;
        let (reply, is_read_only) =
            ConnectReply::decode_with_mode(&reply).map_err(|_| not_zookeeper())?;
        if is_read_only && !self.allow_read_only {
            return Err(io::Error::other("the server is read-only"));
        }
        #[cfg(feature = "sasl")]
        if let Some(user) = &self.sasl
            && reply.is_session()
        {
            self.authenticate(user, endpoint, &mut stream, &mut input)
                .await?;
        }
        self.shared
            .with(|session| session.connected(Moment::now(), sent, reply))
            .map_err(|broken: Broken| io::Error::other(broken))?;
        Ok((stream, input))
    }

    /// Authenticates the user, before any request. A refusal ends the session: the next server has the same passwords.
    #[cfg(feature = "sasl")]
    async fn authenticate(
        &self,
        user: &crate::sasl::DigestMd5,
        endpoint: &Endpoint,
        stream: &mut Box<dyn Stream>,
        input: &mut BytesMut,
    ) -> io::Result<()> {
        let next_xid = || self.shared.with(|session| session.next_xid());
        let result = authenticate::authenticate(user, stream, input, next_xid).await;
        if let Err(failure) = &result
            && let Some(refusal) = authenticate::refusal(failure)
        {
            let endpoint = endpoint.to_string();
            log::emit(move || error!(endpoint, reason = %refusal, "authentication failed"));
            self.shared
                .with(|session| session.finish(SessionEnd::AuthFailed));
        }
        result
    }

    /// Carries the session until this connection is lost.
    async fn connected(&self, endpoint: &Endpoint, stream: Box<dyn Stream>, input: BytesMut) {
        let (reader, writer) = tokio::io::split(stream);
        self.shared.attach(Box::new(writer));
        self.shared.wake.notify_one();
        let session = self.shared.look(|session| session.identity());
        let session = format_args!("{:#x}", session.map_or(0, |identity| identity.id)).to_string();
        let (id, server) = (session.clone(), endpoint.to_string());
        log::emit(move || info!(session = id, endpoint = server, "connected"));
        let lost = carry(&self.shared, reader, input, self.reply_bytes_max).await;
        self.shared.detach();
        let endpoint = endpoint.to_string();
        log::emit(move || info!(session, endpoint, reason = %lost, "connection ended"));
    }
}

/// At most `time`, and no longer than a caller waits.
fn within(opening: Option<&(Opening, Moment, Attempts)>, time: Duration) -> Duration {
    opening.map_or(time, |(first, began, _)| time.min(first.left(*began)))
}

/// Notes for the caller why there is no connection.
fn note(opening: &mut Option<(Opening, Moment, Attempts)>, endpoint: &Endpoint, reason: &str) {
    if let Some((_, _, attempts)) = opening {
        attempts.note(&endpoint.to_string(), reason.to_owned());
    }
}

fn is_known(opening: Option<&(Opening, Moment, Attempts)>, endpoint: &Endpoint) -> bool {
    let host = endpoint.to_string();
    opening.is_some_and(|(_, _, attempts)| attempts.iter().any(|(known, _)| known == host))
}

fn timed_out<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"))
}

/// Reads one frame before the session has the connection.
pub(super) async fn read_frame(
    stream: &mut Box<dyn Stream>,
    input: &mut BytesMut,
) -> io::Result<BytesMut> {
    loop {
        match frame::take(input, HANDSHAKE_BYTES_MAX) {
            Ok(Some(frame)) => return Ok(BytesMut::from(&frame[..])),
            Ok(None) => {}
            Err(_) => return Err(not_zookeeper()),
        }
        if stream.read_buf(input).await? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                // Servers do not say why.
                "closed before a session was opened: the server is read-only, behind this client, or has too many connections",
            ));
        }
    }
}

pub(super) fn not_zookeeper() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a ZooKeeper server")
}

/// A failure in the usual words, which users search for.
fn reason(error: &io::Error) -> String {
    #[cfg(feature = "tls")]
    if let Some(reason) = crate::driver::tls::reason(error) {
        return reason;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::TimedOut => "timed out".to_owned(),
        _ => error.to_string(),
    }
}

/// Ends the session when its driver is dropped with the runtime that carried it.
#[derive(Debug)]
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0
            .with(|session| session.finish(SessionEnd::RuntimeGone));
    }
}
