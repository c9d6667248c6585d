//! Sample data for the pages: a company with holders and waiters on several hosts.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use bellwether::zk::CreateMode;
use bellwether::{Barrier, Client, Group, Lock, Queue, Tasks, TwoPhase};
use serde_json::json;

/// A contender on another host, of which only the node exists.
pub(crate) struct Stand<'a> {
    pub(crate) kind: &'a str,
    pub(crate) user: &'a str,
    pub(crate) host: &'a str,
    pub(crate) command: &'a str,
    /// Age of the node in minutes.
    pub(crate) minutes: u64,
}

/// Adds a contender to the line at a path.
pub(crate) async fn stand(client: &Client, path: &str, one: Stand<'_>) -> Result<()> {
    let zk = client.raw();
    let mut above = String::new();
    for part in path.trim_start_matches('/').split('/') {
        above += &format!("/{part}");
        // It may exist already.
        let _ = zk.create(&above, b"", CreateMode::Persistent).await;
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let since = since - Duration::from_secs(60 * one.minutes);
    let number = one
        .host
        .bytes()
        .fold(7u32, |sum, byte| (31 * sum + u32::from(byte)) % 30_000);
    let who = json!({
        "version": 1, "owner": one.host, "host": one.host, "pid": 1200 + number,
        "user": one.user, "command": one.command, "since_ms": u64::try_from(since.as_millis())?,
        "value": (one.kind == "candidate").then(|| format!("https://{}:8443", one.host)),
    });
    let name = format!(
        "{path}/{}-{:x}-{:016x}-",
        one.kind,
        client.session_id(),
        number
    );
    let mode = CreateMode::EphemeralSequential;
    zk.create(&name, who.to_string().as_bytes(), mode).await?;
    Ok(())
}

/// Keeps the sample data until it is dropped.
pub(crate) struct Town {
    _held: Vec<Box<dyn std::any::Any + Send>>,
}

pub(crate) async fn town(client: &Client) -> Result<Town> {
    let one = |kind, user, host, command, minutes| Stand {
        kind,
        user,
        host,
        command,
        minutes,
    };
    let nightly = "/jobs/backup/nightly";
    stand(
        client,
        nightly,
        one("lock", "ops", "db7", "./backup.sh --full", 14),
    )
    .await?;
    for (host, minutes) in [("db2", 9), ("db3", 8), ("db4", 4), ("db9", 2), ("db11", 1)] {
        stand(
            client,
            nightly,
            one("lock", "ops", host, "./backup.sh", minutes),
        )
        .await?;
    }
    let catalog = "/shop/catalog";
    for (kind, user, host, command, minutes) in [
        ("read", "shop", "web1", "search", 1),
        ("read", "shop", "web2", "search", 1),
        ("read", "shop", "web3", "export", 1),
        ("write", "import", "etl1", "import prices", 1),
        ("read", "shop", "web4", "search", 0),
        ("read", "shop", "web5", "search", 0),
    ] {
        stand(client, catalog, one(kind, user, host, command, minutes)).await?;
    }
    client
        .raw()
        .create("/render", b"", CreateMode::Persistent)
        .await?;
    client
        .raw()
        .create("/render/gpu", b"3", CreateMode::Persistent)
        .await?;
    for (kind, host) in [
        ("permit1", "gpu1"),
        ("permit2", "gpu2"),
        ("permit1", "gpu3"),
        ("permit1", "gpu4"),
    ] {
        stand(
            client,
            "/render/gpu",
            one(kind, "media", host, "blender -b scene.blend", 3),
        )
        .await?;
    }
    for (path, host) in [
        ("/migrations/schema", "ci-3"),
        ("/deploy/eu-west", "ci-1"),
        ("/cron/rotate-keys", "vault2"),
    ] {
        stand(client, path, one("lock", "ci", host, "make deploy", 2)).await?;
    }
    for (place, host) in ["api2", "api1", "api3"].into_iter().enumerate() {
        stand(
            client,
            "/services/billing",
            one("candidate", "billing", host, "billingd", 60 - place as u64),
        )
        .await?;
    }
    for host in ["sched1", "sched2"] {
        stand(
            client,
            "/services/scheduler",
            one("candidate", "cron", host, "scheduler", 300),
        )
        .await?;
    }
    let mut held: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
    let crashed = Lock::new(client, "/jobs/billing/invoices")
        .crash_mark()
        .command("./invoices --month 10");
    let guard = crashed.acquire().await?;
    guard.note("invoice 4711 of 9000 sent").await?;
    drop(guard);
    let mail = Queue::<Vec<u8>>::new(client, "/mail/out").command("mailer");
    for number in 0..140 {
        mail.put(&format!("mail {number}").into_bytes()).await?;
    }
    for reason in ["550 no such user", "timed out after 5 attempts"] {
        mail.take().await?.reject(reason).await?;
    }
    for _ in 0..3 {
        held.push(Box::new(mail.take().await?));
    }
    let tasks = Tasks::<Vec<u8>>::new(client, "/tasks/thumbnails").command("thumbnailer");
    for number in 0..24 {
        tasks
            .add(&format!("photo-{number}"), &b"{}".to_vec())
            .await?;
    }
    for _ in 0..9 {
        tasks.take().await?.unwrap().done().await?;
    }
    for _ in 0..2 {
        held.push(Box::new(tasks.take().await?));
    }
    Barrier::new(client, "/deploy/gate")
        .message("until the database is up")
        .set()
        .await?;
    let transactions = TwoPhase::new(client, "/transfers").no_deadline();
    held.push(Box::new(
        transactions
            .begin_as(
                "transfer-81",
                ["ledger-eu", "ledger-us", "audit"],
                "100 EUR",
            )
            .await?,
    ));
    let group = Group::new(client, "/workers");
    for name in ["worker-1", "worker-2", "worker-3"] {
        held.push(Box::new(group.join_as(name, "idle, 4 cores").await?));
    }
    let lock = |path: &str, owner: &str| Lock::new(client, path).owner(owner);
    held.push(Box::new(
        lock("/accounts/alice", "transfer 1").acquire().await?,
    ));
    held.push(Box::new(
        lock("/accounts/bob", "transfer 2").acquire().await?,
    ));
    held.push(Box::new(lock("/accounts/bob", "transfer 1").join().await?));
    held.push(Box::new(
        lock("/accounts/alice", "transfer 2").join().await?,
    ));
    Ok(Town { _held: held })
}
