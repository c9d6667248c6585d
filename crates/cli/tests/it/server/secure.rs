//! `bellwether serve` with TLS, users of the host, SASL, an audit log and backups, and the command as its client.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bellwether_testkit::certificates::{Authority, Files};
use rustix::process::Signal;

use crate::support::bellwether::{assert_code, bellwether, serve, text};

#[test]
fn one_server_for_certificates_passwords_and_users_of_the_host() {
    let (authority, files) = (Authority::new("authority"), Files::new());
    let ca = files.put("ca.pem", &authority.pem);
    let cert = files.put(
        "server.pem",
        &authority.issue("server", &["127.0.0.1"]).store(),
    );
    let alice = authority.issue("alice", &[]);
    let (alice_cert, alice_key) = (
        files.put("a.pem", &alice.certificate),
        files.put("a.key", &alice.key),
    );
    let users = files.put("users", "bob:sword fish\n");
    let password = files.put("password", "sword fish\n");
    let (socket, audit) = (files.path("socket"), files.path("audit.log"));
    let listen = format!("unix:{}", socket.display());
    let mut serving = bellwether();
    serving.args([
        "serve",
        "--listen",
        &listen,
        "--tls-listen",
        "127.0.0.1:0",
        "--enforce-auth",
        "unix,x509,sasl",
    ]);
    serving.args(["--client-auth", "want", "--session-passwords", "secret"]);
    for (flag, file) in [
        ("--cert", &cert),
        ("--client-ca", &ca),
        ("--sasl-users", &users),
        ("--audit-log", &audit),
    ] {
        serving.arg(flag).arg(file);
    }
    let (mut server, addresses) = serve(&mut serving);
    let [secure, unix] = &addresses[..] else {
        panic!("{addresses:?}");
    };
    assert_eq!(*unix, listen);
    let secure = secure.strip_suffix(" (TLS)").unwrap();
    let run = |address: &str, more: &[&dyn AsRef<Path>], command: &[&str]| {
        let mut client = bellwether();
        client.args(command).args(["-c", address]);
        client.args(more.iter().map(|one| one.as_ref()));
        client.output().unwrap()
    };
    let own = format!(
        "unix:{}:cdrwa,x509:CN=alice:r,sasl:bob:r",
        rustix::process::geteuid().as_raw()
    );
    assert_code(&run(unix, &[], &["create", "/jobs", "x", "--acl", &own]), 0);
    let trust: [&dyn AsRef<Path>; 2] = [&"--tls-ca", &ca];
    let by_certificate: Vec<&dyn AsRef<Path>> = [
        &trust[..],
        &[&"--tls-cert", &alice_cert, &"--tls-key", &alice_key],
    ]
    .concat();
    let by_password: Vec<&dyn AsRef<Path>> = [
        &trust[..],
        &[&"--sasl", &"bob", &"--sasl-password-file", &password],
    ]
    .concat();
    for proof in [&by_certificate, &by_password] {
        assert_code(&run(secure, proof, &["get", "/jobs"]), 0);
        let refused = run(secure, proof, &["set", "/jobs", "y"]);
        assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    }
    let anonymous = run(secure, &trust, &["get", "/jobs"]);
    assert_ne!(anonymous.status.code(), Some(0), "{anonymous:?}");
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    let log = fs::read_to_string(&audit).unwrap();
    assert!(
        log.contains("\"x509:CN=alice\"")
            && log.contains("\"operation\":\"create\",\"path\":\"/jobs\""),
        "{log}"
    );
    assert!(!log.contains("sword"), "{log}");
}

#[test]
fn backup_by_signal_is_restored_by_the_next_server() {
    let files = Files::new();
    let (data, backups) = (files.path("data"), files.path("backups"));
    fs::create_dir(&backups).unwrap();
    let mut serving = bellwether();
    serving
        .args(["serve", "-l", "127.0.0.1:0", "--data"])
        .arg(&data);
    let (mut server, addresses) = serve(serving.arg("--backups").arg(&backups));
    let mut create = bellwether();
    create.args(["create", "-c", &addresses[0], "/kept", "x"]);
    assert_code(&create.output().unwrap(), 0);
    server.signal(Signal::USR1);
    let told = server.error_line().unwrap();
    let file = told.rsplit(": ").next().unwrap().to_owned();
    assert!(
        told.contains("backup of") && fs::exists(&file).unwrap(),
        "{told}"
    );
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));

    let mut serving = bellwether();
    serving.args(["serve", "-l", "127.0.0.1:0", "--restore", &file, "--data"]);
    let (mut server, addresses) = serve(serving.arg(files.path("new")));
    let mut get = bellwether();
    assert_code(
        &get.args(["get", "-c", &addresses[0], "/kept"])
            .output()
            .unwrap(),
        0,
    );
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    // Not twice to the same folder.
    let mut serving = bellwether();
    serving.args(["serve", "-l", "127.0.0.1:0", "--restore", &file, "--data"]);
    assert_code(&serving.arg(files.path("new")).output().unwrap(), 125);
}

#[test]
fn folder_of_backups_is_checked_before_the_server_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("file"));
    fs::create_dir_all(data.join("version-2")).unwrap();
    fs::write(&file, "").unwrap();
    // Where no user, root included, can create anything.
    let unwritable = Path::new("/proc/backups");
    for (backups, code, expected) in [
        (file.as_path(), 2, "is not a folder"),
        (&data, 2, "is the data folder"),
        (&data.join("version-2/backups"), 2, "is the data folder"),
        (&folder.path().join("./data"), 2, "is the data folder"),
        (unwritable, 125, "cannot write backups to /proc/backups"),
    ] {
        let mut command = bellwether();
        command.args(["serve", "-l", "127.0.0.1:0", "--data"]);
        let output = command.arg(&data).arg("--backups").arg(backups).output();
        let output = output.unwrap();
        assert_code(&output, code);
        let errors = text(&output.stderr);
        assert!(errors.contains(expected), "{errors}");
        assert!(errors.contains("hint: "), "{errors}");
    }

    assert_eq!(fs::read_dir(data.join("version-2")).unwrap().count(), 0);
    let backups = folder.path().join("new/backups");
    let mut command = bellwether();
    command.args(["serve", "-l", "127.0.0.1:0", "--data"]);
    let (mut server, _) = serve(command.arg(&data).arg("--backups").arg(&backups));
    let mode = fs::metadata(&backups).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(fs::read_dir(&backups).unwrap().count(), 0);
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}
