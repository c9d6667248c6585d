//! The order of deliveries, also with several consumers.
//!
//! Claims have one order, that of their tokens, and the attempts of an item count all of its claims, also those that no consumer got to
//! know. So it is certain that an item could be claimed in between: from its put to its first claim, and from the moment it was given back to
//! the next.

use std::collections::HashMap;

use crate::world::Ms;

/// What the order of a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sorted {
    /// None: tasks.
    Not,
    /// As items were put.
    AsPut,
    /// By rank, and within a rank as items were put.
    ByRank,
    /// By the time at which an item is due, its rank.
    ByDue,
}

/// An item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) name: &'a str,
    pub(crate) number: u64,
    /// The number of the first item that was put together with it.
    pub(crate) batch: u64,
    pub(crate) rank: u64,
    /// When its put began, and when it returned.
    pub(crate) begun: Ms,
    pub(crate) put: Option<Ms>,
    /// In the order of their tokens.
    pub(crate) claims: &'a [Taken],
}

/// A claim that a consumer got.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) token: i64,
    pub(crate) attempts: u32,
    /// When the take began, and when it returned.
    pub(crate) begun: Ms,
    pub(crate) got: Ms,
    /// The handle that took it. It knows its own claims, and what it has seen since it was made.
    pub(crate) handle: u64,
    /// Whether it is the first claim of its take, and not one of several that were made together.
    pub(crate) is_first: bool,
    pub(crate) view: Option<View>,
    /// Whether the consumer knows that the claim has ended.
    pub(crate) is_settled: bool,
    /// When it was given back.
    pub(crate) returned: Option<Ms>,
}

/// What a session saw before it made a handle. Its later views are not older.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Claims up to this zxid are over, or were seen. So they belong to no rival: a handle tries for no item that it sees claimed.
    pub(crate) zxid: i64,
}

/// By less than this the clocks of two consumers differ: an item that is given back is due then by all clocks.
pub(crate) const DAY_OFFSET_MAX: Ms = 1_000;

/// Among how many items a consumer chooses that has rivals, at most: eight for each other claim, up to this limit. Consumers are rivals for some
/// takes after one of them has lost a race, which is not known here: any other claim since the handle was made may have won one.
const CHOICE_MAX: usize = 64;

/// A time in which an item could be claimed.
#[derive(Debug, Clone, Copy)]
struct Open<'a> {
    item: &'a Placed<'a>,
    from: Ms,
    /// The next claim.
    until: i64,
    /// Whether it was never claimed before.
    is_new: bool,
}

