//! Which ids new sessions get.

/// Ids from 0 to this one are given out here, all with 0 in their highest byte.
///
/// Apache puts the number of the server there, which is 1 for a single server and from 1 to 255 in an ensemble
/// (`SessionTrackerImpl.initializeNextSessionId`): no session of a folder that Apache has used, open or closed, has an id of
/// ours. Neither have the marks of containers and of times to live, which take the place of an id in a node.
const LAST: i64 = (1 << 56) - 1;

/// The bits of an id that count sessions within a millisecond.
const COUNTER_BITS: u32 = 16;

/// The id of the first session after a start, the others follow: above that of every session that is `open`.
///
/// The time of day keeps it above those of closed sessions as well, whose clients may come back and must not find
/// another's session under their id. Apache's clock counts from boot, and may repeat ids.
pub(super) fn first(wall_ms: i64, open: impl Iterator<Item = i64>) -> i64 {
    let by_time = (wall_ms << COUNTER_BITS) & LAST;
    let ours = open.filter(|id| (0..LAST).contains(id)).max();
    by_time.max(ours.unwrap_or(0) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::session::SessionTable;

    const NOW_MS: i64 = 1_790_000_000_000;

    /// Opens some sessions beside those of an earlier run, and returns their ids.
    fn opened(earlier: &[i64]) -> Vec<i64> {
        let with_timeout = earlier.iter().map(|id| (*id, 10_000));
        let table = SessionTable::new(Clock::start(), 2000, NOW_MS, with_timeout);
        (0..10).map(|_| table.open(10_000).id).collect()
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
