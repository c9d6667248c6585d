//! One transaction, by its id.

use std::time::Duration;

use bellwether_client as zk;
use tokio::select;

use super::ballot::{Ballot, Decision, Verdict, Vote};
use super::child::{self, DECISION};
use super::coordinator::Coordinator;
use super::error::{ParticipateError, TransactionError};
use super::participant::Participant;
use super::presence::Presence;
use super::progress::TransactionProgress;
use super::seat::Seat;
use super::status::Status;
use super::terms::Terms;
use super::view::{Then, View};
use crate::client::Client;
use crate::group::check_name;
use crate::node_event::NodeEvent;
use crate::state::{Site as Place, Visit};
use crate::who::Who;

/// A transaction, by its id: what can be asked of it and done about it from anywhere.
///
/// It is a name and no more. [`TwoPhase::transaction`](crate::TwoPhase::transaction) makes it, and nothing is sent until a
/// verb is called. Clones are alike.
#[derive(Clone, Debug)]
pub struct Transaction {
    client: Client,
    /// The directory of transactions.
    dir: Place,
    /// Its node.
    place: Place,
    id: String,
}

impl Transaction {
    pub(super) fn new(client: &Client, dir: &Place, id: String) -> Self {
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

    /// How far it has come, who has voted, and who is missing: three round trips. Nobody has to take part for that.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn status(&self) -> Result<Status, TransactionError> {
        // Another process may have voted a moment ago, through a server that is ahead of ours.
        self.sync().await?;
        let mut view = self.open_view().await?;
        view.look(Then::Leave).await?;
        Ok(view.status().clone())
    }

    /// The status as it changes, the present one first, until every site is done. What followed fast may be left out.
    pub fn progress(&self) -> TransactionProgress {
        TransactionProgress::of(self.clone())
    }

    /// Takes a seat as one of the sites, and shows the others that this site is there.
    ///
    /// One process at a time should be a site. A second one does no harm to the decision; its handlers are called as well.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NotASite`] if it was begun without this site; else see [`TransactionError`].
    pub async fn join(&self, site: &str) -> Result<Seat, TransactionError> {
        Seat::take(self, site).await
    }

    /// Takes part as one of the sites, from wherever it has got to, to the end: prepares and votes unless that has been done, waits for
    /// the decision, commits or aborts, and marks that as done.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, a later call goes on where this one was.
    ///
    /// # Errors
    ///
    /// See [`ParticipateError`].
    pub async fn participate<P: Participant>(
        &self,
        site: &str,
        participant: &mut P,
    ) -> Result<Decision, ParticipateError> {
        self.join(site).await?.run(participant).await
    }