/// Checks the order of all deliveries of a queue that is empty at the end.
pub(crate) fn check(sorted: Sorted, items: &[Placed<'_>]) -> Result<(), String> {
    if sorted == Sorted::Not {
        return Ok(());
    }
    let rivals = Rivals::of(items);
    let mut spans: Vec<Open<'_>> = items.iter().flat_map(spans).collect();
    spans.sort_by_key(|span| span.from);
    let mut spans = spans.into_iter().peekable();
    let mut claims: Vec<(&Placed<'_>, &Taken)> = items
        .iter()
        .flat_map(|item| item.claims.iter().map(move |claim| (item, claim)))
        .collect();
    claims.sort_by_key(|(_, claim)| claim.token);
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut now = 0;
    for (item, claim) in claims {
        now = now.max(claim.got);
        while let Some(span) = spans.next_if(|span| span.from <= now) {
            open.push(span);
        }
        open.retain(|span| span.until > claim.token);
        if !claim.is_first {
            continue;
        }
        let mut passed = Vec::new();
        for span in &open {
            let other = span.item;
            let is_considered = span.from < claim.begun;
            if sorted == Sorted::ByRank && other.rank < item.rank && is_considered {
                return Err(format!(
                    "{} of rank {} was delivered before {} of rank {}: claim {}, of a take that began {} ms after {}",
                    item.name,
                    item.rank,
                    other.name,
                    other.rank,
                    claim.token,
                    claim.begun - span.from,
                    match span.is_new {
                        true => "the put",
                        false => "it was given back and due",
                    },
                ));
            }
            let is_passed = match sorted {
                Sorted::ByDue => other.rank < item.rank && is_considered,
                // An item is never visible without those that were put before it.
                _ => span.is_new && other.rank == item.rank && other.precedes(item),
            };
            if is_passed {
                passed.push(other.name);
            }
        }
        let rivals = rivals.at(claim);
        if passed.len() >= choice(rivals) {
            let (count, first) = (passed.len(), passed[0]);
            return Err(format!(
                "{} was delivered before {count} items, {first} among them: claim {}, with at most {rivals:?} claims of rivals",
                item.name, claim.token
            ));
        }
    }
    Ok(())
}

fn spans<'a>(item: &'a Placed<'a>) -> impl Iterator<Item = Open<'a>> {
    let first = item.claims.first().filter(|claim| claim.attempts == 1);
    let new = item.put.zip(first).map(|(from, first)| Open {
        item,
        from,
        until: first.token,
        is_new: true,
    });
    let returned = item.claims.windows(2).filter_map(move |pair| {
        let from = pair[0].returned? + DAY_OFFSET_MAX;
        (pair[1].attempts == pair[0].attempts + 1).then_some(Open {
            item,
            from,
            until: pair[1].token,
            is_new: false,
        })
    });
    new.into_iter().chain(returned)
}

impl Placed<'_> {
    fn precedes(&self, other: &Self) -> bool {
        let is_earlier = self.put.is_some_and(|put| put < other.begun);
        is_earlier || (self.batch == other.batch && self.number < other.number)
    }
}

/// How many items a consumer chooses from.
fn choice(rivals: Option<usize>) -> usize {
    match rivals {
        Some(0) => 1,
        Some(_) | None => CHOICE_MAX,
    }
}

/// All claims of a run, to count those that may have been made at the same moment as another.
struct Rivals<'a> {
    tokens: Vec<i64>,
    by_handle: HashMap<u64, Vec<&'a Taken>>,
    /// Claims that no consumer got to know: their numbers, between the tokens of the claims before and after.
    unknown: Vec<(i64, i64, usize)>,
}

