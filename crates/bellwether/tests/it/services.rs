//! The services of the examples, while sessions expire all the time: they need no restart, and nothing is lost, or done more often than
//! promised.
//!
//! `BELLWETHER_SOAK_SECONDS=600` makes it a soak test.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bellwether::state::Instance;
use bellwether::{Client, Counter, Fence, Names, TwoPhase};
use bellwether_testkit::FaultProxy;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::support::place::{Place, SESSION_TIMEOUT, expire, soon};

#[path = "../../examples/services/main.rs"]
#[expect(dead_code, reason = "the example has a main of its own")]
mod example;

use example::workers::Job;
use example::{
    config_reload, discovery, handlers, nightly, rate_limit, scheduler, transfer, workers,
};

on_both_engines! {
    services_outlive_their_sessions,
}

const SHORT: Duration = Duration::from_secs(8);

/// Maximum time between two session expiries.
const CALM_MAX: Duration = Duration::from_secs(1);

const MONEY: i64 = 1_000_000;

/// Results of the services.
#[derive(Default)]
struct Done {
    ticks: AtomicU64,
    put: Mutex<BTreeSet<String>>,
    worked: Mutex<BTreeSet<String>>,
    nights: AtomicI64,
    workers: AtomicI64,
    addresses: Mutex<BTreeSet<String>>,
    calls: AtomicU64,
    transfers: AtomicU64,
    hits: AtomicI64,
    hits_in_doubt: AtomicI64,
}

