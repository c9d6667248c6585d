//! What would happen to a contender that arrived at a line now, by the rules of the library.

use bellwether::inspect::{Line, LineKind, QueueEntry, Wants};
use bellwether::line::Layout;

use crate::output::people::foreign;

/// What a contender would ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) wants: Wants,
    pub(super) layout: Layout,
    /// The limit that counts, of a semaphore.
    pub(super) limit: Option<u32>,
}

/// What would happen now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Forecast {
    /// It would hold at once, together with this number of holders.
    Free { beside: usize },
    /// It would wait behind these numbers of holders and waiters. Behind none, if it wants more permits than there are.
    Waits { holders: usize, waiters: usize },
    /// It would be refused: the path is in use as something else.
    Refused { used_as: String },
}

/// Looks at a line; `None` where nothing is in use.
pub(super) fn forecast(line: Option<&Line>, wish: Wish) -> Forecast {
    if let Some(used_as) = line.and_then(|line| use_of_others(line, wish)) {
        return Forecast::Refused { used_as };
    }
    let ahead = line.map_or(&[][..], |line| &line.entries);
    let holders = ahead.iter().filter(|one| one.holds).count();
    match is_blocked(ahead, wish) {
        true => Forecast::Waits {
            holders,
            waiters: ahead.len() - holders,
        },
        false => Forecast::Free { beside: holders },
    }
}

/// The recipe or library that uses a line, if this contender would be refused there.
fn use_of_others(line: &Line, wish: Wish) -> Option<String> {
    if line.kind == LineKind::SimpleLock {
        return Some("a simple lock".to_owned());
    }
    let stranger = line.entries.iter().find(|one| one.layout != wish.layout);
    if let Some(stranger) = stranger {
        let library = foreign(stranger.layout).unwrap_or("bellwether");
        return Some(format!("a lock with the layout of {library}"));
    }
    // Node names of other libraries do not show the recipe.
    let own = recipe(wish.wants);
    let mut recipes = line.entries.iter().map(|one| recipe(one.wants));
    recipes
        .find(|other| wish.layout == Layout::Bellwether && *other != own)
        .map(str::to_owned)
}

fn recipe(wants: Wants) -> &'static str {
    match wants {
        Wants::Lock => "a lock",
        Wants::Read | Wants::Write => "a read/write lock",
        Wants::Permits(_) => "a semaphore",
        Wants::Leadership => "an election",
        Wants::Barrier => "a barrier",
        Wants::Item => "a queue",
        _ => "something else",
    }
}

/// Whether contenders are in the way of one that arrives behind them.
fn is_blocked(ahead: &[QueueEntry], wish: Wish) -> bool {
    match wish.wants {
        Wants::Read => !ahead
            .iter()
            .all(|one| one.wants == Wants::Read || one.is_downgraded),
        Wants::Permits(permits) => {
            let taken = ahead.iter().map(|one| match one.wants {
                Wants::Permits(permits) => u64::from(permits),
                _ => 0,
            });
            let wanted = taken.sum::<u64>() + u64::from(permits);
            wish.limit.is_some_and(|limit| wanted > u64::from(limit))
        }
        _ => !ahead.is_empty(),
    }
}
