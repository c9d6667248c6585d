//! `bellwether locks --watch`: shows changes as they happen.
//!
//! A persistent recursive watch notices that something changed, and a new survey finds what. Changes within a short time cause one
//! survey.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::pin::Pin;
use std::time::Duration;

use bellwether::inspect::{Contention, Ending, Overview, QueueEntry};
use bellwether::zk::{PersistentEvent, PersistentWatch, SessionState, WatchMode};
use bellwether::{Client, ClientState, Connect, ErrorKind, zk};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::board::{Action, Board, Deed, Mode};
use super::{look, view};
use crate::args::LocksArgs;
use crate::commands::look::why;
use crate::commands::nodes::watch::{TRY_EVERY, is_lost, is_unreachable};
use crate::connect;
use crate::exit::Exit;
use crate::output::overview;
use crate::output::people::contestant_text;
use crate::output::refusal::{Refusal, Verb};
use crate::output::rendering::path_text;
use crate::output::screen::{Key, Screen};
use crate::output::time_text::now_text;
use crate::output::{Output, print_now};
use crate::value::node_path;

/// How long changes are gathered before a survey.
const GATHER: Duration = Duration::from_millis(100);

/// How often the shown times are refreshed.
const REFRESH: Duration = Duration::from_secs(1);

/// The grace of a break.
const BREAK_GRACE: Duration = Duration::from_secs(10);

/// Actions that are under way, each with its outcome.
type Deeds = FuturesUnordered<Pin<Box<dyn Future<Output = String>>>>;

pub(super) async fn watch(
    client: &mut Client,
    args: &LocksArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let mut view = View::new(args)?;
    let mut deeds = Deeds::new();
    let mut times = interval(REFRESH);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_first = true;
    loop {
        let (mut watcher, seen) = set_up(client, args, output).await?;
        let mut states = client.raw().states();
        if !std::mem::take(&mut is_first) {
            view.say("the session ended; continuing in a new one", output)?;
        }
        if view.show(seen)?.is_break() {
            return Ok(Exit::Done);
        }
        loop {
            let end = tokio::select! {
                event = watcher.next() => match gather(event, &mut watcher).await {
                    LiveNews::Changed => match look(client, args).await {
                        Ok(seen) => view.show(seen)?,
                        Err(error) if is_worth_another_try(&error) => continue,
                        Err(error) => return Err(error.into()),
                    },
                    LiveNews::Ended => break,
                },
                _ = states.changed() => {
                    let state = *states.borrow_and_update();
                    match state {
                        SessionState::Disconnected => view.say("connection lost", output)?,
                        SessionState::Connected => view.say("connected again", output)?,
                        _ => {}
                    }
                    continue;
                }
                key = view.key() => match view.press(key)? {
                    Action::Quit => return Ok(Exit::Done),
                    Action::Do(deed, holder) => {
                        deeds.push(Box::pin(act(client.clone(), deed, *holder)));
                        continue;
                    }
                    Action::None | Action::Explain(_) => continue,
                },
                Some(said) = deeds.next() => {
                    view.say(&said, output)?;
                    continue;
                }
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

/// Does what a user has confirmed, and returns the outcome.
async fn act(client: Client, deed: Deed, holder: QueueEntry) -> String {
    let dir = node_path::parent(&holder.path).unwrap_or("/");
    let contention = Contention::new(&client, dir);
    let (node, token, who) = (&holder.node, holder.token, contestant_text(&holder));
    let done = match deed {
        Deed::Revoke => contention
            .revoke(node, token)
            .await
            .map(|was_there| match was_there {
                true => format!("asked {who}"),
                false => format!("{who} had released it already"),
            }),
        Deed::Break => {
            let ending = contention.break_hold(node, token, BREAK_GRACE).await;
            ending.map(|ending| match ending {
                Ending::Broken => format!("broke the hold of {who}"),
                _ => format!("{who} released it"),
            })
        }
    };
    done.unwrap_or_else(|error| error.to_string())
}

/// Sets the watch and makes a survey, over lost connections and sessions.
async fn set_up(
    client: &mut Client,
    args: &LocksArgs,
    output: Output,
) -> anyhow::Result<(PersistentWatch, Overview)> {
    let mut tries = interval(TRY_EVERY);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tries.tick().await;
        if client.state() == ClientState::NoSession {
            match connect::open(&args.tree.connect, output, Connect::fail_fast).await {
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
        match look(client, args).await {
            Ok(seen) => return Ok((watcher, seen)),
            Err(error) if is_worth_another_try(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_worth_another_try(error: &bellwether::Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Disconnected(_) | ErrorKind::SessionEnded
    )
}

/// What the watch has reported.
enum LiveNews {
    /// Something changed, or may have changed while the connection was lost.
    Changed,
    /// The session has ended, and the watch with it.
    Ended,
}

/// Gathers the events of a short time.
async fn gather(
    first: Result<PersistentEvent, zk::Error>,
    watcher: &mut PersistentWatch,
) -> LiveNews {
    if first.is_err() {
        return LiveNews::Ended;
    }
    let gathered = timeout(GATHER, async { while watcher.next().await.is_ok() {} });
    match gathered.await {
        Ok(()) => LiveNews::Ended,
        Err(_) => LiveNews::Changed,
    }
}

/// Whether to continue.
type Flow = std::ops::ControlFlow<()>;

/// Where and how changes are shown.
struct View<'a> {
    path: &'a str,
    place: Place,
}

#[expect(
    clippy::large_enum_variant,
    reason = "there is one of them in a process"
)]
enum Place {
    /// A screen that is redrawn on every change.
    Screen { screen: Screen, board: Board },
    /// A line for every change, with the facts printed so far.
    Log(BTreeMap<(String, String), String>),
    /// An object for every change, with the last object.
    Json(String),
}

impl<'a> View<'a> {
    fn new(args: &'a LocksArgs) -> io::Result<Self> {
        let place = if args.tree.json {
            Place::Json(String::new())
        } else if io::stdout().is_terminal() {
            Place::Screen {
                screen: Screen::open()?,
                board: Board::new(),
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
            Place::Screen { board, .. } => {
                board.see(now);
                self.refresh()?;
                Ok(Flow::Continue(()))
            }
            Place::Log(told) => {
                let time = now_text();
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

    /// Shows a notice.
    fn say(&mut self, text: &str, output: Output) -> io::Result<()> {
        match &mut self.place {
            Place::Screen { board, .. } => {
                text.clone_into(&mut board.said);
                self.refresh()
            }
            _ => {
                output.notice(text);
                Ok(())
            }
        }
    }

    fn refresh(&mut self) -> io::Result<()> {
        if let Place::Screen { screen, board } = &mut self.place {
            screen
                .terminal
                .draw(|frame| view::draw(frame, board, self.path))?;
        }
        Ok(())
    }

    /// The next key; never without a screen. Cancel safe.
    async fn key(&mut self) -> Key {
        match &mut self.place {
            Place::Screen { screen, .. } => screen.key().await,
            _ => std::future::pending().await,
        }
    }

    fn press(&mut self, key: Key) -> io::Result<Action> {
        let Place::Screen { screen, board } = &mut self.place else {
            return Ok(Action::None);
        };
        let page = screen
            .terminal
            .size()?
            .height
            .saturating_sub(view::OTHER_ROWS);
        let action = board.press(key, page.into());
        if let Action::Explain(path) = &action {
            board.mode = Mode::Why(why::lines(&board.overview, path));
        }
        self.refresh()?;
        Ok(action)
    }
}
