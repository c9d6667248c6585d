//! `bellwether lock --explain`: says what `lock` would do now, and only reads.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use bellwether::hold::Crash;
use bellwether::inspect::{Overview, Survey};
use bellwether::zk::{Address, Endpoint, Sockets, four_letter_word};
use bellwether::{Client, zk::Dial};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::check;
use super::forecast::{Forecast, Wish, forecast};
use super::lately::{self, HoldTimes};
use crate::args::{LockArgs, OnCrash};
use crate::connect::session::in_session;
use crate::connect::{self, Whereabouts, speaks_tls, whereabouts};
use crate::exit::Exit;
use crate::hold::any_lock::{self, AnyLock};
use crate::hold::nested;
use crate::output::overview::{line_at, rows};
use crate::output::people::contestant_json;
use crate::output::refusal::Refusal;
use crate::output::rendering::{counted, path_text};
use crate::output::time_text::time_text;
use crate::output::{self, Output, crash_text};
use crate::value::duration;

/// How many directories are looked at for each lock: its own, and those of a semaphore of Curator.
const DIRECTORIES_MAX: usize = 8;

/// What is known of a lock.
struct Explained {
    path: String,
    /// What is in use at the path.
    overview: Overview,
    forecast: Forecast,
    crash: Option<Crash>,
    /// `None` if the servers do not tell.
    lately: Option<Option<HoldTimes>>,
}

pub(crate) fn explain(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    check(&args)?;
    in_session(&args.job.connect, output, async |client| {
        let mut all = Vec::new();
        for lock in AnyLock::all(client, &args) {
            all.push(look(client, &lock, &args).await?);
        }
        let paths = all.iter().map(|one| one.path.clone()).collect();
        if let Some(times) = history(&args, paths).await {
            for (one, times) in all.iter_mut().zip(times) {
                one.lately = Some(times);
            }
        }
        let exit = exit(&all, &args);
        if args.json {
            output::answer_line(object(&all, exit, &args))?;
            return Ok(exit);
        }
        Ok(output::answer(|out| {
            for one in &all {
                write(out, one, &args)?;
            }
            Ok(exit)
        })?)
    })
}

async fn look(client: &Client, lock: &AnyLock, args: &LockArgs) -> anyhow::Result<Explained> {
    let path = lock.path().to_owned();
    let survey = Survey::new(client, &path).directories_max(DIRECTORIES_MAX);
    let mut overview = survey.look().await?;
    if overview.unreadable.contains(&path) {
        let what = format!("cannot read {path}: access denied");
        return Err(Refusal::failed(what).into());
    }
    overview.recipes.retain(|sight| sight.path == path);
    overview.unexplored = 0;
    let wish = Wish {
        wants: lock.wants(),
        layout: any_lock::layout(args),
        limit: lock.other_limit().await.or(args.of),
    };
    let line = line_at(&overview, &path);
    let around = nested::check(client, &path, |held| lock.shares_with(held)).await;
    let forecast = match around {
        Ok(()) => forecast(line, wish),
        Err(_) => Forecast::Refused {
            used_as: "a lock of the job around this command, which would wait for itself"
                .to_owned(),
        },
    };
    // Other contenders are told of no crash.
    let is_told = args.of.is_none() && args.layout.is_none();
    let crash = line.and_then(|line| line.crash.clone());
    Ok(Explained {
        crash: crash.filter(|_| is_told),
        path,
        forecast,
        overview,
        lately: None,
    })
}

/// What `lock` would exit with if it did not run the command; 0 if it would run it at once.
fn exit(all: &[Explained], args: &LockArgs) -> Exit {
    let any = |is: fn(&Forecast) -> bool| all.iter().any(|one| is(&one.forecast));
    let is_crashed = all.iter().any(|one| one.crash.is_some());
    if any(|forecast| matches!(forecast, Forecast::Refused { .. })) {
        Exit::Usage
    } else if any(|forecast| matches!(forecast, Forecast::Waits { .. })) {
        Exit::NotHad(args.wait.limit.conflict_exit_code)
    } else if is_crashed && args.on_crash == Some(OnCrash::Fail) {
        Exit::Refused
    } else {
        Exit::Done
    }
}

/// The times of the latest holds, if the log of the server can be read here.
async fn history(args: &LockArgs, mut paths: Vec<String>) -> Option<Vec<Option<HoldTimes>>> {
    let (folder, chroot) = log_folder(args).await?;
    for path in &mut paths {
        path.insert_str(0, &chroot);
    }
    // Away from the heartbeat.
    let read = spawn_blocking(move || lately::read(&folder, &paths)).await;
    read.ok()?.ok()
}

/// The folder of the server's log, and the chroot: of the local server, or of one on this host that tells where its folder is.
async fn log_folder(args: &LockArgs) -> Option<(PathBuf, String)> {
    let connect = &args.job.connect;
    let endpoint = match whereabouts(connect).ok()? {
        Whereabouts::Local(folder) => {
            return Some((folder.path().join("data/version-2"), String::new()));
        }
        Whereabouts::Named(endpoints) => match &endpoints[..] {
            [endpoint] if is_here(endpoint) && !speaks_tls(connect).ok()? => endpoint.clone(),
            _ => return None,
        },
    };
    let named = connect::servers(connect).ok()??;
    let chroot = Address::parse(&named).ok()?.chroot;
    let settings = four_letter_word(Sockets.dial(&endpoint), "conf")
        .await
        .ok()?;
    let mut lines = settings.lines();
    let folder = lines.find_map(|line| line.strip_prefix("dataLogDir="))?;
    (!folder.is_empty()).then(|| (folder.into(), chroot))
}

