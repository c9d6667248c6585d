//! The line format of Java's property files, as `java.util.Properties.load` reads it.

use std::iter::Peekable;
use std::str::{Chars, Lines};

/// One `key=value`, with the number of the line on which it starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Property {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: String,
}

/// A `\u` that is not followed by four hexadecimal digits of a character.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadEscape {
    pub(super) line: usize,
}

/// Parses `text` in order. A key may occur more than once.
pub(super) fn properties(text: &str) -> Properties<'_> {
    Properties {
        lines: text.lines(),
        line: 0,
    }
}

/// See [`properties`].
#[derive(Debug)]
pub(super) struct Properties<'a> {
    lines: Lines<'a>,
    line: usize,
}

impl Iterator for Properties<'_> {
    type Item = Result<Property, BadEscape>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut logical = self.next_line()?.to_owned();
            if logical.is_empty() || logical.starts_with(['#', '!']) {
                continue;
            }
            let line = self.line;
            while continues(&logical) {
                logical.pop();
                match self.next_line() {
                    Some(more) => logical.push_str(more),
                    None => break,
                }
            }
            return Some(split(&logical, line).ok_or(BadEscape { line }));
        }
    }
}

impl<'a> Properties<'a> {
    /// The next line without leading blanks.
    fn next_line(&mut self) -> Option<&'a str> {
        self.line += 1;
        self.lines
            .next()
            .map(|line| line.trim_start_matches(is_blank))
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0C')
}

/// Whether the line ends in a backslash that is not itself escaped.
fn continues(line: &str) -> bool {
    let backslashes = line.len() - line.trim_end_matches('\\').len();
    backslashes % 2 == 1
}

/// Splits a logical line into key and value; `None` if an escape in it is malformed.
fn split(logical: &str, line: usize) -> Option<Property> {
    let mut chars = logical.chars().peekable();
    let key = take(&mut chars, |c| is_blank(c) || c == '=' || c == ':')?;
    skip_blanks(&mut chars);
    if chars.next_if(|c| matches!(c, '=' | ':')).is_some() {
        skip_blanks(&mut chars);
    }
    let value = take(&mut chars, |_| false)?;
    Some(Property { line, key, value })
}

fn skip_blanks(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| is_blank(*c)).is_some() {}
}

/// Unescapes up to the first unescaped character that is an `end`.
fn take(chars: &mut Peekable<Chars<'_>>, end: impl Fn(char) -> bool) -> Option<String> {
    let mut taken = String::new();
    while let Some(c) = chars.next_if(|c| !end(*c)) {
        taken.push(if c == '\\' { unescape(chars)? } else { c });
    }
    Some(taken)
}

/// Decodes the escape whose backslash was just read.
fn unescape(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    Some(match chars.next()? {
        't' => '\t',
        'n' => '\n',
        'r' => '\r',
        'f' => '\x0C',
        'u' => {
            let mut code = 0;
            for _ in 0..4 {
                code = code * 16 + chars.next()?.to_digit(16)?;
            }
            char::from_u32(code)?
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        properties(text)
            .map(|property| property.unwrap())
            .map(|p| (p.line, p.key, p.value))
            .collect()
    }

    fn pair(text: &str) -> (String, String) {
        let [(_, key, value)] = pairs(text).try_into().unwrap();
        (key, value)
    }

    #[test]
    fn equals_colon_and_blanks_separate() {
        for text in ["k=v", "k:v", "k v", "  k = v", "k\t:\tv", "k   v"] {
            assert_eq!(pair(text), ("k".into(), "v".into()), "{text:?}");
        }
        assert_eq!(pair("k==v"), ("k".into(), "=v".into()));
        assert_eq!(
            pair("server.1=a:2888:3888"),
            ("server.1".into(), "a:2888:3888".into())
        );
        assert_eq!(pair("k"), ("k".into(), String::new()));
    }

    #[test]
    fn comments_and_blank_lines_are_counted_but_not_returned() {
        let text = "# one\n\n  ! three\nk=v # not a comment\r\n\t\nl=w";
        assert_eq!(
            pairs(text),
            [
                (4, "k".into(), "v # not a comment".into()),
                (6, "l".into(), "w".into())
            ]
        );
    }

    #[test]
    fn a_backslash_joins_lines_and_a_doubled_one_does_not() {
        assert_eq!(
            pairs("k=a,\\\n   b,\\\n   # c\nl=w\\\\\nm=x\\"),
            [
                (1, "k".into(), "a,b,# c".into()),
                (4, "l".into(), "w\\".into()),
                (5, "m".into(), "x".into())
            ]
        );
        // A comment has no continuation line, even if it ends in a backslash.
        assert_eq!(pairs("# c\\\nk=v"), [(2, "k".into(), "v".into())]);
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(
            pair("a\\ b\\=c = \\u0041\\t\\q\\\\"),
            ("a b=c".into(), "A\tq\\".into())
        );
        for text in ["k=\\u12", "k=\\uD800", "k=\\u+123"] {
            let results: Vec<_> = properties(text).collect();
            assert_eq!(results, [Err(BadEscape { line: 1 })], "{text:?}");
        }
    }
}
