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

#[cfg(test)]
mod tests {
    use super::*;

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
