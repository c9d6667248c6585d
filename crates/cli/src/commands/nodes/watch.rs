//! `bellwether watch`: prints events of nodes.
//!
//! Servers keep no events for a disconnected client. So after a reconnect, changes are found by comparing the nodes with their last seen
//! state. The watch is set before the nodes are read, so that no change is missed in between.

use std::convert::Infallible;
use std::future::ready;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use bellwether::error::ConnectError;
use bellwether::{Client, Connect, zk};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use zk::{Event, PersistentEvent, PersistentWatch, SessionState, WatchMode};

use crate::args::WatchArgs;
use crate::connect;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::Output;
use crate::output::progress::Progress;
use crate::output::refusal::{Refusal, Verb};
use crate::output::rendering::counted;
use crate::tree::sighting::{Happening, Sighting};
use crate::tree::walk::walk;

/// How often to try to set the watch, or to open a session.
pub(crate) const TRY_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: WatchArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.tree.connect, output, async |client| {
        let mut printer = Printer {
            json: args.tree.json,
            events_left: args.count,
        };
        let watch = Watch {
            zk: client.raw(),
            client,
            args: &args,
            output,
        };
        match watch.follow(&mut printer).await {
            Ok(never) => match never {},
            Err(Stop::Enough) => Ok(Exit::Done),
            Err(Stop::Failed(error)) => Err(error),
        }
    })
}

/// Why the watch ended.
enum Stop {
    /// All requested events are printed, or the output is closed.
    Enough,
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

struct Watch<'a> {
    /// The present session.
    client: &'a mut Client,
    zk: zk::Client,
    args: &'a WatchArgs,
    output: Output,
}

