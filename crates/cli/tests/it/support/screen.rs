//! Renders bytes that were sent to a terminal.

/// The size of the terminals in tests.
pub(crate) const ROWS: u16 = 24;
pub(crate) const COLUMNS: u16 = 200;

/// The rows of the screen, without blanks at their ends and without empty rows at the end.
pub(crate) fn rows(sent: &str) -> Vec<String> {
    let size = [ROWS, COLUMNS].map(|length| length.try_into().unwrap());
    let mut terminal = vt100::Parser::new(size[0], size[1], 0);
    terminal.process(sent.as_bytes());
    let rows = terminal.screen().rows(0, COLUMNS);
    let mut rows: Vec<_> = rows.map(|row| row.trim_end().to_owned()).collect();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows
}
