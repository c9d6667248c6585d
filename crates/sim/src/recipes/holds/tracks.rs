//! The histories of holds, one for each path: a guard may comprise several holds, each of which is checked on its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::hold::{Crash, Previous};
use bellwether::{Error, FencingToken, Hold};
use bellwether_testkit::History;
use bellwether_testkit::history::{
    Event, What, check_crash_marks, check_fencing, check_holds, check_order,
};

use super::Holdable;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::worker::Worker;

/// All holds of a run.
#[derive(Debug)]
pub(crate) struct Tracks {
    capacity: u32,
    is_fair: bool,
    is_marked: bool,
    by_path: BTreeMap<String, Track>,
    /// The last acknowledged note of each hold, by its token.
    notes: BTreeMap<i64, u64>,
    /// The first thing that must not have happened.
    wrong: Option<String>,
}

/// The holds of one path, and a store that compares their fencing tokens.
#[derive(Debug, Default)]
struct Track {
    tokens: BTreeSet<i64>,
    /// The highest token that the store has seen.
    highest: Option<i64>,
}

impl Tracks {
    pub(crate) fn new<H: Holdable>() -> Self {
        Self {
            capacity: H::CAPACITY,
            is_fair: H::IS_FAIR,
            is_marked: H::IS_MARKED,
            by_path: BTreeMap::new(),
            notes: BTreeMap::new(),
            wrong: None,
        }
    }

    pub(crate) fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)?;
        for (path, track) in &self.by_path {
            let own = |event: &&Event| {
                token_of(&event.what).is_none_or(|token| track.tokens.contains(&token))
            };
            let own = history.events().iter().filter(own).cloned().collect();
            let own = History::new(plan.seed, own);
            self.check_track(plan, &own)
                .map_err(|wrong| format!("{path}: {wrong}"))?;
        }
        Ok(())
    }

    fn check_track(&self, plan: &Plan, history: &History) -> Result<(), String> {
        let terms = plan.hold_terms(self.capacity);
        let mut verdict = check_holds(history, &terms);
        if self.is_fair {
            verdict = verdict.and_then(|()| check_order(history, &terms));
        }
        verdict = verdict.and_then(|()| check_fencing(history, &terms));
        if self.is_marked {
            verdict = verdict.and_then(|()| check_crash_marks(history));
        }
        verdict.map_err(|violation| violation.to_string())?;
        check_belief(history)
    }
}

/// The hold that an event is about.
fn token_of(what: &What) -> Option<i64> {
    match *what {
        What::Granted { token, .. }
        | What::Lost { token }
        | What::Releasing { token }
        | What::Released { token }
        | What::Dropping { token }
        | What::Found { token, .. }
        | What::Wrote { token, .. } => Some(token),
        _ => None,
    }
}

