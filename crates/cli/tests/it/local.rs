//! The local default.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use bellwether_server::proto::code::ErrorCode;
use bellwether_testkit::{ConnectOptions, RawClient, Request};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::bellwether::{Running, assert_code, bellwether, job, public_password, text, until};

/// A state folder of its own, whose server is ended with it.
pub(crate) struct Home(pub(crate) TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn bellwether(&self) -> Command {
        let mut command = bellwether();
        command.env("XDG_STATE_HOME", self.0.path());
        command
    }

    fn lock(&self, script: &str) -> Command {
        let mut command = self.bellwether();
        command.args([
            "lock",
            "/jobs/nightly",
            "--session-timeout",
            "4s",
            "--",
            "sh",
            "-c",
            script,
        ]);
        command
    }

    /// The folder of the server.
    fn folder(&self) -> Option<PathBuf> {
        let mut hosts = std::fs::read_dir(self.0.path().join("bellwether")).ok()?;
        hosts.next().map(|host| host.unwrap().path())
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder().unwrap().join(name)).unwrap()
    }

    fn address(&self) -> SocketAddr {
        let port: u16 = self.file("port").trim().parse().unwrap();
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn server(&self) -> Option<Pid> {
        let pid = std::fs::read_to_string(self.folder()?.join("pid")).ok()?;
        Pid::from_raw(pid.trim().parse().ok()?)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(server) = self.server() else { return };
        // One that has ended already may have left its number to another process.
        let command = std::fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default();
        if text(&command).contains(&*self.0.path().to_string_lossy()) {
            let _ = kill_process(server, Signal::KILL);
        }
    }
}

#[test]
fn first_command_starts_a_server_and_the_next_one_uses_it() {
    let home = Home::new();
    let first = home.lock("echo ran").output().unwrap();
    assert_code(&first, 0);
    assert_eq!(text(&first.stdout), "ran\n");
    let notice = text(&first.stderr);
    assert!(
        notice.contains("other hosts and users are not excluded"),
        "{notice}"
    );
    assert_eq!(notice.lines().count(), 1, "{notice}");
    let server = home.server();
    assert!(server.is_some());
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_eq!(home.server(), server);
}

#[test]
fn connect_local_says_nothing() {
    let home = Home::new();
    let output = home
        .lock("true")
        .env("BELLWETHER_CONNECT", "local")
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn ten_racing_commands_get_one_server_and_exclude_each_other() {
    let home = Home::new();
    let busy = home.0.path().join("busy");
    let script = format!("mkdir {0} && rmdir {0}", busy.display());
    let mut all: Vec<_> = (0..10)
        .map(|_| Running::start(&mut home.lock(&script)))
        .collect();
    for one in &mut all {
        let code = one.code();
        assert_eq!(code, Some(0), "{:?}", one.errors());
    }
    let starts = std::fs::read_to_string(home.folder().unwrap().join("log")).unwrap();
    assert!(!starts.contains("another server"), "{starts}");
}

#[test]
fn every_command_that_runs_another_works_there() {
    let home = Home::new();
    let job = |arguments: &[&str], script: &str| {
        let mut command = job("local", arguments, script);
        let output = command.env("XDG_STATE_HOME", home.0.path()).output();
        let output = output.unwrap();
        assert_code(&output, 0);
        text(&output.stdout)
    };
    let tell = "bellwether note x && echo $BELLWETHER_PATH $BELLWETHER_PREVIOUS";
    for (arguments, told) in [
        (&["lock", "a"][..], "/a clean\n"),
        (&["lock", "b", "--write"], "/b clean\n"),
        (&["elect", "c"], "/c clean\n"),
        (&["once", "d"], "/d clean\n"),
        (&["once", "d"], ""),
    ] {
        assert_eq!(job(arguments, tell), told, "{arguments:?}");
    }
    for (arguments, told) in [
        (&["lock", "b", "--read"][..], "/b clean\n"),
        (&["lock", "e", "--of", "2"], "/e unknown\n"),
        (&["lock", "f", "--layout", "kazoo"], "/f unknown\n"),
        (&["rendezvous", "g", "--size", "1"], "/g unknown\n"),
    ] {
        let tell = "echo $BELLWETHER_PATH $BELLWETHER_PREVIOUS";
        assert_eq!(job(arguments, tell), told, "{arguments:?}");
    }
}

#[test]
fn server_that_was_killed_is_replaced() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let dead = home.server().unwrap();
    kill_process(dead, Signal::KILL).unwrap();
    // Its port file is still there, and does not count.
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_ne!(home.server().unwrap(), dead);
}

