//! One transaction, by its id, and cleaning up finished ones.

use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::environment;
use tokio::select;

use crate::error::{Error, ErrorKind, Failure};
use crate::request::{OpenNode, PersistentNode};
use crate::session::client::Client;
use crate::session::retry::{NodeEvent, Retry};
use crate::session::telemetry::call;
use crate::two_phase::TwoPhase;
use crate::two_phase::nodes::{
    self, Ballot, Child, DECISION, Decision, TransactionSpec, Verdict, Vote,
};
use crate::two_phase::roles::{Coordinator, Participant, Participation, Presence};
use crate::two_phase::view::{Status, Then, TransactionProgress, View};

/// A handle to a transaction, by its id, for use in any process.
///
/// It holds no state. [`TwoPhase::transaction`](crate::TwoPhase::transaction) returns it, and nothing is sent until a verb is called.
#[derive(Clone, Debug)]
pub struct Transaction {
    client: Client,
    /// The directory of transactions.
    dir: PersistentNode,
    /// The node of the transaction.
    place: PersistentNode,
    id: String,
}

impl Transaction {
    pub(super) fn new(client: &Client, dir: &PersistentNode, id: String) -> Self {
        Self {
            client: client.clone(),
            dir: dir.clone(),
            place: dir.beneath(&id),
            id,
        }
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The status: which sites have voted, and which are missing. Three round trips, and a fourth if there are votes to read. The caller need
    /// not take part.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`.
    pub async fn status(&self) -> Result<Status, Error> {
        call!("transaction.status", self.place.path())
            .run(async {
                // Another process may have voted a moment ago, through a server that is ahead of ours.
                self.sync().await?;
                let mut view = self.open_view().await?;
                view.update(Then::Leave).await?;
                Ok(view.status().clone())
            })
            .await
    }

    /// A stream of the status, the current one first, until every site is done. Quick changes may be skipped.
    pub fn progress(&self) -> TransactionProgress {
        TransactionProgress::of(self.clone())
    }

    /// Begins to take part for one of the sites, and shows the other sites that it is present.
    ///
    /// One process at a time should act for a site. A second process does not affect the decision, but its handlers are called too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotASite`] if it was begun without this site; else [`ErrorKind`]: `BadPath`, `Unreadable`,
    /// `NotFound`, `NoSession`, `Refused`, `TooManyEphemerals`.
    pub async fn join(&self, site: &str) -> Result<Participation, Error> {
        call!("transaction.join", self.place.path())
            .run(Participation::take(self, site))
            .await
    }

    /// Takes part as one of the sites, from its current state to the end: prepares and votes unless that has been done, waits for the
    /// decision, commits or aborts, and marks that as done.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, a later call continues where this call was.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`, `NotASite`, `TooManyEphemerals`,
    /// `Undecided`, `Handler`.
    pub async fn participate<P: Participant>(
        &self,
        site: &str,
        participant: &mut P,
    ) -> Result<Decision, Error> {
        call!("transaction.participate", self.place.path())
            .run_to(
                async { self.join(site).await?.run(participant, None).await },
                Decision::outcome,
            )
            .await
    }

    /// Takes over as coordinator, also while another coordinator is active: both reach the same decision.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`, `TooManyEphemerals`.
    pub async fn coordinate(&self) -> Result<Coordinator, Error> {
        call!("transaction.coordinate", self.place.path())
            .run(async {
                self.open().await?;
                let enter = Presence::enter(self, nodes::coordinator());
                // In this order, and together. Behind its own write a session reads nothing older, also where its server lags.
                let (presence, spec) = tokio::join!(biased; enter, self.spec());
                let (presence, (spec, payload, begun_ms)) = (presence?, spec?);
                let view = View::new(self, &spec, &payload, begun_ms);
                Ok(Coordinator::new(view, presence, &spec))
            })
            .await
    }

    /// Waits for the decision. This counts no votes, and the caller need not take part.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`.
    pub async fn decision(&self) -> Result<Decision, Error> {
        self.decision_within(None).await
    }

    /// Does the same as [`decision`](Self::decision), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the limit has passed; else as [`decision`](Self::decision).
    pub async fn decision_timeout(&self, limit: Duration) -> Result<Decision, Error> {
        self.decision_within(Some(limit)).await
    }

    async fn decision_within(&self, limit: Option<Duration>) -> Result<Decision, Error> {
        let decision = async {
            self.open().await?;
            self.announced(false).await
        };
        call!("transaction.decision", self.place.path())
            .waits(&self.client, limit)
            .run_to(decision, Decision::outcome)
            .await
    }

    /// Votes for a site without taking part for it, and returns the vote that counts: a site votes once, and the first vote counts. For
    /// programs whose parts are processes that come and go; [`Participation::vote`] is for all others.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have voted or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`, `NotASite`. It may have voted; call
    /// again to know.
    pub async fn vote(&self, site: &str, vote: Vote) -> Result<Ballot, Error> {
        call!("transaction.vote", self.place.path())
            .run(async {
                let (spec, _, _) = self.latest_spec().await?;
                self.check_site(&spec, site)?;
                self.cast(site, vote, true).await
            })
            .await
    }

    /// Marks that a site has applied the decision. As [`Participation::applied`], for programs that have none.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been marked or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Undecided`] while there is no decision; else [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`,
    /// `NoSession`, `Refused`, `NotASite`.
    pub async fn applied(&self, site: &str) -> Result<(), Error> {
        call!("transaction.applied", self.place.path())
            .run(async {
                let (spec, _, _) = self.latest_spec().await?;
                self.check_site(&spec, site)?;
                self.mark_applied(site).await
            })
            .await
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn place(&self) -> &PersistentNode {
        &self.place
    }

    pub(super) fn not_found(&self) -> Failure {
        self.place.failed(ErrorKind::NotFound)
    }

    pub(super) fn unreadable(&self, name: &str) -> Failure {
        let error = format!("{name} is not written by this recipe");
        self.place.unreadable(error)
    }

    pub(super) fn check_site(&self, spec: &TransactionSpec, site: &str) -> Result<(), Failure> {
        match spec.sites.contains(site) {
            true => Ok(()),
            false => {
                let site = site.to_owned();
                Err(self.place.failed(ErrorKind::NotASite { site }))
            }
        }
    }

    /// Refuses an id that cannot be that of a node, and finds a session.
    pub(super) async fn open(&self) -> Result<(), Failure> {
        self.dir.check_child(&self.id)?;
        self.place.open().await?;
        Ok(())
    }

    /// A view that has read the spec.
    pub(super) async fn open_view(&self) -> Result<View, Failure> {
        let (spec, payload, begun_ms) = self.spec().await?;
        Ok(View::new(self, &spec, &payload, begun_ms))
    }

    /// The spec, the payload, and when it began.
    pub(super) async fn spec(&self) -> Result<(TransactionSpec, Vec<u8>, i64), Failure> {
        let read = self
            .place
            .ask_in_time(|opened| opened.session.zk().get(opened.path.as_str()));
        let (data, stat) = read.await?.ok_or_else(|| self.not_found())?;
        let spec = TransactionSpec::from_data(&data);
        let (spec, payload) = spec.ok_or_else(|| self.unreadable("the transaction"))?;
        Ok((spec, payload.to_owned(), stat.ctime))
    }

    /// Does the same as [`spec`](Self::spec), also of a transaction that was begun a moment ago through a server that is ahead of ours.
    async fn latest_spec(&self) -> Result<(TransactionSpec, Vec<u8>, i64), Failure> {
        // In this order, and together.
        let (synced, spec) = tokio::join!(biased; self.sync(), self.spec());
        synced?;
        spec
    }

    /// The names of all nodes below it.
    pub(super) async fn children(&self) -> Result<Vec<String>, Failure> {
        let listed = self
            .place
            .ask_in_time(|opened| opened.session.zk().children(opened.path.as_str()));
        listed.await?.ok_or_else(|| self.not_found())
    }

    async fn sync(&self) -> Result<(), Failure> {
        self.open().await?;
        let synced = self
            .place
            .ask(|opened| opened.session.zk().sync(opened.path.as_str()));
        synced.await?;
        Ok(())
    }

    /// Casts a vote, and returns the vote that counts.
    pub(super) async fn cast(
        &self,
        site: &str,
        vote: Vote,
        is_own: bool,
    ) -> Result<Ballot, Failure> {
        let ballot = Ballot {
            vote: vote.cut(),
            by: self.client.current().who(),
            is_own,
        };
        let name = nodes::vote(site);
        let data = ballot.to_data();
        loop {
            if self.make_once(&name, &data).await? {
                return Ok(ballot);
            }
            // The existing node is gone again if another client has cleaned up by force.
            if let Some(stands) = self.read_ballot(site).await? {
                return Ok(stands);
            }
        }
    }

    /// Records a decision, and returns the decision that counts.
    pub(super) async fn record(&self, decision: Decision) -> Result<Decision, Failure> {
        let verdict = Verdict::new(decision, self.client.current().who());
        loop {
            match self.make_once(DECISION, &verdict.to_data()).await {
                Ok(true) => return Ok(decision),
                Ok(false) => {}
                // Other processes have decided, applied and removed it meanwhile. By the same votes they have reached the same decision.
                Err(Failure {
                    kind: ErrorKind::NotFound,
                    ..
                }) => return Ok(decision),
                Err(error) => return Err(error),
            }
            if let Some(stands) = self.read_decision().await? {
                return Ok(stands);
            }
        }
    }

    pub(super) async fn read_ballot(&self, site: &str) -> Result<Option<Ballot>, Failure> {
        let name = nodes::vote(site);
        let Some(data) = self.read(&name).await? else {
            return Ok(None);
        };
        let ballot = Ballot::from_data(&data);
        ballot.map(Some).ok_or_else(|| self.unreadable(&name))
    }

    /// Marks that a site is done, if there is a decision.
    pub(super) async fn mark_applied(&self, site: &str) -> Result<(), Failure> {
        let mut in_doubt = false;
        loop {
            let opened = self.place.open_in_time().await?;
            match self.send_applied(&opened, site).await {
                Ok(()) | Err(zk::Error::NODE_EXISTS) => return Ok(()),
                Err(zk::Error::NO_NODE) => {
                    return match self.spec().await {
                        Ok(_) => Err(self.place.failed(ErrorKind::Undecided)),
                        // If the mark was written, it may have been the last step, and the transaction may be removed by now.
                        Err(Failure {
                            kind: ErrorKind::NotFound,
                            ..
                        }) if in_doubt => Ok(()),
                        Err(error) => Err(error),
                    };
                }
                Err(error) => {
                    in_doubt |= error.is_in_doubt();
                    self.place.again(&opened, error).await?;
                }
            }
        }
    }

    async fn send_applied(&self, opened: &OpenNode, site: &str) -> Result<(), zk::Error> {
        let options = zk::CreateMode::Persistent.with_acl(self.place.access().acl());
        let mut writer = opened.session.zk().new_multi();
        writer.check(&opened.path.child(DECISION), None);
        writer.create(&opened.path.child(nodes::applied(site)), b"", &options);
        writer.commit().await?;
        Ok(())
    }

    pub(super) async fn read_decision(&self) -> Result<Option<Decision>, Failure> {
        let Some(data) = self.read(DECISION).await? else {
            return Ok(None);
        };
        match Verdict::from_data(&data) {
            Some(verdict) => Ok(Some(verdict.decision)),
            None => Err(self.unreadable(DECISION)),
        }
    }

    /// Waits until a decision was announced. `is_known` says that the transaction was there a moment ago.
    pub(super) async fn announced(&self, mut is_known: bool) -> Result<Decision, Failure> {
        loop {
            let opened = self.place.open_in_time().await?;
            let zk = opened.session.zk();
            let mut states = zk.states();
            states.mark_unchanged();
            let node = opened.path.child(DECISION);
            // Created before the first await: all are sent in one packet. It may have begun through a server that is ahead of ours.
            let synced = (!is_known).then(|| zk.sync(opened.path.as_str()));
            let announced = zk.exists_watched(&node);
            let transaction = (!is_known).then(|| zk.exists(opened.path.as_str()));
            let looked = async {
                if let Some(synced) = synced {
                    synced.await?;
                }
                let (announced, watch) = announced.await?;
                let is_there = match transaction {
                    Some(transaction) => transaction.await?.is_some(),
                    None => true,
                };
                Ok((announced.is_some(), is_there, watch))
            };
            let (is_announced, is_there, watch) = match looked.await {
                Ok(looked) => looked,
                Err(error) => {
                    self.place.again(&opened, error).await?;
                    continue;
                }
            };
            if !is_there {
                return Err(self.not_found());
            }
            if !is_announced {
                select! {
                    biased;
                    _ = NodeEvent::of(watch) => {}
                    // It may have been decided and cleaned up while this client was disconnected.
                    _ = states.changed() => {}
                }
            }
            if let Some(decision) = self.read_decision().await? {
                return Ok(decision);
            }
            is_known = false;
        }
    }

    /// Creates a node that is created only once; `false` if it exists, perhaps from an earlier try whose reply was lost.
    async fn make_once(&self, name: &str, data: &[u8]) -> Result<bool, Failure> {
        let mut in_doubt = false;
        loop {
            let opened = self.place.open_in_time().await?;
            let options = zk::CreateMode::Persistent.with_acl(self.place.access().acl());
            let node = opened.path.child(name);
            match opened.session.zk().create(&node, data, &options).await {
                Ok(_) => return Ok(true),
                Err(zk::Error::NODE_EXISTS) => return Ok(false),
                // If the node was created, that may have been the last step, and the transaction may be removed by now.
                Err(zk::Error::NO_NODE) if in_doubt => return Ok(false),
                Err(zk::Error::NO_NODE) => return Err(self.not_found()),
                Err(error) => {
                    in_doubt |= error.is_in_doubt();
                    self.place.again(&opened, error).await?;
                }
            }
        }
    }

    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let read = self
            .place
            .ask_in_time(|opened| opened.session.zk().get(&opened.path.child(name)));
        Ok(read.await?.map(|(data, _)| data.to_vec()))
    }
}

/// The number of bytes that are removed in one request. Servers take no more than 1 MiB.
const BATCH_BYTES_MAX: usize = 700_000;

/// The size of the deletion of a node besides its path: headers, a length and a version.
const DELETE_OVERHEAD_BYTES: usize = 20;

impl TwoPhase {
    /// Removes the transactions that are done at every site and began more than `older_than` ago, and returns their ids. The age is the time of
    /// day here less that of the servers, so it is wrong by the difference of their clocks. Call it now and
    /// then; concurrent calls do no harm.
    ///
    /// # Cancel safety
    ///
    /// Each transaction has been removed or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`.
    pub async fn clean_up(&self, older_than: Duration) -> Result<Vec<String>, Error> {
        call!("transaction.clean_up", self.dir.path())
            .run(async {
                let now = environment::system_time();
                let mut forgotten = Vec::new();
                for status in self.list().await? {
                    let age = now.duration_since(status.begun).unwrap_or_default();
                    if !status.is_done() || age < older_than {
                        continue;
                    }
                    match self.transaction(&status.id).forget().await {
                        Ok(()) => forgotten.push(status.id),
                        // Another client was quicker.
                        Err(Error {
                            kind: ErrorKind::NotFound,
                            ..
                        }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(forgotten)
            })
            .await
    }
}

impl Transaction {
    /// Removes everything about a transaction that is done at every site. Its decision can no longer be read.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, all of it has been removed or nothing; of a transaction that does not fit one request, votes may
    /// be gone before the rest. Call again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotDone`] while a site is not done; else [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`,
    /// `NoSession`, `Refused`.
    pub async fn forget(&self) -> Result<(), Error> {
        call!("transaction.forget", self.place().path())
            .run(self.remove_if_done())
            .await
    }

    async fn remove_if_done(&self) -> Result<(), Failure> {
        let status = self.status().await?;
        if !status.is_done() {
            let sites = status.unapplied().map(str::to_owned).collect();
            return Err(self.place.failed(ErrorKind::NotDone { sites }));
        }
        self.remove(|writer, node, names| {
            // Whether it is done, and how, is known to the end.
            let needed = |name: &&String| {
                let child = Child::parse(name);
                matches!(child, Some(Child::Decision | Child::Applied(_)))
            };
            let (last, first): (Vec<_>, Vec<_>) = names.iter().partition(needed);
            let fits_at_once =
                delete_bytes(node, &first) + delete_bytes(node, &last) <= BATCH_BYTES_MAX;
            if !fits_at_once && !first.is_empty() {
                add_deletes(writer, node, &fitting(node, &first));
                return Ok(Left::Something);
            }
            add_deletes(writer, node, &first);
            add_deletes(writer, node, &last);
            writer.delete(node, None);
            Ok(Left::Nothing)
        })
        .await
    }

    /// Gives up on sites that will not return: decides, as [`abort`](super::Coordinator::abort) does, and removes votes and payload. The
    /// decision stays as a tombstone, so that a site that does return learns it; when all sites have, [`forget`](Self::forget) removes that
    /// too.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been decided, and removed or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`, `TooManyEphemerals`.
    pub async fn forget_by_force(&self) -> Result<Decision, Error> {
        call!("transaction.forget_by_force", self.place().path())
            .run_to(self.remove_by_force(), Decision::outcome)
            .await
    }

    async fn remove_by_force(&self) -> Result<Decision, Failure> {
        let decision = self.coordinate().await?.abort("given up by force").await?;
        let (mut spec, _, _) = self.spec().await?;
        spec.forgotten_by = Some(self.client().current().who());
        let tombstone = spec.to_data(b"");
        self.remove(|writer, node, _| {
            writer.set(node, &tombstone, None);
            // Nothing may be removed without it.
            writer.check(&format!("{node}/{DECISION}"), None);
            Ok(Left::Nothing)
        })
        .await?;
        let swept = self.remove(|writer, node, names| {
            let is_vote = |name: &&String| matches!(Child::parse(name), Some(Child::Vote(_)));
            let votes: Vec<_> = names.iter().filter(is_vote).collect();
            let batch = fitting(node, &votes);
            writer.check(&format!("{node}/{DECISION}"), None);
            add_deletes(writer, node, &batch);
            Ok(match batch.len() < votes.len() {
                true => Left::Something,
                false => Left::Nothing,
            })
        });
        match swept.await {
            // The last site has come back after all, and has cleaned up.
            Ok(())
            | Err(Failure {
                kind: ErrorKind::NotFound,
                ..
            }) => Ok(decision),
            Err(error) => Err(error),
        }
    }

    /// Makes writes to the node and everything below it, in as many multis as it takes, each of which is idempotent.
    async fn remove(
        &self,
        fill: impl Fn(&mut zk::Multi<'_>, &str, &[String]) -> Result<Left, zk::Error>,
    ) -> Result<(), Failure> {
        let place = self.place();
        // Once one of our writes is done, or may be, another client may do the rest.
        let mut is_begun = false;
        let mut retry = Retry::limited();
        loop {
            let names = match self.children().await {
                Err(Failure {
                    kind: ErrorKind::NotFound,
                    ..
                }) if is_begun => return Ok(()),
                names => names?,
            };
            let opened = place.open_in_time().await?;
            let mut writer = opened.session.zk().new_multi();
            let node = opened.path.as_str();
            let left = match fill(&mut writer, node, &names) {
                Ok(left) => left,
                Err(error) => return Err(place.failed(error)),
            };
            match writer.commit().await.map_err(zk::Error::from) {
                Ok(_) if left == Left::Nothing => return Ok(()),
                // The rest goes next.
                Ok(_) => (is_begun, retry) = (true, Retry::limited()),
                // A participant came or left between the two. Or another program created a node below a vote, and that stays.
                Err(error @ (zk::Error::NO_NODE | zk::Error::NOT_EMPTY)) => {
                    retry.count(error).map_err(|error| place.failed(error))?;
                }
                Err(error) => {
                    is_begun |= error.is_in_doubt();
                    place.again(&opened, error).await?;
                }
            }
        }
    }
}

/// The part that is left to remove.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Something,
    Nothing,
}

fn add_deletes(writer: &mut zk::Multi<'_>, node: &str, names: &[&String]) {
    for name in names {
        writer.delete(&format!("{node}/{name}"), None);
    }
}

/// Returns as many of these as can be deleted in one request; one at least.
fn fitting<'a>(node: &str, names: &[&'a String]) -> Vec<&'a String> {
    let mut bytes = 0;
    let fits = |(index, name): &(usize, &&String)| {
        bytes += delete_bytes(node, &[name]);
        *index == 0 || bytes <= BATCH_BYTES_MAX
    };
    let names = names.iter().enumerate().take_while(fits);
    names.map(|(_, name)| *name).collect()
}

/// Returns the size of the deletion of these nodes.
fn delete_bytes(node: &str, names: &[&String]) -> usize {
    let bytes = names
        .iter()
        .map(|name| node.len() + name.len() + DELETE_OVERHEAD_BYTES);
    bytes.sum()
}

/// Refuses a transaction whose site names are so long that its removal would not fit into one request.
pub(super) fn check_can_be_forgotten(
    place: &PersistentNode,
    spec: &TransactionSpec,
) -> Result<(), Failure> {
    let marks: Vec<_> = spec.sites.iter().map(|site| nodes::applied(site)).collect();
    let bytes = delete_bytes(place.path(), &marks.iter().collect::<Vec<_>>());
    match bytes > BATCH_BYTES_MAX {
        true => Err(place.failed(ErrorKind::TooLarge {
            bytes,
            bytes_max: BATCH_BYTES_MAX,
        })),
        false => Ok(()),
    }
}
