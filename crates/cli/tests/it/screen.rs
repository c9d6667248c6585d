//! What a person sees of bytes that were sent to a terminal.

/// The rows of a screen that is wide and high enough, without blanks at their ends and without empty rows at the end.
pub(crate) fn rows(sent: &str) -> Vec<String> {
    let mut screen = Screen::default();
    let mut sent = sent.chars();
    while let Some(c) = sent.next() {
        match c {
            '\x1b' => screen.obey(&mut sent),
            '\r' => screen.column = 0,
            '\n' => screen.row += 1,
            '\x08' => screen.column = screen.column.saturating_sub(1),
            c if c.is_control() => {}
            c => screen.put(c),
        }
    }
    let rows = screen.rows.iter().map(String::from_iter);
    let mut rows: Vec<_> = rows.map(|row| row.trim_end().to_owned()).collect();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows
}

#[derive(Default)]
struct Screen {
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    fn put(&mut self, c: char) {
        let column = self.column;
        let row = self.row();
        if row.len() <= column {
            row.resize(column + 1, ' ');
        }
        row[column] = c;
        self.column += 1;
    }

    fn row(&mut self) -> &mut Vec<char> {
        if self.rows.len() <= self.row {
            self.rows.resize(self.row + 1, Vec::new());
        }
        &mut self.rows[self.row]
    }

    /// Reads what follows an escape, as far as it moves the cursor or erases: `[`, a number, a letter.
    fn obey(&mut self, sent: &mut impl Iterator<Item = char>) {
        if sent.next() != Some('[') {
            return;
        }
        let mut number = String::new();
        let letter = loop {
            match sent.next() {
                Some(c) if c.is_ascii_digit() => number.push(c),
                Some(c) if c.is_ascii_alphabetic() => break c,
                Some(_) => {}
                None => return,
            }
        };
        let count = number.parse().unwrap_or(1);
        match (letter, &*number) {
            ('A', _) => self.row = self.row.saturating_sub(count),
            ('B', _) => self.row += count,
            ('C', _) => self.column += count,
            ('D', _) => self.column = self.column.saturating_sub(count),
            ('G', _) => self.column = count.saturating_sub(1),
            ('K', "2") => self.row().clear(),
            ('K', "" | "0") => {
                let column = self.column;
                self.row().truncate(column);
            }
            ('J', "" | "0") => {
                let (row, column) = (self.row, self.column);
                self.row().truncate(column);
                self.rows.truncate(row + 1);
            }
            _ => {}
        }
    }
}

#[test]
fn rows_are_those_that_a_terminal_shows() {
    assert_eq!(rows("one\r\ntwo\r\n"), ["one", "two"]);
    assert_eq!(rows("wait 1\r\x1b[2Kwait 2\x1b[?25l\x1b[1m!"), ["wait 2!"]);
    assert_eq!(rows("a\r\nb\x1b[1A\r\x1b[Kc\x08d"), ["d", "b"]);
    assert_eq!(rows("a\r\nb\x1b[1A\r\x1b[J"), [""; 0]);
}