impl<'a> Rivals<'a> {
    fn of(items: &'a [Placed<'a>]) -> Self {
        let mut all = Self {
            tokens: Vec::new(),
            by_handle: HashMap::new(),
            unknown: Vec::new(),
        };
        for item in items {
            let (mut last, mut attempts) = (0, 0);
            for claim in item.claims {
                let unknown = claim.attempts.saturating_sub(attempts + 1);
                if unknown > 0 {
                    let count = usize::try_from(unknown).unwrap_or(usize::MAX);
                    all.unknown.push((last, claim.token, count));
                }
                (last, attempts) = (claim.token, claim.attempts);
                all.tokens.push(claim.token);
                all.by_handle.entry(claim.handle).or_default().push(claim);
            }
        }
        all.tokens.sort_unstable();
        all
    }

    /// How many claims other handles made, at most, between the making of a handle and a claim of it.
    fn at(&self, claim: &Taken) -> Option<usize> {
        let view = claim.view?;
        let is_between = |token: i64| token > view.zxid && token < claim.token;
        let until = self.tokens.partition_point(|token| *token < claim.token);
        let from = self.tokens.partition_point(|token| *token <= view.zxid);
        let own = self.by_handle.get(&claim.handle).into_iter().flatten();
        let own = own.filter(|own| own.is_settled && is_between(own.token));
        let known = until.saturating_sub(from) - own.count();
        let unknown = self.unknown.iter();
        let unknown = unknown.filter(|(last, next, _)| *last < claim.token && *next > view.zxid);
        let unknown: usize = unknown.map(|(_, _, count)| count).sum();
        Some(known + unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEES_NONE: Option<View> = Some(View { zxid: 0 });

    /// A claim of a take that began at the time of its token.
    fn claim(token: i64, attempts: u32, view: Option<View>) -> Taken {
        let at = token.unsigned_abs();
        Taken {
            token,
            attempts,
            begun: at,
            got: at + 1,
            handle: 1,
            is_first: true,
            view,
            is_settled: true,
            returned: None,
        }
    }

    /// Items with one claim each, in the order of their puts: ranks and tokens.
    fn verdict(sorted: Sorted, items: &[(u64, i64)], view: Option<View>) -> bool {
        let claims: Vec<[Taken; 1]> = items.iter().map(|(_, at)| [claim(*at, 1, view)]).collect();
        let placed: Vec<Placed<'_>> = (0..)
            .zip(items.iter().zip(&claims))
            .map(|(number, ((rank, _), claims))| Placed {
                name: "item",
                number,
                batch: number,
                rank: *rank,
                begun: 2 * number,
                put: Some(2 * number + 1),
                claims,
            })
            .collect();
        check(sorted, &placed).is_ok()
    }

    #[test]
    fn single_consumer_gets_items_as_they_were_put() {
        let order = |tokens: &[i64]| {
            let items: Vec<_> = tokens.iter().map(|token| (0, *token)).collect();
            verdict(Sorted::AsPut, &items, SEES_NONE)
        };
        assert!(order(&[100, 101, 102]));
        assert!(!order(&[100, 102, 101]));
    }

    #[test]
    fn rivals_choose_among_the_first_items() {
        let last_first = |count: u64| {
            let mut items: Vec<_> = (0..count).map(|_| (0, 200)).collect();
            for (token, (_, at)) in (200..).zip(&mut items) {
                *at = token;
            }
            items.push((0, 150));
            items
        };
        assert!(verdict(Sorted::AsPut, &last_first(63), None));
        assert!(!verdict(Sorted::AsPut, &last_first(64), None));
    }

    #[test]
    fn better_rank_comes_first_whatever_others_do() {
        assert!(verdict(Sorted::ByRank, &[(2, 102), (1, 101)], None));
        assert!(!verdict(Sorted::ByRank, &[(2, 101), (1, 102)], None));
        // The take had begun before the second put returned.
        assert!(verdict(Sorted::ByRank, &[(2, 3), (1, 102)], None));
    }

    #[test]
    fn single_consumer_gets_items_by_due_time() {
        assert!(verdict(Sorted::ByDue, &[(20, 102), (10, 101)], SEES_NONE));
        assert!(!verdict(Sorted::ByDue, &[(20, 101), (10, 102)], SEES_NONE));
        assert!(verdict(Sorted::ByDue, &[(20, 101), (10, 102)], None));
    }

    /// Claims that nobody knows count as others, and an item with one may have been claimed all the time.
    #[test]
    fn unknown_claims_explain_a_choice() {
        let items = |attempts| {
            let claims = [
                [claim(101, attempts, SEES_NONE)],
                [claim(100, 1, SEES_NONE)],
            ];
            let placed = [0, 1].map(|number: usize| Placed {
                name: "item",
                number: number as u64,
                batch: number as u64,
                rank: 0,
                begun: 2 * number as u64,
                put: Some(2 * number as u64 + 1),
                claims: &claims[number],
            });
            check(Sorted::AsPut, &placed).is_ok()
        };
        assert!(!items(1));
        assert!(items(2));
    }

    #[test]
    fn item_that_was_given_back_keeps_its_rank() {
        let back = Taken {
            returned: Some(20),
            ..claim(10, 1, None)
        };
        let order = |take: i64| {
            let good = [back.clone(), claim(9_000, 2, None)];
            let bad = [claim(take, 1, None)];
            let placed = |number, rank, claims| Placed {
                name: "item",
                number,
                batch: number,
                rank,
                begun: 0,
                put: Some(1),
                claims,
            };
            check(Sorted::ByRank, &[placed(1, 1, &good), placed(2, 2, &bad)]).is_ok()
        };
        // By the clock of this consumer it may not be due yet.
        assert!(order(1_020));
        assert!(!order(1_021));
    }
}
