//! Two-phase commit: worker 0 coordinates, the others are sites.

use std::convert::Infallible;
use std::time::Duration;

use bellwether::two_phase::{DeadSite, Decision, Form, Participant, Proposal, Vote};
use bellwether::{Client, Error, TwoPhase};
use bellwether_testkit::history::transactions::Deed;
use futures_util::StreamExt as _;
use rand::Rng as _;
use tokio::task::JoinSet;

use super::{Phase, Worker};
use crate::record::Did;

/// The names of the sites, for a number of workers.
pub(crate) fn sites(workers: usize) -> Vec<String> {
    (1..workers).map(|who| format!("site{who}")).collect()
}

/// Coordinates, or takes part.
pub(super) async fn run(mut worker: Worker, client: &Client) {
    while !worker.is_stopped() {
        if worker.who > 0 {
            take_part(&mut worker, client).await;
            worker.pause().await;
        } else if worker.phase() == Phase::Faults {
            let stopped = worker.stopped();
            let coordinated = tokio::select! {
                coordinated = coordinate(&mut worker, client) => coordinated,
                () = stopped => return,
            };
            if let Err(error) = coordinated {
                worker.failed(&error).await;
            }
            worker.pause().await;
        } else {
            return;
        }
    }
}

async fn coordinate(worker: &mut Worker, client: &Client) -> Result<(), Error> {
    let random = &mut worker.random;
    let transactions = TwoPhase::new(client, &worker.path)
        .form([Form::Coordinator, Form::EverySite][random.random_range(0..2)])
        .dead_site([DeadSite::Abort, DeadSite::Wait][random.random_range(0..2)])
        .deadline(Duration::from_millis(random.random_range(200..5_000)));
    let mut coordinator = transactions.begin(sites(worker.workers), "").await?;
    let decision = match worker.random.random_range(0..8) {
        // Leaves the decision to other coordinators.
        0 => return Ok(()),
        1 => coordinator.abort("changed its mind").await?,
        _ => coordinator.decide().await?,
    };
    told(worker, coordinator.id(), None, decision);
    Ok(())
}

/// Takes part in all transactions until something fails or the run ends.
async fn take_part(worker: &mut Worker, client: &Client) {
    let number = worker.who - 1;
    let site = format!("site{}", worker.who);
    let mut invitations = TwoPhase::new(client, &worker.path).invitations(site);
    let mut parts = JoinSet::new();
    loop {
        tokio::select! {
            invitation = invitations.next() => {
                let Some(Ok(transaction)) = invitation else {
                    return;
                };
                let mut site = Site {
                    number,
                    refuses: worker.random.random_ratio(1, 10),
                    worker: worker.beside(),
                };
                parts.spawn(async move {
                    let decision = transaction.participate(&mut site).await?;
                    told(&site.worker, transaction.id(), Some(number), decision);
                    Ok::<_, Error>(())
                });
            }
            Some(part) = parts.join_next() => match part {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return worker.failed(&error).await,
                Err(_) => return,
            },
            () = worker.stopped() => return,
        }
    }
}

fn told(worker: &Worker, id: &str, site: Option<usize>, decision: Decision) {
    note(worker, id, site, Deed::Told(decision == Decision::Commit));
}

fn note(worker: &Worker, id: &str, site: Option<usize>, deed: Deed) {
    worker.note(Did::Transact {
        id: id.to_owned(),
        site,
        deed,
    });
}

/// A site that records what happens to it.
struct Site {
    number: usize,
    refuses: bool,
    worker: Worker,
}

impl Site {
    fn note(&self, proposal: &Proposal, deed: Deed) {
        note(&self.worker, proposal.id(), Some(self.number), deed);
    }
}

impl Participant for Site {
    type Error = Infallible;

    async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote, Infallible> {
        self.note(proposal, Deed::Votes(!self.refuses));
        Ok(match self.refuses {
            true => Vote::Abort("not here".into()),
            false => Vote::Commit,
        })
    }

    async fn commit(&mut self, proposal: &Proposal) -> Result<(), Infallible> {
        self.note(proposal, Deed::Applies(true));
        Ok(())
    }

    async fn abort(&mut self, proposal: &Proposal) -> Result<(), Infallible> {
        self.note(proposal, Deed::Applies(false));
        Ok(())
    }
}