/// Checks that no worker relied on a hold that was over: `lost` compares clocks when it is polled, so a worker that takes a step is the last
/// one that the store has seen, even after a pause.
fn check_belief(history: &History) -> Result<(), String> {
    let mut lost = BTreeSet::new();
    for event in history.events() {
        match event.what {
            What::Lost { token } | What::Deleting { token } => drop(lost.insert(token)),
            What::Wrote {
                token,
                accepted: false,
            } if !lost.contains(&token) => {
                return Err(format!(
                    "worker {} wrote under the hold {token}, which was over and not reported as lost",
                    event.who
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Records the holds of one round of a worker.
#[derive(Debug)]
pub(crate) struct Log {
    recorder: Recorder,
    who: usize,
    has_operator: bool,
    weight: AtomicU32,
    tracks: Arc<Mutex<Tracks>>,
    /// Tokens of the holds that have begun, and whether they have ended.
    holds: Mutex<BTreeMap<i64, bool>>,
}

impl Log {
    /// The worker asks for holds of this weight.
    pub(crate) fn new(worker: &Worker, tracks: &Arc<Mutex<Tracks>>, weight: u32) -> Self {
        worker.note(What::Asked);
        Self {
            recorder: worker.recorder.clone(),
            who: worker.who,
            has_operator: worker.has_operator,
            weight: AtomicU32::new(weight),
            tracks: Arc::clone(tracks),
            holds: Mutex::default(),
        }
    }

    /// A hold has begun. A second call records nothing.
    pub(crate) fn granted(&self, hold: &Hold) {
        let token = hold.token().number();
        if self.holds().contains_key(&token) {
            return;
        }
        self.holds().insert(token, false);
        let is_marked = {
            let mut tracks = self.tracks();
            let track = tracks.by_path.entry(hold.path().to_owned());
            track.or_default().tokens.insert(token);
            tracks.is_marked
        };
        let weight = self.weight();
        self.note(What::Granted { token, weight });
        if is_marked {
            let crashed = match hold.previous() {
                Previous::Crashed(crash) => {
                    self.check_note(crash);
                    crash.token.map(FencingToken::number)
                }
                _ => None,
            };
            self.note(What::Found { token, crashed });
        }
    }

    /// A note of a hold was acknowledged.
    pub(crate) fn noted(&self, hold: &Hold, note: u64) {
        let token = hold.token().number();
        self.tracks().notes.insert(token, note);
    }

    /// The next holder finds the last note, or a later one that got no answer.
    fn check_note(&self, crash: &Crash) {
        let text = crash.note.as_deref().map(String::from_utf8_lossy);
        let found = text.and_then(|text| text.parse().ok());
        let token = crash.token.map(FencingToken::number);
        let noted = token.and_then(|token| self.tracks().notes.get(&token).copied());
        if found < noted {
            self.wrong(format!("a note of {token:?} is {found:?} after {noted:?}"));
        }
    }

    /// A hold goes on after a call that took its guard, perhaps with another weight or as another hold.
    pub(crate) fn goes_on(&self, hold: &Hold, weight: u32) {
        self.weight.store(weight, Ordering::Relaxed);
        let token = hold.token().number();
        if !hold.is_held() {
            return self.note(What::Lost { token });
        }
        self.holds().remove(&token);
        self.granted(hold);
    }

    /// The weight of its holds.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// A hold is known to be over.
    pub(crate) fn lost(&self, hold: &Hold) {
        let token = hold.token().number();
        self.end(token, What::Lost { token });
    }

    /// All holds that are left are dropped at this moment.
    pub(crate) fn dropping(&self) {
        let tokens: Vec<i64> = self.holds().keys().copied().collect();
        for token in tokens {
            self.end(token, What::Dropping { token });
        }
    }

    /// A hold is about to be released.
    pub(crate) fn releasing(&self, hold: &Hold) {
        let token = hold.token().number();
        self.end(token, What::Releasing { token });
    }

    /// Releases one hold.
    pub(crate) async fn release<G, F>(
        &self,
        guard: G,
        release: impl FnOnce(G) -> F + Send,
    ) -> Result<(), Error>
    where
        G: Deref<Target = Hold> + Send,
        F: Future<Output = Result<(), Error>> + Send,
    {
        let token = guard.token().number();
        self.releasing(&guard);
        release(guard).await?;
        self.note(What::Released { token });
        Ok(())
    }

    /// Awaits a future. If the hold is lost meanwhile, that is recorded at once.
    pub(crate) async fn watching<T>(&self, hold: &Hold, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            () = hold.lost() => self.lost(hold),
            done = &mut work => return done,
        }
        work.await
    }

    /// Writes to a store that compares fencing tokens, and records whether it accepted the write.
    pub(crate) fn write(&self, hold: &Hold) {
        let token = hold.token().number();
        let accepted = {
            let mut tracks = self.tracks();
            // Only an exclusive holder can be identified by its token.
            if self.weight() < tracks.capacity {
                return;
            }
            let track = tracks.by_path.entry(hold.path().to_owned()).or_default();
            let accepted = track.highest.is_none_or(|highest| token >= highest);
            if accepted {
                track.highest = Some(token);
            }
            accepted
        };
        self.note(What::Wrote { token, accepted });
    }

    /// A call beside the one that the round waits for has failed. If neither faults nor an operator can cause that, the run fails.
    pub(crate) fn failed(&self, error: &impl Failure) {
        if !error.is_explained(self.has_operator) {
            self.wrong(error.to_string());
        }
    }

    /// Ends the run as failed, with this violation.
    pub(crate) fn wrong(&self, what: String) {
        self.tracks().wrong.get_or_insert(what);
    }

    fn end(&self, token: i64, what: What) {
        let was_over = self.holds().insert(token, true);
        if was_over == Some(false) {
            self.note(what);
        }
    }

    fn note(&self, what: What) {
        self.recorder.note(self.who, what);
    }

    fn holds(&self) -> MutexGuard<'_, BTreeMap<i64, bool>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tracks(&self) -> MutexGuard<'_, Tracks> {
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
