//! Data, access lists, paths and numbers, as text and as JSON.

use bellwether_dashboard::json::rights;
use bellwether_wire::acl::Acl;
use serde_json::{Value, json};

pub(crate) use bellwether_dashboard::json::acl as acl_json;

use crate::value::data_json::DataJson;

/// How many characters of data a line shows.
const DATA_SHOWN_MAX: usize = 64;

/// A number with its noun: `1 node`, `2 nodes`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

/// A zxid or a session id.
pub(crate) fn hex(number: i64) -> String {
    format!("{number:#x}")
}

/// Data in quotes if it is printable text, else in hexadecimal, cut to the length of a line.
pub(crate) fn data_text(data: Option<&[u8]>) -> String {
    let Some(data) = data else {
        return "null".into();
    };
    let text = std::str::from_utf8(data).ok();
    let printable = text.filter(|text| !text.chars().any(char::is_control));
    let (shown, whole) = match printable {
        Some(text) => {
            let shown: String = text.chars().take(DATA_SHOWN_MAX).collect();
            let whole = shown.len() == text.len();
            (format!("{shown:?}"), whole)
        }
        None => {
            let shown = &data[..data.len().min(DATA_SHOWN_MAX / 2)];
            let whole = shown.len() == data.len();
            (format!("0x{}", hex_digits(shown)), whole)
        }
    };
    if whole {
        shown
    } else {
        format!("{shown}…({} bytes)", data.len())
    }
}

/// Whether data can be shown on a terminal: text without control characters except newlines and tabs.
pub(crate) fn is_plain_text(data: &[u8]) -> bool {
    std::str::from_utf8(data).is_ok_and(|text| {
        text.chars()
            .all(|c| matches!(c, '\n' | '\t') || !c.is_control())
    })
}

/// Data as an object: `text` if it is UTF-8, else `base64`; null for null.
pub(crate) fn data_json(data: Option<&[u8]>) -> Value {
    json!(data.map(|data| DataJson::from(data.to_vec())))
}

/// A path with escapes, so that it stays on one line.
pub(crate) fn path_text(path: &str) -> String {
    let escape = |c: char| match c {
        ' ' | '\\' => format!("\\u{{{:x}}}", u32::from(c)),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    path.chars().map(escape).collect()
}

/// An access list in the format of `zkCli.sh`: `world:anyone:cdrwa`, separated by commas.
pub(crate) fn acl_text(list: &[Acl]) -> String {
    let entries: Vec<_> = list
        .iter()
        .map(|acl| path_text(&format!("{}:{}:{}", acl.id.scheme, acl.id.id, rights(acl))))
        .collect();
    entries.join(",")
}

fn hex_digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_text_if_it_can_be_and_never_longer_than_a_line() {
        assert_eq!(data_text(None), "null");
        assert_eq!(data_text(Some(b"")), "\"\"");
        assert_eq!(data_text(Some("käse".as_bytes())), "\"käse\"");
        assert_eq!(data_text(Some(b"a\nb")), "0x610a62");
        assert_eq!(data_text(Some(&[0xFF, 0])), "0xff00");
        assert!(data_text(Some(&[b'x'; 1000])).ends_with("x\"…(1000 bytes)"));
        assert!(data_text(Some(&[0; 1000])).ends_with("00…(1000 bytes)"));
    }

    #[test]
    fn escape_sequences_are_no_plain_text() {
        assert!(is_plain_text("a\tkäse\n".as_bytes()));
        assert!(!is_plain_text(b"\x1b[2J") && !is_plain_text(&[0xff]));
    }

    #[test]
    fn one_is_not_many() {
        let counts = [0, 1, 2].map(|number| counted(number, "node"));
        assert_eq!(counts, ["0 nodes", "1 node", "2 nodes"]);
    }

    #[test]
    fn paths_stay_on_their_line() {
        assert_eq!(path_text("/a b\n\u{1b}[0m"), "/a\\u{20}b\\n\\u{1b}[0m");
        assert_eq!(path_text("/käse"), "/käse");
    }

    #[test]
    fn rights_are_letters() {
        assert_eq!(acl_text(&[Acl::open()]), "world:anyone:cdrwa");
    }
}
