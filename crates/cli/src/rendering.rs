//! Data, access lists, times and numbers, as text for people and as JSON.

use bellwether_server::proto::acl::{self, Acl};
use serde_json::{Value, json};

use crate::payload::DataJson;

/// How much data a line of text shows.
const DATA_SHOWN_MAX: usize = 64;

/// Rights and the letters that `zkCli.sh` has for them.
const RIGHTS: [(i32, char); 5] = [
    (acl::CREATE, 'c'),
    (acl::DELETE, 'd'),
    (acl::READ, 'r'),
    (acl::WRITE, 'w'),
    (acl::ADMIN, 'a'),
];

/// A number of things: `1 node`, `2 nodes`.
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

/// Data in quotes if it is printable text, else in hexadecimal; what is longer than a line is cut.
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

/// Data as an object: `text` if it is UTF-8, else `base64`; null for null.
pub(crate) fn data_json(data: Option<&[u8]>) -> Value {
    json!(data.map(|data| DataJson::from(data.to_vec())))
}

/// A path on one line, whatever is in it.
pub(crate) fn path_text(path: &str) -> String {
    let escape = |c: char| match c {
        ' ' | '\\' => format!("\\u{{{:x}}}", u32::from(c)),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    path.chars().map(escape).collect()
}

/// As `zkCli.sh` takes it: `world:anyone:cdrwa`, joined by commas.
pub(crate) fn acl_text(list: &[Acl]) -> String {
    let entries: Vec<_> = list
        .iter()
        .map(|acl| path_text(&format!("{}:{}:{}", acl.id.scheme, acl.id.id, rights(acl))))
        .collect();
    entries.join(",")
}

pub(crate) fn acl_json(list: &[Acl]) -> Value {
    let entry =
        |acl: &Acl| json!({"scheme": acl.id.scheme, "id": acl.id.id, "rights": rights(acl)});
    list.iter().map(entry).collect()
}

fn rights(acl: &Acl) -> String {
    let has = RIGHTS.iter().filter(|(right, _)| acl.perms & right != 0);
    has.map(|(_, letter)| letter).collect()
}

/// A wall clock time in UTC, such as `2024-02-29T12:34:56.789Z`.
pub(crate) fn time_text(ms: i64) -> String {
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    let (days, ms) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = civil(days);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1000 % 60, ms % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The date so many days after 1970-01-01. Years begin in March here, so that a leap day is the last
/// one, and an era is the 400 years after which the calendar repeats.
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097;
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (400 * era + year_of_era + i64::from(month <= 2), month, day)
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
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time_text(ms), text);
        }
    }

    #[test]
    fn rights_are_letters() {
        assert_eq!(acl_text(&[Acl::open()]), "world:anyone:cdrwa");
    }
}
