//! What a directory is, by its children and its data, and what has to be read to know more.

use bellwether_client as zk;
use bytes::Bytes;

use crate::barrier::BARRIER;
use crate::barrier::round::{BarrierState, MEMBERS};
use crate::hold::crash_mark::HELD;
use crate::inspect::breaking::BROKEN;
use crate::inspect::contention::in_order;
use crate::inspect::survey::{Contents, Lists, Scope};
use crate::line::name::{Name, read_limit};
use crate::node::data::RecipeMark;
use crate::queue::record::EndRecord;
use crate::two_phase;

/// Data that identifies a node is shorter: a limit, the state of a barrier, the terms of a transaction with a short payload.
const SHORT_DATA_BYTES: i32 = 4096;

/// Whether the data of a node may identify its recipe.
pub(super) fn may_tell(children: &[String], stat: &zk::Stat) -> bool {
    let is_short = stat.data_length < SHORT_DATA_BYTES;
    let has_voted = || children.iter().any(|child| child.starts_with("vote-"));
    stat.data_length > 0 && (is_short || stat.ephemeral_owner != 0 || has_voted())
}

/// A directory, sorted.
pub(super) struct Directory {
    pub(super) path: String,
    pub(super) stat: zk::Stat,
    pub(super) data: Option<(Bytes, zk::Stat)>,
    /// Contenders in their order.
    pub(super) names: Vec<Name>,
    /// The nodes whose data has to be read.
    tellers: Vec<String>,
    /// All others.
    pub(super) others: Vec<String>,
    pub(super) shape: Shape,
}

/// What the directory as a whole is.
pub(super) enum Shape {
    /// A queue, or tasks: by their mark, or by the names of its children where there is none.
    Queue(Option<RecipeMark>),
    /// A double barrier, whose members are in a child.
    Rounds(BarrierState),
    /// A transaction.
    Transaction,
    /// kazoo's semaphore: some of its children are leases, without numbers.
    Leases(u64),
    /// None of these.
    Plain,
}

impl Directory {
    pub(super) fn new(
        path: String,
        (children, stat): (Vec<String>, zk::Stat),
        data: Option<(Bytes, zk::Stat)>,
    ) -> Self {
        let names = in_order(&children);
        let (tellers, others): (Vec<_>, Vec<_>) = children
            .into_iter()
            .filter(|child| Name::parse(child).is_none())
            .partition(|child| [HELD, BROKEN, BARRIER].contains(&child.as_str()));
        let text = data.as_ref().map_or(&[][..], |(data, _)| data);
        let shape = if let Some(mark) = RecipeMark::from_data(text) {
            Shape::Queue(Some(mark))
        } else if names.is_empty() && tellers.is_empty() && is_queue(&others) {
            Shape::Queue(None)
        } else if let Some(state) = BarrierState::from_data(text) {
            Shape::Rounds(state)
        } else if two_phase::is_transaction(text) {
            Shape::Transaction
        } else if let Some(limit) = read_limit(text)
            && others.iter().any(|child| is_kazoo_lease(child))
        {
            Shape::Leases(limit)
        } else {
            Shape::Plain
        };
        Self {
            path,
            stat,
            data,
            names,
            tellers,
            others,
            shape,
        }
    }

    /// Leaves out what is not looked for; what is below is not left out.
    pub(super) fn within(mut self, scope: &Scope) -> Self {
        let Scope::Waits(path) = scope else {
            return self;
        };
        if self.path == *path {
            return self;
        }
        // The first contender of a line does not wait.
        if self.names.len() < 2 {
            self.names.clear();
        }
        // The parts of a queue are no lines in which holders of anything wait.
        if matches!(self.shape, Shape::Queue(Some(_)) | Shape::Transaction) {
            self.others.clear();
        }
        self.tellers.retain(|teller| teller != BROKEN);
        self
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn into_path(self) -> String {
        self.path
    }

    /// The nodes of the contenders in this line.
    pub(super) fn contenders(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|name| self.child(name.as_str()))
    }

    /// The directories of this recipe that have to be listed.
    pub(super) fn parts(&self) -> Vec<String> {
        match &self.shape {
            Shape::Queue(_) => {
                let parts = self.others.iter().filter(|child| is_part(child));
                parts.map(|child| self.child(child)).collect()
            }
            Shape::Rounds(_) => vec![self.child(MEMBERS)],
            Shape::Transaction | Shape::Leases(_) | Shape::Plain => Vec::new(),
        }
    }

