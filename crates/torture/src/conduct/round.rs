//! One round: workers, faults, recovery, verdict.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bellwether::Client;
use bellwether_testkit::history::{Moment, What};
use bellwether_testkit::{Climate, FaultProxy, Forecast, Scope, Spell, Target};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::crew::{Crew, Records};
use super::finish::Finish;
use super::{Notice, Torture};
use crate::recipe::Recipe;
use crate::record::Record;
use crate::report::Figures;
use crate::servers::Servers;
use crate::verdict::Setting;
use crate::worker::Orders;

/// Time limit of recovery, besides a few session timeouts.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Number of attempts of the last look at the servers.
const TRIES_MAX: usize = 5;

/// Interval of progress notices.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// The longest time between two faults of servers that a run started itself.
const SERVER_CALM_MAX: Duration = Duration::from_secs(6);

pub(super) struct Round<'a, 'n> {
    pub(super) torture: &'a mut Torture,
    pub(super) client: &'a Client,
    pub(super) faults_for: Duration,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) notice: &'n mut dyn FnMut(Notice),
}

/// A round that was checked.
pub(super) struct Checked {
    pub(super) figures: Figures,
    pub(super) violations: Vec<(Recipe, String)>,
    pub(super) records: Vec<Record>,
}

impl Round<'_, '_> {
    pub(super) async fn play(&mut self) -> Result<Checked> {
        let (seed, workers) = (self.torture.seed, self.torture.workers);
        let session_timeout = self.client.session_timeout();
        let faults = self.faults_for;
        (self.notice)(Notice::Begins { seed, faults });
        let folder = tempfile::tempdir()?;
        let orders = Orders {
            who: 0,
            generation: 0,
            workers,
            seed,
            recipes: self.torture.recipes.clone(),
            path: format!("{}/{seed}-{}", self.torture.path, std::process::id()),
            folder: folder.path().to_owned(),
            servers: self.torture.servers.own(),
        };
        let began = Moment::now();
        let spawn = std::mem::replace(&mut self.torture.spawn, Box::new(|_| unreachable!()));
        let mut crew = Crew::new(&spawn);
        let mut links = Vec::new();
        for who in 0..workers {
            let (targets, servers) = self.links().await?;
            links.push(targets);
            let servers = servers.or_else(|| orders.servers.clone());
            crew.add(Orders {
                who,
                servers,
                ..orders.clone()
            })?;
        }
        self.disturb(&mut crew, &links, session_timeout).await?;

        (self.notice)(Notice::Recovers);
        let calm = Moment::now();
        crew.recover().await?;
        let finish = Finish {
            client: self.client,
            orders: &orders,
            records: crew.records.clone(),
        };
        let limit = RECOVERY_MAX + 3 * session_timeout;
        let missing = finish.recovered(calm, limit).await;
        crew.stop().await?;
        let mut remains = insist(self.client, async || finish.remains().await).await?;
        remains.missing = missing;

        let records = crew.records.sorted();
        drop(crew);
        self.torture.spawn = spawn;
        let setting = Setting {
            seed,
            workers,
            session_timeout,
        };
        let mut violations = Vec::new();
        for &recipe in &orders.recipes {
            if let Err(wrong) = setting.check(recipe, &records, &remains) {
                violations.push((recipe, wrong));
            }
        }
        (self.notice)(Notice::Checked {
            records: records.len(),
            is_right: violations.is_empty(),
        });
        if violations.is_empty() {
            insist(self.client, async || finish.clean_up().await).await?;
        }
        Ok(Checked {
            figures: Figures::of(seed, &orders.recipes, &records, began, calm),
            violations,
            records,
        })
    }

    /// Proxies in front of all servers for one worker, and its connect string through them. Empty and `None` if its connections need no proxy.
    async fn links(&self) -> Result<(Vec<Arc<Target>>, Option<String>)> {
        let Torture {
            servers,
            without,
            faults,
            ..
        } = &*self.torture;
        let addresses = match (servers.addresses(), without.is_empty()) {
            (Some(addresses), is_whole) if *faults || !is_whole => addresses,
            (None, false) => bail!("operations can be hidden only on plain TCP connections"),
            _ => return Ok((Vec::new(), None)),
        };
        let mut targets = Vec::new();
        let mut names = Vec::new();
        for address in addresses {
            let proxy = FaultProxy::start(&*address).await;
            let proxy = proxy.with_context(|| format!("cannot reach {address}"))?;
            without.iter().for_each(|op| proxy.hide(*op));
            names.push(proxy.connect_string());
            targets.push(Arc::new(Target {
                proxy,
                process: None,
            }));
        }
        let connect = format!("{}{}", names.join(","), servers.chroot());
        Ok((targets, Some(connect)))
    }

