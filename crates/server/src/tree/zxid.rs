//! The order of zxids. The upper 32 bits are the epoch, the lower 32 bits count the transactions in it.
//!
//! A czxid is the fencing token of a hold, so no zxid may be assigned twice.

/// The lower half: all ones in the last zxid of an epoch.
const COUNTER: i64 = 0xffff_ffff;

/// The last epoch that Apache can handle: members of an ensemble exchange 32-bit epochs.
pub(crate) const EPOCH_MAX: i64 = i32::MAX as i64;

/// Fits into the lower half.
const HOUR_US: i64 = 3_600_000_000;

/// The epoch of a zxid.
pub(crate) fn epoch(zxid: i64) -> i64 {
    zxid >> 32
}

/// The zxid of the next transaction. After 2^32 − 1 of them the next epoch begins, at 1 as under a new leader.
pub(crate) fn next(zxid: i64) -> i64 {
    if zxid & COUNTER == COUNTER {
        zxid + 2
    } else {
        zxid + 1
    }
}

/// Where a tree that was set back continues: above `above`, and above everything that was assigned until now (`now_us`).
///
/// What was assigned is unknown, so this comes from the clock: the epoch is the number of hours since 1970, and the counter the microseconds
/// within the hour. A server that continues there assigns zxids more slowly than the clock advances. So each later call is above all of them,
/// even for another copy of the same data. Only if the data are ahead of the clock, the epoch after theirs is used.
///
/// An hour makes zxids smaller than 2^53 until the year 2209, so that programs that read tokens as floating-point numbers compare them
/// exactly.
pub(crate) fn continue_above(above: i64, now_us: i64) -> i64 {
    let counter = now_us % HOUR_US;
    let of_clock = ((now_us / HOUR_US) << 32) | counter;
    if of_clock > above {
        of_clock
    } else {
        ((epoch(above) + 1).min(EPOCH_MAX) << 32) | counter
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-01-01.
    const NOW_US: i64 = 1_767_225_600_000_000;

    #[test]
    fn an_epoch_ends_with_its_last_number() {
        assert_eq!(next(0), 1);
        assert_eq!(next(0xffff_fffe), 0xffff_ffff);
        assert_eq!(next(0xffff_ffff), 0x1_0000_0001);
        assert_eq!(next(0x5_ffff_ffff), 0x6_0000_0001);
    }

    #[test]
    fn a_tree_continues_at_the_time_or_in_the_epoch_after_its_own() {
        let at = continue_above(9, NOW_US + 5);
        assert_eq!((epoch(at), at & COUNTER), (NOW_US / HOUR_US, 5));
        let ahead = (600_000 << 32) | 7;
        let at = continue_above(ahead, NOW_US + 5);
        assert_eq!((epoch(at), at & COUNTER), (600_001, 5));
        assert!(continue_above(at, NOW_US + 5) > at);
    }

    #[test]
    fn zxids_from_the_clock_are_exact_as_floating_point_numbers() {
        let year_2200_us = 7_258_118_400_000_000;
        let last_of_hour = continue_above(0, year_2200_us - 1);
        assert!(last_of_hour < 1 << 53);
    }

    proptest! {
        /// Servers continue from backups of any age, also of each other.
        #[test]
        fn what_continues_later_is_above_everything_before(
            steps in prop::collection::vec((any::<prop::sample::Index>(), 1..10_000_000_000_i64, any::<prop::sample::Index>()), 1..50)
        ) {
            let mut now_us = NOW_US;
            // What each server had assigned when it was backed up. It makes less than one write in a microsecond.
            let mut assigned = vec![9_i64];
            let mut running = 9;
            for (backup, pause_us, writes) in steps {
                now_us += pause_us;
                running += writes.index(usize::try_from(pause_us).unwrap()) as i64;
                assigned.push(running);
                let from = continue_above(*backup.get(&assigned), now_us);
                prop_assert!(assigned.iter().all(|earlier| *earlier < from));
                running = from;
            }
        }
    }
}
