//! Groups: a member is listed with its latest data while its session lives, returns after session expiry, and is not listed after it has left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::state::{MembershipState, Roster};
use bellwether::{Client, ErrorKind, Group, Membership, SessionId};
use bellwether_testkit::History;
use bellwether_testkit::history::Moment;
use bellwether_testkit::history::members::{MemberStep, check_members};
use futures_util::StreamExt as _;
use rand::Rng as _;

use super::catch_up::catch_up;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::stage::Stage;
use crate::worker::{Gone, Worker};

/// How long an entry may be listed after its member has left without knowing that all its requests were answered, and after all faults are
/// over: in session timeouts. Its session has to expire, or the janitor to find the node of a late create.
const LINGER_TIMEOUTS: u32 = 6;

/// How late a write may arrive, in session timeouts: as long as the janitor of a session looks for such nodes. A late update or delete of an
/// earlier membership changes the node of the present one, which is then restored.
const LATE_TIMEOUTS: u32 = 2;

/// Workers join, change their data, look who is there, and leave.
#[derive(Debug, Clone)]
pub(crate) struct Members {
    notes: Arc<Mutex<GroupNotes>>,
    session_timeout: Duration,
}

#[derive(Debug, Default)]
struct GroupNotes {
    steps: Vec<(Moment, usize, MemberStep)>,
    /// How many entries there were. Each membership has an entry of its own, and a new one when its data changes.
    entries: u64,
    /// The entries of each worker that may be listed.
    open: BTreeMap<usize, BTreeSet<String>>,
    /// Entries that may be listed for some time although their members have left.
    doubtful: Vec<(Moment, usize, String)>,
    /// When the first worker noticed that all faults were over.
    calm: Option<Moment>,
    /// Since when the current connection of each worker is known.
    links: BTreeMap<usize, (ConnectionOf, Moment)>,
    /// When the last process of each worker was killed.
    killed: BTreeMap<usize, Moment>,
}

impl Members {
    fn notes(&self) -> MutexGuard<'_, GroupNotes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no earlier write of this worker can arrive any more.
    fn nothing_is_late(&self, who: usize, link: ConnectionOf) -> bool {
        let (mut notes, now) = (self.notes(), Stage::moment());
        let (last, mut since) = *notes.links.entry(who).or_insert((link, now));
        if last != link {
            notes.links.insert(who, (link, now));
            since = now;
        }
        let late = LATE_TIMEOUTS * self.session_timeout;
        let is_over = |at: &Moment| now.since(*at) > late;
        (link.1 == 1 || is_over(&since)) && notes.killed.get(&who).is_none_or(is_over)
    }

    fn note(&self, who: usize, step: MemberStep) {
        self.notes().steps.push((Stage::moment(), who, step));
    }

    /// A new entry, which the worker is about to write.
    fn entry(&self, who: usize) -> String {
        let entry = {
            let mut notes = self.notes();
            notes.entries += 1;
            let entry = format!("{who}.{}", notes.entries);
            notes.open.entry(who).or_default().insert(entry.clone());
            entry
        };
        let joining = entry.clone();
        self.note(who, MemberStep::Joining { entry: joining });
        entry
    }

    /// An entry is gone, and nothing can bring it back.
    fn left(&self, who: usize, entry: &str) {
        self.notes().open.entry(who).or_default().remove(entry);
        let entry = entry.to_owned();
        self.note(who, MemberStep::Left { entry });
    }

    /// The worker has no membership any more.
    fn ended(&self, who: usize) {
        let (mut notes, now) = (self.notes(), Stage::moment());
        let open = notes.open.remove(&who).unwrap_or_default();
        let doubtful = open.into_iter().map(|entry| (now, who, entry));
        notes.doubtful.extend(doubtful);
    }

    /// Waits until an entry is not listed: a create that arrives late must not bring it back for long.
    async fn is_gone(&self, worker: &mut Worker, group: &Group, entry: &str) -> Result<(), Gone> {
        let is_in = |roster: &Roster| roster.values().any(|data| data == entry.as_bytes());
        // Also as a follower sees it.
        if worker.random.random_bool(0.5) {
            match worker.unless_stopped(group.live()).await? {
                Ok(mut live) => {
                    while is_in(&live.get()) {
                        if let Err(error) = worker.unless_stopped(live.changed()).await? {
                            worker.failed(&error);
                            break;
                        }
                    }
                }
                Err(error) => worker.failed(&error),
            }
        }
        loop {
            worker.pause().await;
            match worker.unless_stopped(group.members()).await? {
                Ok(roster) if !is_in(&roster) => return Ok(()),
                Ok(_) => {}
                Err(error) => worker.failed(&error),
            }
        }
    }
}

/// A worker that has joined.
struct GroupMember<'a> {
    notes: &'a Members,
    client: &'a Client,
    group: &'a Group,
    membership: Membership,
    /// The data of its node, and what was known before it was written.
    entry: String,
    written: ConnectionOf,
    /// Whether no other worker uses its name.
    has_own_name: bool,
    /// Since when the entry has been there for certain, through one connection.
    present: Option<(Moment, ConnectionOf)>,
}

/// A session, and how many connections it has had. If both are the same as before, every request in between was answered, or is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConnectionOf(SessionId, u64);

impl ConnectionOf {
    fn of(client: &Client) -> Self {
        Self(client.session_id(), client.raw().connections())
    }
}

