//! `bellwether locks --watch`: what is going on, as it changes.
//!
//! A persistent watch on everything below the path tells that something has changed, and a new survey what. Many changes
//! that come together are looked at once.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use bellwether::zk::{Error, PersistentEvent, PersistentWatch, SessionState, WatchMode};
use bellwether::{Client, ContentionError, Overview};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::look;
use crate::args::LocksArgs;
use crate::commands::watch::{TRY_EVERY, is_lost, is_unreachable};
use crate::exit::Exit;
use crate::output::{Output, print_now};
use crate::overview;
use crate::people::ms;
use crate::refusal::{Refusal, Verb};
use crate::rendering::{path_text, time_text};
use crate::screen::{Key, Screen};
use crate::session::open;

/// How long changes are gathered before they are looked at.
const GATHER: Duration = Duration::from_millis(100);

/// How often the times are brought up to date.
const REFRESH: Duration = Duration::from_secs(1);

pub(super) async fn watch(
    client: &mut Client,
    args: &LocksArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let mut view = View::new(args)?;
    let mut times = interval(REFRESH);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (mut watcher, seen) = set_up(client, args, output).await?;
        let mut states = client.raw().states();
        if view.show(seen)?.is_break() {
            return Ok(Exit::Done);
        }
        loop {
            let end = tokio::select! {
                event = watcher.next() => match gather(event, &mut watcher).await {
                    News::Changed => match look(client, &args.path).await {
                        Ok(seen) => view.show(seen)?,
                        Err(error) if is_worth_another_try(&error) => continue,
                        Err(error) => return Err(error.into()),
                    },
                    News::Ended => break,
                },
                _ = states.changed() => {
                    if *states.borrow_and_update() == SessionState::Disconnected {
                        view.say("connection lost", output)?;
                    }
                    continue;
                }
                key = view.key() => view.press(key)?,
                _ = times.tick() => {
                    view.refresh()?;
                    continue;
                }
            };
            if end.is_break() {
                return Ok(Exit::Done);
            }
        }
    }
}

/// Sets the watch and looks, through lost connections and sessions.
async fn set_up(
    client: &mut Client,
    args: &LocksArgs,
    output: Output,
) -> anyhow::Result<(PersistentWatch, Overview)> {
    let mut tries = interval(TRY_EVERY);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tries.tick().await;
        if client.is_ended() {
            match open(&args.tree, output).await {
                Ok(next) => *client = next,
                Err(error) if is_unreachable(&error) => continue,
                Err(error) => return Err(error),
            }
        }
        let path = &args.path;
        let mode = WatchMode::Recursive;
        let watcher = match client.raw().watch(path, mode).await {
            Ok(watcher) => watcher,
            Err(error) if is_lost(&error) => continue,
            Err(error) => return Err(Refusal::of(Verb::Watch, path, error).into()),
        };
        match look(client, path).await {
            Ok(seen) => return Ok((watcher, seen)),
            Err(error) if is_worth_another_try(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_worth_another_try(error: &ContentionError) -> bool {
    matches!(error, ContentionError::Failed { source, .. } if is_lost(source))
}

/// What the watcher has told.
enum News {
    /// Something has changed, or may have while the connection was lost.
    Changed,
    /// The session has ended, and the watch with it.
    Ended,
}

/// Takes what comes within a short time together.
async fn gather(first: Result<PersistentEvent, Error>, watcher: &mut PersistentWatch) -> News {
    if first.is_err() {
        return News::Ended;
    }
    let gathered = timeout(GATHER, async { while watcher.next().await.is_ok() {} });
    match gathered.await {
        Ok(()) => News::Ended,
        Err(_) => News::Changed,
    }
}

/// Whether to go on.
type Flow = std::ops::ControlFlow<()>;

/// Where it is shown.
struct View<'a> {
    path: &'a str,
    place: Place,
}

enum Place {
    /// Redrawn whenever something changes.
    Screen {
        screen: Screen,
        seen: Overview,
        said: Option<&'static str>,
        /// The first line that is shown.
        top: usize,
    },
    /// A line for every change, with the facts that were told.
    Log(BTreeMap<(String, String), String>),
    /// An object for every change, with the last one.
    Json(String),
}

impl<'a> View<'a> {
    fn new(args: &'a LocksArgs) -> io::Result<Self> {
        let place = if args.tree.json {
            Place::Json(String::new())
        } else if io::stdout().is_terminal() {
            Place::Screen {
                screen: Screen::open()?,
                seen: Overview::default(),
                said: None,
                top: 0,
            }
        } else {
            Place::Log(BTreeMap::new())
        };
        Ok(Self {
            path: &args.path,
            place,
        })
    }

    fn show(&mut self, now: Overview) -> io::Result<Flow> {
        match &mut self.place {
            Place::Screen { seen, said, .. } => {
                (*seen, *said) = (now, None);
                self.refresh()?;
                Ok(Flow::Continue(()))
            }
            Place::Log(told) => {
                let time = time_text(i64::try_from(ms(SystemTime::now())).unwrap_or(i64::MAX));
                let facts = overview::facts(&now);
                let gone = told.keys().filter(|key| !facts.contains_key(*key));
                let gone = gone.map(|key| (key, format!("no more: {}", told[key])));
                let new = facts
                    .iter()
                    .filter(|(key, fact)| told.get(*key) != Some(fact));
                let new = new.map(|(key, fact)| (key, fact.clone()));
                let line = |((path, _), fact): (&(String, _), _)| {
                    format!("{time} {} {fact}\n", path_text(path))
                };
                let text: String = gone.chain(new).map(line).collect();
                *told = facts;
                print_now(text)
            }
            Place::Json(last) => {
                let object = format!("{}\n", overview::object(self.path, &now));
                if *last == object {
                    return Ok(Flow::Continue(()));
                }
                *last = object;
                print_now(last)
            }
        }
    }

    /// Says something about the view itself.
    fn say(&mut self, text: &'static str, output: Output) -> io::Result<()> {
        match &mut self.place {
            Place::Screen { said, .. } => {
                *said = Some(text);
                self.refresh()
            }
            _ => {
                output.notice(text);
                Ok(())
            }
        }
    }

    fn refresh(&mut self) -> io::Result<()> {
        let Place::Screen {
            screen,
            seen,
            said,
            top,
        } = &mut self.place
        else {
            return Ok(());
        };
        let rows = overview::rows(seen);
        let state = said.map_or("", |said| said);
        let title = format!("bellwether locks {}  {state}", path_text(self.path));
        *top = (*top).min(rows.len().saturating_sub(1));
        let shown = rows.iter().skip(*top);
        screen.draw(&title, shown, "↑ ↓ scroll   q quit")
    }

    /// The next key; never where there are none. Cancel safe.
    async fn key(&mut self) -> Key {
        match &mut self.place {
            Place::Screen { screen, .. } => screen.key().await,
            _ => std::future::pending().await,
        }
    }

    fn press(&mut self, key: Key) -> io::Result<Flow> {
        if let Place::Screen { screen, top, .. } = &mut self.place {
            let page = screen.rows().saturating_sub(1);
            *top = match key {
                Key::End => return Ok(Flow::Break(())),
                Key::Up => top.saturating_sub(1),
                Key::Down => *top + 1,
                Key::PageUp => top.saturating_sub(page),
                Key::PageDown => *top + page,
            };
        }
        self.refresh()?;
        Ok(Flow::Continue(()))
    }
}
