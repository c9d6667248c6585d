//! Durations as people type them: `500ms`, `30s`, `5m`, `2h`.

use std::time::Duration;

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return Err("write a number and ms, s, m or h, such as 30s".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "write a number and its unit, such as 30s".to_owned())?;
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| "too long".to_owned())
}

/// A duration for people, in its two largest units.
pub(crate) fn text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_are_enough_for_people() {
        for (seconds, expected) in [
            (0, "0s"),
            (59, "59s"),
            (192, "3m12s"),
            (7260, "2h1m"),
            (90_000, "1d1h"),
        ] {
            assert_eq!(text(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn units_are_read() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "s",
            "30",
            "-1s",
            "1.5s",
            "30 s",
            "30x",
            "é",
            "18446744073709551615h",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
