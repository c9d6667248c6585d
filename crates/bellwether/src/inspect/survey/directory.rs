//! The recipe that is in use in a directory: what has to be read to know, and what follows from the data that was read.

use bellwether_client as zk;
use bytes::Bytes;

use crate::barrier::BARRIER;
use crate::barrier::double::{BarrierState, MEMBERS, Members, is_after, ready_name};
use crate::hold::crash_mark::{self, HELD};
use crate::inspect::contention::{BROKEN, QueueEntry, Wants, entry, in_order};
use crate::inspect::survey::{
    Contents, Line, LineKind, Lists, QueueOverview, Recipe, RecipesByPath, Scope,
};
use crate::line::name::{Kind, Layout, Name, read_limit};
use crate::node::data::{RecipeMark, Who};
use crate::node::{ClaimData, created_at};
use crate::queue::Depth;
use crate::queue::claimed_item::EndRecord;
use crate::queue::order::{Fifo, Item, Rules};
use crate::queue::tasks::TaskCounts;
use crate::two_phase;

/// Data that identifies a node is shorter: a limit, the state of a barrier, the terms of a transaction with a short payload.
const SHORT_DATA_BYTES: i32 = 4096;

/// Returns whether the data of a node may identify its recipe.
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

/// The meaning of the directory as a whole.
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

    /// Returns whether this is a transaction that waits for a decision.
    pub(super) fn is_in_doubt(&self) -> bool {
        let is_decided = || self.others.iter().any(|child| child == "decision");
        matches!(self.shape, Shape::Transaction) && !is_decided()
    }

    /// Returns whether this really is a queue: other programs may have directories of such names, and the remaining directories of a queue
    /// may be those of finished items.
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

/// Returns whether these are the directories of a queue, and nothing else.
fn is_queue(children: &[String]) -> bool {
    children.iter().all(|child| is_part(child)) && children.iter().any(|child| tells_queue(child))
}

/// Returns whether a queue has a directory of this name.
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

impl Directory {
    /// Returns the recipes that are in use here.
    pub(super) fn conclude(&self, parts: &Lists, nodes: &Contents) -> Vec<Recipe> {
        let mut found = Vec::new();
        match &self.shape {
            Shape::Queue(_) if !self.is_queue_indeed(parts, nodes) => {}
            Shape::Queue(mark) => found.extend(self.queue(*mark, parts, nodes)),
            Shape::Rounds(state) => found.extend(self.members(*state, parts, nodes)),
            Shape::Leases(limit) => found.push(self.leases(*limit, nodes)),
            // It takes a look of its own.
            Shape::Transaction => {}
            Shape::Plain => found.extend(self.simple_lock()),
        }
        found.extend(self.line(nodes));
        if let Some((data, stat)) = nodes.get(&self.child(BARRIER))
            && let Some(set_by) = Who::from_data(data)
        {
            found.push(Recipe::Barrier {
                set_by: Some(set_by),
                since: created_at(stat),
            });
        }
        found
    }

    fn line(&self, nodes: &Contents) -> Option<Recipe> {
        let limit = self.data.as_ref().and_then(|(data, _)| read_limit(data));
        let mut entries = Vec::with_capacity(self.names.len());
        for name in &self.names {
            if let Some(content) = nodes.get(&self.child(name.as_str())) {
                let next = entry(&entries, limit, &self.path, name, content.clone());
                entries.push(next);
            }
        }
        let mark = nodes.get(&self.child(HELD));
        let crash = mark.and_then(|(data, _)| crash_mark::read(data)).filter(
            // The holder has a mark too.
            |(node, _)| !self.names.iter().any(|name| name.as_str() == node),
        );
        let kind = match &crash {
            Some((node, _)) if self.names.is_empty() => kind_of(Name::parse(node).as_slice()),
            _ => kind_of(&self.names),
        }?;
        if entries.is_empty() && crash.is_none() {
            return None;
        }
        let layout = self.names.first().map(Name::layout).unwrap_or_default();
        Some(Recipe::Line(Line {
            kind,
            layout,
            entries,
            limit: limit.filter(|_| kind == LineKind::Semaphore),
            crash: crash.map(|(_, crash)| crash),
        }))
    }

    fn simple_lock(&self) -> Option<Recipe> {
        let (data, stat) = self.data.as_ref()?;
        if self.stat.ephemeral_owner == 0 || !ClaimData::is_any(data) {
            return None;
        }
        let (above, name) = self.path.rsplit_once('/')?;
        let holder = QueueEntry::alone(above, name, Wants::Lock, (data.clone(), *stat));
        Some(Recipe::Line(Line {
            kind: LineKind::SimpleLock,
            layout: Layout::Bellwether,
            entries: vec![holder],
            limit: None,
            crash: None,
        }))
    }

    fn leases(&self, limit: u64, nodes: &Contents) -> Recipe {
        let leases = self.others.iter().filter(|child| is_kazoo_lease(child));
        let mut entries: Vec<_> = leases
            .filter_map(|lease| {
                let content = nodes.get(&self.child(lease))?.clone();
                let wants = Wants::Permits(1);
                Some(QueueEntry {
                    layout: Layout::Kazoo,
                    ..QueueEntry::alone(&self.path, lease, wants, content)
                })
            })
            .collect();
        in_turn(&mut entries);
        Recipe::Line(Line {
            kind: LineKind::Semaphore,
            layout: Layout::Kazoo,
            entries,
            limit: Some(limit),
            crash: None,
        })
    }

