//! Durations such as `30s`, `1h30m`, `0.5s`, `1d`. A number without a unit means seconds, as for `sleep` and `flock`.

use std::time::Duration;

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut sum = Duration::ZERO;
    let mut rest = text;
    loop {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, behind) = rest.split_at(number_end.unwrap_or(rest.len()));
        let unit_end = behind.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, behind) = behind.split_at(unit_end.unwrap_or(behind.len()));
        let unit_s = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            // After a part with a unit, a number without one would be ambiguous.
            "" if rest.len() == text.len() && behind.is_empty() => 1.0,
            _ => return Err(FORM.to_owned()),
        };
        // `.5` and `5.` are numbers, but a point alone is not.
        let number: f64 = number.parse().map_err(|_| FORM.to_owned())?;
        let part = Duration::try_from_secs_f64(number * unit_s);
        let added = part.ok().and_then(|part| sum.checked_add(part));
        sum = added.ok_or_else(|| "too long".to_owned())?;
        rest = behind;
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

const FORM: &str = "a time looks like 30s, 1h30m or 0.5s, with the units ms, s, m, h and d";

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
            ("1d", 86_400_000),
            ("1h30m", 5_400_000),
            ("0.5s", 500),
            ("1.5h", 5_400_000),
            (".25s", 250),
            ("3", 3000),
            ("0.2", 200),
            ("7ms", 7),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "s",
            "-1s",
            "-1",
            "1m30",
            ".",
            ".s",
            "1.2.3s",
            "1e3s",
            "30 s",
            "30x",
            "é",
            "18446744073709551615h",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
