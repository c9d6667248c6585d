//! Ids of new sessions.

/// Largest session id assigned here: the highest byte of all ids is 0.
///
/// Apache puts the server's number there, which is 1 for a single server and 1 to 255 in an ensemble
/// (`SessionTrackerImpl.initializeNextSessionId`). So no session, open or closed, of a folder used by Apache has an id of ours. Nor does an
/// id collide with the marks of containers and TTLs, which a node stores in place of an id.
const LAST: i64 = (1 << 56) - 1;

/// Bits of an id that count sessions within a millisecond.
const COUNTER_BITS: u32 = 16;

/// First session id after a start: above the ids of all sessions that are `open`. The others follow it.
///
/// The time of day keeps it above the ids of closed sessions as well: their clients may return, and must not find another client's session
/// under their id. Apache's clock counts from boot, and may repeat ids.
pub(super) fn first(wall_ms: i64, open: impl Iterator<Item = i64>) -> i64 {
    let by_time = (wall_ms << COUNTER_BITS) & LAST;
    let ours = open.filter(|id| (0..LAST).contains(id)).max();
    by_time.max(ours.unwrap_or(0) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::session::{Passwords, SessionTable};

    const NOW_MS: i64 = 1_790_000_000_000;

    /// Opens some sessions beside those of an earlier run, and returns their ids.
    fn opened(earlier: &[i64]) -> Vec<i64> {
        let with_timeout = earlier.iter().map(|id| (*id, 10_000));
        let table = SessionTable::new(
            Clock::start(),
            2000,
            NOW_MS,
            Passwords::apache(),
            with_timeout,
        );
        (0..10).map(|_| table.open(10_000, None).0.id).collect()
    }

    #[test]
    fn a_foreign_id_does_not_lead_to_one_that_is_taken() {
        let own = opened(&[]);
        for server in [-128, -1, 1, 3, 127] {
            let foreign = (server << 56) | (own[9] + 5);
            let earlier = [&own[..], &[foreign]].concat();
            let new = opened(&earlier);
            assert!(
                new.iter()
                    .all(|id| *id > own[9] && id >> 56 == own[0] >> 56)
            );
        }
    }

    #[test]
    fn no_server_of_apache_gives_out_such_an_id() {
        let ids = opened(&[]);
        assert!(ids.iter().all(|id| *id > 0 && id >> 56 == 0), "{ids:x?}");
        assert_eq!(first(0, std::iter::empty()), 1, "0 is no session");
    }

    #[test]
    fn an_id_at_the_end_of_the_range_does_not_lead_out_of_it() {
        let by_time = first(NOW_MS, std::iter::empty());
        assert_eq!(first(NOW_MS, [LAST].into_iter()), by_time);
        assert_eq!(first(NOW_MS, [LAST - 1].into_iter()), LAST);
    }
}
