//! The folder of the local server: which one it is, and who may use it.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::support::bellwether::{
    LOCAL_FOLDER, Running, assert_code, bellwether, text, user_and_host,
};
use crate::support::home::{Home, NOBODY, server_at};

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
fn another_user_can_neither_use_nor_disturb_the_server() {
    let home = Home::new();
    // Other users may traverse the parent folder.
    std::fs::set_permissions(home.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut job = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(job.line().as_deref(), Some("held"));
    let mode = std::fs::metadata(home.folder()).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o700);
    if rustix::process::geteuid().is_root() {
        // The same folder, named by another user.
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
fn config_file_names_the_servers() {
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
    let socket = home.folder().join("socket");
    std::fs::write(&file, format!("connect = \"unix:{}\"\n", socket.display())).unwrap();
    let mut command = home.lock("echo ran");
    command.env("XDG_CONFIG_HOME", config.path());
    let output = command.env_remove(LOCAL_FOLDER).output().unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
    let output = run("connect = 5\n");
    assert_code(&output, 125);
    assert!(text(&output.stderr).contains("bellwether.toml"));
}

#[test]
fn variable_that_names_a_folder_overrides_the_servers_of_the_file() {
    let home = Home::new();
    let config = tempfile::tempdir().unwrap();
    let file = config.path().join("bellwether.toml");
    std::fs::write(file, "connect = \"127.0.0.1:1\"\n").unwrap();
    let mut command = home.lock("echo ran");
    let output = command
        .env("XDG_CONFIG_HOME", config.path())
        .output()
        .unwrap();
    assert_code(&output, 0);
    let notice = text(&output.stderr);
    assert!(
        notice.contains(home.folder().to_str().unwrap())
            && notice.contains("bellwether.toml names 127.0.0.1:1"),
        "{notice}"
    );
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
    let id = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    let end = format!("/.local/state/bellwether/{}\n", folder_name(&id));
    assert!(usual.ends_with(&end), "{usual}");
    assert_eq!(path(&[("HOME", "/nonexistent")]), usual);
    assert_eq!(path(&[("XDG_STATE_HOME", "/nonexistent")]), usual);
    assert_eq!(path(&[(LOCAL_FOLDER, "/elsewhere")]), "/elsewhere\n");
}

#[test]
fn another_folder_is_another_server() {
    let home = Home::new();
    let other = home.0.path().join("other");
    let mut holder = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let mut command = home.bellwether();
    command
        .args(["lock", "/jobs/nightly", "--try", "--local"])
        .arg(&other);
    // Commands within the job use the same server.
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

/// Runs a script as a user whose home in the password database is `home`; `None` where that cannot be set up.
fn at_home(home: &Path, script: &str) -> Option<std::process::Output> {
    let passwd = home.join("passwd");
    std::fs::write(&passwd, format!("root:x:0:0::{}:/bin/sh\n", home.display())).unwrap();
    // A separate namespace, in which this user is root and other files can be mounted over those of the system.
    let mut command = Command::new("unshare");
    let setup = "mount --bind \"$1\" /etc/passwd || exit 99; eval \"$2\"";
    command.args(["--map-root-user", "--mount", "--uts"]);
    command.args(["sh", "-c", setup, "sh"]);
    command.arg(&passwd).arg(script);
    command.env("BW", env!("CARGO_BIN_EXE_bellwether"));
    let output = command.output().ok()?;
    let is_possible = !matches!(output.status.code(), Some(1 | 99));
    is_possible.then_some(output)
}

#[test]
fn cron_and_a_shell_exclude_each_other_whatever_their_environment() {
    let home = tempfile::tempdir().unwrap();
    // What cron sets, or less, compared with what a shell sets.
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
    let id = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    let folders = home.path().join(".local/state/bellwether");
    let folder = folders.join(folder_name(&id));
    let told = format!("code 124\n{}\n", folder.display());
    assert_eq!(text(&output.stdout), told);
    let errors = text(&output.stderr);
    assert!(!errors.contains("not excluded"), "{errors}");
    let mode = std::fs::metadata(folder).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o700);
}

const MACHINE_ID: &str = "/etc/machine-id";

/// The folder of a machine with this id. In a container the host name counts.
fn folder_name(id: &str) -> String {
    let marks = [
        "/.dockerenv",
        "/run/.containerenv",
        "/run/host/container-manager",
    ];
    if id.is_empty() || marks.iter().any(|mark| Path::new(mark).exists()) {
        return split_user_and_host().1;
    }
    format!("machine-{}", &id[..12])
}

/// As [`at_home`], on a machine with this id that is no container, except perhaps for what is below `/run`.
fn on_machine(home: &Path, id: &str, script: &str) -> Option<std::process::Output> {
    let root = home.join("root");
    std::fs::create_dir_all(&root).unwrap();
    let (id_file, script_file) = (home.join("machine-id"), home.join("script"));
    std::fs::write(&id_file, id).unwrap();
    std::fs::write(&script_file, script).unwrap();
    let (root, id, script) = (root.display(), id_file.display(), script_file.display());
    // All top folders, without the files beside them.
    let setup = format!(
        "mount --bind {id} {MACHINE_ID} || exit 99
         for top in /*; do
             if [ -L $top ]; then cp -Pf $top {root}
             elif [ -d $top ]; then mkdir -p {root}$top && mount --rbind $top {root}$top || exit 99
             fi
         done
         exec chroot {root} /bin/sh {script}"
    );
    at_home(home, &setup)
}

#[test]
fn renamed_host_keeps_its_folder_and_other_machines_have_others() {
    let home = tempfile::tempdir().unwrap();
    let names = |id: &str| {
        let script = "$BW local path; hostname renamed; $BW local path";
        let output = on_machine(home.path(), id, script)?;
        assert_code(&output, 0);
        let paths = text(&output.stdout);
        let names = paths.lines().map(|path| path.rsplit('/').next().unwrap());
        Some(names.map(str::to_owned).collect::<Vec<_>>())
    };
    let Some(one) = names(&"1".repeat(32)) else {
        eprintln!("skipped: no namespace of its own here");
        return;
    };
    assert_eq!(one, ["machine-111111111111"; 2]);
    assert_eq!(names(&"2".repeat(32)).unwrap(), ["machine-222222222222"; 2]);
    let host = split_user_and_host().1;
    assert_eq!(names("").unwrap(), [&*host, "renamed"]);
}

#[test]
fn folder_that_is_named_after_the_host_is_used_further() {
    let home = tempfile::tempdir().unwrap();
    let folders = home.path().join(".local/state/bellwether");
    let by_host = folders.join(split_user_and_host().1);
    std::fs::create_dir_all(&by_host).unwrap();
    let only_owner = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&by_host, only_owner).unwrap();
    // The first server runs on while the link is made, and another one continues there.
    let script = format!(
        "$BW create -p old x --local {}; $BW get old; hostname renamed; $BW get old; $BW local stop; $BW get old; $BW local stop",
        by_host.display()
    );
    let Some(output) = on_machine(home.path(), &"1".repeat(32), &script) else {
        eprintln!("skipped: no namespace of its own here");
        return;
    };
    assert_code(&output, 0);
    let said = text(&output.stdout);
    assert_eq!(said.matches('x').count(), 3, "{said}");
    let link = std::fs::read_link(folders.join("machine-111111111111")).unwrap();
    assert_eq!(link.as_os_str(), by_host.file_name().unwrap());
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
