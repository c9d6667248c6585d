//! What `bellwether serve --data` keeps when it is killed.

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use bellwether_testkit::{Body, RawClient, Request};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::support::bellwether::{Running, bellwether};

const ROUNDS: usize = 20;
const WRITERS: usize = 4;

/// Maximum number of writes in flight per writer.
const BURST: usize = 8;

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_kill_9() {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = u64::from(now.subsec_nanos());
    eprintln!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    // So few that logs and snapshots are created and deleted all the time.
    let data = folder.path().join("data");
    let settings = format!(
        "clientPort=1\ndataDir={}\nsnapCount=50\npreAllocSize=16\n",
        data.display()
    );
    let config = folder.path().join("zoo.cfg");
    std::fs::write(&config, settings).unwrap();

    let mut writers: Vec<Writer> = Vec::new();
    let mut given = HashMap::new();
    for _ in 0..ROUNDS {
        let (mut server, address) = serve(&config);
        if writers.is_empty() {
            for number in 0..WRITERS {
                writers.push(Writer::new(number, &address).await);
            }
        }
        for writer in &mut writers {
            writer.come_back(&address, &mut given).await;
        }
        let (acknowledged, mut acknowledgements) = unbounded_channel();
        let mut writing = JoinSet::new();
        for writer in writers.drain(..) {
            let burst = rng.random_range(1..=BURST);
            writing.spawn(writer.write(burst, acknowledged.clone()));
        }
        for _ in 0..rng.random_range(1..300) {
            acknowledgements.recv().await.unwrap();
        }
        server.signal(Signal::KILL);
        assert_eq!(server.code(), None);
        writers = writing.join_all().await;
    }
    let (server, address) = serve(&config);
    for writer in &mut writers {
        writer.come_back(&address, &mut given).await;
    }
    drop(server);
}

#[tokio::test]
async fn torn_end_is_warned_of_and_damage_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let serve = || {
        let mut command = bellwether();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
        Running::start(command.arg(folder.path()))
    };
    let mut server = serve();
    let ready = server.error_line().unwrap();
    let address = ready.rsplit(' ').next().unwrap();
    let mut client = RawClient::connect(address).await.unwrap();
    for path in ["/a", "/b"] {
        let reply = client.call(Request::create(path, "")).await.unwrap();
        reply.outcome.unwrap();
    }
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));

    let log = folder.path().join("version-2/log.1");
    let mut bytes = std::fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes.truncate(end);
    std::fs::write(&log, &bytes).unwrap();
    // Written by the clean stop. A crash within the record would have left none of its zxid.
    std::fs::remove_file(folder.path().join("bellwether.zxid")).unwrap();
    let mut server = serve();
    let warning = server.error_line().unwrap();
    for part in ["WARN", "torn", "log.1", "offset="] {
        assert!(warning.contains(part), "{part} is not in {warning}");
    }
    assert!(server.error_line().unwrap().contains("serving on"));
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));

    // The first record begins after the header, and others follow it.
    bytes[40] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    std::fs::remove_file(folder.path().join("version-2/snapshot.2")).unwrap();
    let mut server = serve();
    let error = server.error_line().unwrap();
    assert!(error.contains("log.1 is damaged at offset 16"), "{error}");
    assert_eq!(server.code(), Some(125));
}

/// Starts a server, and waits until it serves.
fn serve(config: &Path) -> (Running, String) {
    let mut command = bellwether();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]);
    let mut server = Running::start(command.arg(config));
    // A warning about a torn end, which was never acknowledged, may come first.
    loop {
        let line = server.error_line().expect("it serves");
        if let Some(address) = line.strip_prefix("bellwether: serving on ") {
            return (server, address.to_owned());
        }
        eprintln!("{line}");
    }
}

/// Creates nodes `0`, `1`, … in a folder, each in one transaction that also sets the folder's data to the number.
struct Writer {
    client: RawClient,
    path: String,
    /// Zxids of the writes acknowledged since the last kill, by number.
    acknowledged: Vec<(usize, i64)>,
    /// Numbers of writes requested, and found after the last kill.
    sent: usize,
    found: usize,
    last_zxid: i64,
}

impl Writer {
    async fn new(number: usize, address: &str) -> Self {
        let mut client = RawClient::connect(address).await.unwrap();
        let path = format!("/{number}");
        for request in [
            Request::create(&path, ""),
            Request::create_ephemeral(format!("{path}-lives")),
        ] {
            client.call(request).await.unwrap().outcome.unwrap();
        }
        Self {
            client,
            path,
            acknowledged: Vec::new(),
            sent: 0,
            found: 0,
            last_zxid: 0,
        }
    }

    /// Resumes its session on another server, and checks everything that may have changed. `given` has the writes of all writers, by their
    /// zxids.
    async fn come_back(&mut self, address: &str, given: &mut HashMap<i64, String>) {
        self.client = self.client.reattach(address).await.unwrap();
        let id = self.client.session_id();
        assert!(
            !self.client.is_refused(),
            "the session of {} is gone",
            self.path
        );
        let living = self
            .read(Request::exists(format!("{}-lives", self.path)))
            .await;
        assert!(matches!(living, Body::Stat(stat) if stat.ephemeral_owner == id));

        let Body::Children(names) = self.read(Request::get_children(&self.path)).await else {
            panic!("no children");
        };
        let found = names.len();
        let mut numbers: Vec<usize> = names.iter().map(|name| name.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(
            numbers.into_iter().eq(0..found),
            "not in their order: {names:?}"
        );
        assert!(found <= self.sent);
        let last = found.checked_sub(1).map(|last| last.to_string());
        let data = self.read(Request::get_data(&self.path)).await;
        assert!(
            matches!(&data, Body::DataStat(Some(data), _) if *data == last.unwrap_or_default().as_bytes()),
            "half of a transaction: {found}, {data:?}"
        );

        let mut zxids = HashMap::new();
        for number in self.found..found {
            let path = format!("{}/{number}", self.path);
            let Body::Stat(stat) = self.read(Request::exists(&path)).await else {
                panic!("no stat");
            };
            assert!(stat.czxid > self.last_zxid, "{path} is out of order");
            self.last_zxid = stat.czxid;
            zxids.insert(number, stat.czxid);
            let other = given.insert(stat.czxid, path.clone());
            assert_eq!(other, None, "{:#x} was given to {path} as well", stat.czxid);
        }
        for (number, zxid) in self.acknowledged.drain(..) {
            let kept = zxids.get(&number);
            assert_eq!(kept, Some(&zxid), "{}/{number} was acknowledged", self.path);
        }
        (self.sent, self.found) = (found, found);
    }

    async fn read(&mut self, request: Request) -> Body {
        self.client.call(request).await.unwrap().outcome.unwrap()
    }

    /// Writes until the server is gone, and reports each acknowledgement.
    async fn write(mut self, burst: usize, acknowledged: UnboundedSender<()>) -> Self {
        loop {
            let first = self.sent;
            let requests: Vec<_> = (first..first + burst)
                .map(|number| {
                    Request::Multi(vec![
                        Request::create(format!("{}/{number}", self.path), ""),
                        Request::set_data(&self.path, number.to_string()),
                    ])
                })
                .collect();
            self.sent += burst;
            if self.client.send_all(&requests).await.is_err() {
                return self;
            }
            for number in first..first + burst {
                let Ok(reply) = self.client.receive_reply().await else {
                    return self;
                };
                reply.outcome.unwrap();
                self.acknowledged.push((number, reply.zxid));
                // The receiver may be gone once the kill is on its way.
                let _ = acknowledged.send(());
            }
        }
    }
}