    /// Injects faults, and ends them.
    async fn disturb(
        &mut self,
        crew: &mut Crew<'_>,
        links: &[Vec<Arc<Target>>],
        session_timeout: Duration,
    ) -> Result<()> {
        let climate = Climate {
            contenders: self.torture.workers,
            session_timeout,
            calm_max: session_timeout / 4,
            scope: Scope {
                links: self.torture.faults && links.iter().all(|all| !all.is_empty()),
                pauses: self.torture.faults,
                kills: self.torture.faults,
                restarts: false,
            },
        };
        let seed = self.torture.seed;
        let end = End {
            at: Instant::now() + self.faults_for,
            stop: self.stop.clone(),
        };
        let records = crew.records.clone();
        let servers = &mut self.torture.servers;
        let of_servers = disturb_servers(servers, seed, session_timeout, &records, &end);
        let telling = async {
            while !end.comes_before(Instant::now() + TELL_EVERY).await {
                (self.notice)(Notice::Running {
                    left: end.at.saturating_duration_since(Instant::now()),
                    records: records.count(),
                });
            }
        };
        let forecast = Forecast::new(seed, climate);
        let of_workers = disturb_workers(crew, links, forecast, &end);
        let (of_servers, of_workers, ()) = tokio::join!(of_servers, of_workers, telling);
        of_servers?;
        of_workers?;
        for target in links.iter().flatten() {
            target.proxy.calm();
        }
        Ok(())
    }
}

/// Retries if the session of this process was lost, which a fault of the servers may have caused.
async fn insist<T>(client: &Client, work: impl AsyncFn() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES_MAX {
        if let Ok(done) = work().await {
            return Ok(done);
        }
        client.ready().await?;
    }
    work().await
}

/// When faults end: at a set time, or when the user stops the run.
struct End {
    at: Instant,
    stop: watch::Receiver<bool>,
}

impl End {
    /// Waits until `then`. Returns true if the end is earlier.
    async fn comes_before(&self, then: Instant) -> bool {
        let mut stop = self.stop.clone();
        let stopped = async {
            // The sender is gone: only the time ends it.
            if stop.wait_for(|stop| *stop).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = sleep_until(then.min(self.at)) => then >= self.at,
            () = stopped => true,
        }
    }
}

/// Disturbs servers until the end.
async fn disturb_servers(
    servers: &mut Servers,
    seed: u64,
    session_timeout: Duration,
    records: &Records,
    end: &End,
) -> Result<()> {
    let mut random = StdRng::seed_from_u64(!seed);
    while servers.are_own() {
        let next = Instant::now() + SERVER_CALM_MAX.mul_f64(random.random());
        if end.comes_before(next).await {
            break;
        }
        let note = |what: String| records.fault(0, What::Fault(what));
        servers.disturb(&mut random, session_timeout, note).await?;
    }
    Ok(())
}

/// Disturbs workers until the end.
async fn disturb_workers(
    crew: &mut Crew<'_>,
    links: &[Vec<Arc<Target>>],
    forecast: Forecast,
    end: &End,
) -> Result<()> {
    let mut lasting = JoinSet::new();
    let mut paused: Vec<Option<Instant>> = vec![None; links.len()];
    for (turn, next) in forecast.enumerate() {
        if resume_before(Instant::now() + next.after, crew, &mut paused, end).await {
            break;
        }
        let holder = crew.records.last_granted().filter(|_| next.at_holder);
        let who = holder.unwrap_or(next.who);
        match next.spell {
            Spell::Kill => {
                paused[who] = None;
                crew.kill(who).await?;
            }
            Spell::Pause(time) => {
                if paused[who].is_none() {
                    crew.records.fault(who, What::Paused);
                    crew.signal(who, Signal::STOP);
                }
                paused[who] = paused[who].max(Some(Instant::now() + time));
            }
            spell => {
                for target in chosen(&links[who], spell, turn) {
                    let records = crew.records.clone();
                    lasting.spawn(async move {
                        target.befall(spell, |what| records.fault(who, what)).await;
                    });
                }
            }
        }
        while lasting.try_join_next().is_some() {}
    }
    // If there is nothing to disturb, wait all the same.
    end.comes_before(end.at).await;
    for who in 0..links.len() {
        crew.signal(who, Signal::CONT);
        crew.records.fault(who, What::Resumed);
    }
    Ok(())
}

/// Waits until `then`, and resumes processes whose pause is over meanwhile. Returns true if the end is earlier.
async fn resume_before(
    then: Instant,
    crew: &Crew<'_>,
    paused: &mut [Option<Instant>],
    end: &End,
) -> bool {
    loop {
        let due = paused.iter().enumerate();
        let due = due.filter_map(|(who, until)| until.map(|until| (until, who)));
        let Some((at, who)) = due.min().filter(|(at, _)| *at <= then) else {
            return end.comes_before(then).await;
        };
        if end.comes_before(at).await {
            return true;
        }
        crew.signal(who, Signal::CONT);
        crew.records.fault(who, What::Resumed);
        paused[who] = None;
    }
}

/// Links that a fault affects: every other time all of them, otherwise those in use.
fn chosen(links: &[Arc<Target>], spell: Spell, turn: usize) -> Vec<Arc<Target>> {
    let in_use = |target: &&Arc<Target>| target.proxy.connections_now() > 0;
    // Only the link that carries the session can expire it.
    match spell != Spell::Expire && turn.is_multiple_of(2) {
        true => links.to_vec(),
        false => links.iter().filter(in_use).cloned().collect(),
    }
}
