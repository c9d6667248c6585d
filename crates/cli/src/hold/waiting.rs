//! Shows the progress of a wait: on a terminal one line that changes, elsewhere a line for every change.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bellwether::Client;
use bellwether::inspect::Contention;
use bellwether::line::{Position, Progress};
use console::{Term, truncate_str};
use futures_util::{Stream, StreamExt};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::hold::notice_printer::NoticePrinter;
use crate::job::terminal;
use crate::output::Output;
use crate::output::people::{holders_text, who_text, with_others};

/// What a terminal echoes for Ctrl-C. The line leaves room for it: if it were echoed in the next row, that row would be cleared instead
/// of the line. (`indicatif` fills the whole row, so it is not used here.)
const INTERRUPT: &str = "^C";

/// Shorter waits are not shown.
const SILENT_WAIT: Duration = Duration::from_secs(1);

/// How long the end of a wait is delayed by a terminal that is blocked.
const CLEAR_LIMIT: Duration = Duration::from_millis(250);

/// How long a notice may be delayed to find out who is in the way.
pub(crate) const WHO_LIMIT: Duration = Duration::from_secs(1);

/// The present holders at a path, for a notice: an error, or a server that does not answer, does not matter.
pub(crate) async fn holders(client: &Client, path: &str) -> Option<String> {
    let line = timeout(WHO_LIMIT, Contention::new(client, path).line()).await;
    let line = line.ok()?.ok()?;
    holders_text(line.iter().filter(|one| one.holds))
}

/// What the first contender of a line does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Having {
    Held,
    Led,
}

/// Awaits a turn in a line, and shows the progress of the wait for `path`.
pub(crate) async fn for_turn<T>(
    path: &str,
    having: Having,
    progress: Progress,
    turn: impl Future<Output = T>,
    output: Output,
) -> T {
    let news = progress.map(|place| move || place_text(&place, having, SystemTime::now()));
    showing(format!("waiting for {path}"), news, turn, output).await
}

/// Awaits `end`, and shows its progress. Each item of `news` makes the text, again every second.
pub(crate) async fn showing<T>(
    what: String,
    news: impl Stream<Item = impl Fn() -> String>,
    end: impl Future<Output = T>,
    output: Output,
) -> T {
    let mut end = pin!(end);
    if output.is_quiet() {
        return end.await;
    }
    if let Ok(end) = timeout(SILENT_WAIT, &mut end).await {
        return end;
    }
    let mut news = pin!(news.fuse());
    let screen = WaitScreen::new(what, output);
    let mut latest = None;
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            end = &mut end => return end,
            Some(text) = news.next() => {
                screen.tell(&text());
                latest = Some(text);
            }
            _ = seconds.tick() => {
                if let Some(text) = &latest {
                    screen.refresh(&text());
                }
            }
        }
    }
}

/// Where the progress is shown. It is printed from a separate thread: a waiter whose terminal is blocked, as by Ctrl-S, has to send
/// heartbeats to keep its place.
struct WaitScreen {
    what: String,
    /// `None` for a log, where each text is a line.
    term: Option<Term>,
    /// Whether the terminal has yet to take the last text.
    is_behind: Arc<AtomicBool>,
    /// Whether a line is on the terminal that changes.
    is_drawn: Arc<AtomicBool>,
    notices: NoticePrinter,
    output: Output,
}

impl WaitScreen {
    fn new(what: String, output: Output) -> Self {
        let term = Term::stderr();
        Self {
            what,
            // Not for terminals that cannot clear a line.
            term: term.features().is_attended().then_some(term),
            is_behind: Arc::default(),
            is_drawn: Arc::default(),
            notices: NoticePrinter::start(),
            output,
        }
    }

    fn tell(&self, text: &str) {
        if self.term.is_some() && !terminal::is_in_background(io::stderr()) {
            return self.refresh(text);
        }
        let (line, output) = (format!("{}: {text}", self.what), self.output);
        self.notices.print(move || output.notice(line));
    }

