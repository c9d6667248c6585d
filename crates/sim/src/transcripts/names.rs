//! Stable names for what is drawn at random or counted by the servers.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The longest data that is shown.
const DATA_MAX: usize = 600;

/// The first number that no sequential node has. Zxids are higher, because the first epoch is 1.
const SEQUENCE_END: &str = "2147483648";

/// What is before a fencing token in JSON. It is a zxid too, and those of a single server may be small.
const TOKEN: &str = "\"token\":";

/// Stable names: `<A>` for the session of client A, `<id1>` for an id, `<n1>` for the number of a sequential node, `<zxid1>`, `<token>`, `<time>`.
/// Those with a number count from the beginning of a step, in the order in which they appear.
#[derive(Debug, Default)]
pub(super) struct Names {
    sessions: BTreeMap<String, char>,
    known: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Names {
    /// A step begins.
    pub(super) fn begin(&mut self) {
        self.known.clear();
        self.counts.clear();
    }

    pub(super) fn session(&mut self, id: i64, who: char) {
        self.sessions.insert(format!("{id:x}"), who);
        self.sessions.insert(format!("{id:016x}"), who);
        self.sessions.insert(id.to_string(), who);
    }

    pub(super) fn path(&mut self, path: &Option<Cow<'_, str>>) -> String {
        self.of(path.as_deref().unwrap_or("(null)"))
    }

    /// The data of a node, one line each. None if there is no data.
    pub(super) fn data(&mut self, data: Option<&[u8]>) -> Vec<String> {
        let data = data.unwrap_or_default();
        if data.is_empty() {
            return Vec::new();
        }
        if data.len() > DATA_MAX {
            return vec![format!("{} bytes", data.len())];
        }
        let text = String::from_utf8_lossy(data).into_owned();
        text.lines().map(|line| self.of(line)).collect()
    }

    /// The same text with stable names.
    pub(super) fn of(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let word = rest.find(|c: char| !c.is_ascii_alphanumeric());
            let separator = rest.chars().next().map_or(1, char::len_utf8);
            let end = match uuid(rest).or(word) {
                Some(0) => separator,
                end => end.unwrap_or(rest.len()),
            };
            let (word, behind) = rest.split_at(end);
            let is_token = out.ends_with(TOKEN) && word.parse::<i64>().is_ok();
            out += &if is_token {
                "<token>".to_owned()
            } else {
                self.word(word)
            };
            rest = behind;
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        if let Some(who) = self.sessions.get(word) {
            return format!("<{who}>");
        }
        let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit());
        let is_hex = word
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let kind = match word.len() {
            10 if is_decimal && word < SEQUENCE_END => "n",
            10..13 if is_decimal => "zxid",
            13.. if is_decimal => return "<time>".to_owned(),
            16.. if is_hex => "id",
            _ => return word.to_owned(),
        };
        if let Some(name) = self.known.get(word) {
            return name.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let name = format!("<{kind}{count}>");
        self.known.insert(word.to_owned(), name.clone());
        name
    }
}

/// The length of a UUID at the beginning of a text.
fn uuid(text: &str) -> Option<usize> {
    const LENGTH: usize = 36;
    let start = text.as_bytes().get(..LENGTH)?;
    let is_one = start.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    is_one.then_some(LENGTH)
}
