//! Draws the board: a summary, a table, and a line for keys and questions.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::board::{Board, Mode};
use super::entry::{Entry, State};
use crate::output::people::age;
use crate::output::rendering::path_text;
use crate::value::duration;

/// The line that explains the keys.
const KEYS: &str = "↑ ↓ select   / filter   w why   r revoke   b break   q quit";

/// The number of rows beside the table's content: summary, header, keys.
pub(crate) const OTHER_ROWS: u16 = 3;

/// The longest column of paths.
const PATH_COLUMNS_MAX: usize = 60;

pub(crate) fn draw(frame: &mut Frame<'_>, board: &Board, path: &str) {
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(summary(board, path), top);
    match &board.mode {
        Mode::Why(lines) => {
            let lines = lines.iter().map(|line| Line::raw(line.as_str()));
            frame.render_widget(Text::from_iter(lines), middle);
        }
        _ => {
            let mut state = TableState::new().with_selected(Some(board.selected));
            frame.render_stateful_widget(table(&board.rows()), middle, &mut state);
        }
    }
    frame.render_widget(foot(board), bottom);
}

fn summary<'a>(board: &'a Board, path: &str) -> Line<'a> {
    let counts = board.counts;
    let mut parts = vec![
        format!("bellwether locks {}  ", path_text(path)).bold(),
        format!("{} held, {} waiting", counts.held, counts.waiting).into(),
    ];
    if counts.deadlocks > 0 {
        parts.push(", ".into());
        parts.push(format!("{} DEADLOCK", counts.deadlocks).red().bold());
    }
    if counts.crashed > 0 {
        parts.push(", ".into());
        parts.push(format!("{} crashed", counts.crashed).yellow().bold());
    }
    if board.overview.unexplored > 0 {
        let unexplored = board.overview.unexplored;
        parts.push(format!(", {unexplored} directories not looked at").yellow());
    }
    if !board.said.is_empty() {
        parts.push("  ".into());
        parts.push(Span::raw(&board.said).cyan());
    }
    Line::from(parts)
}

fn table<'a>(entries: &[&'a Entry]) -> Table<'a> {
    let rows: Vec<_> = entries.iter().map(|entry| row(entry)).collect();
    let width = |column: fn(&Entry) -> usize, name: &str| {
        let longest = entries.iter().map(|entry| column(entry)).max();
        longest.unwrap_or_default().max(name.len())
    };
    let length = |columns: usize| Constraint::Length(u16::try_from(columns).unwrap_or(u16::MAX));
    let path = width(|entry| entry.shown_path.chars().count(), "path").min(PATH_COLUMNS_MAX);
    let what = width(|entry| entry.what.chars().count(), "what").min(PATH_COLUMNS_MAX);
    let widths = [
        length("DEADLOCK".len()),
        length(path),
        length(what),
        Constraint::Fill(1),
        length("59m59s".len()),
        length(width(|entry| token(entry).len(), "token")),
    ];
    let names = ["state", "path", "what", "who", "age", "token"];
    Table::new(rows, widths)
        .header(Row::new(names).style(Modifier::BOLD))
        .column_spacing(2)
        .row_highlight_style(Modifier::REVERSED)
}

fn row(entry: &Entry) -> Row<'_> {
    let style = match entry.state {
        State::Deadlock => Style::new().red().bold(),
        State::Crashed | State::Asked => Style::new().yellow(),
        State::Holds => Style::new().green(),
        State::Waits | State::Other => Style::new(),
    };
    let age = entry.since.map(|since| duration::text(age(since)));
    Row::new([
        Cell::from(entry.word).style(style),
        Cell::from(entry.shown_path.as_str()),
        Cell::from(entry.what.as_str()),
        Cell::from(entry.who.as_str()),
        Cell::from(age.unwrap_or_default()),
        Cell::from(token(entry)),
    ])
}

fn token(entry: &Entry) -> String {
    entry
        .token
        .map(|token| token.to_string())
        .unwrap_or_default()
}

fn foot(board: &Board) -> Line<'_> {
    match &board.mode {
        Mode::Table if board.filter.is_empty() => Line::raw(KEYS),
        Mode::Table => Line::raw(format!("filter: {}   Esc clears it   {KEYS}", board.filter)),
        Mode::Filter => Line::raw(format!("filter: {}_", board.filter)).bold(),
        Mode::Confirm(_, _, question) => Line::raw(question.as_str()).bold(),
        Mode::Why(_) => Line::raw("press any key to go back"),
    }
}
