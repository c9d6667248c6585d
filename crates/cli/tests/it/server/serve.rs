//! `bellwether serve`.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use crate::support::bellwether::{
    Running, assert_code, bellwether, bellwether_without_hangups, ignores_hangups, serve,
};

#[test]
fn serves_where_it_says_and_ends_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut server, addresses) =
            serve(bellwether().args(["serve", "-l", "127.0.0.1:0", "--listen", "127.0.0.1:0"]));
        assert_eq!(addresses.len(), 2);
        for address in &addresses {
            let output = bellwether()
                .args(["lock", "-c", address, "x", "--", "true"])
                .output()
                .unwrap();
            assert_code(&output, 0);
        }
        assert!(server.is_running());
        server.signal(signal);
        assert_eq!(server.code(), Some(0));
    }
}

#[test]
fn serves_on_when_a_signal_was_ignored_from_the_start() {
    let mut serving = bellwether_without_hangups();
    let (mut server, addresses) = serve(serving.args(["serve", "-l", "127.0.0.1:0"]));
    server.signal(Signal::HUP);
    assert!(ignores_hangups(server.id()));
    let mut ls = bellwether();
    assert_code(&ls.args(["ls", "-c", &addresses[0]]).output().unwrap(), 0);
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn flags_win_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zoo.cfg");
    let data = folder.path().display();
    std::fs::write(
        &file,
        format!("clientPort=1\nclientPortAddress=127.0.0.1\ndataDir={data}\n"),
    )
    .unwrap();
    let mut command = bellwether();
    command
        .args(["--quiet", "serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(&file);
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let mut server = Running::start(command.env("NOTIFY_SOCKET", &socket));
    let mut buffer = [0; 64];
    let length = manager.recv(&mut buffer).unwrap();
    assert!(buffer[..length].starts_with(b"READY=1"));
    assert!(std::net::TcpStream::connect("127.0.0.1:1").is_err());
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    assert_eq!(server.error_line(), None);
}

#[test]
fn t101_configuration_of_an_ensemble_is_refused_unless_standalone_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zoo.cfg");
    let data = folder.path().display();
    let members = "server.1=a:2888:3888\nserver.2=b:2888:3888\nserver.3=c:2888:3888";
    let text = format!("clientPort=1\ndataDir={data}\n{members}\n");
    std::fs::write(&file, text).unwrap();
    let with_file = |more: &[&str]| {
        let mut command = bellwether();
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]);
        command.arg(&file).args(more);
        command
    };
    let mut refused = Running::start(&mut with_file(&[]));
    let told = refused.error_line().unwrap();
    let named = "server.1 (line 3), server.2 (line 4), server.3 (line 5)";
    assert!(told.contains(named), "{told}");
    let hint = refused.error_line().unwrap();
    assert!(
        hint.contains("`bellwether ensemble`") && hint.contains("--standalone"),
        "{hint}"
    );
    assert_eq!(refused.code(), Some(125));

    let mut server = Running::start(&mut with_file(&["--standalone"]));
    let told = server.error_line().unwrap();
    assert!(told.contains(named), "{told}");
    let ready = server.error_line().unwrap();
    assert!(ready.contains("serving on "), "{ready}");
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn settings_that_promise_more_than_there_is_stop_a_start_unless_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zoo.cfg");
    let data = folder.path().display();
    let text = format!("clientPort=1\ndataDir={data}\nfips-mode=true\nsslQuorum=true\n");
    std::fs::write(&file, text).unwrap();
    let with_file = |more: &[&str]| {
        let mut command = bellwether();
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]);
        command.arg(&file).args(more);
        command
    };
    let mut refused = Running::start(&mut with_file(&[]));
    let told = refused.error_line().unwrap();
    let settings = "does not support fips-mode (line 3), sslQuorum (line 4)";
    assert!(told.contains(settings), "{told}");
    let hint = refused.error_line().unwrap();
    assert!(hint.contains("--ignore-unsupported"), "{hint}");
    assert_eq!(refused.code(), Some(125));

    let mut server = Running::start(&mut with_file(&["--ignore-unsupported"]));
    for expected in [
        "fips-mode (line 3) is not supported, and ignored",
        "sslQuorum (line 4) is not supported, and ignored",
        "serving on ",
    ] {
        let told = server.error_line().unwrap();
        assert!(told.contains(expected), "{told}");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn missing_config_is_125() {
    assert_code(
        &bellwether()
            .args(["serve", "--config", "/no/such/zoo.cfg"])
            .output()
            .unwrap(),
        125,
    );
}

#[test]
fn service_manager_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut buffer = [0; 64];
    let mut told = || {
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    let (mut server, _) =
        serve(
            bellwether()
                .env("NOTIFY_SOCKET", &path)
                .args(["serve", "--listen", "127.0.0.1:0"]),
        );
    assert_eq!(told(), "READY=1");
    server.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(server.code(), Some(0));
}

#[test]
fn watchdog_is_fed_while_writes_are_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut buffer = [0; 64];
    let mut told = || {
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    let mut command = bellwether();
    command.env("NOTIFY_SOCKET", &path);
    command.env("WATCHDOG_USEC", "300000");
    let (_server, _) = serve(command.args(["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(told(), "READY=1");
    for _ in 0..3 {
        assert_eq!(told(), "WATCHDOG=1");
    }
}

#[test]
fn service_manager_is_not_told_ready_if_the_pages_cannot_be_served() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let output = bellwether()
        .env("NOTIFY_SOCKET", &path)
        .args(["serve", "--listen", "127.0.0.1:0", "--http", &address])
        .output()
        .unwrap();
    assert_code(&output, 125);
    manager.set_nonblocking(true).unwrap();
    let told = manager.recv(&mut [0; 64]);
    assert_eq!(told.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn address_in_use_is_125() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_code(
        &bellwether()
            .args(["serve", "--listen", &address])
            .output()
            .unwrap(),
        125,
    );
}

#[test]
fn unknown_word_is_wrong_usage() {
    assert_code(
        &bellwether()
            .args(["serve", "--words", "srvr,nope"])
            .output()
            .unwrap(),
        2,
    );
}

#[test]
fn slow_requests_are_logged_unless_they_are_switched_off() {
    for (threshold, is_logged) in [
        ("0.001ms", true),
        ("off", false),
        ("0", false),
        ("1h", false),
    ] {
        let mut command = bellwether();
        command.args(["serve", "-l", "127.0.0.1:0", "--slow-request", threshold]);
        let (mut server, addresses) = serve(&mut command);
        let mut create = bellwether();
        let created = create.args(["create", "-c", &addresses[0], "/jobs", "secret"]);
        assert_code(&created.output().unwrap(), 0);
        server.signal(Signal::TERM);
        let logged = server.errors();
        let line = logged
            .iter()
            .find(|line| line.contains("slow request") && line.contains("operation=\"create2\""));
        assert_eq!(line.is_some(), is_logged, "{threshold}: {logged:?}");
        if let Some(line) = line {
            for part in [
                "WARN",
                "path=\"/jobs\"",
                "session=0x",
                "address=127.0.0.1:",
                "fsync_ms=",
            ] {
                assert!(line.contains(part), "{part}: {line}");
            }
            assert!(!line.contains("secret"), "{line}");
        }
        assert_eq!(server.code(), Some(0));
    }
    let mut command = bellwether();
    let output = command.args(["serve", "--slow-request", "soon"]).output();
    assert_code(&output.unwrap(), 2);
}
