//! The local default.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::bellwether::{
    LOCAL_FOLDER, Running, assert_code, bellwether, job, text, until, user_and_host,
};

/// A folder for a local server of its own, which is killed with it.
pub(crate) struct Home(pub(crate) TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// What tells a command to use this server.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (LOCAL_FOLDER, self.folder())
    }

    pub(crate) fn bellwether(&self) -> Command {
        let mut command = bellwether();
        command.envs([self.variable()]);
        command
    }

    pub(crate) fn lock(&self, script: &str) -> Command {
        self.lock_at("/jobs/nightly", script)
    }

    pub(crate) fn lock_at(&self, path: &str, script: &str) -> Command {
        let mut command = self.bellwether();
        command.args(["lock", path, "--session-timeout", "4s", "--"]);
        command.args(["sh", "-c", script]);
        command
    }

    /// The folder of the server.
    pub(crate) fn folder(&self) -> PathBuf {
        self.0.path().join("local")
    }

    /// The process of the server that listens now.
    pub(crate) fn server(&self) -> Option<Pid> {
        server_at(&self.folder())
    }
}

fn server_at(folder: &Path) -> Option<Pid> {
    let server = UnixStream::connect(folder.join("socket")).ok()?;
    Some(socket_peercred(&server).unwrap().pid)
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(server) = self.server() {
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
        notice.contains("hosts and users are not excluded"),
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
    let starts = std::fs::read_to_string(home.folder().join("log")).unwrap();
    assert!(!starts.contains("another server"), "{starts}");
}

#[test]
fn every_command_that_runs_another_works_there() {
    let home = Home::new();
    let job = |arguments: &[&str], script: &str| {
        let mut command = job("local", arguments, script);
        let output = command.envs([home.variable()]).output();
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
    // Its socket is still there, and does not count.
    assert!(home.folder().join("socket").exists());
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_ne!(home.server().unwrap(), dead);
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
    until("the socket is gone", || {
        !home.folder().join("socket").exists()
    });
}

#[test]
fn folder_that_others_may_write_to_is_refused() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let folder = home.folder();
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
    let folder = home.folder();
    kill_process(home.server().unwrap(), Signal::TERM).unwrap();
    until("the socket is gone", || !folder.join("socket").exists());
    let mut idle = bellwether();
    idle.args(["serve", "--idle-exit", "50ms", "--local"])
        .arg(&folder);
    assert_code(&idle.output().unwrap(), 0);
    assert!(!folder.join("socket").exists());
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

/// A user who is neither root nor anybody in particular.
pub(crate) const NOBODY: u32 = 65534;

#[test]
fn another_user_can_neither_use_nor_disturb_the_server() {
    let home = Home::new();
    // Others may go through the folder above.
    std::fs::set_permissions(home.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut job = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(job.line().as_deref(), Some("held"));
    let mode = std::fs::metadata(home.folder()).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o700);
    if rustix::process::geteuid().is_root() {
        // That very folder, named by another user.
        match home.lock("true").uid(NOBODY).current_dir("/").output() {
            Ok(output) => assert_code(&output, 125),
            Err(error) => eprintln!("skipped in part: others cannot run the program here: {error}"),
        }
    } else {
        eprintln!("skipped in part: only root can be another user");
    }
    assert!(job.is_running());
    job.signal(Signal::TERM);
    assert_eq!(job.code(), Some(143));
    assert_code(&home.lock("true").output().unwrap(), 0);
}

#[test]
fn config_file_names_the_servers_and_another_folder_is_announced_even_so() {
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
    // The file does not say that it is another folder.
    let notice = text(&output.stderr);
    assert!(notice.contains(home.folder().to_str().unwrap()), "{notice}");
    let socket = home.folder().join("socket");
    let output = run(&format!("connect = \"unix:{}\"\n", socket.display()));
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
    let output = run("connect = 5\n");
    assert_code(&output, 125);
    assert!(text(&output.stderr).contains("bellwether.toml"));
}

/// Runs `bellwether local` with arguments.
fn local(home: &Home, arguments: &[&str]) -> std::process::Output {
    let mut command = home.bellwether();
    command.arg("local").args(arguments).output().unwrap()
}

fn local_json(home: &Home, arguments: &[&str]) -> serde_json::Value {
    let output = local(home, arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn status_start_stop_log_and_path_tell_of_the_server() {
    let home = Home::new();
    assert_code(&local(&home, &["status"]), 1);
    assert_eq!(local_json(&home, &["status", "--json"])["running"], false);
    assert_code(&local(&home, &["stop"]), 0);
    assert!(!home.folder().exists(), "a look makes no folder");
    assert_code(&local(&home, &["log"]), 0);
    assert_code(&local(&home, &["start"]), 0);
    let server = home.server().unwrap();
    let status = local_json(&home, &["--json", "status"]);
    assert_eq!(status["running"], true);
    assert_eq!(status["pid"], server.as_raw_pid());
    assert_code(&local(&home, &["status"]), 0);
    // It is there already.
    assert_eq!(
        local_json(&home, &["start", "--json"])["pid"],
        server.as_raw_pid()
    );
    let path = text(&local(&home, &["path"]).stdout);
    assert_eq!(PathBuf::from(path.trim()), home.folder());
    std::fs::write(home.folder().join("log"), "a warning\n").unwrap();
    assert_eq!(text(&local(&home, &["log"]).stdout), "a warning\n");
    assert_eq!(local_json(&home, &["stop", "--json"])["stopped"], true);
    assert_code(&local(&home, &["status"]), 1);
    assert_code(&local(&home, &["stop"]), 0);
}

#[test]
fn stop_refuses_while_a_job_runs_and_names_it_and_force_costs_the_job_nothing() {
    let home = Home::new();
    let go = home.0.path().join("go");
    let script = format!(
        "echo held; until test -e {}; do sleep 0.01; done",
        go.display()
    );
    let mut job = Running::start(&mut home.lock(&script));
    assert_eq!(job.line().as_deref(), Some("held"));
    let server = home.server();
    let refused = local(&home, &["stop"]);
    assert_code(&refused, 1);
    let told = text(&refused.stderr);
    // The process on which `kill` works as on the job.
    let who = format!("pid {} ", job.id());
    for part in ["in use", &who, "lock /jobs/nightly", "hint: --force"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let json = local_json(&home, &["stop", "--json"]);
    assert_eq!(json["stopped"], false);
    assert_eq!(json["users"][0]["pid"], job.id().as_raw_pid());
    assert_eq!(home.server(), server);
    assert_code(&local(&home, &["stop", "--force"]), 0);
    // The job has started another one.
    until("a server is back", || {
        home.server().is_some_and(|now| Some(now) != server)
    });
    std::fs::write(go, "").unwrap();
    assert_eq!(job.code(), Some(0), "{:?}", job.errors());
}

#[test]
fn folder_depends_on_the_user_and_not_on_the_environment() {
    let path = |environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
        command.env_clear().envs(environment.iter().copied());
        let output = command.args(["local", "path"]).output().unwrap();
        assert_code(&output, 0);
        text(&output.stdout)
    };
    let usual = path(&[]);
    let (_, host) = split_user_and_host();
    let end = format!("/.local/state/bellwether/{host}\n");
    assert!(usual.ends_with(&end), "{usual}");
    assert_eq!(path(&[("HOME", "/nonexistent")]), usual);
    assert_eq!(path(&[("XDG_STATE_HOME", "/nonexistent")]), usual);
    assert_eq!(path(&[(LOCAL_FOLDER, "/elsewhere")]), "/elsewhere\n");
}

#[test]
fn another_folder_is_another_server_and_is_announced() {
    let home = Home::new();
    let other = home.0.path().join("other");
    let mut holder = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let mut command = home.bellwether();
    command
        .args(["lock", "/jobs/nightly", "--try", "--local"])
        .arg(&other);
    // Commands within the job mean the same server.
    command.args([
        "--",
        "sh",
        "-c",
        "echo $BELLWETHER_CONNECT $BELLWETHER_LOCAL",
    ]);
    let output = command.output().unwrap();
    assert_code(&output, 0);
    let other = other.to_str().unwrap();
    assert_eq!(text(&output.stdout), format!("local {other}\n"));
    let notice = text(&output.stderr);
    assert!(
        notice.contains(other) && notice.contains("other folders"),
        "{notice}"
    );
    let server = server_at(Path::new(other)).unwrap();
    kill_process(server, Signal::TERM).unwrap();
    let mut command = home.bellwether();
    command.args(["ls", "--connect", "zk1", "--local", other]);
    assert_code(&command.output().unwrap(), 2);
    let mut command = bellwether();
    assert_code(
        &command.args(["ls"]).env(LOCAL_FOLDER, "").output().unwrap(),
        2,
    );
}

/// Runs a script as a user whose home, by the password database, is `home`; `None` where that cannot be set up.
fn at_home(home: &Path, script: &str) -> Option<std::process::Output> {
    let passwd = home.join("passwd");
    std::fs::write(&passwd, format!("root:x:0:0::{}:/bin/sh\n", home.display())).unwrap();
    // A namespace of its own, in which this user is root and other files can stand in the place of the system's.
    let mut command = Command::new("unshare");
    let setup = "mount --bind \"$1\" /etc/passwd || exit 99; eval \"$2\"";
    command.args(["--map-root-user", "--mount", "sh", "-c", setup, "sh"]);
    command.arg(&passwd).arg(script);
    command.env("BW", env!("CARGO_BIN_EXE_bellwether"));
    let output = command.output().ok()?;
    let is_possible = !matches!(output.status.code(), Some(1 | 99));
    is_possible.then_some(output)
}

#[test]
fn cron_and_a_shell_exclude_each_other_whatever_their_environment() {
    let home = tempfile::tempdir().unwrap();
    // What cron sets, or less, around what a shell sets.
    let shell =
        "env -i HOME=/elsewhere XDG_STATE_HOME=/elsewhere $BW lock x --try -- true; echo code $?";
    let script = format!(
        "env -i BW=$BW $BW lock x -- /bin/sh -c '{shell}'; $BW local stop; $BW local path; exit 0"
    );
    let Some(output) = at_home(home.path(), &script) else {
        eprintln!("skipped: no namespace of its own here");
        return;
    };
    assert_code(&output, 0);
    let (_, host) = split_user_and_host();
    let folder = home.path().join(".local/state/bellwether").join(&host);
    let told = format!("code 124\n{}\n", folder.display());
    assert_eq!(text(&output.stdout), told);
    let notice = format!("on {host}; other hosts and users are not excluded");
    let errors = text(&output.stderr);
    assert!(errors.contains(&notice), "{errors}");
    let mode = std::fs::metadata(folder).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o700);
}

fn split_user_and_host() -> (String, String) {
    let both = user_and_host();
    let (user, host) = both.split_once('@').unwrap();
    (user.to_owned(), host.to_owned())
}

#[test]
fn user_without_an_entry_learns_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    command.env_clear().uid(54_321).current_dir("/");
    let output = match command.args(["lock", "x", "--", "true"]).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: others cannot run the program here: {error}");
            return;
        }
    };
    assert_code(&output, 125);
    let errors = text(&output.stderr);
    assert!(
        errors.contains("54321 has no home") && errors.contains("BELLWETHER_LOCAL"),
        "{errors}"
    );
}

