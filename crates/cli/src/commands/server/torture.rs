//! `bellwether torture`: runs recipes under faults, and checks their guarantees.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use bellwether::Client;
use bellwether::zk::{Address, Endpoint};
use bellwether_torture::{
    Apache, Embedded, Notice, Orders, Outcome, Recipe, Servers, Torture, work,
};
use tokio::process::Command;
use tokio::sync::watch;

use crate::args::{ConnectArgs, ServerFeature, TortureArgs};
use crate::connect::{self, speaks_tls};
use crate::exit::Exit;
use crate::local::PROGRAM;
use crate::output::refusal::Refusal;
use crate::output::rendering::counted;
use crate::output::{self, Output};
use crate::signals::Signals;
use crate::value::servers::LOCAL;

/// The session timeout unless one is given: the shortest that Apache's server grants by default, so that much happens in a short time.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

#[tokio::main]
pub(crate) async fn run(args: TortureArgs, output: Output) -> anyhow::Result<Exit> {
    if let Some(orders) = &args.orders {
        let orders = serde_json::from_str(orders).context("cannot read --orders")?;
        return be_worker(orders, &args.connect, output).await;
    }
    let mut torture = Torture::new(servers(&args).await?, worker);
    if !args.recipes.is_empty() {
        torture.recipes = args.recipes.clone();
        torture.recipes.sort_unstable();
        torture.recipes.dedup();
    }
    torture.workers = usize::try_from(args.clients).unwrap_or(usize::MAX);
    torture.time = args.time;
    torture.seed = args.seed.unwrap_or_else(seed_by_the_clock);
    torture.path.clone_from(&args.path);
    torture.faults = !args.no_faults;
    torture.without = args
        .without
        .iter()
        .copied()
        .map(ServerFeature::op)
        .collect();
    torture.report.clone_from(&args.report);

    let mut signals = Signals::to_end()?;
    let (stop, stopped) = watch::channel(false);
    let open = async |servers| open(&args.connect, servers, output).await;
    let mut running = Box::pin(torture.run(open, stopped, |notice: Notice| {
        output.notice(notice);
    }));
    let outcome = tokio::select! {
        outcome = &mut running => outcome?,
        _ = signals.next() => {
            output.notice("ending the faults, then checking; another signal ends the command at once");
            stop.send_replace(true);
            tokio::select! {
                outcome = running => outcome?,
                signal = signals.next() => return Ok(Exit::Signal(signal.as_raw())),
            }
        }
    };
    tell(&outcome, &args)
}

/// The servers that the arguments mean.
async fn servers(args: &TortureArgs) -> anyhow::Result<Servers> {
    if args.embedded {
        let server = Embedded::spawn(|port, data| {
            let mut command = Command::new(PROGRAM);
            command
                .arg0("bellwether")
                .args(["serve", "--quiet", "--listen"]);
            command.arg(format!("127.0.0.1:{port}"));
            command.arg("--data").arg(data);
            command.args(["--tick-time", "100ms", "--words", "ruok"]);
            command
        });
        return Ok(Servers::Embedded(server.await?));
    }
    if let Some(size) = args.ensemble {
        // Followers notice after 25 ticks that their leader is silent.
        let members = Apache::builder().tick(Duration::from_millis(100));
        let ensemble = members.ensemble(size.into()).await;
        let ensemble = ensemble.context("cannot start an ensemble of Apache ZooKeeper")?;
        return Ok(Servers::Ensemble(ensemble));
    }
    let named = connect::servers(&args.connect)?;
    let Some(named) = named.filter(|servers| servers != LOCAL) else {
        return Ok(Servers::Given {
            addresses: None,
            chroot: String::new(),
        });
    };
    let Address { endpoints, chroot } = Address::parse(&named)?;
    // The proxies that disturb connections parse what passes through them.
    let is_plain = !speaks_tls(&args.connect)?;
    let tcp = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(..) if is_plain => Some(endpoint.to_string()),
        _ => None,
    };
    let addresses = endpoints.iter().map(tcp).collect();
    Ok(Servers::Given { addresses, chroot })
}

/// The command of a client process: this command line again, with its orders.
fn worker(orders: &Orders) -> Command {
    let orders = serde_json::to_string(orders).expect("orders are plain data");
    let mut command = Command::new(PROGRAM);
    command.arg0("bellwether").args(std::env::args_os().skip(1));
    command.arg("--orders").arg(orders);
    command
}

async fn be_worker(orders: Orders, args: &ConnectArgs, output: Output) -> anyhow::Result<Exit> {
    let servers = orders.servers.clone();
    let open = async || open(args, servers.clone(), output).await;
    work(orders, open).await?;
    Ok(Exit::Done)
}

async fn open(
    args: &ConnectArgs,
    servers: Option<String>,
    output: Output,
) -> anyhow::Result<Client> {
    let mut args = args.clone();
    args.session_timeout.get_or_insert(SESSION_TIMEOUT);
    if servers.is_some() {
        args.connect = servers;
    }
    connect::open(&args, Output::new(output.is_quiet()), |connect| connect).await
}

fn tell(outcome: &Outcome, args: &TortureArgs) -> anyhow::Result<Exit> {
    let exit = match outcome.is_right() {
        true => Exit::Done,
        false => Exit::No,
    };
    output::answer(|out| {
        match args.json {
            true => writeln!(out, "{}", outcome.summary())?,
            false => summarise(outcome, out)?,
        }
        Ok(Exit::Done)
    })?;
    if let Some((recipe, what)) = outcome.violations.first() {
        let seed = outcome.figures.seeds.last().copied().unwrap_or_default();
        return Err(Refusal::no(format!("{recipe}: {what}"))
            .hint(format!("--seed {seed} gives the same faults again"))
            .into());
    }
    Ok(exit)
}

/// One line per recipe, and one with totals.
fn summarise(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let figures = &outcome.figures;
    output::header(
        out,
        format_args!(
            "{:<16}{:>10}{:>10}{:>8}{:>10}{:>12}  verdict",
            "recipe", "successes", "failures", "lost", "dropped", "longest gap"
        ),
    )?;
    for (recipe, counts) in &figures.recipes {
        let is_wrong = |(wrong, _): &(Recipe, String)| wrong == recipe;
        let verdict = match outcome.violations.iter().any(is_wrong) {
            true => "BROKEN",
            false => "right",
        };
        let gap = format!("{} ms", counts.longest_gap_ms);
        writeln!(
            out,
            "{recipe:<16}{:>10}{:>10}{:>8}{:>10}{gap:>12}  {verdict}",
            counts.successes, counts.failures, counts.lost, counts.dropped
        )?;
    }
    let faults: usize = figures.faults.values().sum();
    writeln!(
        out,
        "{} in {:.0} s, {} recorded",
        counted(faults, "fault"),
        figures.faults_seconds,
        counted(figures.records, "event"),
    )
}

fn seed_by_the_clock() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::from(now.unwrap_or_default().subsec_micros())
}