impl Watch<'_> {
    async fn follow(mut self, printer: &mut Printer) -> Result<Infallible, Stop> {
        let (mut watch, mut seen) = self.set_up().await?;
        self.output
            .notice(format_args!("watching {}", self.args.path));
        let mut states = self.zk.states();
        loop {
            let news = tokio::select! {
                biased;
                news = watch.next() => news,
                _ = states.changed() => {
                    if *states.borrow_and_update() == SessionState::Disconnected {
                        self.output.notice("connection lost");
                    }
                    continue;
                }
            };
            let now = match news {
                Ok(PersistentEvent::Node(event)) => {
                    // First look at the node, so that everything that is printed counts as seen.
                    self.look_again(&event.path, &mut seen).await;
                    printer.print(Happening::of(event.kind), &event.path, Some(&event))?;
                    continue;
                }
                Ok(PersistentEvent::Missed) => match self.look().await? {
                    Some(now) => now,
                    // Lost again: the next connection is reported too.
                    None => continue,
                },
                Err(_) => {
                    self.output.notice("the session ended");
                    let (new_watch, now) = self.set_up().await?;
                    (watch, states) = (new_watch, self.zk.states());
                    now
                }
            };
            let missed = seen.until(&now);
            let events = counted(missed.len(), "event");
            self.output
                .notice(format_args!("connected again; {events} missed meanwhile"));
            for (happening, path) in missed {
                printer.print(happening, &path, None)?;
            }
            seen = now;
            self.skip_known(&mut watch, &mut seen, printer).await?;
        }
    }

    /// Sets the watch and reads the nodes, over lost connections and sessions.
    async fn set_up(&mut self) -> anyhow::Result<(PersistentWatch, Sighting)> {
        let mode = if self.args.recursive {
            WatchMode::Recursive
        } else {
            WatchMode::Persistent
        };
        let mut tries = interval(TRY_EVERY);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tries.tick().await;
            if self.zk.state().is_ended() {
                match connect::open(&self.args.tree.connect, self.output, Connect::fail_fast).await
                {
                    Ok(client) => {
                        self.zk = client.raw();
                        *self.client = client;
                    }
                    Err(error) if is_unreachable(&error) => continue,
                    Err(error) => return Err(error),
                }
            }
            let path = &self.args.path;
            let watcher = match self.zk.watch(path, mode).await {
                Ok(watcher) => watcher,
                Err(error) if is_lost(&error) => continue,
                Err(error) => return Err(Refusal::of(Verb::Watch, path, error).into()),
            };
            if let Some(seen) = self.look().await? {
                return Ok((watcher, seen));
            }
        }
    }

    /// Reads all watched nodes; `None` if the connection was lost.
    async fn look(&self) -> Result<Option<Sighting>, Refusal> {
        let path = &self.args.path;
        let mut seen = Sighting::new(!self.args.recursive);
        let stat = match self.zk.exists(path).await {
            Ok(stat) => stat,
            Err(error) if is_lost(&error) => return Ok(None),
            Err(error) => return Err(Refusal::of(Verb::Read, path, error)),
        };
        seen.see(path, stat.as_ref());
        if stat.is_none() || !self.args.recursive {
            return Ok(Some(seen));
        }
        let progress = Progress::counter("reading", self.output);
        match walk(&self.zk, path, None, &progress).await {
            Ok(visited) => {
                for node in visited {
                    if let Some((stat, _)) = &node.read {
                        seen.see(&node.path, Some(stat));
                    }
                }
                Ok(Some(seen))
            }
            // It was deleted since.
            Err(refusal) if refusal.exit() == Exit::No => Ok(Some(Sighting::new(false))),
            Err(_) => Ok(None),
        }
    }

    /// Reads one node after its event, and returns whether it shows anything new. If the connection is lost, the later comparison finds
    /// the change again: it is printed twice rather than not at all.
    async fn look_again(&self, path: &str, seen: &mut Sighting) -> bool {
        match self.zk.exists(path).await {
            Ok(stat) => seen.see(path, stat.as_ref()),
            Err(_) => true,
        }
    }

    /// Takes the events that arrived while the nodes were read, and prints those that the read has not shown.
    async fn skip_known(
        &self,
        watch: &mut PersistentWatch,
        seen: &mut Sighting,
        printer: &mut Printer,
    ) -> Result<(), Stop> {
        loop {
            let news = tokio::select! {
                biased;
                news = watch.next() => news,
                () = ready(()) => return Ok(()),
            };
            match news {
                Ok(PersistentEvent::Node(event)) => {
                    if self.look_again(&event.path, seen).await {
                        printer.print(Happening::of(event.kind), &event.path, Some(&event))?;
                    }
                }
                // The next read compares everything.
                Ok(PersistentEvent::Missed) | Err(_) => return Ok(()),
            }
        }
    }
}

/// Whether the connection or the session was lost, so that another try is worthwhile.
pub(crate) fn is_lost(error: &zk::Error) -> bool {
    error.is_transient() || error.is_session_end()
}

pub(crate) fn is_unreachable(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ConnectError::Unreachable { .. }))
}

/// Prints one line per event, at once.
struct Printer {
    json: bool,
    events_left: Option<u64>,
}

impl Printer {
    /// Prints a change; without an event, it is marked as missed.
    fn print(
        &mut self,
        happening: Happening,
        path: &str,
        event: Option<&Event>,
    ) -> Result<(), Stop> {
        let what = happening.name();
        let line = if self.json {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let now_ms = now.map_or(0, |now| now.as_millis());
            json!({
                "event": what,
                "path": path,
                "missed": event.is_none(),
                "time_ms": u64::try_from(now_ms).unwrap_or(u64::MAX),
            })
            .to_string()
        } else if event.is_some() {
            format!("{what:<8} {path}")
        } else {
            format!("{what:<8} {path} (missed)")
        };
        let mut out = io::stdout().lock();
        match writeln!(out, "{line}").and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Stop::Enough),
            written => written?,
        }
        match &mut self.events_left {
            None => Ok(()),
            Some(left) => {
                *left -= 1;
                if *left == 0 {
                    Err(Stop::Enough)
                } else {
                    Ok(())
                }
            }
        }
    }
}
