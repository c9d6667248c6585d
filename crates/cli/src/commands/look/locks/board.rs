//! The state of the screen, and what keys do to it, without a terminal.

use bellwether::inspect::{Overview, QueueEntry};

use super::entry::{Counts, Entry, entries};
use crate::output::screen::Key;

/// What a user wants to do about a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Revoke,
    Break,
}

impl Deed {
    pub(crate) fn question(self, who: &str, path: &str) -> String {
        match self {
            Self::Revoke => format!("ask {who} to release {path}? [y/N]"),
            Self::Break => {
                format!("break the hold of {who} on {path}, in 10s at the latest? [y/N]")
            }
        }
    }
}

/// What the screen shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Table,
    /// The user types the filter.
    Filter,
    /// The user is asked for confirmation.
    Confirm(Deed, Box<QueueEntry>, String),
    /// The reasons why a path is not free.
    Why(Vec<String>),
}

/// What to do after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    None,
    Quit,
    /// Do this to a holder.
    Do(Deed, Box<QueueEntry>),
    /// Show why this path is not free.
    Explain(String),
}

#[derive(Debug)]
pub(crate) struct Board {
    entries: Vec<Entry>,
    pub(crate) counts: Counts,
    pub(crate) overview: Overview,
    pub(crate) filter: String,
    pub(crate) mode: Mode,
    /// The selected row, among those that the filter shows.
    pub(crate) selected: usize,
    /// A notice, such as a lost connection, or the outcome of an action.
    pub(crate) said: String,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            counts: Counts::default(),
            overview: Overview::default(),
            filter: String::new(),
            mode: Mode::Table,
            selected: 0,
            said: String::new(),
        }
    }

    /// Takes in a new survey. The selected row stays selected.
    pub(crate) fn see(&mut self, overview: Overview) {
        let before = self.rows().get(self.selected).map(|entry| {
            let (path, node) = entry.key();
            (path.to_owned(), node.map(str::to_owned))
        });
        self.counts = Counts::of(&overview);
        self.entries = entries(&overview);
        self.overview = overview;
        let again = before.and_then(|(path, node)| {
            let key = (path.as_str(), node.as_deref());
            self.rows().iter().position(|entry| entry.key() == key)
        });
        self.selected = again.unwrap_or(self.selected);
        self.stay_within();
    }

    /// The rows that the filter shows.
    pub(crate) fn rows(&self) -> Vec<&Entry> {
        let entries = self.entries.iter();
        entries.filter(|entry| entry.has(&self.filter)).collect()
    }

    /// Handles a key. `page` is the number of rows on the screen.
    pub(crate) fn press(&mut self, key: Key, page: usize) -> Action {
        let action = match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => self.press_in_table(key, page),
            Mode::Filter => {
                self.edit_filter(key);
                Action::None
            }
            Mode::Confirm(deed, one, _) => match key {
                Key::Char('y' | 'Y') => Action::Do(deed, one),
                _ => {
                    "cancelled".clone_into(&mut self.said);
                    Action::None
                }
            },
            // Any key goes back to the table.
            Mode::Why(_) => Action::None,
        };
        self.stay_within();
        action
    }

    fn press_in_table(&mut self, key: Key, page: usize) -> Action {
        self.said.clear();
        match key {
            Key::Char('q' | 'Q') => return Action::Quit,
            Key::Up | Key::Char('k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Char('j') => self.selected += 1,
            Key::PageUp => self.selected = self.selected.saturating_sub(page),
            Key::PageDown | Key::Char(' ') => self.selected += page,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Escape => self.filter.clear(),
            Key::Char('r') => self.confirm(Deed::Revoke),
            Key::Char('b') => self.confirm(Deed::Break),
            Key::Char('w') | Key::Enter => {
                if let Some(entry) = self.rows().get(self.selected) {
                    return Action::Explain(entry.path.clone());
                }
            }
            Key::Char(_) | Key::Backspace => {}
        }
        Action::None
    }

    fn edit_filter(&mut self, key: Key) {
        match key {
            Key::Enter => return,
            Key::Escape => {
                self.filter.clear();
                return;
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(character) => self.filter.push(character),
            Key::Up | Key::Down | Key::PageUp | Key::PageDown => {}
        }
        self.mode = Mode::Filter;
    }

    fn confirm(&mut self, deed: Deed) {
        let rows = self.rows();
        let entry = rows.get(self.selected);
        let meant = entry.and_then(|entry| {
            let one = entry.entry.as_ref().filter(|one| one.holds)?;
            let question = deed.question(&entry.who, &entry.shown_path);
            Some(Mode::Confirm(deed, Box::new(one.clone()), question))
        });
        match meant {
            Some(confirm) => self.mode = confirm,
            None => "this row is not a holder".clone_into(&mut self.said),
        }
    }

    fn stay_within(&mut self) {
        let last = self.rows().len().saturating_sub(1);
        self.selected = self.selected.min(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(board: &mut Board, keys: &str) -> Action {
        let keys = keys.chars().map(|key| match key {
            '\n' => Key::Enter,
            '\x1b' => Key::Escape,
            '\x7f' => Key::Backspace,
            key => Key::Char(key),
        });
        keys.fold(Action::None, |_, key| board.press(key, 10))
    }

    #[test]
    fn letters_are_of_the_filter_while_it_is_typed() {
        let mut board = Board::new();
        assert_eq!(press(&mut board, "/quux\x7f"), Action::None);
        assert_eq!((board.filter.as_str(), &board.mode), ("quu", &Mode::Filter));
        press(&mut board, "\n");
        assert_eq!((board.filter.as_str(), &board.mode), ("quu", &Mode::Table));
        press(&mut board, "\x1b");
        assert_eq!(board.filter, "");
        assert_eq!(press(&mut board, "q"), Action::Quit);
    }

    #[test]
    fn nothing_is_done_where_nothing_is_held() {
        let mut board = Board::new();
        assert_eq!(press(&mut board, "b"), Action::None);
        assert_eq!(board.mode, Mode::Table);
        assert_eq!(board.said, "this row is not a holder");
        assert_eq!(press(&mut board, "w"), Action::None);
    }
}