impl GroupMember<'_> {
    /// Waits until it is present in the current session. After session expiry it returns by itself.
    async fn is_present(&self, worker: &Worker) -> Result<SessionId, Gone> {
        let mut states = self.membership.states();
        loop {
            let session = self.client.session_id();
            if self.membership.state() == MembershipState::Present(session) {
                return Ok(session);
            }
            worker.unless_stopped(states.next()).await?;
        }
    }

    /// Lists the members until it is among them, with its latest data. If no write can be late, the first list shows it.
    async fn look(&mut self, worker: &mut Worker) -> Result<(), Gone> {
        while !self.is_listed(worker).await? {
            worker.pause().await;
        }
        Ok(())
    }

    async fn is_listed(&mut self, worker: &Worker) -> Result<bool, Gone> {
        let session = self.is_present(worker).await?;
        let (raw, link) = (self.client.raw(), ConnectionOf::of(self.client));
        // Other workers use the other name, and their writes may be late too.
        let is_sure = self.has_own_name && self.notes.nothing_is_late(worker.who, link);
        let known = self.present.filter(|(_, known)| *known == link);
        self.present = is_sure.then(|| known.unwrap_or((Stage::moment(), link)));
        self.notes.note(worker.who, MemberStep::Looking);
        if !catch_up(&raw).await {
            return Ok(false);
        }
        let listed = worker.unless_stopped(self.group.members()).await?;
        let looked = Stage::moment();
        let roster = match listed {
            Ok(roster) => roster,
            Err(error) => {
                worker.failed(&error);
                return Ok(false);
            }
        };
        // A list of a session that had expired unnoticed may have been made by a server that lags.
        if !catch_up(&raw).await || self.client.session_id() != session {
            return Ok(false);
        }
        let text = |data: &Vec<u8>| String::from_utf8_lossy(data).into_owned();
        let entries: Vec<String> = roster.values().map(text).collect();
        let is_listed = entries.contains(&self.entry);
        let present = self
            .present
            .filter(|_| ConnectionOf::of(self.client) == link);
        let mut notes = self.notes.notes();
        if let Some((since, _)) = present {
            if !is_listed {
                worker.wrong(format!(
                    "worker {} is a member with {}, but listed are {entries:?}",
                    worker.who, self.entry
                ));
            }
            let entry = self.entry.clone();
            let stayed = MemberStep::Stayed { entry, since };
            notes.steps.push((looked, worker.who, stayed));
        }
        let looked = (looked, worker.who, MemberStep::Looked { entries });
        notes.steps.push(looked);
        Ok(is_listed)
    }

    async fn update(&mut self, worker: &Worker) -> Result<(), Gone> {
        let next = self.notes.entry(worker.who);
        let before = ConnectionOf::of(self.client);
        self.present = None;
        let updated = self.membership.update(next.clone());
        match worker.unless_stopped(updated).await? {
            Ok(()) => {
                self.replaced(worker.who);
                self.entry = next;
                self.written = before;
            }
            Err(error) => worker.failed(&error),
        }
        Ok(())
    }

    /// Its entry is gone. If no request is in doubt, it cannot come back.
    fn replaced(&self, who: usize) {
        if ConnectionOf::of(self.client) == self.written {
            self.notes.left(who, &self.entry);
        }
    }
}

impl Recipe for Members {
    const NAME: &'static str = "group";

    fn new(plan: &Plan) -> Self {
        Self {
            notes: Arc::default(),
            session_timeout: Duration::from_millis(plan.session_timeout),
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        self.ended(worker.who);
        let group = Group::new(client, "/sim/group");
        // Workers compete for one of the names.
        let has_own_name = worker.random.random_ratio(3, 4);
        let name = match has_own_name {
            true => format!("worker{}", worker.who),
            false => "shared".to_owned(),
        };
        let written = ConnectionOf::of(client);
        let entry = self.entry(worker.who);
        let joining = group.join_as(&name, entry.clone());
        let membership = match worker.unless_stopped(joining).await? {
            Ok(membership) => membership,
            Err(error) => {
                // A name is taken while another worker has it, and that of a process that was killed until its session has expired.
                if !matches!(error.kind, ErrorKind::NameTaken) {
                    worker.failed(&error);
                }
                worker.pause().await;
                return Ok(Round::Failed);
            }
        };
        let mut member = GroupMember {
            notes: self,
            client,
            group: &group,
            membership,
            entry,
            written,
            has_own_name,
            present: None,
        };
        for _ in 0..worker.random.random_range(1..=3) {
            member.look(worker).await?;
            worker.work().await;
            member.look(worker).await?;
            if worker.random.random_bool(0.5) {
                member.update(worker).await?;
            }
        }
        member.look(worker).await?;
        let entry = member.entry.clone();
        match worker.random.random_ratio(1, 4) {
            // It leaves in the background.
            true => drop(member.membership),
            false => {
                let GroupMember {
                    membership,
                    written,
                    ..
                } = member;
                membership.leave().await;
                // The end of a session also ends the call, and its nodes stay until the servers expire it.
                if ConnectionOf::of(client) == written && !client.raw().state().is_ended() {
                    self.left(worker.who, &entry);
                }
            }
        }
        self.ended(worker.who);
        if worker.is_calm() {
            self.notes().calm.get_or_insert(Stage::moment());
        }
        self.is_gone(worker, &group, &entry).await?;
        Ok(Round::Done)
    }

    fn killed(&self, who: usize) {
        self.ended(who);
        self.notes().killed.insert(who, Stage::moment());
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        let notes = self.notes();
        let mut steps = notes.steps.clone();
        if let Some(calm) = notes.calm {
            let linger = LINGER_TIMEOUTS * self.session_timeout;
            let gone = notes.doubtful.iter().map(|(at, who, entry)| {
                let entry = entry.clone();
                (
                    (*at).max(calm).plus(linger),
                    *who,
                    MemberStep::Left { entry },
                )
            });
            steps.extend(gone);
        }
        steps.sort_by_key(|(at, _, _)| *at);
        check_members(&steps)
    }
}
