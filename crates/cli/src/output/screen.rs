//! A full-screen terminal for ratatui.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};

use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The alternate screen, without cursor and line wrap.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
    Char(char),
}

/// The alternate screen. The terminal is restored when this is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<Ansi>,
    keys: UnboundedReceiver<Key>,
    _before: Before,
}

impl Screen {
    pub(crate) fn open() -> io::Result<Self> {
        let (send, keys) = unbounded_channel();
        // From here on, an error restores the terminal too.
        let before = Before(match io::stdin().is_terminal() {
            true => Some(tcgetattr(io::stdin())?),
            false => None,
        });
        if let Before(Some(modes)) = &before {
            let mut modes = modes.clone();
            // Keys arrive one by one, without echo. Ctrl-C still works. Ctrl-Z is off, because it would leave the terminal in this mode.
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
        print(OPEN)?;
        let backend = Ansi {
            frame: String::new(),
            has_colours: std::env::var_os("NO_COLOR").is_none(),
        };
        Ok(Self {
            terminal: Terminal::new(backend)?,
            keys,
            _before: before,
        })
    }

    /// The next key. Cancel safe.
    pub(crate) async fn key(&mut self) -> Key {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

/// The previous mode of the keyboard; `None` without one. It is restored when this is dropped, as is the normal screen.
#[derive(Debug)]
struct Before(Option<Termios>);

impl Drop for Before {
    fn drop(&mut self) {
        // Errors do not matter: the terminal may be gone.
        let _ = print(CLOSE);
        if let Some(modes) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Draws with escape sequences that all terminals support. A frame is written at once by the next flush.
#[derive(Debug)]
pub(crate) struct Ansi {
    frame: String,
    has_colours: bool,
}

impl Ansi {
    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.frame.write_fmt(text);
    }

    /// The escape codes of a cell's style. Bold and reverse carry the meaning without colours.
    fn style(&self, cell: &Cell) -> String {
        let mut codes = "0".to_owned();
        for (modifier, code) in [
            (Modifier::BOLD, ";1"),
            (Modifier::DIM, ";2"),
            (Modifier::REVERSED, ";7"),
        ] {
            if cell.modifier.contains(modifier) {
                codes += code;
            }
        }
        if self.has_colours {
            codes += match cell.fg {
                Color::Red => ";31",
                Color::Green => ";32",
                Color::Yellow => ";33",
                Color::Cyan => ";36",
                _ => "",
            };
        }
        codes
    }
}

impl Backend for Ansi {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let (mut next, mut last) = (None, String::new());
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.add(format_args!("\x1b[{};{}H", y + 1, x + 1));
            }
            let style = self.style(cell);
            if style != last {
                self.add(format_args!("\x1b[{style}m"));
                last = style;
            }
            self.frame += cell.symbol();
            // A wide character covers the next cell, which is not drawn.
            next = Some((x + 1, y)).filter(|_| cell.symbol().is_ascii());
        }
        self.frame += "\x1b[0m";
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.frame += "\x1b[?25l";
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.frame += "\x1b[?25h";
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        self.add(format_args!("\x1b[{};{}H", y + 1, x + 1));
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.frame += match clear_type {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[K",
        };
        Ok(())
    }

    /// 80x24 if the terminal does not report its size.
    fn size(&self) -> io::Result<Size> {
        Ok(match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Size::new(size.ws_col, size.ws_row),
            _ => Size::new(80, 24),
        })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        print(&std::mem::take(&mut self.frame))
    }
}

/// The keys in a read from the terminal. Escape sequences arrive whole.
fn keys_in(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let (key, used) = match (first, behind) {
            (b'\x1b', [b'[' | b'O', b'A', ..]) => (Some(Key::Up), 3),
            (b'\x1b', [b'[' | b'O', b'B', ..]) => (Some(Key::Down), 3),
            (b'\x1b', [b'[', b'5', b'~', ..]) => (Some(Key::PageUp), 4),
            (b'\x1b', [b'[', b'6', b'~', ..]) => (Some(Key::PageDown), 4),
            (b'\x1b', [b'[' | b'O', _, ..]) => (None, 3),
            (b'\x1b', _) => (Some(Key::Escape), 1),
            (b'\r' | b'\n', _) => (Some(Key::Enter), 1),
            (b'\x7f' | b'\x08', _) => (Some(Key::Backspace), 1),
            _ => typed(rest),
        };
        keys.extend(key);
        rest = rest.get(used..).unwrap_or_default();
    }
    keys
}

/// A character that is not a control character, and its length in bytes.
fn typed(bytes: &[u8]) -> (Option<Key>, usize) {
    let valid = bytes.utf8_chunks().next().map(|chunk| chunk.valid());
    match valid.and_then(|text| text.chars().next()) {
        Some(character) if character.is_control() => (None, 1),
        Some(character) => (Some(Key::Char(character)), character.len_utf8()),
        None => (None, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        assert_eq!(
            keys_in(b"\x1b[Aj\x1bOB\x1b[5~\x1b[6~q\r\x7f"),
            [
                Key::Up,
                Key::Char('j'),
                Key::Down,
                Key::PageUp,
                Key::PageDown,
                Key::Char('q'),
                Key::Enter,
                Key::Backspace,
            ]
        );
        assert_eq!(keys_in("ä\x1b".as_bytes()), [Key::Char('ä'), Key::Escape]);
        assert!(keys_in(b"\x1b[Z\x01\xff").is_empty());
    }
}
