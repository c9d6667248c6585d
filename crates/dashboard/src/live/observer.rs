//! Observes the tree and the servers while at least one page is open.
//!
//! One recursive watch on the root reports which paths change. Changes within [`GATHER`] are read together, and only at these paths: a
//! hand-over at one of a thousand locks costs a sync, a listing and a few reads. From time to time everything is read again, in case a change
//! has an effect elsewhere. [`Pace`](super::Pace) limits the load on the servers: on a busy server, only some of the changed paths are read at
//! a time, and each gets its turn.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether::inspect::{Overview, QueueEntry, Recipe, RecipeAt, Survey};
use bellwether::zk::{PersistentEvent, PersistentWatch, SessionState, WatchMode};
use bellwether::{Client, ErrorKind, zk};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

use super::members::{self, MemberState};
use super::picture::{Picture, Roots, SIGHT, is_covered};
use super::{Live, problems};
use crate::json;

/// How long changes are gathered before they are read.
const GATHER: Duration = Duration::from_millis(100);

/// How long changes are gathered where the budget did not suffice for all of them: fewer and larger looks need fewer requests.
const GATHER_BEHIND: Duration = Duration::from_secs(1);

/// Interval at which the servers are queried.
const SAMPLE_EVERY: Duration = Duration::from_secs(2);

/// Minimum interval of reading everything again, if anything has changed.
const WHOLE_EVERY: Duration = Duration::from_secs(15);

/// How long observing continues after the last page is closed: a page that is reloaded closes first.
const LINGER: Duration = Duration::from_secs(2);

/// Delay before a retry after a refusal or without a server: the first one, and the longest.
const TRY_EVERY: Duration = Duration::from_secs(1);
const TRY_EVERY_MAX: Duration = Duration::from_secs(60);

/// Maximum time of one look. Requests wait in the client while no server answers.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// A directory that is not a recipe yet and has more descendants is not read for each change, but only with everything. Of such a
/// directory, only what has changed is read.
const BELOW_MAX: u32 = 500;

/// Maximum number of paths waiting to be read. Beyond that, all wait for the next reading of everything.
const PENDING_MAX: usize = 10_000;