    fn members(&self, state: BarrierState, parts: &Lists, nodes: &Contents) -> Option<Recipe> {
        let round = self.child(MEMBERS);
        let ready = join(&round, &ready_name(state.generation));
        let ready = nodes.get(&ready).map(|(data, _)| data);
        let names = parts
            .get(&round)
            .map_or_else(Vec::new, |(children, _)| in_order(children));
        // Members that came too late for this round are not in it.
        let names = names
            .iter()
            .filter(|name| !ready.is_some_and(|ready| is_after(name, ready)));
        let here: Vec<_> = names
            .filter_map(|name| {
                let (data, _) = nodes.get(&join(&round, name.as_str()))?;
                Some(Who::from_data(data).unwrap_or_default())
            })
            .collect();
        // It keeps the count between rounds, when no member is there.
        let is_used = ready.is_some() || !here.is_empty();
        is_used.then_some(Recipe::DoubleBarrier(Members {
            round: state.generation,
            size: state.size,
            is_open: ready.is_some(),
            here,
        }))
    }

    fn queue(&self, mark: Option<RecipeMark>, parts: &Lists, nodes: &Contents) -> Option<Recipe> {
        let children = |part: &str| {
            let list = parts.get(&self.child(part));
            list.map_or(&[][..], |(children, _)| children)
        };
        let items = children("items");
        let (dead, done) = (children("dead"), children("done"));
        let mut claims: Vec<_> = children("claims")
            .iter()
            .filter_map(|name| {
                let dir = self.child("claims");
                let content = nodes.get(&join(&dir, name))?.clone();
                Some(QueueEntry::alone(&dir, name, Wants::Item, content))
            })
            .collect();
        in_turn(&mut claims);
        let consumers = in_order(children("line")).len();
        let names = items.iter().chain(dead);
        if names.clone().count() + done.len() + claims.len() + consumers == 0 {
            return None;
        }
        let is_item = |name: &String| Item::parse(Fifo::RULE, name.clone()).is_some();
        let is_tasks = match mark {
            Some(mark) => mark == RecipeMark::Tasks,
            None => !done.is_empty() || names.clone().any(|name| !is_item(name)),
        };
        if is_tasks {
            return Some(Recipe::Tasks {
                counts: TaskCounts {
                    open: items.len().saturating_sub(claims.len()),
                    running: claims.len(),
                    done: done.len(),
                    failed: dead.len(),
                },
                claims,
            });
        }
        Some(Recipe::Queue(QueueOverview {
            depth: Depth {
                items: items.len(),
                claimed: claims.len(),
                dead: dead.len(),
            },
            claims,
            consumers,
        }))
    }
}

/// Joins the two directories of one semaphore: the leases in one, and the waiters in the other.
pub(super) fn join_semaphores(recipes: &mut RecipesByPath) {
    let semaphores: Vec<_> = recipes
        .iter()
        .filter_map(|(path, found)| match &found[..] {
            [Recipe::Line(line)] if line.kind == LineKind::Semaphore => Some((path, line.layout)),
            _ => None,
        })
        .filter_map(|(leases, layout)| match layout {
            Layout::Curator => {
                let path = leases.strip_suffix("/leases")?;
                Some((leases.clone(), format!("{path}/locks"), path.to_owned()))
            }
            Layout::Kazoo => Some((leases.clone(), format!("{leases}-__lock__"), leases.clone())),
            Layout::Bellwether => None,
        })
        .collect();
    for (leases, waiters, path) in semaphores {
        let Some(mut found) = recipes.remove(&leases) else {
            continue;
        };
        if let [Recipe::Line(semaphore)] = &mut found[..]
            && let Some([Recipe::Line(line)]) = recipes.remove(&waiters).as_deref()
        {
            // The first contender adds a lease before it knows whether it exceeds the limit.
            if let Some(first) = line.entries.first() {
                semaphore
                    .entries
                    .retain(|lease| lease.session != first.session || lease.token < first.token);
            }
            let waiters = line.entries.iter().cloned().map(|waiter| QueueEntry {
                wants: Wants::Permits(1),
                holds: false,
                ..waiter
            });
            semaphore.entries.extend(waiters);
            for (place, one) in semaphore.entries.iter_mut().enumerate() {
                one.place = place;
            }
        }
        recipes.insert(path, found);
    }
}

/// The kind of a line, by its contenders; `None` if no contender shows it.
fn kind_of(names: &[Name]) -> Option<LineKind> {
    let mut kind = None;
    for name in names {
        match name.kind() {
            Kind::Read | Kind::Write => return Some(LineKind::RwLock),
            Kind::Permit(_) => return Some(LineKind::Semaphore),
            Kind::Candidate => return Some(LineKind::Election),
            // kazoo's writers look like its locks.
            Kind::Lock => kind = Some(LineKind::Lock),
            Kind::Member | Kind::Consumer => {}
        }
    }
    kind
}

/// Sorts holders that are in no line by age.
fn in_turn(entries: &mut [QueueEntry]) {
    entries.sort_by_key(|one| one.token);
    for (place, one) in entries.iter_mut().enumerate() {
        one.place = place;
    }
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

    #[test]
    fn kind_of_a_line_is_that_of_the_most_telling_name() {
        let names =
            |texts: &[&str]| -> Vec<_> { texts.iter().map(|&name| name.to_owned()).collect() };
        let kind = |texts: &[&str]| kind_of(&in_order(&names(texts)));
        let kazoo = ["5d__lock__0000000001", "5d__rlock__0000000002"];
        assert_eq!(kind(&kazoo[..1]), Some(LineKind::Lock));
        assert_eq!(kind(&kazoo), Some(LineKind::RwLock));
        assert_eq!(kind(&["_c_4f-latch-0000000001"]), Some(LineKind::Election));
        assert_eq!(kind(&["permit2-1-2-0000000001"]), Some(LineKind::Semaphore));
        assert_eq!(kind(&["consumer-1-2-0000000001", "held"]), None);
    }
}
