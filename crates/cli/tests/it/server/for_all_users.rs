//! One server for all users of a host, on a Unix socket that a configuration file names.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::bellwether::{LOCAL_FOLDER, Running, assert_code, bellwether, serve, text};
use crate::support::home::NOBODY;

/// A command of a user whose settings name the servers.
fn command(config: &Path, user: u32, arguments: &[&str]) -> Command {
    let mut command = bellwether();
    command.args(arguments).current_dir("/");
    command.env_remove(LOCAL_FOLDER);
    command.env("XDG_CONFIG_HOME", config).uid(user);
    command
}

/// `None` where other users cannot run the program.
fn run(config: &Path, user: u32, arguments: &[&str]) -> Option<Output> {
    match command(config, user, arguments).output() {
        Ok(output) if output.status.code() != Some(126) => Some(output),
        _ => {
            eprintln!("skipped: others cannot run the program here");
            None
        }
    }
}

/// A folder that every user may enter, with a configuration file that names the socket in it.
fn folder_with_socket() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let socket = format!("unix:{}/socket", folder.path().display());
    std::fs::write(
        folder.path().join("bellwether.toml"),
        format!("connect = \"{socket}\"\n"),
    )
    .unwrap();
    (folder, socket)
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can be another user");
    }
    is_root
}

#[test]
fn socket_of_one_user_refuses_others_and_says_what_to_do() {
    if !is_root() {
        return;
    }
    let (folder, socket) = folder_with_socket();
    let _server = serve(bellwether().args(["serve", "--listen", &socket]));
    assert_code(&run(folder.path(), 0, &["ls", "/"]).unwrap(), 0);
    let Some(refused) = run(folder.path(), NOBODY, &["ls", "/"]) else {
        return;
    };
    assert_code(&refused, 125);
    let told = text(&refused.stderr);
    assert!(told.contains("Permission denied"), "{told}");
    assert!(told.contains("--unix-users all"), "{told}");
}

#[test]
fn users_exclude_each_other_and_are_known_by_their_ids() {
    if !is_root() {
        return;
    }
    let (folder, socket) = folder_with_socket();
    let mut server = bellwether();
    let (_server, addresses) =
        serve(server.args(["serve", "--listen", &socket, "--unix-users", "all"]));
    assert_eq!(addresses, std::slice::from_ref(&socket));
    let config = folder.path();

    let script = [
        "lock",
        "jobs/nightly",
        "--",
        "sh",
        "-c",
        "echo held; exec tail -f /dev/null",
    ];
    let mut holder = Running::start(&mut command(config, 0, &script));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let lock = ["lock", "jobs/nightly", "--try", "--", "true"];
    let Some(excluded) = run(config, NOBODY, &lock) else {
        return;
    };
    assert_code(&excluded, 124);
    // There is no notice of a local server, whose locks exclude no other user.
    let told = text(&excluded.stderr);
    assert!(told.contains("/jobs/nightly is held by root@"), "{told}");

    assert_code(
        &run(config, 0, &["create", "own", "x", "--acl", "unix:0:cdrwa"]).unwrap(),
        0,
    );
    assert_code(&run(config, 0, &["get", "own"]).unwrap(), 0);
    let refused = run(config, NOBODY, &["get", "own"]).unwrap();
    assert_code(&refused, 1);
    assert!(text(&refused.stderr).contains("access denied"));
    let given = format!("unix:{NOBODY}:r,unix:0:cdrwa");
    assert_code(&run(config, 0, &["acl", "set", "own", &given]).unwrap(), 0);
    let read = run(config, NOBODY, &["get", "own"]).unwrap();
    assert_eq!(text(&read.stdout), "x");
}
