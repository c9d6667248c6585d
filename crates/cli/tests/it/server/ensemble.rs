//! `bellwether ensemble`: from one server to an ensemble of three Apache servers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use bellwether_testkit::{Ensemble, Port};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::bellwether::{assert_code, bellwether, serve, text};

fn ensemble(data: &Path, into: &Path, hosts: &[String]) -> Command {
    let mut command = bellwether();
    command.arg("ensemble").arg("--data").arg(data);
    command.arg("--into").arg(into).args(hosts);
    command
}

fn on(address: &str, arguments: &[&str]) -> Output {
    let (command, rest) = arguments.split_first().unwrap();
    let mut program = bellwether();
    program.args([command, "-c", address]).args(rest);
    program.output().unwrap()
}

/// Three hosts on this machine, and their ports.
fn hosts() -> (Vec<String>, Vec<Port>) {
    let ports = Port::reserve_all(9).unwrap();
    let hosts = ports.chunks(3).map(|ports| {
        let [client, peer, election] = [0, 1, 2].map(|one| ports[one].number());
        format!("127.0.0.1:{client}:{peer}:{election}")
    });
    (hosts.collect(), ports)
}

/// A data folder that a server has written.
fn data_folder(folder: &Path) {
    let (mut server, addresses) = serve(bellwether().args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        folder.to_str().unwrap(),
    ]));
    for node in ["/app", "/app/one", "/app/two"] {
        assert_code(&on(&addresses[0], &["create", node, "kept"]), 0);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn three_servers_of_apache_start_with_the_data_on_each() {
    let folder = tempfile::tempdir().unwrap();
    let (data, into) = (folder.path().join("data"), folder.path().join("nodes"));
    data_folder(&data);
    let (hosts, _ports) = hosts();
    let output = ensemble(&data, &into, &hosts)
        .args(["--in-place", "--tick-time", "200ms", "--json"])
        .output()
        .unwrap();
    assert_code(&output, 0);
    // Apache's servers do not know the passwords of sessions.
    assert!(text(&output.stderr).contains("--session-passwords apache"));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let addresses: Vec<SocketAddr> = told["connect"]
        .as_str()
        .unwrap()
        .split(',')
        .map(|one| one.parse().unwrap())
        .collect();
    let folders = told["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["folder"].as_str().unwrap().into());
    let folders: Vec<_> = folders.zip(addresses.iter().copied()).collect();
    assert_eq!(folders.len(), 3);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut servers = runtime.block_on(Ensemble::in_folders(&folders)).unwrap();
    runtime.block_on(servers.leader()).unwrap();
    for address in &addresses {
        let output = on(&address.to_string(), &["get", "/app/two"]);
        assert_code(&output, 0);
        assert_eq!(text(&output.stdout), "kept");
    }
    // A write reaches all of them, and the doctor complains only about the machine.
    let all = told["connect"].as_str().unwrap();
    assert_code(&on(all, &["lock", "x", "--", "true"]), 0);
    let report = on(all, &["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let modes = ["leader", "follower"].map(|mode| {
        let of_mode = |finding: &&Value| finding["what"].as_str().unwrap().contains(mode);
        findings.iter().filter(of_mode).count()
    });
    assert_eq!(modes, [1, 2], "{report}");
}

#[test]
fn what_cannot_become_an_ensemble_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (data, into) = (folder.path().join("data"), folder.path().join("nodes"));
    data_folder(&data);
    let (hosts, _ports) = hosts();
    assert_code(&ensemble(&data, &into, &hosts[..2]).output().unwrap(), 2);
    // An empty folder, or an unusable one.
    let nothing = folder.path().join("nothing");
    assert_code(&ensemble(&nothing, &into, &hosts).output().unwrap(), 1);
    assert!(!into.exists() && !nothing.exists());
    let (server, _) = serve(bellwether().args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ]));
    let output = ensemble(&data, &into, &hosts).output().unwrap();
    assert_code(&output, 125);
    assert!(!into.exists());
    drop(server);
    assert_code(&ensemble(&data, &into, &hosts).output().unwrap(), 0);
    let config = std::fs::read_to_string(into.join("2/zoo.cfg")).unwrap();
    assert!(config.contains("dataDir=/var/lib/zookeeper\n"), "{config}");
    assert_eq!(config.matches("\nserver.").count(), 3, "{config}");
    assert_eq!(std::fs::read_to_string(into.join("2/myid")).unwrap(), "2\n");
    // It is not overwritten.
    assert_code(&ensemble(&data, &into, &hosts).output().unwrap(), 1);
}
