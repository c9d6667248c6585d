//! Transactions under random faults: sites and coordinators that die and return.

use std::time::Duration;

use bellwether::two_phase::{Coordinator, DeadSite, Decision, Form};
use bellwether::{Client, Error, TwoPhase, connect};
use bellwether_testkit::TestServer;
use futures_util::StreamExt;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::witness::{Notes, SITES, Witness};
use crate::support::place::soon;
use crate::support::storm::{SESSION_TIMEOUT, Storm};

const COORDINATORS: usize = 2;

/// Time limit until all transactions have ended after the faults.
const RECOVERY_MAX: Duration = Duration::from_secs(30);

const PATH: &str = "/histories/transactions";

under_faults! {
    transactions_are_right_under_faults: transact,
}

async fn transact(mut storm: Storm<'_>) {
    let seed = storm.seed;
    let notes = Notes::default();
    let (over, _) = watch::channel(Stage::Faults);
    let mut crew = JoinSet::new();
    for who in 0..SITES.len() + COORDINATORS {
        let life = Life {
            address: storm.exposed().await,
            random: storm.random(who),
            notes: notes.clone(),
            stage: over.subscribe(),
        };
        match who < SITES.len() {
            true => crew.spawn(life.of_site(who)),
            false => crew.spawn(life.of_coordinator()),
        };
    }
    storm.pass().await;
    over.send_replace(Stage::Recovery);
    let outside = connect(storm.engine.connect_string()).await.unwrap();
    let transactions = TwoPhase::new(&outside, PATH);
    let ended = timeout(RECOVERY_MAX, recover(&transactions)).await;
    if ended.is_err() {
        let open = transactions.list().await.unwrap();
        let open: Vec<_> = open.iter().filter(|status| !status.is_done()).collect();
        panic!("it never ended: {open:#?} (seed {seed})");
    }
    over.send_replace(Stage::End);
    soon(crew.join_all()).await;
    let (committed, aborted) = match notes.check(&transactions).await {
        Ok(counts) => counts,
        Err(wrong) => panic!("{wrong} (seed {seed})"),
    };
    eprintln!("{committed} committed, {aborted} aborted");
    assert!(committed > 0 && aborted > 0, "seed {seed}");
    let forgotten = transactions.clean_up(Duration::ZERO).await.unwrap();
    assert_eq!(forgotten.len(), committed + aborted);
    soon(async {
        // Nodes of dead processes are deleted when the server expires their sessions.
        while storm.engine.census().await.unwrap().ephemerals > 0 {
            outside.raw().sync("/").await.unwrap();
        }
    })
    .await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Faults,
    /// No new transaction begins.
    Recovery,
    End,
}

/// Takes over transactions without a coordinator, until all sites have finished all of them.
async fn recover(transactions: &TwoPhase) {
    let mut turns = tokio::time::interval(Duration::from_millis(50));
    loop {
        turns.tick().await;
        let all = transactions.list().await.unwrap();
        if all.iter().all(|status| status.is_done()) {
            return;
        }
        for status in all.iter().filter(|status| status.decision.is_none()) {
            let transaction = transactions.transaction(&status.id);
            let mut coordinator = transaction.coordinate().await.unwrap();
            coordinator.decide().await.unwrap();
        }
    }
}

/// One process after the other, in the same role.
struct Life {
    address: String,
    random: StdRng,
    notes: Notes,
    stage: watch::Receiver<Stage>,
}

impl Life {
    async fn of_site(mut self, site: usize) {
        while *self.stage.borrow() != Stage::End {
            let Some(client) = self.session().await else {
                continue;
            };
            let lives = self.lifetime();
            let mut stage = self.stage.clone();
            let attend = attend(&client, site, &self.notes, self.random.random());
            tokio::select! {
                () = attend => {}
                // The process dies, at whatever point.
                _ = timeout(lives, stage.wait_for(|stage| *stage == Stage::End)) => {}
            }
        }
    }