#[test]
fn works_from_cron_and_from_units_without_a_home() {
    let home = Home::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    command.env_clear().envs([home.variable()]);
    let output = command
        .args(["lock", "x", "--", "/bin/echo", "ran"])
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stdout), "ran\n");
}

#[test]
fn folder_may_have_a_longer_path_than_a_socket_may() {
    let home = Home::new();
    let deep = home.0.path().join("d".repeat(200)).join("local");
    for _ in 0..2 {
        let mut command = home.lock("echo ran");
        let output = command.env(LOCAL_FOLDER, &deep).output().unwrap();
        assert_code(&output, 0);
        assert_eq!(text(&output.stdout), "ran\n");
    }
    let mut stop = bellwether();
    stop.args(["local", "stop", "--local"]).arg(&deep);
    assert_code(&stop.output().unwrap(), 0);
    assert!(!deep.join("socket").exists());
}

#[test]
fn server_waits_for_data_that_a_killed_one_releases_a_moment_later() {
    let home = Home::new();
    assert_code(&local(&home, &["start"]), 0);
    assert_code(&local(&home, &["stop"]), 0);
    let data = File::open(home.folder().join("data/bellwether.lock")).unwrap();
    data.try_lock().unwrap();
    let mut command = Running::start(&mut home.lock("true"));
    // The server has its folder, and goes on to its data.
    let folder = File::open(home.folder().join("server.lock")).unwrap();
    until("the next server is there", || {
        match folder.try_lock_shared() {
            Ok(()) => folder.unlock().is_err(),
            Err(_) => true,
        }
    });
    assert!(command.is_running());
    data.unlock().unwrap();
    assert_eq!(command.code(), Some(0), "{:?}", command.errors());
}

#[test]
fn server_that_cannot_start_is_reported_with_its_log() {
    let home = Home::new();
    std::fs::create_dir(home.folder()).unwrap();
    std::fs::set_permissions(home.folder(), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(home.folder().join("data"), "no folder").unwrap();
    let output = home.lock("true").output().unwrap();
    assert_code(&output, 125);
    let errors = text(&output.stderr);
    assert!(errors.contains("the local server cannot start"), "{errors}");
    assert!(errors.contains("local/log"), "{errors}");
    assert!(text(&local(&home, &["log"]).stdout).contains("data"));
}
