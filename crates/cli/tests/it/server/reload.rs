//! SIGHUP: a running server reads its settings again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use bellwether_testkit::certificates::{Authority, Files};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::bellwether::{Running, assert_code, bellwether, serve};
use crate::support::shell::Shell;

/// A server with a configuration file.
struct Server {
    folder: TempDir,
    running: Running,
    address: String,
}

impl Server {
    fn start(lines: &str) -> Self {
        let folder = TempDir::new().unwrap();
        configure(&folder, lines);
        let mut command = bellwether();
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]);
        let (running, addresses) = serve(command.arg(file_of(&folder)));
        Self {
            folder,
            running,
            address: addresses[0].clone(),
        }
    }

    /// Changes the file, and returns what the server says about it.
    fn reload(&mut self, lines: &str) -> String {
        configure(&self.folder, lines);
        self.running.signal(Signal::HUP);
        self.running.error_line().unwrap()
    }

    /// Its answer to a four-letter word.
    fn word(&self, word: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(word.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn file_of(folder: &TempDir) -> PathBuf {
    folder.path().join("zoo.cfg")
}

fn configure(folder: &TempDir, lines: &str) {
    let data = folder.path().join("data");
    let text = format!("clientPort=1\ndataDir={}\n{lines}\n", data.display());
    fs::write(file_of(folder), text).unwrap();
}

#[test]
fn changed_settings_are_applied_and_those_that_cannot_be_are_named() {
    let mut server = Server::start("snapCount=1000");
    assert!(server.word("ruok").contains("not in the whitelist"));
    let told = server.reload("snapCount=2000\n4lw.commands.whitelist=ruok\nmaxClientCnxns=7");
    assert!(
        told.contains("snapCount") && told.contains("only a restart"),
        "{told}"
    );
    let told = server.running.error_line().unwrap();
    let changed = "changed: maxClientCnxns, 4lw.commands.whitelist";
    assert!(told.contains(changed), "{told}");
    assert_eq!(server.word("ruok"), "imok");
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.code(), Some(0));
}

#[test]
fn settings_that_cannot_be_used_change_nothing() {
    let mut server = Server::start("4lw.commands.whitelist=ruok");
    for (lines, why) in [
        ("tickTime=soon", "tickTime is \"soon\""),
        ("fips-mode=true", "does not support fips-mode"),
        (
            "bellwether.saslUsers=/no/such/file\nmaxClientCnxns=x",
            "maxClientCnxns",
        ),
        ("bellwether.log=a=b=c", "bellwether.log is"),
    ] {
        let told = server.reload(lines);
        assert!(told.contains("the settings stay as they were"), "{told}");
        assert!(told.contains(why), "{told}");
        assert_eq!(server.word("ruok"), "imok");
    }
    fs::remove_file(file_of(&server.folder)).unwrap();
    server.running.signal(Signal::HUP);
    let told = server.running.error_line().unwrap();
    assert!(told.contains("the settings stay as they were"), "{told}");
    assert_eq!(server.word("ruok"), "imok");
}

#[test]
fn log_level_follows_the_file() {
    let mut server = Server::start("");
    let told = server.reload("bellwether.log=bellwether_server=trace,info");
    assert!(told.contains("no setting has changed"), "{told}");
    server.running.signal(Signal::TERM);
    let told = server.running.error_line().unwrap();
    assert!(told.contains("INFO") && told.contains("stopping"), "{told}");
    assert_eq!(server.running.code(), Some(0));
}

#[test]
fn service_manager_knows_when_the_settings_are_read() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let mut buffer = [0; 128];
    let mut told = || {
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut command = bellwether();
    command.env("NOTIFY_SOCKET", &socket);
    let (mut server, _) = serve(command.args(["serve", "--listen", "127.0.0.1:0"]));
    assert!(told().starts_with("READY=1"));
    server.signal(Signal::HUP);
    let reloading = told();
    assert!(
        reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="),
        "{reloading}"
    );
    assert!(told().starts_with("READY=1"));
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn users_and_certificates_are_read_again() {
    let (authority, files) = (Authority::new("authority"), Files::new());
    let ca = files.put("ca.pem", &authority.pem);
    let server = authority.issue("server", &["127.0.0.1"]);
    let cert = files.put("server.pem", &server.store());
    let users = files.put("users", "bob:first\n");
    let password = files.put("password", "second\n");
    let mut command = bellwether();
    command.args(["serve", "--tls-listen", "127.0.0.1:0", "--cert"]);
    command.arg(&cert).arg("--sasl-users").arg(&users);
    let (mut running, addresses) = serve(&mut command);
    let address = addresses[0].strip_suffix(" (TLS)").unwrap();
    let login = || {
        let mut client = bellwether();
        client.args(["ls", "/", "-c", address, "--sasl", "bob", "--tls-ca"]);
        client.arg(&ca).arg("--sasl-password-file").arg(&password);
        client.output().unwrap()
    };
    assert_ne!(login().status.code(), Some(0));
    files.put("users", "bob:second\n");
    running.signal(Signal::HUP);
    until_told(&mut running, "read again");
    assert_code(&login(), 0);
    // No certificate: the users stay too, although their file could be used.
    files.put("server.pem", "nothing");
    files.put("users", "bob:third\n");
    running.signal(Signal::HUP);
    until_told(&mut running, "the settings stay as they were");
    assert_code(&login(), 0);
}

/// Other lines may come before it, such as those of refused logins.
fn until_told(running: &mut Running, what: &str) {
    while !running.error_line().expect(what).contains(what) {}
}

#[test]
fn audit_log_can_be_moved_away() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("audit");
    let mut command = bellwether();
    command.args(["serve", "--listen", "127.0.0.1:0", "--audit-log"]);
    let (mut running, addresses) = serve(command.arg(&log));
    let create = |path: &str| {
        let mut create = bellwether();
        create.args(["create", path, "-c", &addresses[0]]);
        assert_code(&create.output().unwrap(), 0);
    };
    create("/before");
    let moved = folder.path().join("audit.1");
    fs::rename(&log, &moved).unwrap();
    running.signal(Signal::HUP);
    assert!(running.error_line().unwrap().contains("read again"));
    create("/after");
    let read = |path| fs::read_to_string(path).unwrap();
    assert!(read(&moved).contains("/before") && !read(&moved).contains("/after"));
    assert!(read(&log).contains("/after") && !read(&log).contains("/before"));
}

#[test]
fn server_on_a_terminal_ends_with_it() {
    let folder = TempDir::new().unwrap();
    let ended = folder.path().join("ended");
    let mut shell = Shell::start();
    let serve = "bellwether serve --listen 127.0.0.1:0";
    // Its parent sees how it ends, and is not hung up itself.
    shell.run(&format!(
        "(trap '' HUP; env --default-signal=HUP {serve}; echo $? > {})",
        ended.display()
    ));
    shell.until_shown("serving on ");
    drop(shell);
    crate::support::bellwether::until("the server has ended", || {
        fs::read_to_string(&ended).is_ok_and(|code| code.trim() == "0")
    });
}
