//! What a server keeps when its machine, its process or its disk fails at any moment.

mod disks;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bellwether_server::StartError;
use bellwether_testkit::disk::Operation;
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Body, Create, Model, MultiResult, RawClient, Request};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use self::disks::{Disks, Layout, Which};

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_crash_at_any_sync() {
    let syncs = crash_at_every_sync(1_000_000, Layout::Together, Which::Logs).await;
    assert!(syncs > 30, "only {syncs} syncs in all");
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_crash_at_any_sync_of_either_disk() {
    let syncs = crash_at_every_sync(2_000_000, Layout::Apart, Which::Logs).await;
    assert!(syncs > 30, "only {syncs} syncs of logs in all");
    let syncs = crash_at_every_sync(3_000_000, Layout::Apart, Which::Snapshots).await;
    assert!(syncs > 3, "only {syncs} syncs of snapshots in all");
}

/// Crashes a server at every sync of one of its disks, and those that follow it on its data wherever.
async fn crash_at_every_sync(first_seed: u64, layout: Layout, which: Which) -> u64 {
    for nth in 1.. {
        let went_down = for_seed(first_seed + nth, async |rng| {
            let mut disks = Disks::new(layout, rng);
            let mut world = World::new();
            disks.get(which).crash_at_sync(nth);
            world.live_on(&disks, rng, 120).await?;
            let went_down = disks.get(which).is_down();
            // What is found again must be as good as what was there first.
            for _ in 0..4 {
                disks = disks.after_a_fall(rng);
                if rng.random_bool(0.7) {
                    disks
                        .get(Which::any(rng))
                        .crash_at_sync(rng.random_range(1..12));
                }
                let writes = [0, 5, 40][rng.random_range(0..3)];
                world.live_on(&disks, rng, writes).await?;
            }
            world.live_on(&disks.after_a_fall(rng), rng, 5).await?;
            Ok(went_down)
        })
        .await;
        if !went_down {
            return nth;
        }
    }
    unreachable!("the writes come to an end")
}

#[tokio::test]
async fn a_start_that_is_interrupted_can_be_repeated() {
    for seed in 0..40 {
        for_seed(4_000_000 + seed, async |rng| {
            let mut disks = Disks::new(Layout::any(rng), rng);
            let mut world = World::new();
            disks.logs.crash_at_sync(rng.random_range(20..60));
            world.live_on(&disks, rng, 120).await?;
            for nth in 1..10 {
                disks = disks.after_a_fall(rng);
                disks.get(Which::any(rng)).crash_at_sync(nth);
                world.live_on(&disks, rng, 0).await?;
            }
            world.live_on(&disks.after_a_fall(rng), rng, 5).await
        })
        .await;
    }
}

/// The system may know of a file whose name is not on the disk yet.
#[tokio::test]
async fn files_of_a_killed_server_get_their_names_synced_before_anybody_relies_on_them() {
    for seed in 0..20 {
        for_seed(4_500_000 + seed, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            let mut world = World::new();
            // The second sync of each disk is that of the name of its first file.
            disks.snapshots.crash_at_sync(2);
            ensure!(!world.live_on(&disks, rng, 5).await?);
            let disks = disks.kill();
            disks.logs.crash_at_sync(2);
            ensure!(!world.live_on(&disks, rng, 5).await?);
            let disks = disks.kill();
            disks.snapshots.crash_at_sync(2);
            world.live_on(&disks, rng, 0).await?;
            world.live_on(&disks.crash(rng), rng, 5).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_the_server() {
    let operations = [
        Operation::Create,
        Operation::Write,
        Operation::Reserve,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncNames,
    ];
    let errors = [io::ErrorKind::Other, io::ErrorKind::StorageFull];
    let mut seed = 5_000_000;
    for (operation, error) in operations
        .into_iter()
        .flat_map(|operation| errors.map(|error| (operation, error)))
    {
        for nth in [1, 2, 3, 7] {
            seed += 1;
            for_seed(seed, async |rng| {
                let disks = Disks::new(Layout::Apart, rng);
                disks.logs.fail(operation, nth, error);
                let mut world = World::new();
                let completed = world.live_on(&disks, rng, 2000).await?;
                let failure = world.failure.take();
                ensure!(!completed, "{operation:?} {nth} did not fail");
                if world.started {
                    let failure = failure.context("it stopped for no reason")?;
                    ensure!(failure.contains("a fault"), "{failure}");
                }
                world.live_on(&disks.after_a_fall(rng), rng, 20).await
            })
            .await;
        }
    }
}

/// After a failed fsync the cache may show what is not on the disk, and no later fsync writes it.
#[tokio::test]
async fn nothing_is_built_on_what_a_failed_sync_left_in_the_cache() {
    for seed in 0..60 {
        for_seed(5_500_000 + seed, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            let mut world = World::new();
            let nth = rng.random_range(2..20);
            let error = io::ErrorKind::Other;
            // On a read-only file system the log cannot be cut back either.
            if rng.random_bool(0.5) {
                disks.logs.fail_for_good(Operation::Sync, nth, error);
            } else {
                disks.logs.fail(Operation::Sync, nth, error);
            }
            world.live_on(&disks, rng, 200).await?;
            let mut disks = disks.kill();
            for _ in 0..3 {
                // Nothing but the log has what was recovered from it.
                disks.snapshots.limit_space(0);
                let writes = [0, 1, 10][rng.random_range(0..3)];
                world.live_on(&disks, rng, writes).await?;
                disks = disks.after_a_fall(rng);
            }
            world.live_on(&disks.crash(rng), rng, 5).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_batch_that_could_not_be_synced_is_not_found_by_the_next_server() {
    for seed in 0..20 {
        for_seed(5_600_000 + seed, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            let mut world = World::new();
            let nth = rng.random_range(1..20);
            disks.logs.fail(Operation::Sync, nth, io::ErrorKind::Other);
            ensure!(!world.live_on(&disks, rng, 200).await?);
            ensure!(!world.unanswered.is_empty());
            let acknowledged = world.model.zxid();
            let disks = disks.kill();
            let server = disks.start().await?;
            let found = last_zxid(server.addresses()[0]).await?;
            server.shutdown().await;
            ensure!(found == acknowledged, "{found:#x}, not {acknowledged:#x}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_full_disk_stops_the_server_before_anything_is_damaged() {
    for space in (0..4000).step_by(53) {
        for_seed(6_000_000 + space, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            disks.logs.limit_space(usize::try_from(space)?);
            let mut world = World::new();
            let completed = world.live_on(&disks, rng, 2000).await?;
            ensure!(!completed, "there was room for everything in {space} bytes");
            world.live_on(&disks.after_a_fall(rng), rng, 20).await
        })
        .await;
    }
}

/// A snapshot that cannot be written costs nothing but a longer recovery.
#[tokio::test]
async fn a_snapshot_that_cannot_be_written_is_left_out() {
    for_seed(7_000_000, async |rng| {
        let disks = Disks::new(Layout::Apart, rng);
        let mut world = World::new();
        world.live_on(&disks, rng, 10).await?;
        let disks = disks.kill();
        disks.snapshots.limit_space(100);
        ensure!(world.live_on(&disks, rng, 100).await?);
        let names: Vec<_> = disks.snapshots.files().into_keys().collect();
        ensure!(names == ["snapshot.0"], "{names:?}");
        world.live_on(&disks.after_a_fall(rng), rng, 5).await
    })
    .await;
}

/// Runs a test with what follows from a seed, and tells the seed if it fails.
async fn for_seed<T>(seed: u64, test: impl AsyncFnOnce(&mut StdRng) -> Result<T>) -> T {
    let mut rng = StdRng::seed_from_u64(seed);
    match test(&mut rng).await {
        Ok(value) => value,
        Err(error) => panic!("seed {seed}: {error:?}"),
    }
}

/// What clients know, from one server to the next on the same data.
struct World {
    /// Everything acknowledged or seen.
    model: Model,
    /// What was asked and not answered, in its order: a first part of it may have been done.
    unanswered: Vec<Write>,
    sessions: Vec<RawClient>,
    ended: Vec<RawClient>,
    /// Whether the last server got as far as serving, and why it stopped.
    started: bool,
    failure: Option<String>,
}

#[derive(Debug, Clone)]
enum Write {
    Open,
    Request(i64, Request),
}

impl World {
    fn new() -> Self {
        Self {
            model: Model::new(),
            unanswered: Vec::new(),
            sessions: Vec::new(),
            ended: Vec::new(),
            started: false,
            failure: None,
        }
    }

    /// Starts a server, compares what it has with what it must have, and writes to it until `writes`
    /// are done or it stops; true if they were all done.
    async fn live_on(&mut self, disks: &Disks, rng: &mut StdRng, writes: usize) -> Result<bool> {
        self.started = false;
        let server = match disks.start().await {
            Ok(server) => server,
            Err(error) => {
                return match &error {
                    StartError::Data(bellwether_server::RecoveryError::Disk(_)) => Ok(false),
                    _ => Err(error).context("it did not start"),
                };
            }
        };
        self.started = true;
        let address = server.addresses()[0];
        self.compare(address).await?;
        let completed = self.write(address, rng, writes).await?;
        if !completed {
            let failure = within_limit(server.failed()).await?;
            let source = std::error::Error::source(&failure).context("no reason")?;
            self.failure = Some(source.to_string());
            for session in &mut self.sessions {
                session.closed().await?;
            }
        }
        server.shutdown().await;
        Ok(completed)
    }

    /// Finds out how much of what was not answered has been done, and compares everything else.
    async fn compare(&mut self, address: SocketAddr) -> Result<()> {
        let zxid = last_zxid(address).await?;
        let done = usize::try_from(zxid - self.model.zxid())
            .with_context(|| format!("{:#x} was acknowledged, not {zxid:#x}", self.model.zxid()))?;
        let unanswered = std::mem::take(&mut self.unanswered);
        ensure!(
            done <= unanswered.len(),
            "more was done than was asked for: {zxid:#x}"
        );
        for write in &unanswered[..done] {
            match write {
                Write::Open => self.model.open_session(),
                Write::Request(session, request) => {
                    let _ = self.model.apply(*session, 0, request);
                    if *request == Request::CloseSession {
                        self.end(*session);
                    }
                }
            }
        }
        for client in &self.ended {
            let again = client.reattach(address).await?;
            ensure!(again.is_refused(), "a session is back that was closed");
        }
        for client in &mut self.sessions {
            let again = client.reattach(address).await?;
            ensure!(
                !again.is_refused(),
                "session {:#x} is gone",
                client.session_id()
            );
            *client = again;
        }
        if let Some(client) = self.sessions.first_mut() {
            compare_trees(client, &mut self.model).await?;
        }
        Ok(())
    }

    fn end(&mut self, session: i64) {
        let ended = self
            .sessions
            .extract_if(.., |client| client.session_id() == session);
        self.ended.extend(ended);
    }

    /// False if the server stops before all is written.
    async fn write(
        &mut self,
        address: SocketAddr,
        rng: &mut StdRng,
        writes: usize,
    ) -> Result<bool> {
        let mut written = 0;
        while written < writes {
            if self.sessions.is_empty() || self.sessions.len() < 4 && rng.random_bool(0.1) {
                written += 1;
                let Ok(client) = RawClient::connect(address).await else {
                    self.unanswered.push(Write::Open);
                    return Ok(false);
                };
                self.model.open_session();
                self.sessions.push(client);
                continue;
            }
            let mut requests: Vec<_> = (0..rng.random_range(1..7))
                .map(|_| any_write(rng))
                .collect();
            if rng.random_bool(0.03) {
                requests.push(Request::CloseSession);
            }
            written += requests.len();
            let session = rng.random_range(0..self.sessions.len());
            if !self.write_all(session, requests).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn write_all(&mut self, session: usize, requests: Vec<Request>) -> Result<bool> {
        let client = &mut self.sessions[session];
        let id = client.session_id();
        let sent = client.send_all(&requests).await.is_ok();
        let mut answered = 0;
        while sent && answered < requests.len() {
            let Ok(reply) = client.receive_reply().await else {
                break;
            };
            let request = &requests[answered];
            let expected = self.model.apply(id, 0, request).map(timeless);
            let outcome = reply.outcome.map(timeless);
            ensure!(
                outcome == expected,
                "{request:?}: {outcome:?}, not {expected:?}"
            );
            ensure!(
                reply.zxid == self.model.zxid(),
                "{request:?}: {:#x}, not {:#x}",
                reply.zxid,
                self.model.zxid()
            );
            answered += 1;
        }
        if answered == requests.len() {
            if requests.last() == Some(&Request::CloseSession) {
                self.end(id);
            }
            return Ok(true);
        }
        let rest = requests.into_iter().skip(answered);
        self.unanswered
            .extend(rest.map(|request| Write::Request(id, request)));
        Ok(false)
    }
}

/// Something to write: few paths, so that it often fails, and sizes around those of sectors.
fn any_write(rng: &mut StdRng) -> Request {
    if rng.random_bool(0.2) {
        let count = rng.random_range(2..5);
        return Request::Multi((0..count).map(|_| any_simple_write(rng)).collect());
    }
    any_simple_write(rng)
}

fn any_simple_write(rng: &mut StdRng) -> Request {
    let mut path = format!("/{}", rng.random_range(0..4));
    if rng.random_bool(0.5) {
        path.push_str(&format!("/{}", rng.random_range(0..3)));
    }
    let bytes = [0, 5, 200, 450, 600, 1500][rng.random_range(0..6)];
    // Zeros too: a sector of them looks as one that was never written.
    let data = vec![rng.random_range(0..3); bytes];
    match rng.random_range(0..10) {
        0..4 => Request::create(path, data),
        4 => Request::create_ephemeral(path),
        5 => Request::create_mode(path, data, Create::PERSISTENT_SEQUENTIAL),
        6..8 => Request::set_data(path, data),
        8 => Request::Check { path, version: 0 },
        _ => Request::delete(path),
    }
}

/// The zxid of the last write, from the one who takes no session to tell.
pub(crate) async fn last_zxid(address: SocketAddr) -> Result<i64> {
    let answer = four_letter_word(address, "srvr").await?;
    let zxid = answer
        .lines()
        .find_map(|line| line.strip_prefix("Zxid: 0x"));
    Ok(i64::from_str_radix(zxid.context(answer.clone())?, 16)?)
}

/// Compares every node with the model, and the last zxid.
pub(crate) async fn compare_trees(client: &mut RawClient, model: &mut Model) -> Result<()> {
    let mut paths = vec!["/".to_owned()];
    while !paths.is_empty() {
        let reads = |path: String| {
            let watch = false;
            [
                Request::get_data(&path),
                Request::GetChildren2 { path, watch },
            ]
        };
        let requests: Vec<_> = paths.drain(..).flat_map(reads).collect();
        client.send_all(&requests).await?;
        for request in &requests {
            let expected = model.apply(client.session_id(), 0, request).map(timeless);
            let reply = client.receive_reply().await?;
            let outcome = reply.outcome.map(timeless);
            ensure!(
                outcome == expected,
                "{request:?}: {outcome:?}, not {expected:?}"
            );
            ensure!(reply.zxid == model.zxid(), "zxid {:#x}", reply.zxid);
            if let (Request::GetChildren2 { path, .. }, Ok(Body::ChildrenStat(names, _))) =
                (request, outcome)
            {
                let parent = path.trim_end_matches('/');
                paths.extend(names.iter().map(|name| format!("{parent}/{name}")));
            }
        }
    }
    Ok(())
}

/// A body without the times, which the model does not know.
fn timeless(mut body: Body) -> Body {
    if let Body::Multi(results) = body {
        return Body::Multi(
            results
                .into_iter()
                .map(|result| match result {
                    MultiResult::Done(op, body) => MultiResult::Done(op, timeless(body)),
                    other => other,
                })
                .collect(),
        );
    }
    if let Body::Stat(stat)
    | Body::PathStat(_, stat)
    | Body::DataStat(_, stat)
    | Body::ChildrenStat(_, stat) = &mut body
    {
        (stat.ctime, stat.mtime) = (0, 0);
    }
    body
}

async fn within_limit<T>(future: impl Future<Output = T>) -> Result<T> {
    let limit = Duration::from_secs(10);
    Ok(tokio::time::timeout(limit, future).await?)
}