/// One process of each service, written like a real service: it continues whatever happens.
fn start(services: &mut JoinSet<()>, client: &Client, number: usize, common: &Common) {
    let (client, done) = (client.clone(), common.done.clone());
    let Common {
        fence,
        ledger,
        payer,
        payee,
        ..
    } = common.clone();
    services.spawn({
        let (client, done) = (client.clone(), done.clone());
        async move {
            let tick = |token| {
                // A tick in flight when the term ended is refused.
                if fence.admit(token).is_ok() {
                    done.ticks.fetch_add(1, Ordering::Relaxed);
                }
            };
            scheduler::run(&client, tick).await.unwrap();
        }
    });
    services.spawn({
        let (client, done) = (client.clone(), done.clone());
        async move {
            let work = |job: Job| {
                done.worked.lock().unwrap().insert(job.host);
                std::future::ready(())
            };
            workers::run(&client, work).await.unwrap();
        }
    });
    services.spawn({
        let (client, done) = (client.clone(), done.clone());
        async move {
            for job in 0.. {
                let host = format!("{number}-{job}");
                workers::put(&client, &Job { host: host.clone() })
                    .await
                    .unwrap();
                done.put.lock().unwrap().insert(host);
                example::rest().await;
            }
        }
    });
    services.spawn({
        let (client, done) = (client.clone(), done.clone());
        async move {
            for night in 1.. {
                // A stale token is refused, and the job runs with the next one.
                while nightly::run(&client, &ledger, night).await.is_err() {}
                done.nights.fetch_max(night, Ordering::Relaxed);
            }
        }
    });
    services.spawn({
        let (client, done) = (client.clone(), done.clone());
        async move {
            let apply = |settings: config_reload::Settings| {
                done.workers
                    .store(settings.workers.into(), Ordering::Relaxed);
            };
            config_reload::run(&client, apply).await.unwrap();
        }
    });
    services.spawn({
        let (client, done) = (client.clone(), done.clone());
        async move {
            let _here = discovery::announce(&client, &format!("10.0.0.{number}:80"))
                .await
                .unwrap();
            let update = |addresses: Vec<String>| {
                *done.addresses.lock().unwrap() = addresses.into_iter().collect();
            };
            discovery::follow(&client, update).await.unwrap();
        }
    });
    services.spawn({
        let (client, done) = (client.clone(), done.clone());
        async move {
            let limit = rate_limit::Limit::new(&client, 1);
            loop {
                // A call whose permit is lost is aborted.
                if limit.call(async { example::rest().await }).await.is_ok() {
                    done.calls.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    services.spawn({
        let client = client.clone();
        async move {
            let (site, account) = match number {
                0 => ("payer", payer),
                _ => ("payee", payee),
            };
            transfer::serve(&client, site, &account).await.unwrap();
        }
    });
    if number == 0 {
        services.spawn({
            let (client, done) = (client.clone(), done.clone());
            async move {
                for transfer in 0.. {
                    // If the coordinator fails, the sites decide after the deadline.
                    let id = format!("transfer-{transfer}");
                    if transfer::send(&client, &id, 1).await.is_ok() {
                        done.transfers.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    services.spawn(async move {
        let handlers = handlers::Handlers::new(&client);
        loop {
            match handlers.hit().await {
                Ok(_) => done.hits.fetch_add(1, Ordering::Relaxed),
                Err(_) => done.hits_in_doubt.fetch_add(1, Ordering::Relaxed),
            };
            example::rest().await;
        }
    });
}

/// State that all processes share outside of the servers.
#[derive(Clone)]
struct Common {
    done: Arc<Done>,
    fence: Arc<Fence>,
    ledger: Arc<nightly::Ledger>,
    payer: transfer::Account,
    payee: transfer::Account,
}

async fn services_outlive_their_sessions(place: Place) {
    let seconds = std::env::var("BELLWETHER_SOAK_SECONDS").ok();
    let time = seconds.map_or(SHORT, |seconds| {
        Duration::from_secs(seconds.parse().unwrap())
    });
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let seed = u64::try_from(since_1970.as_nanos() % (1 << 60)).unwrap();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let common = Common {
        done: Arc::default(),
        fence: Arc::new(Fence::new()),
        ledger: Arc::new(nightly::Ledger::open(&folder.path().join("nights.db")).unwrap()),
        payer: transfer::Account::with(MONEY),
        payee: transfer::Account::default(),
    };
    let mut services = JoinSet::new();
    let mut processes: Vec<(FaultProxy, Client)> = Vec::new();
    for number in 0..2 {
        let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
        start(&mut services, &client, number, &common);
        processes.push((proxy, client));
    }
    let outside = place.client().await;
    let settings = config_reload::settings(&outside);
    let (begun, mut ends) = (Instant::now(), 0u32);
    while begun.elapsed() < time {
        let (proxy, _) = &processes[random.random_range(0..processes.len())];
        expire(proxy).await;
        ends += 1;
        let value = config_reload::Settings { workers: ends };
        settings.set(&bellwether::Json(value)).await.unwrap();
        let mut calm = tokio::time::interval(CALM_MAX.mul_f64(random.random_range(0.2..1.0)));
        calm.tick().await;
        calm.tick().await;
        assert!(services.try_join_next().is_none(), "a service ended");
    }

    // No more faults: everything continues, in the same processes.
    let done = &common.done;
    let counts = || {
        let Done {
            ticks,
            nights,
            calls,
            transfers,
            hits,
            ..
        } = &**done;
        let nights = u64::try_from(nights.load(Ordering::Relaxed)).unwrap();
        let hits = u64::try_from(hits.load(Ordering::Relaxed)).unwrap();
        [ticks, calls, transfers]
            .map(|count| count.load(Ordering::Relaxed))
            .into_iter()
            .chain([nights, hits])
    };
    let before: Vec<u64> = counts().collect();
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    let mut until = async |is_so: &mut dyn FnMut() -> bool| {
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(
                Instant::now() < patience,
                "{before:?} became {:?}",
                counts().collect::<Vec<_>>()
            );
            looks.tick().await;
        }
    };
    until(&mut || counts().zip(&before).all(|(now, before)| now > *before)).await;
    until(&mut || done.workers.load(Ordering::Relaxed) == i64::from(ends)).await;
    until(&mut || done.addresses.lock().unwrap().len() == processes.len()).await;
    // Every job whose put has returned was done.
    let put = done.put.lock().unwrap().clone();
    until(&mut || put.is_subset(&done.worked.lock().unwrap())).await;
    services.shutdown().await;

    // Each night exactly once.
    let nights = common.ledger.nights().unwrap();
    let expected = Vec::from_iter(1..=i64::try_from(nights.len()).unwrap());
    assert_eq!(nights, expected);
    // Each hit once.
    let hits = Counter::new(&outside, "/services/hits")
        .get()
        .await
        .unwrap();
    let certain = done.hits.load(Ordering::Relaxed);
    let most = certain + done.hits_in_doubt.load(Ordering::Relaxed) + 2;
    assert!(
        (certain..=most).contains(&hits),
        "{hits} hits, where {certain} to {most} were made"
    );
    // The sum is unchanged, once both sites have applied the decisions.
    let (payer, payee) = (common.payer, common.payee);
    let transfers = TwoPhase::new(&outside, "/services/transfers");
    for status in transfers.list().await.unwrap() {
        let transfer = transfers.transaction(&status.id);
        let (mut one, mut other) = (payer.clone(), payee.clone());
        let both = async {
            tokio::join!(
                transfer.participate("payer", &mut one),
                transfer.participate("payee", &mut other)
            )
        };
        let (one, other) = tokio::time::timeout(Duration::from_secs(90), both)
            .await
            .unwrap();
        assert_eq!(one.unwrap(), other.unwrap());
    }
    assert_eq!(payer.balance() + payee.balance(), MONEY);
    // Announced names are gone with their processes.
    let names = Names::new(&outside, "/services/names");
    for (_, client) in processes {
        client.close().await;
    }
    soon(async {
        while names.instances("web").await.unwrap()
            != std::collections::BTreeMap::<String, Instance>::new()
        {}
    })
    .await;
    eprintln!(
        "{ends} ends of sessions; ticks, calls, transfers, nights, hits: {:?}",
        counts().collect::<Vec<_>>()
    );
}
