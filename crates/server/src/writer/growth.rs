//! Decides which writes are refused because they would grow the tree.

use crate::config::Config;
use crate::storage::DiskState;
use crate::tree::{Growth, Size};

/// Limits of the tree as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeLimits {
    /// Estimate of its memory.
    pub(crate) bytes_max: usize,
    pub(crate) nodes_max: usize,
}

impl TreeLimits {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            bytes_max: config.tree_bytes_max.unwrap_or(usize::MAX),
            nodes_max: match config.tree_nodes_max {
                0 => usize::MAX,
                nodes => nodes,
            },
        }
    }
}

impl Default for TreeLimits {
    /// No limits.
    fn default() -> Self {
        Self {
            bytes_max: usize::MAX,
            nodes_max: usize::MAX,
        }
    }
}

/// What there is too little of for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The disk is nearly full.
    Disk,
    /// The tree has reached one of its limits.
    Tree,
}

/// What a write may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    pub(super) size: Size,
    pub(super) limits: TreeLimits,
    pub(super) disk: DiskState,
}

impl Allowance {
    /// Why a write with this growth is refused; a multi is judged by the sum of its parts. So a release that deletes a node and sets
    /// another passes, and with it every delete, check, and end of a session.
    pub(super) fn refuses(self, growth: Growth) -> Option<Shortage> {
        let Self { size, limits, disk } = self;
        let exceeds = |size: usize, growth: i64, max: usize| {
            // What is less than zero never exceeds.
            usize::try_from(growth).is_ok_and(|more| more > max.saturating_sub(size))
        };
        let needs_disk = match disk {
            DiskState::Ample => false,
            DiskState::Low => growth.bytes > 0,
            // Data of the same size takes no memory, but space in the log.
            DiskState::Critical => growth.bytes > 0 || growth.bytes == 0 && growth.stores,
        };
        if needs_disk {
            Some(Shortage::Disk)
        } else if exceeds(size.bytes, growth.bytes, limits.bytes_max)
            || exceeds(size.nodes, growth.nodes, limits.nodes_max)
        {
            Some(Shortage::Tree)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Allowance = Allowance {
        size: Size {
            nodes: 90,
            bytes: 900,
        },
        limits: TreeLimits {
            nodes_max: 100,
            bytes_max: 1000,
        },
        disk: DiskState::Ample,
    };

    fn growth(nodes: i64, bytes: i64, stores: bool) -> Growth {
        Growth {
            nodes,
            bytes,
            stores,
        }
    }

    #[test]
    fn tree_grows_up_to_its_limits() {
        for (growth, refused) in [
            (growth(1, 100, true), None),
            (growth(1, 101, true), Some(Shortage::Tree)),
            (growth(10, 10, true), None),
            (growth(11, 10, true), Some(Shortage::Tree)),
            // More nodes with fewer bytes, and the other way round.
            (growth(11, -10, true), Some(Shortage::Tree)),
            (growth(-1, 101, true), Some(Shortage::Tree)),
        ] {
            assert_eq!(AMPLE.refuses(growth), refused, "{growth:?}");
        }
    }

    #[test]
    fn what_does_not_grow_passes_beyond_the_limits_too() {
        let beyond = Allowance {
            limits: TreeLimits {
                nodes_max: 1,
                bytes_max: 1,
            },
            ..AMPLE
        };
        for growth in [
            growth(0, 0, false),
            growth(0, 0, true),
            growth(-1, -100, false),
            growth(-1, -50, true),
        ] {
            assert_eq!(beyond.refuses(growth), None, "{growth:?}");
        }
    }

    #[test]
    fn the_fuller_the_disk_the_less_may_be_stored() {
        let refused = |disk, growth| Allowance { disk, ..AMPLE }.refuses(growth).is_some();
        for (growth, low, critical) in [
            (growth(1, 50, true), true, true),
            (growth(0, 1, true), true, true),
            // Data that is replaced by as much.
            (growth(0, 0, true), false, true),
            // A check, or a new session.
            (growth(0, 0, false), false, false),
            (growth(-1, -50, false), false, false),
            // A release that also sets a mark.
            (growth(-1, -50, true), false, false),
        ] {
            assert!(!refused(DiskState::Ample, growth));
            assert_eq!(refused(DiskState::Low, growth), low, "{growth:?}");
            assert_eq!(refused(DiskState::Critical, growth), critical, "{growth:?}");
        }
    }
}
