//! A terminal as a screen that is drawn again and again.

use std::io::{self, IsTerminal, Read, Write};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The other screen, without cursor and without lines that go on in the next.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// What stands before a line so that it is seen, and what ends that.
const BOLD: &str = "\x1b[1m";
const ALARM: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// A line, and how loud it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Title,
    Alarm,
}

/// A key that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    End,
    Up,
    Down,
    PageUp,
    PageDown,
}

/// A screen of its own, which goes when dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    keys: UnboundedReceiver<Key>,
    /// How the keyboard was; `None` if there is none.
    before: Option<Termios>,
    colours: bool,
}

impl Screen {
    pub(crate) fn open() -> io::Result<Self> {
        let (send, keys) = unbounded_channel();
        let mut before = None;
        if io::stdin().is_terminal() {
            let mut modes = tcgetattr(io::stdin())?;
            before = Some(modes.clone());
            // Keys come as they are pressed, and are not shown. Ctrl-C still ends; Ctrl-Z would leave the terminal as it
            // is now.
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(count @ 1..) = io::stdin().lock().read(&mut bytes) {
                    for key in keys_in(&bytes[..count]) {
                        if send.send(key).is_err() {
                            return;
                        }
                    }
                }
            });
        }
        let screen = Self {
            keys,
            before,
            colours: std::env::var_os("NO_COLOR").is_none(),
        };
        write(OPEN)?;
        Ok(screen)
    }

    /// How many lines there are for what is shown.
    pub(crate) fn rows(&self) -> usize {
        size().0.saturating_sub(2)
    }

    /// Draws a line at the top, one at the bottom, and as much in between as there is place for.
    pub(crate) fn draw<'a>(
        &self,
        title: &str,
        rows: impl Iterator<Item = &'a Row>,
        foot: &str,
    ) -> io::Result<()> {
        let (height, width) = size();
        let cut = |text: &str| text.chars().take(width).collect::<String>();
        let mut frame = format!("\x1b[H{}", self.toned(Tone::Title, &cut(title)));
        let mut left = height.saturating_sub(2);
        for row in rows.take(left) {
            left -= 1;
            frame += "\x1b[K\r\n";
            frame += &self.toned(row.tone, &cut(&row.text));
        }
        frame += &"\x1b[K\r\n".repeat(left + 1);
        frame += &cut(foot);
        frame += "\x1b[J";
        write(&frame)
    }

    /// The next key. Cancel safe.
    pub(crate) async fn key(&mut self) -> Key {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }

    fn toned(&self, tone: Tone, text: &str) -> String {
        let mark = match tone {
            Tone::Plain => return text.to_owned(),
            _ if !self.colours => return text.to_owned(),
            Tone::Title => BOLD,
            Tone::Alarm => ALARM,
        };
        format!("{mark}{text}{PLAIN}")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell if the terminal is gone.
        let _ = write(CLOSE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Lines and columns; those of the first terminals if it does not say.
fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    }
}

/// The keys in what a terminal sends. An escape sequence comes whole.
fn keys_in(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let (key, used) = match (first, behind) {
            (b'\x1b', [b'[' | b'O', b'A', ..]) => (Some(Key::Up), 3),
            (b'\x1b', [b'[' | b'O', b'B', ..]) => (Some(Key::Down), 3),
            (b'\x1b', [b'[', b'5', b'~', ..]) => (Some(Key::PageUp), 4),
            (b'\x1b', [b'[', b'6', b'~', ..]) => (Some(Key::PageDown), 4),
            (b'q' | b'Q', _) => (Some(Key::End), 1),
            (b'k', _) => (Some(Key::Up), 1),
            (b'j', _) => (Some(Key::Down), 1),
            (b' ', _) => (Some(Key::PageDown), 1),
            _ => (None, 1),
        };
        keys.extend(key);
        rest = rest.get(used..).unwrap_or_default();
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        assert_eq!(
            keys_in(b"\x1b[Aj\x1bOB\x1b[5~\x1b[6~x q"),
            [
                Key::Up,
                Key::Down,
                Key::Down,
                Key::PageUp,
                Key::PageDown,
                Key::PageDown,
                Key::End
            ]
        );
        assert!(keys_in(b"\x1b[").is_empty());
    }
}