/// Whether a server is on this host, so that its paths are those of this host.
fn is_here(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp(host, _) => {
            host == "localhost"
                || host
                    .parse()
                    .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
    }
}

fn write(out: &mut dyn Write, one: &Explained, args: &LockArgs) -> std::io::Result<()> {
    let rows = rows(&one.overview);
    if rows.is_empty() {
        writeln!(out, "{}  free", path_text(&one.path))?;
    }
    for row in rows {
        writeln!(out, "{row}")?;
    }
    writeln!(out, "  lately {}", lately_text(one.lately))?;
    writeln!(out, "  now    {}", now_text(one, args))
}

fn lately_text(lately: Option<Option<HoldTimes>>) -> String {
    let times = match lately {
        None => return "how long holds took is not known on these servers".to_owned(),
        Some(None) => return "no hold has ended here, as far as the log goes back".to_owned(),
        Some(Some(times)) => times,
    };
    format!(
        "{} since {}: median {}, longest {}",
        counted(times.count, "hold"),
        time_text(times.since_ms),
        brief(times.median),
        brief(times.longest)
    )
}

/// A duration that may be short.
fn brief(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        _ => duration::text(time),
    }
}

/// What would happen, in words.
fn now_text(one: &Explained, args: &LockArgs) -> String {
    match &one.forecast {
        Forecast::Refused { used_as } => {
            format!("would be refused, exit code 2: in use as {used_as}")
        }
        Forecast::Waits { holders, waiters } => waits_text(*holders, *waiters, args),
        Forecast::Free { beside } => {
            let mut text = free_text(one, args);
            if *beside > 0 {
                text += &format!(", beside {}", counted(*beside, "holder"));
            }
            text
        }
    }
}

fn waits_text(holders: usize, waiters: usize, args: &LockArgs) -> String {
    let code = args.wait.limit.conflict_exit_code;
    let ahead = match (holders, waiters) {
        (0, 0) => "until the limit is raised".to_owned(),
        (holders, 0) => format!("behind {}", counted(holders, "holder")),
        (holders, waiters) => format!(
            "behind {} and {}",
            counted(holders, "holder"),
            counted(waiters, "waiter")
        ),
    };
    match args.wait.limit.wait {
        _ if args.wait.at_once => format!("would not wait {ahead}, exit code {code}"),
        Some(limit) => format!(
            "would wait {ahead}, and give up after {}, exit code {code}",
            duration::text(limit)
        ),
        None => format!("would wait {ahead}, without a limit"),
    }
}

fn free_text(one: &Explained, args: &LockArgs) -> String {
    if one.crash.is_none() {
        return "would run at once".to_owned();
    }
    let delay = args.lock_delay.filter(|delay| !delay.is_zero());
    let when = delay.map_or("at once".to_owned(), |delay| {
        format!("after {}", duration::text(delay))
    });
    match &args.on_crash {
        None | Some(OnCrash::Run) => format!("would run {when}, and be told of the crash"),
        Some(OnCrash::Repair(repair)) => {
            format!("would run {when}, after a repair by: {repair}")
        }
        Some(OnCrash::Fail) => format!(
            "would not run because of the crash, exit code 122; `bellwether lock --clear {}` deletes its record",
            one.path
        ),
    }
}

fn object(all: &[Explained], exit: Exit, args: &LockArgs) -> Value {
    json!({
        "would": would(exit),
        "exit_code": exit.code(),
        "wait_ms": args.wait.limit.wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        "try": args.wait.at_once,
        "locks": all.iter().map(lock_json).collect::<Value>(),
    })
}

fn would(exit: Exit) -> &'static str {
    match exit {
        Exit::Done => "run",
        Exit::NotHad(_) => "wait",
        Exit::Refused => "refuse",
        _ => "fail",
    }
}

fn lock_json(one: &Explained) -> Value {
    let line = line_at(&one.overview, &one.path);
    let entries = |holds: bool| {
        let entries = line.iter().flat_map(|line| &line.entries);
        let entries = entries.filter(move |one| one.holds == holds);
        entries.map(contestant_json).collect::<Value>()
    };
    let (would, ahead, used_as) = match &one.forecast {
        Forecast::Free { .. } => ("run", 0, None),
        Forecast::Waits { holders, waiters } => ("wait", holders + waiters, None),
        Forecast::Refused { used_as } => ("fail", 0, Some(used_as)),
    };
    let lately = one.lately.map(|times| match times {
        None => json!({"count": 0, "median_ms": null, "longest_ms": null, "since_ms": null}),
        Some(times) => json!({
            "count": times.count,
            "median_ms": ms(times.median),
            "longest_ms": ms(times.longest),
            "since_ms": times.since_ms,
        }),
    });
    json!({
        "path": one.path,
        "would": would,
        "ahead": ahead,
        "used_as": used_as,
        "holders": entries(true),
        "waiters": entries(false),
        "crash": one.crash.as_ref().map(crash_text::object),
        "lately": lately,
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