    fn refresh(&self, text: &str) {
        let Some(term) = self.term.clone() else {
            return;
        };
        // The next second has a newer text: a terminal that is blocked gets one of them, not all.
        if self.is_behind.swap(true, Ordering::Relaxed) {
            return;
        }
        let (is_behind, is_drawn) = (self.is_behind.clone(), self.is_drawn.clone());
        let text = format!("bellwether: {}: {text}", self.what);
        self.notices.print(move || {
            // There, it would overwrite what the user types.
            let in_front = !terminal::is_in_background(io::stderr());
            is_drawn.store(in_front, Ordering::Relaxed);
            if in_front {
                draw(&term, &text);
            }
            is_behind.store(false, Ordering::Relaxed);
        });
    }
}

impl Drop for WaitScreen {
    fn drop(&mut self) {
        if let Some(term) = self.term.take() {
            let is_drawn = self.is_drawn.clone();
            self.notices.print(move || {
                let in_front = !terminal::is_in_background(io::stderr());
                if is_drawn.load(Ordering::Relaxed) && in_front {
                    let _ = term.clear_line();
                }
            });
        }
        // What is printed next should come after it.
        self.notices.flush_blocking(CLEAR_LIMIT);
    }
}

/// Replaces the line that changes. Errors do not matter: the terminal may be gone.
fn draw(term: &Term, text: &str) {
    let columns = usize::from(term.size().1).saturating_sub(INTERRUPT.len());
    let _ = term.clear_line();
    let _ = term.write_str(&truncate_str(text, columns, "…"));
}

fn place_text(place: &Position, having: Having, now: SystemTime) -> String {
    let before = place.ahead.saturating_sub(place.holders);
    if place.ahead == 0 {
        return "next in line".to_owned();
    }
    let position = match before {
        0 => "next in line".to_owned(),
        before => format!("{} in line", ordinal(before + 1)),
    };
    let had = match having {
        Having::Held => "held",
        Having::Led => "led",
    };
    let Some(holder) = &place.holder else {
        return format!("{position}, {had} by another client");
    };
    let mut text = format!("{position}, {had} by {}", who_text(holder));
    // The clock of the holder may be ahead.
    if let Some(since) = place.held_since {
        let held = now.duration_since(since).unwrap_or_default();
        text += &format!(", {}", rough(held));
    }
    with_others(text, place.holders.saturating_sub(1))
}

/// `1st`, `2nd`, `3rd`, `4th`.
fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// A duration in its largest unit.
fn rough(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_told_in_words() {
        let mut place = Position::default();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let held = |place: &Position| place_text(place, Having::Held, now);
        assert_eq!(held(&place), "next in line");
        (place.ahead, place.holders) = (3, 1);
        assert_eq!(held(&place), "3rd in line, held by another client");
        assert_eq!(
            place_text(&place, Having::Led, now),
            "3rd in line, led by another client"
        );
        let who = br#"{"version": 1, "host": "db7\u001b[2J", "pid": 4711, "command": "sh", "message": "nightly"}"#;
        place.holder = bellwether::Who::from_data(who);
        place.held_since = Some(now - Duration::from_secs(130));
        assert_eq!(
            held(&place),
            "3rd in line, held by db7[2J pid 4711 sh (nightly), 2m"
        );
        (place.ahead, place.holders) = (3, 3);
        place.held_since = None;
        assert_eq!(
            held(&place),
            "next in line, held by db7[2J pid 4711 sh (nightly), and 2 others"
        );
    }

    #[test]
    fn ordinals_and_durations_are_those_of_people() {
        let numbers = [1, 2, 3, 4, 11, 12, 21, 101, 111, 112].map(ordinal);
        let expected = [
            "1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "101st", "111th", "112th",
        ];
        assert_eq!(numbers, expected);
        let times = [0, 119, 120, 7199, 7200].map(|seconds| rough(Duration::from_secs(seconds)));
        assert_eq!(times, ["0s", "119s", "2m", "119m", "2h"]);
    }
}
