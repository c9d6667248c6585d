//! Wall clock times in the local time zone, or that of `TZ`.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

/// A time such as `2024-02-29T13:34:56.789+01:00`, or with `Z` if the zone is UTC. All times of one zone have the same length.
pub(crate) fn time_text(ms: i64) -> String {
    static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);
    in_zone(ms, &ZONE)
}

/// The present time.
pub(crate) fn now_text() -> String {
    time_text(Timestamp::now().as_millisecond())
}

fn in_zone(ms: i64, zone: &TimeZone) -> String {
    // Servers accept any number as a time.
    let Ok(time) = Timestamp::from_millisecond(ms) else {
        return format!("{ms}ms");
    };
    let format = match is_utc(zone) {
        true => "%Y-%m-%dT%H:%M:%S.%3fZ",
        false => "%Y-%m-%dT%H:%M:%S.%3f%:z",
    };
    time.to_zoned(zone.clone()).strftime(format).to_string()
}

/// Whether the zone is UTC all year, whatever its name.
fn is_utc(zone: &TimeZone) -> bool {
    let solstices = [JUNE_2024, DECEMBER_2024].map(Timestamp::from_second);
    let mut offsets = solstices
        .into_iter()
        .flatten()
        .map(|time| zone.to_offset(time));
    offsets.all(|offset| offset == Offset::UTC)
}

const JUNE_2024: i64 = 1_718_900_000;
const DECEMBER_2024: i64 = 1_734_700_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_007, "2024-02-29T23:59:59.007Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(in_zone(ms, &TimeZone::UTC), text);
        }
        assert_eq!(in_zone(i64::MAX, &TimeZone::UTC), format!("{}ms", i64::MAX));
    }

    #[test]
    fn times_are_those_of_the_zone_with_its_summer() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(in_zone(0, &zone), "1970-01-01T01:00:00.000+01:00");
        let summer = in_zone(1_720_000_000_000, &zone);
        // No other offset in winter than UTC's, and shown all the same: times are equally long.
        let london = TimeZone::posix("GMT0BST,M3.5.0/1,M10.5.0").unwrap();
        assert_eq!(in_zone(0, &london), "1970-01-01T00:00:00.000+00:00");
        assert_eq!(summer, "2024-07-03T11:46:40.000+02:00");
    }
}
