//! `bellwether watch`: events as they come.
//!
//! The client library does not set persistent watches again when it has reconnected, and servers keep no events for
//! those who are away. So the watch is set again here, and what happened meanwhile is found by comparing what the nodes
//! are with what was last seen of them. The watch is set before they are read, so that nothing falls in between.

use std::convert::Infallible;
use std::future::ready;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use bellwether::{Client, ConnectError, zk};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use zk::{AddWatchMode, PersistentWatcher, SessionState, WatchedEvent};

use crate::args::WatchArgs;
use crate::exit::Exit;
use crate::output::Output;
use crate::progress::Progress;
use crate::refusal::{Refusal, Verb};
use crate::rendering::counted;
use crate::session::{in_session, open};
use crate::sighting::{Happening, Sighting};
use crate::walk::walk;

/// How often a watch, or a session for it, is tried for.
pub(crate) const TRY_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: WatchArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.tree, output, async |client| {
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

/// Why no more events are printed.
enum Stop {
    /// As many as were asked for, or as anybody reads.
    Enough,
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

struct Watch<'a> {
    /// The session, or the one after it.
    client: &'a mut Client,
    zk: zk::Client,
    args: &'a WatchArgs,
    output: Output,
}

impl Watch<'_> {
    async fn follow(mut self, printer: &mut Printer) -> Result<Infallible, Stop> {
        let (mut watcher, mut seen) = self.set_up().await?;
        self.output
            .notice(format_args!("watching {}", self.args.path));
        loop {
            let event = watcher.changed().await;
            if let Some(happening) = Happening::of(event.event_type) {
                // First what it is now, so that what is printed is known to be seen.
                self.look_again(&event.path, &mut seen).await;
                printer.print(happening, &event.path, Some(&event))?;
                continue;
            }
            match event.session_state {
                SessionState::Disconnected => {
                    self.output.notice("connection lost");
                    continue;
                }
                state if state.is_terminated() => self.output.notice("the session has ended"),
                _ => {}
            }
            let (new_watcher, now) = self.set_up().await?;
            // The one before goes after the new one has come: else its end would take the server's watch away.
            watcher = new_watcher;
            let missed = seen.until(&now);
            let events = counted(missed.len(), "event");
            self.output
                .notice(format_args!("connected again; {events} missed meanwhile"));
            for (happening, path) in missed {
                printer.print(happening, &path, None)?;
            }
            seen = now;
            self.skip_known(&mut watcher, &mut seen, printer).await?;
        }
    }

    /// Sets the watch and looks at the nodes, through lost connections and sessions.
    async fn set_up(&mut self) -> anyhow::Result<(PersistentWatcher, Sighting)> {
        let mode = if self.args.recursive {
            AddWatchMode::PersistentRecursive
        } else {
            AddWatchMode::Persistent
        };
        let mut tries = interval(TRY_EVERY);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tries.tick().await;
            if self.zk.state().is_terminated() {
                match open(&self.args.tree, self.output).await {
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

    /// Looks at all that is watched; `None` if the connection was lost.
    async fn look(&self) -> Result<Option<Sighting>, Refusal> {
        let path = &self.args.path;
        let mut seen = Sighting::new(!self.args.recursive);
        let stat = match self.zk.check_stat(path).await {
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
            // It has gone since.
            Err(refusal) if refusal.exit() == Exit::No => Ok(Some(Sighting::new(false))),
            Err(_) => Ok(None),
        }
    }

    /// Looks at one node after its event, and tells whether that shows anything new. If the connection is lost, the
    /// comparison after it will find the same change again: told twice rather than not at all.
    async fn look_again(&self, path: &str, seen: &mut Sighting) -> bool {
        match self.zk.check_stat(path).await {
            Ok(stat) => seen.see(path, stat.as_ref()),
            Err(_) => true,
        }
    }

    /// Takes the events that came while the nodes were looked at, and prints those that the look has not shown.
    async fn skip_known(
        &self,
        watcher: &mut PersistentWatcher,
        seen: &mut Sighting,
        printer: &mut Printer,
    ) -> Result<(), Stop> {
        loop {
            let event = tokio::select! {
                biased;
                event = watcher.changed() => event,
                () = ready(()) => return Ok(()),
            };
            match Happening::of(event.event_type) {
                Some(happening) if self.look_again(&event.path, seen).await => {
                    printer.print(happening, &event.path, Some(&event))?;
                }
                Some(_) => {}
                // The state of the session is asked for when the next watch is set.
                None => return Ok(()),
            }
        }
    }
}

/// Whether the connection or the session was lost, so that it is worth another try.
pub(crate) fn is_lost(error: &zk::Error) -> bool {
    matches!(
        error,
        zk::Error::ConnectionLoss
            | zk::Error::SessionExpired
            | zk::Error::SessionMoved
            | zk::Error::ClientClosed
            | zk::Error::Custom(_)
    )
}

pub(crate) fn is_unreachable(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ConnectError::Unreachable { .. }))
}

/// One line an event, at once.
struct Printer {
    json: bool,
    events_left: Option<u64>,
}

impl Printer {
    /// Prints what happened, and the event that told so; without one, it was missed.
    fn print(
        &mut self,
        happening: Happening,
        path: &str,
        event: Option<&WatchedEvent>,
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