/// Observes for ever. Dropping the future stops it.
pub(crate) async fn observe(live: Arc<Live>) {
    let mut pages = live.pages.subscribe();
    let mut observer = Observer::new(live.clone());
    while pages.wait_for(|pages| *pages > 0).await.is_ok() {
        let all_closed = async {
            loop {
                if pages.wait_for(|pages| *pages == 0).await.is_err() {
                    return;
                }
                let opened = pages.wait_for(|pages| *pages > 0);
                if timeout(LINGER, opened).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = observer.run() => {}
            () = all_closed => {}
        }
    }
}

/// What the servers have said, and the sample for the charts.
type Answers = (Vec<MemberState>, Value);

struct Observer {
    live: Arc<Live>,
    client: Client,
    picture: Picture,
    members: Vec<MemberState>,
    /// When everything was read last; `None` if that is due at once.
    whole_at: Option<Instant>,
    whole_every: Duration,
    has_changed: bool,
    /// Paths to read when the budget allows it; and the last one read, so that each gets its turn.
    pending: Roots,
    last: String,
    /// Why the last look failed, and the number of consecutive failures.
    trouble: Option<String>,
    failures: u32,
}

impl Observer {
    fn new(live: Arc<Live>) -> Self {
        Self {
            client: live.client.clone(),
            live,
            picture: Picture::default(),
            members: Vec::new(),
            whole_at: None,
            whole_every: WHOLE_EVERY,
            has_changed: true,
            pending: Roots::new(),
            last: String::new(),
            trouble: None,
            failures: 0,
        }
    }

    /// Follows one session after the other.
    async fn run(&mut self) {
        let mut tries = interval(TRY_EVERY);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tries.tick().await;
            self.publish_connection();
            if let Err(error) = self.client.ready().await {
                self.fail(&error);
                let answers = self.ask_members().await;
                self.take_sample(answers);
                continue;
            }
            // Changes during the gap are unknown.
            self.whole_at = None;
            let watched = self.client.raw().watch("/", WatchMode::Recursive).await;
            match watched {
                Ok(watcher) => self.follow(Some(watcher)).await,
                // Servers before 3.6 have no such watch.
                Err(zk::Error::UNIMPLEMENTED) => self.follow(None).await,
                Err(error) => drop(self.fail(&error)),
            }
        }
    }

    /// Reads and publishes until the session ends.
    async fn follow(&mut self, mut watcher: Option<PersistentWatch>) {
        let mut changed = BTreeSet::new();
        let mut states = self.client.raw().states();
        let mut samples = interval(SAMPLE_EVERY);
        samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look_at = Instant::now();
        let mut asking = None;
        loop {
            let has_pending = !self.pending.is_empty();
            let is_due = self.whole_at.is_none() || has_pending || !changed.is_empty();
            tokio::select! {
                event = next(&mut watcher) => match event {
                    Ok(event) => {
                        if changed.is_empty() && !has_pending {
                            look_at = self.next_look();
                        }
                        self.note(event, &mut changed);
                    }
                    Err(_) => return,
                },
                _ = states.changed() => {
                    self.publish_connection();
                    if states.borrow_and_update().is_ended() {
                        return;
                    }
                }
                () = sleep_until(look_at.into()), if is_due => {
                    if self.look(std::mem::take(&mut changed), watcher.is_some()).await {
                        look_at = self.next_look();
                    } else {
                        // Exponential backoff: a look that takes too long or reads too much is not repeated all the time.
                        let pause = TRY_EVERY * 2u32.saturating_pow(self.failures);
                        look_at = Instant::now() + pause.min(TRY_EVERY_MAX);
                        self.failures += 1;
                    }
                }
                // Meanwhile the page goes on: a server may hang.
                _ = samples.tick(), if asking.is_none() => asking = Some(self.ask_members()),
                answers = answered(&mut asking) => {
                    asking = None;
                    self.take_sample(answers);
                    let is_old = self.whole_at.is_some_and(|at| at.elapsed() > self.whole_every);
                    if is_old && (self.has_changed || watcher.is_none()) {
                        self.whole_at = None;
                        look_at = Instant::now();
                    }
                }
            }
        }
    }

    /// When to look next at what has changed.
    fn next_look(&self) -> Instant {
        let gather = match self.pending.is_empty() {
            true => GATHER,
            false => GATHER_BEHIND,
        };
        self.live.next_look().max(Instant::now() + gather)
    }

    fn note(&mut self, event: PersistentEvent, changed: &mut BTreeSet<String>) {
        self.has_changed = true;
        let touched = match event {
            PersistentEvent::Node(event) => {
                let path: Arc<str> = event.path.as_str().into();
                changed.insert(event.path);
                Some(path)
            }
            PersistentEvent::Missed => {
                self.whole_at = None;
                None
            }
        };
        // There may be no receivers.
        let _ = self.live.touched.send(touched);
    }

    /// Reads everything if that is due, otherwise what has changed, as far as the budget allows. Returns false on failure: then everything
    /// is due.
    async fn look(&mut self, changed: BTreeSet<String>, is_watched: bool) -> bool {
        let looked = match self.whole_at {
            None => self.look_at_everything(is_watched).await,
            Some(_) => self.look_at_changes(&changed).await,
        };
        if let Err(trouble) = looked {
            return self.fail(&trouble);
        }
        self.trouble = None;
        self.failures = 0;
        self.publish();
        true
    }

    async fn look_at_everything(&mut self, is_watched: bool) -> Result<(), String> {
        self.pending.clear();
        self.has_changed = false;
        self.begin_look();
        let root = BTreeSet::from(["/".to_owned()]);
        let seen = self.survey(&root).await;
        let whole_every = {
            let mut pace = self.live.pace();
            let requests = pace.end_look(self.client.raw().requests());
            pace.until_next_whole(requests, is_watched)
        };
        self.picture.replace(&root, seen?);
        self.whole_every = whole_every.max(WHOLE_EVERY);
        self.whole_at = Some(Instant::now());
        Ok(())
    }

    async fn look_at_changes(&mut self, changed: &BTreeSet<String>) -> Result<(), String> {
        for (root, changed) in self.picture.roots(changed) {
            self.pending.entry(root).or_default().extend(changed);
        }
        if self.pending.len() > PENDING_MAX {
            self.pending.clear();
        }
        let roots = self.take_affordable().await;
        if roots.is_empty() {
            return Ok(());
        }
        self.begin_look();
        let seen = self.survey(&roots).await;
        let (sent, now) = (self.client.raw().requests(), Instant::now());
        self.live.pace().charge_look(sent, now);
        self.picture.replace(&roots, seen?);
        Ok(())
    }

    /// Takes some of the paths that wait to be read: as many as the budget allows, by the requests that they took before, and at least one.
    async fn take_affordable(&mut self) -> BTreeSet<String> {
        let (mut roots, mut expected) = (BTreeSet::new(), SYNC);
        let available = self.live.charged(Instant::now()).available();
        while roots.is_empty() || f64::from(expected) < available {
            let behind = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
            let next = self.pending.range(behind).next();
            let next = next.or(self.pending.first_key_value());
            let Some(root) = next.map(|(root, _)| root.clone()) else {
                break;
            };
            let changed = self.pending.remove(&root).unwrap_or_default();
            self.last.clone_from(&root);
            if is_covered(&root, &roots) {
                continue;
            }
            expected += match self.picture.at(&root) {
                [] => match self.count_below(&root).await {
                    Some(below @ 0..=BELOW_MAX) => 2 + below,
                    _ => {
                        for path in changed.into_iter().filter(|path| *path != root) {
                            self.pending.entry(path).or_default();
                        }
                        continue;
                    }
                },
                sights => sights.iter().map(requests).sum::<u32>(),
            };
            roots.insert(root);
        }
        roots
    }

    fn begin_look(&self) {
        let (sent, now) = (self.client.raw().requests(), Instant::now());
        self.live.pace().begin_look(sent, now);
    }

    async fn survey(&self, roots: &BTreeSet<String>) -> Result<Overview, String> {
        let mut roots = roots.iter();
        let first = roots.next().map_or("/", String::as_str);
        let survey = roots.fold(Survey::new(&self.client, first), |survey, root| {
            survey.and(root)
        });
        match timeout(LOOK_MAX, survey.look()).await {
            Ok(Ok(seen)) => Ok(seen),
            // It was deleted meanwhile, with all its descendants.
            Ok(Err(bellwether::Error {
                kind: ErrorKind::Refused { source, .. },
                ..
            })) if source == zk::Error::NO_NODE => Ok(Overview::default()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer".to_owned()),
        }
    }

    /// Number of descendants of a path: a survey may list each of them. `None` if the server does not report it.
    async fn count_below(&self, path: &str) -> Option<u32> {
        let zk = self.client.raw();
        let counted = timeout(LOOK_MAX, zk.count_descendants(path)).await;
        match counted {
            Ok(Ok(count)) => u32::try_from(count).ok(),
            Ok(Err(zk::Error::NO_NODE)) => Some(0),
            _ => None,
        }
    }

    /// Queries the servers. A server that hangs takes seconds.
    fn ask_members(&self) -> BoxFuture<'static, Answers> {
        let (members, before) = (self.live.members.clone(), self.members.clone());
        Box::pin(async move { members::ask_all(&members, &before).await })
    }

    fn take_sample(&mut self, (members, sample): Answers) {
        self.members = members;
        if let Some(rate) = sample.get("requests_per_second").and_then(Value::as_f64) {
            self.live.pace().observe(rate, Instant::now());
        }
        self.live.keep_sample(sample.clone());
        let overview = self.picture.overview();
        self.live.document.send_modify(|document| {
            document.set("sample", &sample);
            document.set("servers", &members::json(&self.members));
            document.set("problems", &problems::json(overview, &self.members));
        });
    }

    fn publish(&self) {
        let overview = self.picture.overview();
        self.live.document.send_modify(|document| {
            document.replace(SIGHT, self.picture.texts());
            document.set("deadlocks", &json::deadlocks(overview));
            document.set("waits", &waits(overview));
            document.set("unreadable", &json!(overview.unreadable));
            document.set("problems", &problems::json(overview, &self.members));
            document.set("ready", &json!(true));
        });
        self.publish_connection();
    }

    /// Publishes whether the pages are up to date.
    fn publish_connection(&self) {
        let state = self.client.raw().state();
        let is_connected = state == SessionState::Connected;
        let trouble = match is_connected {
            true => self.trouble.as_deref(),
            false => Some("no server answers"),
        };
        self.live.document.send_modify(|document| {
            document.set(
                "connection",
                &json!({"connected": is_connected, "trouble": trouble}),
            );
        });
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) -> bool {
        tracing::debug!(%error, "cannot look at the tree");
        self.trouble = Some(error.to_string());
        self.whole_at = None;
        self.publish_connection();
        false
    }
}