    async fn of_coordinator(mut self) {
        while *self.stage.borrow() == Stage::Faults {
            let Some(client) = self.session().await else {
                continue;
            };
            let lives = self.lifetime();
            // It dies at whatever point.
            let _ = timeout(lives, self.begin_and_decide(&client)).await;
        }
    }

    async fn begin_and_decide(&mut self, client: &Client) -> Result<(), Error> {
        while *self.stage.borrow() == Stage::Faults {
            let random = &mut self.random;
            let transactions = TwoPhase::new(client, PATH)
                .form([Form::Coordinator, Form::EverySite][random.random_range(0..2)])
                .dead_site([DeadSite::Abort, DeadSite::Wait][random.random_range(0..2)])
                .deadline(Duration::from_millis(random.random_range(200..3_000)));
            let mut coordinator = transactions.begin(SITES, "").await?;
            if random.random_ratio(1, 4) {
                continue;
            }
            let decision = self.decide(&mut coordinator).await?;
            self.notes.told(coordinator.id(), None, decision);
        }
        Ok(())
    }

    async fn decide(&mut self, coordinator: &mut Coordinator) -> Result<Decision, Error> {
        match self.random.random_ratio(1, 8) {
            true => coordinator.abort("changed my mind").await,
            false => coordinator.decide().await,
        }
    }

    async fn session(&self) -> Option<Client> {
        let session = connect(&self.address).session_timeout(SESSION_TIMEOUT);
        session.await.ok()
    }

    /// A short one, while there are faults.
    fn lifetime(&mut self) -> Duration {
        match *self.stage.borrow() {
            Stage::Faults => Duration::from_millis(self.random.random_range(50..2_000)),
            _ => Duration::from_secs(60),
        }
    }
}

/// Takes part in all transactions that wait for a site, until something fails.
async fn attend(client: &Client, site: usize, notes: &Notes, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut invitations = TwoPhase::new(client, PATH).invitations(SITES[site]);
    let mut parts = JoinSet::new();
    loop {
        tokio::select! {
            invitation = invitations.next() => {
                let Some(Ok(invitation)) = invitation else {
                    return;
                };
                let mut witness = Witness::new(site, notes);
                witness.refuses = random.random_ratio(1, 10);
                parts.spawn(async move {
                    let decision = invitation.participate(&mut witness).await;
                    let decision = decision.ok()?;
                    witness.notes.told(invitation.id(), Some(site), decision);
                    Some(())
                });
            }
            Some(part) = parts.join_next() => match part.unwrap() {
                Some(()) => {}
                None => return,
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_decided_before_the_last_vote() {
    for form in [Form::Coordinator, Form::EverySite] {
        let server = TestServer::start().await.unwrap();
        let client = connect(server.connect_string()).await.unwrap();
        let transactions = TwoPhase::new(&client, PATH).form(form);
        let mut coordinator = transactions.begin(SITES, "").await.unwrap();
        let transaction = transactions.transaction(coordinator.id());
        let notes = Notes::default();
        let take_part = |site: usize| {
            let (transaction, mut witness) = (transaction.clone(), Witness::new(site, &notes));
            tokio::spawn(async move {
                let decision = transaction.participate(SITES[site], &mut witness).await;
                decision.unwrap()
            })
        };
        // The first site is quick, and the others are slow.
        let mut sites = vec![take_part(0)];
        let mut progress = transaction.progress();
        let voted = async {
            while progress.next().await.unwrap().unwrap().missing().count() == SITES.len() {}
        };
        soon(voted).await;
        let hasty = coordinator.try_decide().await.unwrap();
        assert_eq!(hasty, None, "votes are missing");
        sites.extend((1..SITES.len()).map(take_part));
        let decision = soon(coordinator.decide()).await.unwrap();
        for site in sites {
            assert_eq!(soon(site).await.unwrap(), decision);
        }
        notes.check(&transactions).await.unwrap();
    }
}
