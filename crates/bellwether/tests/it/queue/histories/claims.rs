//! Claims of items and tasks over time: no two consumers work on one at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::connect;
use bellwether_testkit::history::{Event, What, check_holds};
use bellwether_testkit::{Engine, FaultProxy, History, Terms, Violation};
use bellwether_torture::workload::shelf::{Shelf, Work};

use crate::support::place::{kill, soon};

/// Claims of each item, as their consumers saw them: from the return of the take to the call that settles the item, or the notice that the
/// claim is lost.
#[derive(Clone, Default)]
pub(super) struct Claims(Arc<Mutex<BTreeMap<String, Vec<Event>>>>);

impl Claims {
    pub(super) fn note(&self, item: &str, who: usize, what: What) {
        let mut items = self.0.lock().unwrap();
        let events = items.entry(item.to_owned()).or_default();
        events.push(Event::now(who, what));
    }

    /// Checks that the claims of one item do not overlap. `faults` tells when a consumer could not know that its claim had ended.
    pub(super) fn check(
        &self,
        faults: &History,
        seed: u64,
        session_timeout: Duration,
        grace: Duration,
    ) -> Result<(), Violation> {
        let terms = Terms {
            capacity: 1,
            session_timeout,
            grace,
        };
        for events in self.0.lock().unwrap().values() {
            // A single claim overlaps no other.
            if events.len() > 2 {
                let events = [faults.events(), events].concat();
                check_holds(&History::new(seed, events), &terms)?;
            }
        }
        Ok(())
    }
}

/// A consumer is cut off, its session expires, and another consumer takes over its item.
async fn takes_over(recipe: Shelf) -> Result<(), Violation> {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let engine = Engine::embedded().await.unwrap();
    let proxy = FaultProxy::start(engine.connect_string()).await.unwrap();
    let options = connect(proxy.connect_string()).session_timeout(TIMEOUT);
    let dying = options.await.unwrap();
    let client = connect(engine.connect_string()).await.unwrap();
    let places = [&dying, &client].map(|client| recipe.at(client, "/claims"));
    let item = "0 item".to_owned();
    places[1].put(0, &item).await.unwrap();

    let claims = Claims::default();
    let take = async |who: usize| -> Work {
        let work = soon(places[who].take()).await.unwrap().unwrap();
        let token = work.hold().token().number();
        claims.note(&item, who, What::Granted { token, weight: 1 });
        work
    };
    let first = take(0).await;
    let token = first.hold().token().number();
    kill(&proxy).await;
    let mut second = Box::pin(take(1));
    let second = tokio::select! {
        biased;
        () = first.hold().lost() => {
            claims.note(&item, 0, What::Lost { token });
            second.await
        }
        second = &mut second => {
            claims.note(&item, 0, What::Releasing { token });
            second
        }
    };
    second.succeed().await.unwrap();
    let nothing = History::new(0, Vec::new());
    claims.check(&nothing, 0, TIMEOUT, Duration::ZERO)
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_ends_with_its_session() {
    for recipe in [Shelf::Queue, Shelf::Tasks] {
        if let Err(violation) = takes_over(recipe).await {
            panic!("{violation}");
        }
    }
}