/// The next event; pending for ever if there is no watch.
async fn next(watcher: &mut Option<PersistentWatch>) -> Result<PersistentEvent, zk::Error> {
    match watcher {
        Some(watcher) => watcher.next().await,
        None => std::future::pending().await,
    }
}

/// The answers of the servers; pending if they were not asked.
async fn answered(asking: &mut Option<BoxFuture<'static, Answers>>) -> Answers {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// Requests of a look, apart from those of each recipe.
const SYNC: u32 = 1;

/// Approximate number of requests that a look at a recipe takes: lists, and a read per node.
fn requests(sight: &RecipeAt) -> u32 {
    let requests = match &sight.what {
        Recipe::Line(line) => 1 + line.entries.len(),
        Recipe::Queue(queue) => 6 + queue.claims.len(),
        Recipe::Tasks { claims, .. } => 6 + claims.len(),
        Recipe::DoubleBarrier(members) => 3 + members.here.len(),
        Recipe::Transaction(status) => 3 + 3 * status.sites.len(),
        _ => 2,
    };
    u32::try_from(requests).unwrap_or(u32::MAX)
}

/// Chains of waiting: waiters whose holder waits itself, and holders with waiters that wait for something else. A single line is no chain.
fn waits(overview: &Overview) -> Value {
    /// More cannot be drawn.
    const EDGES_MAX: usize = 120;
    let (mut holders, mut waiters, mut names) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    for sight in &overview.recipes {
        let Recipe::Line(line) = &sight.what else {
            continue;
        };
        for one in &line.entries {
            match one.holds {
                true => drop(holders.insert((sight.path.as_str(), one.owner()))),
                false => drop(waiters.insert(one.owner())),
            }
            names.insert(one.owner(), name(one));
        }
    }
    let holds_anything: BTreeSet<_> = holders.iter().map(|(_, owner)| owner).collect();
    let steps = overview.deadlocks();
    let steps: Vec<_> = steps.iter().flatten().collect();
    overview
        .waits()
        .iter()
        .filter(|wait| {
            let is_chain =
                waiters.contains(&wait.waits_for) || holds_anything.contains(&wait.owner);
            let is_for_holder = holders.contains(&(wait.path.as_str(), wait.waits_for.clone()));
            is_chain && is_for_holder || steps.contains(wait)
        })
        .take(EDGES_MAX)
        .map(|wait| {
            json!({
                "owner": wait.owner,
                "name": names.get(&wait.owner),
                "path": wait.path,
                "waits_for": wait.waits_for,
                "blocker": names.get(&wait.waits_for),
            })
        })
        .collect()
}

/// Display name of a contender: the name its task gave itself, or else host and process.
fn name(one: &QueueEntry) -> String {
    let owner = one.owner();
    match &one.who {
        Some(who) if owner == format!("{:x}", one.session) => {
            format!("{}:{}", who.host, who.pid)
        }
        _ => owner,
    }
}
