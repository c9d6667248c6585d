//! Jobs under `bellwether lock` when things go wrong: scenarios 84 to 89, 97 and 105.
//!
//! Every process of a job here holds an flock, whatever its group or session. The next holder tries that flock: if it fails, some process
//! of the job was still running when the server granted the lock.

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bellwether_testkit::{Cut, Direction};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::bellwether::{
    LOCAL_FOLDER, Running, assert_code, bellwether, bellwether_without_hangups, child_of, holding,
    ignores_hangups, serve, text, until,
};
use crate::support::line::{Line, through_proxy};

on_both_engines! {
    t84_whole_family_of_a_job_ends,
    t85_job_is_gone_before_the_next_is_granted_when_the_connection_is_silent,
    t85_job_is_gone_before_the_next_is_granted_when_the_connection_is_cut,
    t86_signals_are_passed_on_and_waited_for_before_the_release,
    t87_job_is_stopped_when_the_session_is_ended,
    t88_job_is_gone_when_the_front_is_killed,
    t88_job_is_gone_when_the_keeper_is_killed,
    t88_job_is_gone_before_the_next_is_granted_when_the_keeper_is_stopped,
    t88_stopped_front_loses_nothing,
    t88_waiter_is_gone_when_its_front_is_killed,
    t97_job_is_gone_before_the_next_is_granted_when_front_and_keeper_are_killed,
    t89_exit_code_and_flags_of_the_command_are_kept,
    t89_command_killed_by_a_signal_is_128_and_its_number,
    t89_command_that_cannot_be_run_is_126_and_missing_is_127,
    background_process_of_a_job_that_has_ended_is_left_alone,
    stopped_job_is_ended_when_the_lock_is_lost,
    signal_that_was_ignored_from_the_start_stays_ignored,
    job_is_gone_before_the_next_is_granted_when_its_hold_is_broken,
    job_that_ends_within_the_grace_of_a_break_is_clean,
    job_is_asked_to_end_by_a_break_though_nobody_reads_stderr,
    waiter_keeps_its_place_though_nobody_reads_stderr,
    break_is_not_called_off_once_the_job_is_told,
    break_of_a_job_is_recorded,
    commands_within_a_job_use_its_servers,
    lost_connection_is_announced_with_the_time_that_is_left,
}

#[test]
fn t105_server_that_hangs_is_announced_like_one_that_is_gone() {
    let mut command = bellwether();
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let (server, addresses) = serve(command.args(["--max-session-timeout", "120s"]));
    let scene = Scene::at(&addresses[0]);
    let mut go = scene.fifo();
    let script = "echo held; read x <go; exit 6";
    // The heartbeat would notice it after 20 s, a sixth of it, at the earliest.
    let options = ["--session-timeout", "120s"];
    let mut job = Running::start(&mut scene.lock(&scene.address, &options, script));
    assert_eq!(job.line().as_deref(), Some("held"));
    let asked = Instant::now();
    server.signal(Signal::STOP);
    let told = job.error_line().unwrap();
    assert!(told.starts_with("bellwether: no server for "), "{told}");
    let taken = asked.elapsed();
    server.signal(Signal::CONT);
    let again = job.error_line().unwrap();
    assert!(again.contains("a server answers again after "), "{again}");
    go.write_all(b"\n").unwrap();
    assert_eq!(job.code(), Some(6), "{:?}", job.errors());
    assert!(taken < Duration::from_secs(20), "{taken:?}");
}

/// Folder for the files of a job.
struct Scene {
    folder: TempDir,
    address: String,
}

