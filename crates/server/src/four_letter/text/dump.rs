//! `dump`: sessions and connections by expiry time, and ephemeral nodes by session.

use std::fmt;

use super::connections::JavaAddress;
use crate::client::PeerAddress;

/// Content of `dump`. Buckets are sorted by time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dump {
    pub(crate) sessions: Vec<ExpiryBucket<i64>>,
    /// Sessions with the paths of their ephemeral nodes.
    pub(crate) ephemerals: Vec<(i64, Vec<String>)>,
    pub(crate) connections: Vec<ExpiryBucket<ConnectionEntry>>,
}

/// Items that expire at one time, unless they are touched.
#[derive(Debug, Clone)]
pub(crate) struct ExpiryBucket<T> {
    /// Wall-clock milliseconds.
    pub(crate) expires_ms: i64,
    pub(crate) members: Vec<T>,
}

/// A connection; session 0 if it has none yet.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionEntry {
    pub(crate) peer: PeerAddress,
    pub(crate) session: i64,
}

/// The answer to `dump`.
pub(crate) fn dump(dump: &Dump) -> String {
    let sessions = buckets("Session", &dump.sessions, |id| format!("0x{id:x}"));
    let owners = dump.ephemerals.len();
    let ephemerals: String = dump
        .ephemerals
        .iter()
        .map(|(id, paths)| {
            let paths: String = paths.iter().map(|path| format!("\t{path}\n")).collect();
            format!("0x{id:x}:\n{paths}")
        })
        .collect();
    let connections = buckets("Connections", &dump.connections, |connection| {
        let ConnectionEntry { peer, session } = connection;
        format!("ip: {} sessionId: 0x{session:x}", JavaAddress(*peer))
    });
    format!(
        "SessionTracker dump:\n{sessions}\
         ephemeral nodes dump:\nSessions with Ephemerals ({owners}):\n{ephemerals}\
         Connections dump:\n{connections}"
    )
}

fn buckets<T>(what: &str, buckets: &[ExpiryBucket<T>], line: impl Fn(&T) -> String) -> String {
    let members: usize = buckets.iter().map(|bucket| bucket.members.len()).sum();
    let mut text = format!("{what} Sets ({})/({members}):\n", buckets.len());
    for bucket in buckets {
        let date = Date(bucket.expires_ms);
        text += &format!("{} expire at {date}:\n", bucket.members.len());
        for member in &bucket.members {
            text += &format!("\t{}\n", line(member));
        }
    }
    text
}

/// A time in wall-clock milliseconds, formatted like Java's `Date.toString` in UTC.
struct Date(i64);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        // Times before 1970 are clamped, whatever the machine's clock says.
        let seconds = u64::try_from(self.0 / 1000).unwrap_or(0);
        let days = seconds / 86400;
        let (year, month, day) = civil_from_days(days);
        write!(
            f,
            "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
            // 1 January 1970 was a Thursday.
            WEEKDAYS[(days % 7) as usize],
            MONTHS[month],
            seconds / 3600 % 24,
            seconds / 60 % 60,
            seconds % 60,
        )
    }
}

/// Year, month counted from 0 and day counted from 1, of a day counted from 1 January 1970.
fn civil_from_days(days: u64) -> (u64, usize, u64) {
    // In years that start in March the leap day is the last day, so the lengths of the other months follow one rule: five months have 153
    // days. All eras of 400 years are alike.
    let days = days + 719_468; // since 1 March of the year 0
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month_from_march >= 10);
    (year, (month_from_march as usize + 2) % 12, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_has_the_lines_of_apache() {
        let bucket = |expires_s: i64, members| ExpiryBucket {
            expires_ms: expires_s * 1000 + 999,
            members,
        };
        let entry = |peer: &str, session| ConnectionEntry {
            peer: PeerAddress::Tcp(peer.parse().unwrap()),
            session,
        };
        let connections = vec![
            entry("127.0.0.1:38202", 0x100_001f_f0de_0000),
            entry("127.0.0.1:38304", 0),
        ];
        let text = dump(&Dump {
            sessions: vec![
                bucket(1_794_792_824, vec![]),
                bucket(1_794_792_826, vec![0x100_001f_f0de_0000]),
                bucket(1_794_792_834, vec![0x100_001f_f0de_0001]),
            ],
            ephemerals: vec![(0x100_001f_f0de_0001, vec!["/app/g".into(), "/app/f".into()])],
            connections: vec![ExpiryBucket {
                expires_ms: 1_794_792_830_000,
                members: connections,
            }],
        });
        let expected = "\
SessionTracker dump:
Session Sets (3)/(2):
0 expire at Mon Nov 16 01:33:44 UTC 2026:
1 expire at Mon Nov 16 01:33:46 UTC 2026:
\t0x100001ff0de0000
1 expire at Mon Nov 16 01:33:54 UTC 2026:
\t0x100001ff0de0001
ephemeral nodes dump:
Sessions with Ephemerals (1):
0x100001ff0de0001:
\t/app/g
\t/app/f
Connections dump:
Connections Sets (1)/(2):
2 expire at Mon Nov 16 01:33:50 UTC 2026:
\tip: /127.0.0.1:38202 sessionId: 0x100001ff0de0000
\tip: /127.0.0.1:38304 sessionId: 0x0
";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_empty_server_still_has_its_headings() {
        assert_eq!(
            dump(&Dump::default()),
            "SessionTracker dump:\nSession Sets (0)/(0):\nephemeral nodes dump:\n\
             Sessions with Ephemerals (0):\nConnections dump:\nConnections Sets (0)/(0):\n"
        );
    }

    #[test]
    fn dates_are_right_around_leap_days_and_centuries() {
        for (seconds, text) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
            (951_868_799, "Tue Feb 29 23:59:59 UTC 2000"),
            (951_868_800, "Wed Mar 01 00:00:00 UTC 2000"),
            (1_709_164_800, "Thu Feb 29 00:00:00 UTC 2024"),
            (1_735_689_599, "Tue Dec 31 23:59:59 UTC 2024"),
            (1_794_786_124, "Sun Nov 15 23:42:04 UTC 2026"),
            (4_107_542_400, "Mon Mar 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(Date(seconds * 1000).to_string(), text);
        }
    }

    #[test]
    fn each_day_is_the_one_after_the_day_before() {
        let mut before = civil_from_days(0);
        for days in 1..366 * 500 {
            let (year, month, day) = civil_from_days(days);
            let follows = match (year - before.0, day) {
                (0, 1) => month == before.1 + 1 && before.2 >= 28,
                (0, _) => month == before.1 && day == before.2 + 1,
                _ => (month, day) == (0, 1) && (before.1, before.2) == (11, 31),
            };
            assert!(follows, "{before:?} then {:?}", (year, month, day));
            before = (year, month, day);
        }
    }
}