#[test]
fn leader_stands_again_on_the_next_server() {
    let home = Home::new();
    let mut command = job(
        "local",
        &["elect", "e", "--session-timeout", "2s"],
        "echo $BELLWETHER_TOKEN; exec tail -f /dev/null",
    );
    let mut leader = Running::start(command.env("XDG_STATE_HOME", home.0.path()));
    let first: i64 = leader.line().unwrap().parse().unwrap();
    kill_process(home.server().unwrap(), Signal::KILL).unwrap();
    let second: i64 = leader.line().unwrap().parse().unwrap();
    assert!(first < second, "{first} {second}");
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(), Some(143));
}

#[test]
fn command_is_stopped_when_its_server_is_killed() {
    let home = Home::new();
    let mut job = home.lock("echo held; exec tail -f /dev/null");
    let mut job = Running::start(job.env("BELLWETHER_CONNECT", "local"));
    assert_eq!(job.line().as_deref(), Some("held"));
    kill_process(home.server().unwrap(), Signal::KILL).unwrap();
    assert_eq!(job.code(), Some(123));
    assert_eq!(job.line(), None);
    // Behind the announcement that no server answers.
    let lost = job.errors().pop().unwrap();
    assert!(lost.contains("/jobs/nightly is lost"), "{lost}");
}

#[test]
fn server_outlives_the_group_of_the_command_and_leaves_on_sigterm() {
    let home = Home::new();
    let mut job = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(job.line().as_deref(), Some("held"));
    let server = home.server().unwrap();
    assert_eq!(rustix::process::getsid(Some(server)).unwrap(), server);
    job.signal(Signal::TERM);
    assert_eq!(job.code(), Some(143));
    kill_process(server, Signal::TERM).unwrap();
    let port = home.folder().unwrap().join("port");
    until("the port file is gone", || !port.exists());
}

#[test]
fn folder_that_others_may_write_to_is_refused() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let folder = home.folder().unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).unwrap();
    let output = home.lock("true").output().unwrap();
    assert_code(&output, 125);
    assert!(
        text(&output.stderr).contains("0700"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn server_that_nobody_uses_leaves_and_the_next_command_starts_another() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let folder = home.folder().unwrap();
    kill_process(home.server().unwrap(), Signal::TERM).unwrap();
    until("the port file is gone", || !folder.join("port").exists());
    let mut idle = bellwether();
    idle.args(["serve", "--idle-exit", "50ms", "--local"])
        .arg(&folder);
    assert_code(&idle.output().unwrap(), 0);
    assert!(!folder.join("port").exists());
    assert_code(&home.lock("true").output().unwrap(), 0);
}

#[test]
fn server_that_leaves_while_commands_connect_fails_none_of_them() {
    let home = Home::new();
    for round in 0..10 {
        let mut all: Vec<_> = (0..3)
            .map(|_| Running::start(home.lock("true").env("BELLWETHER_IDLE_EXIT", "1ms")))
            .collect();
        for one in &mut all {
            assert_eq!(one.code(), Some(0), "round {round}: {:?}", one.errors());
        }
    }
}

#[test]
fn stranger_on_the_port_of_a_dead_server_gets_no_byte() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let dead = home.server().unwrap();
    kill_process(dead, Signal::KILL).unwrap();
    let address = home.address();
    let mut stranger = None;
    until("the port is free", || {
        stranger = TcpListener::bind(address).ok();
        stranger.is_some()
    });
    let stranger = stranger.unwrap();
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_ne!(home.server(), Some(dead));
    stranger.set_nonblocking(true).unwrap();
    let came = stranger.accept().map(|(mut connection, _)| {
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).map(|_| bytes)
    });
    assert!(came.is_err(), "{came:?}");
}

/// A user who is neither root nor anybody in particular.
pub(crate) const NOBODY: u32 = 65534;