impl Scene {
    fn at(address: &str) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            address: address.to_owned(),
        }
    }

    fn lock(&self, address: &str, options: &[&str], script: &str) -> Command {
        self.lock_by(bellwether(), address, options, script)
    }

    fn lock_by(
        &self,
        mut command: Command,
        address: &str,
        options: &[&str],
        script: &str,
    ) -> Command {
        command
            .args(["lock", "--connect", address])
            .args(options)
            .args(["/jobs/nightly", "--", "sh", "-c", script])
            .current_dir(self.folder.path());
        command
    }

    /// A job that ignores SIGTERM, and so does its child; another process of it has left its session.
    fn stubborn_job(&self, address: &str) -> Running {
        let script = "exec 9>alive; flock -n 9 || exit 99; trap '' TERM
            setsid tail -f /dev/null & echo held; tail -f /dev/null; echo never";
        // A tenth of it is the time the system has to run the processes that stop the job.
        let options = ["--session-timeout", "6s"];
        let mut job = Running::start(&mut self.lock(address, &options, script));
        assert_eq!(job.line().as_deref(), Some("held"));
        job
    }

    /// A contender that already waits, and exits with 0 if no process of the job is left.
    fn next(&self) -> Running {
        let script = "flock -n alive true || exit 99";
        let mut next = Running::start(&mut self.lock(&self.address, &[], script));
        let waits = next.error_line().unwrap();
        assert!(waits.contains("waiting for"), "{waits}");
        next
    }

    #[track_caller]
    fn assert_free(&self) {
        let output = self.lock(&self.address, &["--try"], "true").output();
        assert_code(&output.unwrap(), 0);
    }

    #[track_caller]
    fn assert_held(&self) {
        let output = self.lock(&self.address, &["--try"], "true").output();
        assert_code(&output.unwrap(), 124);
    }

    /// `bellwether revoke` or `break`, to its end.
    fn turn_to_the_holder(&self, verb: &str, options: &[&str]) -> Output {
        let mut command = bellwether();
        command.args([verb, "--yes", "--connect", &self.address, "/jobs/nightly"]);
        command.args(options).output().unwrap()
    }

    fn line(&self) -> Line<'_> {
        Line::at(&self.address, "/jobs/nightly")
    }

    /// A fifo `go`, open in both directions, so that opening it does not block.
    fn fifo(&self) -> File {
        let path = self.folder.path().join("go");
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let fifo = OpenOptions::new().read(true).write(true).open(path);
        fifo.unwrap()
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

fn t84_whole_family_of_a_job_ends(address: &str) {
    let scene = Scene::at(address);
    let mut job = scene.stubborn_job(address);
    scene.line().delete();
    // Every process of the job has stdout open.
    assert_eq!(job.line(), None);
    assert_eq!(job.code(), Some(123));
}

fn t85_job_is_gone_before_the_next_is_granted_when_the_connection_is_silent(address: &str) {
    let scene = Scene::at(address);
    let (_runtime, proxy, through) = through_proxy(&scene.address);
    let mut job = scene.stubborn_job(&through);
    let mut next = scene.next();
    proxy.hold(Direction::Both);
    assert_eq!(next.code(), Some(0), "{:?}", next.errors());
    assert_eq!(job.code(), Some(123));
}

fn t85_job_is_gone_before_the_next_is_granted_when_the_connection_is_cut(address: &str) {
    let scene = Scene::at(address);
    let (runtime, proxy, through) = through_proxy(&scene.address);
    let mut job = scene.stubborn_job(&through);
    let mut next = scene.next();
    proxy.refuse(true);
    runtime.block_on(proxy.cut(Cut::Reset));
    assert_eq!(next.code(), Some(0), "{:?}", next.errors());
    assert_eq!(job.code(), Some(123));
}

fn t86_signals_are_passed_on_and_waited_for_before_the_release(address: &str) {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let scene = Scene::at(address);
        let mut go = scene.fifo();
        // A trap interrupts `wait` at once.
        let script = format!(
            "trap 'kill $!; echo got; read x <go; exit 5' {name}; tail -f /dev/null & echo ready; wait; echo never"
        );
        let mut job = Running::start(&mut scene.lock(address, &[], &script));
        assert_eq!(job.line().as_deref(), Some("ready"));
        job.signal(signal);
        assert_eq!(job.line().as_deref(), Some("got"), "{name}");
        scene.assert_held();
        go.write_all(b"\n").unwrap();
        assert_eq!(job.code(), Some(5), "{name}");
        scene.assert_free();
    }
}

fn t87_job_is_stopped_when_the_session_is_ended(address: &str) {
    let scene = Scene::at(address);
    let mut job = scene.stubborn_job(address);
    scene.line().end_session();
    assert_eq!(job.line(), None);
    assert_eq!(job.code(), Some(123));
}

fn t88_job_is_gone_when_the_front_is_killed(address: &str) {
    let scene = Scene::at(address);
    let mut job = scene.stubborn_job(address);
    let mut next = scene.next();
    job.signal(Signal::KILL);
    assert_eq!(job.line(), None);
    assert_eq!(next.code(), Some(0), "{:?}", next.errors());
}

