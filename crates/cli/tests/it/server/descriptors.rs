//! `bellwether serve` when its file descriptors are used up.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellwether_testkit::{RawClient, Request};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::bellwether::{Running, bellwether, serve, until};

/// File descriptors of the server. Without a limit of its own, it would fill them with connections.
const DESCRIPTORS: usize = 64;

/// Writes between two snapshots.
const SNAP_COUNT: usize = 50;

/// A server that has few descriptors, and its addresses.
struct Scene {
    folder: TempDir,
    server: Running,
    addresses: Vec<String>,
}

impl Scene {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("zoo.cfg");
        let lines = format!(
            "clientPort=1\ndataDir={}\nsnapCount={SNAP_COUNT}\npreAllocSize=16\nautopurge.purgeInterval=1\n\
             maxClientCnxns=0\n4lw.commands.whitelist=*\n",
            folder.path().join("data").display()
        );
        fs::write(&config, lines).unwrap();
        let program = bellwether();
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={DESCRIPTORS}"));
        command.arg(program.get_program()).args(program.get_args());
        for (variable, value) in program.get_envs() {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]);
        command.arg(config).args(more);
        let (server, addresses) = serve(&mut command);
        Self {
            folder,
            server,
            addresses,
        }
    }

    /// zxids of the data files whose names begin with `prefix`, in order.
    fn files(&self, prefix: &str) -> Vec<u64> {
        let data: PathBuf = self.folder.path().join("data/version-2");
        let names = fs::read_dir(data).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let zxids =
            names.filter_map(|name| u64::from_str_radix(name.strip_prefix(prefix)?, 16).ok());
        let mut zxids: Vec<_> = zxids.collect();
        zxids.sort_unstable();
        zxids
    }

    /// Number of open descriptors of the server.
    fn open(&self) -> usize {
        let pid = self.server.id().as_raw_nonzero();
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        open.unwrap().count()
    }

    async fn set(&mut self, client: &mut RawClient) {
        match client.call(Request::set_data("/", "x")).await {
            Ok(reply) => drop(reply.ok().unwrap()),
            Err(error) => {
                self.server.signal(Signal::TERM);
                panic!("{error:#}: {:#?}", self.server.errors());
            }
        }
    }

    /// Makes the server roll its log, take a snapshot and delete old ones, three times.
    async fn roll(&mut self, client: &mut RawClient) {
        for _ in 0..3 {
            let (log, snapshot) = (self.files("log.").pop(), self.files("snapshot.").pop());
            for _ in 0..=SNAP_COUNT {
                self.set(client).await;
            }
            until("a snapshot is written", || {
                assert!(self.server.is_running());
                self.files("snapshot.").pop() > snapshot
            });
            // The next write goes to a new log.
            self.set(client).await;
            assert!(self.files("log.").pop() > log);
        }
        until("old snapshots are gone", || {
            self.files("snapshot.").len() == 3
        });
    }

    fn end(mut self) {
        self.server.signal(Signal::TERM);
        assert_eq!(self.server.code(), Some(0), "{:?}", self.server.errors());
    }
}

/// The value of `key` in the answer to `mntr`.
fn monitored(socket: &Path, key: &str) -> usize {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"mntr").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let mut lines = answer.lines().filter_map(|line| line.split_once('\t'));
    let (_, value) = lines.find(|(found, _)| *found == key).unwrap();
    value.parse().unwrap()
}

#[tokio::test]
async fn t103_clients_that_fill_the_server_leave_descriptors_for_its_log() {
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("socket");
    let mut scene = Scene::new(&["--listen", &format!("unix:{}", socket.display())]);
    let mut clients = Vec::new();
    while let Ok(client) = RawClient::connect(&scene.addresses[0]).await {
        clients.push(client);
        assert!(clients.len() < DESCRIPTORS, "no limit was reached");
    }
    let max = monitored(&socket, "zk_connections_max");
    assert!(clients.len() < max, "the last ones are for operators");
    assert!(clients.len() * 2 > max, "{} of {max}", clients.len());
    assert_eq!(monitored(&socket, "zk_connection_rejected"), 1);
    scene.roll(&mut clients[0]).await;
    for client in &mut clients {
        client
            .call(Request::exists("/"))
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    scene.end();
}

/// Connections to the dashboard are not those of clients.
#[tokio::test]
async fn t103_log_rolls_when_no_descriptors_are_left() {
    let http = bellwether_testkit::Port::reserve_all(1).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], http[0].number()));
    let mut scene = Scene::new(&["--http", &address.to_string()]);
    let mut client = RawClient::connect(&scene.addresses[0]).await.unwrap();
    client.call(Request::set_data("/", "")).await.unwrap();
    // The kernel accepts more of them than the server.
    let readers: Vec<_> = (0..2 * DESCRIPTORS)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Those with higher numbers, which it has inherited, count too.
    until("all descriptors are in use", || scene.open() >= DESCRIPTORS);
    scene.roll(&mut client).await;
    assert!(scene.open() >= DESCRIPTORS, "some were free");
    drop(readers);
    until("they are free again", || scene.open() < DESCRIPTORS / 2 + 8);
    client
        .call(Request::exists("/"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    scene.end();
}