#[test]
fn another_user_can_neither_read_nor_use_nor_disturb_the_server() {
    let home = Home::new();
    // Others may go through the folder above.
    std::fs::set_permissions(home.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut job = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(job.line().as_deref(), Some("held"));
    let folder = home.folder().unwrap();
    let mode = |name: &str| std::fs::metadata(folder.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("."), mode("secret")), (0o700, 0o600));

    if rustix::process::geteuid().is_root() {
        let secret = folder.join("secret");
        let read = Command::new("cat")
            .arg(&secret)
            .uid(NOBODY)
            .output()
            .unwrap();
        assert_ne!(read.status.code(), Some(0), "{}", text(&read.stdout));
        // That very folder, named by another user.
        match home.lock("true").uid(NOBODY).current_dir("/").output() {
            Ok(output) => assert_code(&output, 125),
            Err(error) => eprintln!("skipped in part: others cannot run the program here: {error}"),
        }
    } else {
        eprintln!("skipped in part: only root can be another user");
    }

    // What any process of the host can send, whoever runs it.
    let address = home.address();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for request in [
            Request::get_data("/jobs/nightly"),
            Request::create("/x", ""),
        ] {
            let mut stranger = RawClient::connect(address).await.unwrap();
            let reply = stranger.call(request).await.unwrap();
            assert_eq!(reply.outcome.err(), Some(ErrorCode::AuthRequired));
        }
        // The id of a session can be guessed: it is the time of day, and a count.
        let last = RawClient::connect(address).await.unwrap().session_id();
        for session_id in last - 10..last {
            let options = ConnectOptions {
                session_id,
                password: public_password(session_id),
                ..ConnectOptions::default()
            };
            let thief = RawClient::connect_with(address, &options).await.unwrap();
            assert!(thief.is_refused());
        }
        let word = bellwether_testkit::raw::four_letter_word(address, "srvr").await;
        assert!(word.unwrap().contains("not executed"));
    });
    assert!(job.is_running());
    job.signal(Signal::TERM);
    assert_eq!(job.code(), Some(143));
    assert_code(&home.lock("true").output().unwrap(), 0);
}

#[test]
fn config_file_names_the_servers_and_silences_the_notice() {
    let home = Home::new();
    let config = tempfile::tempdir().unwrap();
    let file = config.path().join("bellwether.toml");
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = home.lock("echo ran");
        command
            .env("XDG_CONFIG_HOME", config.path())
            .output()
            .unwrap()
    };
    let output = run("connect = \"local\"\n");
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
    let address = home.address();
    // The same server by its address: reached, and not told the secret.
    let output = run(&format!("connect = \"{address}\"\n"));
    assert_code(&output, 125);
    let output = run("connect = 5\n");
    assert_code(&output, 125);
    assert!(text(&output.stderr).contains("bellwether.toml"));
}

#[test]
fn status_stop_and_path_tell_of_the_server() {
    let home = Home::new();
    let run = |arguments: &[&str]| {
        let mut command = home.bellwether();
        command.arg("local").args(arguments).output().unwrap()
    };
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&run(arguments).stdout).unwrap()
    };
    assert_code(&run(&["status"]), 1);
    assert_eq!(json(&["status", "--json"])["running"], false);
    assert_code(&home.lock("true").output().unwrap(), 0);
    let status = json(&["--json", "status"]);
    assert_eq!(status["running"], true);
    assert_eq!(status["address"], home.address().to_string());
    assert_eq!(status["pid"], home.server().unwrap().as_raw_pid());
    assert_code(&run(&["status"]), 0);
    let path = text(&run(&["path"]).stdout);
    assert_eq!(PathBuf::from(path.trim()), home.folder().unwrap());
    assert_eq!(json(&["stop", "--json"])["stopped"], true);
    assert_code(&run(&["status"]), 1);
    assert_code(&run(&["stop"]), 0);
}

#[test]
fn without_a_home_the_error_says_what_to_do() {
    let mut command = bellwether();
    command.env_remove("HOME").env_remove("XDG_STATE_HOME");
    let output = command.args(["lock", "x", "--", "true"]).output().unwrap();
    assert_code(&output, 125);
    let errors = text(&output.stderr);
    assert!(
        errors.contains("HOME") && errors.contains("hint: set HOME"),
        "{errors}"
    );
}

#[test]
fn works_from_cron() {
    let home = tempfile::tempdir().unwrap();
    let state = Home(home);
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    // What cron sets, and nothing else.
    command
        .env_clear()
        .env("HOME", state.0.path())
        .env("PATH", "/usr/bin:/bin");
    let output = command
        .args(["lock", "x", "--", "echo", "ran"])
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stdout), "ran\n");
    let mut stop = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    stop.env_clear().env("HOME", state.0.path());
    assert_code(&stop.args(["local", "stop"]).output().unwrap(), 0);
}