fn t88_job_is_gone_when_the_keeper_is_killed(address: &str) {
    let scene = Scene::at(address);
    let mut job = scene.stubborn_job(address);
    let mut next = scene.next();
    kill_process(child_of(job.id()), Signal::KILL).unwrap();
    assert_eq!(job.line(), None);
    assert_eq!(job.code(), Some(123));
    assert_eq!(next.code(), Some(0), "{:?}", next.errors());
}

fn t88_job_is_gone_before_the_next_is_granted_when_the_keeper_is_stopped(address: &str) {
    let scene = Scene::at(address);
    let mut job = scene.stubborn_job(address);
    let mut next = scene.next();
    kill_process(child_of(job.id()), Signal::STOP).unwrap();
    assert_eq!(next.code(), Some(0), "{:?}", next.errors());
    assert_eq!(job.line(), None);
    assert_eq!(job.code(), Some(123));
}

fn t88_stopped_front_loses_nothing(address: &str) {
    let scene = Scene::at(address);
    let script = "echo held; read x <go; echo $x";
    let mut go = scene.fifo();
    let mut job = Running::start(&mut scene.lock(address, &["--session-timeout", "4s"], script));
    assert_eq!(job.line().as_deref(), Some("held"));
    job.signal(Signal::STOP);
    // Longer than the session timeout.
    let waits = scene.lock(address, &["--wait", "6s"], "true").output();
    assert_code(&waits.unwrap(), 124);
    job.signal(Signal::CONT);
    scene.assert_held();
    go.write_all(b"done\n").unwrap();
    assert_eq!(job.line().as_deref(), Some("done"));
    assert_eq!(job.code(), Some(0), "{:?}", job.errors());
}