    /// The nodes whose data has to be known.
    pub(super) fn nodes(&self, parts: &Lists) -> Vec<String> {
        let tellers = self.tellers.iter().map(|teller| self.child(teller));
        let mut nodes: Vec<_> = self.contenders().chain(tellers).collect();
        let in_part = |part: &str| {
            let part = self.child(part);
            let (children, _) = parts.get(&part)?;
            Some(children.iter().map(move |child| join(&part, child)))
        };
        match &self.shape {
            Shape::Queue(_) => {
                nodes.extend(in_part("claims").into_iter().flatten());
                let ended = ["dead", "done"].into_iter().filter_map(in_part);
                nodes.extend(ended.filter_map(|mut ended| ended.next()));
            }
            Shape::Rounds(_) => nodes.extend(in_part(MEMBERS).into_iter().flatten()),
            Shape::Leases(_) => {
                let leases = self.others.iter().filter(|child| is_kazoo_lease(child));
                nodes.extend(leases.map(|lease| self.child(lease)));
            }
            Shape::Transaction | Shape::Plain => {}
        }
        nodes
    }

    /// Whether this is a transaction that waits for a decision.
    pub(super) fn is_in_doubt(&self) -> bool {
        let is_decided = || self.others.iter().any(|child| child == "decision");
        matches!(self.shape, Shape::Transaction) && !is_decided()
    }

    /// Whether this really is a queue: other programs may have directories of such names, and the remaining directories of a queue may be
    /// those of finished items.
    pub(super) fn is_queue_indeed(&self, parts: &Lists, nodes: &Contents) -> bool {
        if let Shape::Queue(Some(_)) = self.shape {
            return true;
        }
        let has_items = self.others.iter().any(|part| part == "items");
        let has_ended = |part: &str| {
            let part = self.child(part);
            let first = parts.get(&part).and_then(|(children, _)| children.first());
            let first = first.and_then(|first| nodes.get(&join(&part, first)));
            first.is_some_and(|(data, _)| EndRecord::from_data(data).is_some())
        };
        (has_items && self.others.len() > 1) || has_ended("dead") || has_ended("done")
    }

    /// The directories in which to look further.
    pub(super) fn below(&self, parts: &Lists, nodes: &Contents) -> Vec<String> {
        let others = self.others.iter().filter(|child| match &self.shape {
            Shape::Queue(_) => !is_part(child) || !self.is_queue_indeed(parts, nodes),
            Shape::Transaction => false,
            Shape::Rounds(_) => child.parse::<u64>().is_err(),
            Shape::Leases(_) => !is_kazoo_lease(child),
            Shape::Plain => !(self.path == "/" && *child == "zookeeper"),
        });
        let others = others.map(|child| self.child(child));
        // Something else may have such a name.
        let tellers = self.tellers.iter().map(|teller| self.child(teller));
        let parents = tellers.filter(|path| {
            nodes
                .get(path)
                .is_some_and(|(_, stat)| stat.num_children > 0)
        });
        others.chain(parents).collect()
    }

    pub(super) fn child(&self, name: &str) -> String {
        join(&self.path, name)
    }
}

/// Whether these are the directories of a queue, and nothing else.
fn is_queue(children: &[String]) -> bool {
    children.iter().all(|child| is_part(child)) && children.iter().any(|child| tells_queue(child))
}

/// Whether a queue has a directory of this name.
fn is_part(child: &str) -> bool {
    tells_queue(child) || ["line", "receipts", "returned"].contains(&child)
}

fn tells_queue(child: &str) -> bool {
    ["items", "claims", "dead", "done"].contains(&child)
}

/// `uuid.uuid4().hex` of `kazoo.recipe.lock.Semaphore`.
pub(super) fn is_kazoo_lease(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn join(path: &str, name: &str) -> String {
    format!("{}/{name}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn queue_is_known_by_its_parts_and_by_nothing_else() {
        assert!(is_queue(&names(&["items", "claims", "receipts"])));
        assert!(is_queue(&names(&["dead"])));
        assert!(!is_queue(&names(&["items", "prices"])), "a shop");
        assert!(!is_queue(&names(&["items-0", "items-1"])));
        assert!(!is_queue(&names(&["line", "receipts"])) && !is_queue(&[]));
    }
}