    /// Takes over as coordinator, also while another one is at it: both come to the same decision.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn coordinate(&self) -> Result<Coordinator, TransactionError> {
        self.visit().await?;
        let enter = Presence::enter(self, child::coordinator());
        // In this order, and together. Behind its own write a session reads nothing older, also where its server lags.
        let (presence, terms) = tokio::join!(biased; enter, self.terms());
        let (presence, (terms, payload, begun_ms)) = (presence?, terms?);
        let view = View::new(self, &terms, &payload, begun_ms);
        Ok(Coordinator::new(view, presence, &terms))
    }

    /// Waits for the decision. This counts no votes, and is no part of the transaction.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn decision(&self) -> Result<Decision, TransactionError> {
        self.visit().await?;
        self.announced(false).await
    }

    /// As [`decision`](Self::decision), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`TransactionError::TimedOut`] when the limit has passed; else as [`decision`](Self::decision).
    pub async fn decision_timeout(&self, limit: Duration) -> Result<Decision, TransactionError> {
        let decided = self.client.home().timeout(limit, self.decision());
        decided.await.unwrap_or_else(|| {
            Err(TransactionError::TimedOut {
                path: self.path(),
                limit,
            })
        })
    }

    /// Votes for a site without taking its seat, and returns the vote that stands: a site votes once, and the first vote counts.
    /// For programs whose parts are processes that come and go; [`Seat::vote`] is for all others.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have voted or not.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`]. It may have voted; call again to know.
    pub async fn vote(&self, site: &str, vote: Vote) -> Result<Ballot, TransactionError> {
        let (terms, _, _) = self.latest_terms().await?;
        self.check_site(&terms, site)?;
        self.cast(site, vote, true).await
    }

    /// Marks that a site has done as was decided. As [`Seat::applied`], without a seat.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been marked or not.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Undecided`] while there is no decision; else see [`TransactionError`].
    pub async fn applied(&self, site: &str) -> Result<(), TransactionError> {
        let (terms, _, _) = self.latest_terms().await?;
        self.check_site(&terms, site)?;
        self.mark_applied(site).await
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn path(&self) -> String {
        self.place.path().to_owned()
    }

    pub(super) fn not_found(&self) -> TransactionError {
        TransactionError::NotFound { path: self.path() }
    }

    pub(super) fn unreadable(&self, name: &str) -> TransactionError {
        let error = format!("{name} is not written by this recipe");
        self.place.unreadable(error).into()
    }

    pub(super) fn check_site(&self, terms: &Terms, site: &str) -> Result<(), TransactionError> {
        match terms.sites.contains(site) {
            true => Ok(()),
            false => Err(TransactionError::NotASite {
                path: self.path(),
                site: site.to_owned(),
            }),
        }
    }

    /// Refuses an id that cannot be that of a node, and finds a session.
    pub(super) async fn visit(&self) -> Result<(), TransactionError> {
        check_name(&self.dir, &self.id)?;
        self.place.visit().await?;
        Ok(())
    }

    /// One who has read the terms.
    pub(super) async fn open_view(&self) -> Result<View, TransactionError> {
        let (terms, payload, begun_ms) = self.terms().await?;
        Ok(View::new(self, &terms, &payload, begun_ms))
    }

    /// The terms, the payload, and when it began.
    pub(super) async fn terms(&self) -> Result<(Terms, Vec<u8>, i64), TransactionError> {
        loop {
            let visit = self.place.visit_in_time().await?;
            match visit.client.zk().get(visit.node.as_str()).await {
                Ok((data, stat)) => {
                    let read = Terms::from_data(&data);
                    let (terms, payload) =
                        read.ok_or_else(|| self.unreadable("the transaction"))?;
                    return Ok((terms, payload.to_owned(), stat.ctime));
                }
                Err(zk::Error::NO_NODE) => return Err(self.not_found()),
                Err(error) => self.place.again(&visit, error).await?,
            }
        }
    }

    /// As [`terms`](Self::terms), also of a transaction that was begun a moment ago through a server that is ahead of ours.
    async fn latest_terms(&self) -> Result<(Terms, Vec<u8>, i64), TransactionError> {
        // In this order, and together.
        let (synced, terms) = tokio::join!(biased; self.sync(), self.terms());
        synced?;
        terms
    }

    /// The names of all nodes below it.
    pub(super) async fn children(&self) -> Result<Vec<String>, TransactionError> {
        loop {
            let visit = self.place.visit_in_time().await?;
            match visit.client.zk().children(visit.node.as_str()).await {
                Ok(names) => return Ok(names),
                Err(zk::Error::NO_NODE) => return Err(self.not_found()),
                Err(error) => self.place.again(&visit, error).await?,
            }
        }
    }

    async fn sync(&self) -> Result<(), TransactionError> {
        self.visit().await?;
        loop {
            let visit = self.place.visit().await?;
            match visit.client.zk().sync(visit.node.as_str()).await {
                Ok(()) => return Ok(()),
                Err(error) => self.place.again(&visit, error).await?,
            }
        }
    }

    /// Casts a vote, and returns the one that stands.
    pub(super) async fn cast(
        &self,
        site: &str,
        vote: Vote,
        is_own: bool,
    ) -> Result<Ballot, TransactionError> {
        let ballot = Ballot {
            vote: vote.cut(),
            by: Who::here(self.client.session_id()),
            is_own,
        };
        let name = child::vote(site);
        let data = ballot.to_data();
        loop {
            if self.make_once(&name, &data).await? {
                return Ok(ballot);
            }
            // What was there has gone again if somebody has cleaned up by force.
            if let Some(stands) = self.read_ballot(site).await? {
                return Ok(stands);
            }
        }
    }

    /// Records a decision, and returns the one that stands.
    pub(super) async fn record(&self, decision: Decision) -> Result<Decision, TransactionError> {
        let verdict = Verdict::new(decision, Who::here(self.client.session_id()));
        loop {
            match self.make_once(DECISION, &verdict.to_data()).await {
                Ok(true) => return Ok(decision),
                Ok(false) => {}
                // Others have decided, done it and forgotten it meanwhile. By the same votes they have decided the same.
                Err(TransactionError::NotFound { .. }) => return Ok(decision),
                Err(error) => return Err(error),
            }
            if let Some(stands) = self.read_decision().await? {
                return Ok(stands);
            }
        }
    }

    pub(super) async fn read_ballot(&self, site: &str) -> Result<Option<Ballot>, TransactionError> {
        let name = child::vote(site);
        let Some(data) = self.read(&name).await? else {
            return Ok(None);
        };
        let ballot = Ballot::from_data(&data);
        ballot.map(Some).ok_or_else(|| self.unreadable(&name))
    }

    /// Marks that a site is done, if there is a decision.
    pub(super) async fn mark_applied(&self, site: &str) -> Result<(), TransactionError> {
        let mut in_doubt = false;
        loop {
            let visit = self.place.visit_in_time().await?;
            match self.send_applied(&visit, site).await {
                Ok(()) | Err(zk::Error::NODE_EXISTS) => return Ok(()),
                Err(zk::Error::NO_NODE) => {
                    return match self.terms().await {
                        Ok(_) => Err(TransactionError::Undecided { path: self.path() }),
                        // If it was marked, that may have been the last thing to do, and all of it be forgotten by now.
                        Err(TransactionError::NotFound { .. }) if in_doubt => Ok(()),
                        Err(error) => Err(error),
                    };
                }
                Err(error) => self.place.again(&visit, error).await?,
            }
            in_doubt = true;
        }
    }

    async fn send_applied(&self, visit: &Visit, site: &str) -> Result<(), zk::Error> {
        let options = zk::CreateMode::Persistent.with_acl(self.place.access().acl());
        let mut writer = visit.client.zk().new_multi();
        writer.check(&visit.node.child(DECISION), None);
        writer.create(&visit.node.child(child::applied(site)), b"", &options);
        writer.commit().await?;
        Ok(())
    }

    pub(super) async fn read_decision(&self) -> Result<Option<Decision>, TransactionError> {
        let Some(data) = self.read(DECISION).await? else {
            return Ok(None);
        };
        match Verdict::from_data(&data) {
            Some(verdict) => Ok(Some(verdict.decision)),
            None => Err(self.unreadable(DECISION)),
        }
    }

    /// Waits until a decision was announced. `is_known` says that the transaction was there a moment ago.
    pub(super) async fn announced(&self, mut is_known: bool) -> Result<Decision, TransactionError> {
        loop {
            let visit = self.place.visit_in_time().await?;
            let zk = visit.client.zk();
            let mut states = zk.states();
            states.mark_unchanged();
            let node = visit.node.child(DECISION);
            // Made before the first await: all travel together. It may have begun through a server that is ahead of ours.
            let synced = (!is_known).then(|| zk.sync(visit.node.as_str()));
            let announced = zk.exists_watched(&node);
            let transaction = (!is_known).then(|| zk.exists(visit.node.as_str()));
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
                    self.place.again(&visit, error).await?;
                    continue;
                }
            };
            if !is_there {
                return Err(self.not_found());
            }
            if !is_announced {
                select! {
                    _ = NodeEvent::of(watch) => {}
                    // It may have been decided and cleaned up while nobody could tell us.
                    _ = states.changed() => {}
                }
            }
            if let Some(decision) = self.read_decision().await? {
                return Ok(decision);
            }
            is_known = false;
        }
    }

    /// Makes a node that is made once; false if it was there, perhaps by an earlier try whose reply was lost.
    async fn make_once(&self, name: &str, data: &[u8]) -> Result<bool, TransactionError> {
        let mut in_doubt = false;
        loop {
            let visit = self.place.visit_in_time().await?;
            let options = zk::CreateMode::Persistent.with_acl(self.place.access().acl());
            let node = visit.node.child(name);
            match visit.client.zk().create(&node, data, &options).await {
                Ok(_) => return Ok(true),
                Err(zk::Error::NODE_EXISTS) => return Ok(false),
                // If it was made, it may have been the last thing to do, and all of it be forgotten by now.
                Err(zk::Error::NO_NODE) if in_doubt => return Ok(false),
                Err(zk::Error::NO_NODE) => return Err(self.not_found()),
                Err(error) => self.place.again(&visit, error).await?,
            }
            in_doubt = true;
        }
    }

    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, TransactionError> {
        loop {
            let visit = self.place.visit_in_time().await?;
            match visit.client.zk().get(&visit.node.child(name)).await {
                Ok((data, _)) => return Ok(Some(data.to_vec())),
                Err(zk::Error::NO_NODE) => return Ok(None),
                Err(error) => self.place.again(&visit, error).await?,
            }
        }
    }
}