fn t88_waiter_is_gone_when_its_front_is_killed(address: &str) {
    let scene = Scene::at(address);
    let mut holder =
        Running::start(&mut scene.lock(address, &[], "echo held; exec tail -f /dev/null"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let mut waiter = scene.next();
    waiter.signal(Signal::KILL);
    until("the waiter has left the line", || {
        scene.line().contenders().len() == 1
    });
    assert_eq!(waiter.line(), None);
}

fn t97_job_is_gone_before_the_next_is_granted_when_front_and_keeper_are_killed(address: &str) {
    let scene = Scene::at(address);
    let script = "exec 9>alive; flock -n 9 || exit 99; echo $$; exec tail -f /dev/null";
    let options = ["--session-timeout", "4s"];
    let mut job = Running::start(&mut scene.lock(address, &options, script));
    let process = Pid::from_raw(job.line().unwrap().parse().unwrap()).unwrap();
    let mut next = scene.next();
    // So that it cannot do anything between the two.
    job.signal(Signal::STOP);
    kill_process(child_of(job.id()), Signal::KILL).unwrap();
    job.signal(Signal::KILL);
    let code = next.code();
    // It is gone, unless this fails.
    let _ = kill_process(process, Signal::KILL);
    assert_eq!(code, Some(0));
}

fn t89_exit_code_and_flags_of_the_command_are_kept(address: &str) {
    let mut command = bellwether();
    command.args([
        "lock",
        "--connect",
        address,
        "x",
        "--",
        "sh",
        "-c",
        "echo \"$1\"; exit 7",
        "sh",
        "--wait",
    ]);
    let output = command.output().unwrap();
    assert_code(&output, 7);
    assert_eq!(text(&output.stdout), "--wait\n");
    assert_eq!(text(&output.stderr), "");
}

fn t89_command_killed_by_a_signal_is_128_and_its_number(address: &str) {
    let scene = Scene::at(address);
    let output = scene.lock(address, &[], "kill -KILL $$").output();
    assert_code(&output.unwrap(), 137);
}

fn t89_command_that_cannot_be_run_is_126_and_missing_is_127(address: &str) {
    let run = |program: &str| {
        bellwether()
            .args(["lock", "--connect", address, "/x", "--", program])
            .output()
            .unwrap()
    };
    assert_code(&run("/"), 126);
    assert_code(&run("/no/such/program"), 127);
}

fn background_process_of_a_job_that_has_ended_is_left_alone(address: &str) {
    let scene = Scene::at(address);
    let script = "tail -f /dev/null >/dev/null 2>&1 & echo $! >daemon";
    let output = scene.lock(address, &[], script).output().unwrap();
    assert_code(&output, 0);
    let daemon: i32 = scene.file("daemon").trim().parse().unwrap();
    let daemon = Pid::from_raw(daemon).unwrap();
    assert!(Path::new(&format!("/proc/{daemon}")).exists());
    kill_process(daemon, Signal::KILL).unwrap();
}

fn stopped_job_is_ended_when_the_lock_is_lost(address: &str) {
    let scene = Scene::at(address);
    let script = "trap 'echo cleaned; exit' TERM; echo held; kill -STOP $$; echo never";
    let mut job = Running::start(&mut scene.lock(address, &[], script));
    assert_eq!(job.line().as_deref(), Some("held"));
    scene.line().delete();
    assert_eq!(job.line().as_deref(), Some("cleaned"));
    assert_eq!(job.code(), Some(123));
}

fn signal_that_was_ignored_from_the_start_stays_ignored(address: &str) {
    let scene = Scene::at(address);
    let mut go = scene.fifo();
    // The job gets it from itself, and from outside.
    let script = "kill -HUP $$; echo held; read x <go; echo $x";
    let mut lock = scene.lock_by(bellwether_without_hangups(), address, &[], script);
    let mut job = Running::start(&mut lock);
    assert_eq!(job.line().as_deref(), Some("held"));
    job.signal(Signal::HUP);
    kill_process(child_of(job.id()), Signal::HUP).unwrap();
    assert!(ignores_hangups(job.id()) && ignores_hangups(child_of(job.id())));
    go.write_all(b"done\n").unwrap();
    assert_eq!(job.line().as_deref(), Some("done"), "{:?}", job.errors());
    assert_eq!(job.code(), Some(0));
}

fn job_is_gone_before_the_next_is_granted_when_its_hold_is_broken(address: &str) {
    let scene = Scene::at(address);
    let mut job = scene.stubborn_job(address);
    let mut next = scene.next();
    // A revoke first, as people do.
    assert_code(&scene.turn_to_the_holder("revoke", &[]), 0);
    let asked = job.error_line().unwrap();
    assert!(
        asked.contains("asked to release /jobs/nightly by "),
        "{asked}"
    );
    let broken = scene.turn_to_the_holder("break", &["--grace", "10s", "-m", "please"]);
    assert_code(&broken, 0);
    assert!(text(&broken.stdout).starts_with("gone "), "{broken:?}");
    assert_eq!(next.code(), Some(0), "{:?}", next.errors());
    assert_eq!(job.code(), Some(123));
    let told = job.errors();
    assert!(told[0].ends_with(" within 10s: please"), "{told:?}");
}

fn job_that_ends_within_the_grace_of_a_break_is_clean(address: &str) {
    let scene = Scene::at(address);
    let script = "echo held; read x <go; exit 4";
    let mut go = scene.fifo();
    let mut job = Running::start(&mut scene.lock(address, &[], script));
    assert_eq!(job.line().as_deref(), Some("held"));
    std::thread::scope(|threads| {
        let broken = threads.spawn(|| scene.turn_to_the_holder("break", &["--grace", "60s"]));
        let told = job.error_line().unwrap();
        assert!(
            told.contains("asked to release /jobs/nightly by "),
            "{told}"
        );
        go.write_all(b"\n").unwrap();
        assert_code(&broken.join().unwrap(), 0);
    });
    assert_eq!(job.code(), Some(4));
    let mut next = scene.lock(address, &["--try"], "echo $BELLWETHER_PREVIOUS");
    assert_eq!(text(&next.output().unwrap().stdout), "clean\n");
}

fn job_is_asked_to_end_by_a_break_though_nobody_reads_stderr(address: &str) {
    let scene = Scene::at(address);
    let script = "trap 'echo asked; exit 4' TERM; echo held; tail -f /dev/null & wait";
    let (_unread, stderr) = full_pipe();
    let mut lock = scene.lock(address, &[], script);
    lock.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut job = Running::follow(lock.stderr(stderr));
    assert_eq!(job.line().as_deref(), Some("held"));
    let broken = scene.turn_to_the_holder("break", &["--grace", "5s"]);
    assert_code(&broken, 0);
    assert_eq!(job.line().as_deref(), Some("asked"));
    assert_eq!(job.code(), Some(123));
}

fn waiter_keeps_its_place_though_nobody_reads_stderr(address: &str) {
    let scene = Scene::at(address);
    let mut go = scene.fifo();
    let mut holder = Running::start(&mut scene.lock(address, &[], "echo held; read x <go"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let (_unread, stderr) = full_pipe();
    let mut lock = scene.lock(address, &["--session-timeout", "2s"], "echo mine");
    lock.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut waiter = Running::follow(lock.stderr(stderr));
    until("it waits", || scene.line().contenders().len() == 2);
    // Its first notice is due after a second. Without heartbeats, its session would expire meanwhile.
    let other = scene.lock(address, &["--wait", "10s"], "true").output();
    assert_code(&other.unwrap(), 124);
    assert_eq!(scene.line().contenders().len(), 2);
    go.write_all(b"\n").unwrap();
    assert_eq!(waiter.line().as_deref(), Some("mine"));
    assert_eq!(waiter.code(), Some(0));
}

fn break_is_not_called_off_once_the_job_is_told(address: &str) {
    let scene = Scene::at(address);
    let mut job = holding(address, &["lock", "/jobs/nightly"]);
    let mut command = bellwether();
    command.args(["break", "--yes", "--grace", "5s", "--connect", address]);
    let mut breaking = Running::start(command.arg("/jobs/nightly"));
    assert!(job.error_line().unwrap().ends_with(" within 5s"));
    breaking.signal(Signal::INT);
    assert_eq!(breaking.code(), Some(130));
    assert_eq!(job.code(), Some(123));
    scene.assert_free();
}

fn break_of_a_job_is_recorded(address: &str) {
    let scene = Scene::at(address);
    let mut job = holding(address, &["lock", "/jobs/nightly"]);
    let broken = scene.turn_to_the_holder("break", &["--grace", "5s", "-m", "the host goes down"]);
    assert_code(&broken, 0);
    assert_eq!(job.code(), Some(123));
    let record = bellwether()
        .args(["get", "/jobs/nightly/broken", "--connect", address])
        .output()
        .unwrap();
    assert_code(&record, 0);
    let record: serde_json::Value = serde_json::from_slice(&record.stdout).unwrap();
    assert_eq!(record["message"], "the host goes down", "{record}");
    assert_eq!(record["who"]["command"], "sh", "{record}");
    assert!(record["by"]["pid"].is_u64(), "{record}");
}

fn lost_connection_is_announced_with_the_time_that_is_left(address: &str) {
    let scene = Scene::at(address);
    let (runtime, proxy, through) = through_proxy(&scene.address);
    let mut go = scene.fifo();
    let script = "echo held; read x <go; exit 6";
    let options = ["--session-timeout", "20s"];
    let mut job = Running::start(&mut scene.lock(&through, &options, script));
    assert_eq!(job.line().as_deref(), Some("held"));
    proxy.refuse(true);
    runtime.block_on(proxy.cut(Cut::Reset));
    let told = job.error_line().unwrap();
    assert!(
        told.starts_with("bellwether: no server for ")
            && told.contains("s; the command will be stopped in "),
        "{told}"
    );
    proxy.refuse(false);
    let told = job.error_line().unwrap();
    assert!(told.contains("a server answers again after "), "{told}");
    go.write_all(b"\n").unwrap();
    assert_eq!(job.code(), Some(6), "{:?}", job.errors());
}

fn commands_within_a_job_use_its_servers(address: &str) {
    let scene = Scene::at(address);
    let output = scene
        .lock(address, &[], "echo $BELLWETHER_CONNECT")
        .output();
    assert_eq!(text(&output.unwrap().stdout).trim(), address);
    // From the user's file.
    let config = format!("connect = \"{address}\"");
    std::fs::write(scene.folder.path().join("bellwether.toml"), config).unwrap();
    let mut command = bellwether();
    command
        .args(["lock", "x", "--", "sh", "-c", "echo $BELLWETHER_CONNECT"])
        .env_remove(LOCAL_FOLDER)
        .env("XDG_CONFIG_HOME", scene.folder.path());
    assert_eq!(text(&command.output().unwrap().stdout).trim(), address);
}

/// A full pipe, whose reader has stopped reading.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}
