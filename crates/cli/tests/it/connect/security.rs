//! Where secrets come from, and that nothing secret is sent in the clear.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::support::bellwether::{assert_code, text};
use crate::support::on_tree::{command, run};
use crate::support::servers::Servers;
use crate::support::shell::Shell;

#[test]
fn a_secret_on_the_command_line_is_warned_of_and_one_elsewhere_is_not() {
    let servers = Servers::local();
    let ls = |arguments: &[&str]| {
        let mut command = servers.bellwether();
        command.arg("ls").args(arguments);
        command
    };
    let typed = ls(&["--auth", "digest:me:swordfish"]).output().unwrap();
    assert_code(&typed, 0);
    let said = text(&typed.stderr);
    assert!(said.contains("--auth-file"), "{said}");
    assert!(!said.contains("swordfish"), "{said}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth");
    fs::write(&file, "digest:me:swordfish\n").unwrap();
    let by_file = ls(&["--auth-file", file.to_str().unwrap()]).output();
    let by_variable = ls(&[])
        .env("BELLWETHER_AUTH", "digest:me:swordfish")
        .output();
    for output in [by_file, by_variable] {
        let output = output.unwrap();
        assert_code(&output, 0);
        assert_eq!(text(&output.stderr), "");
    }

    fs::write(&file, "swordfish\n").unwrap();
    let broken = ls(&["--auth-file", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert_code(&broken, 125);
    let said = text(&broken.stderr);
    assert!(
        said.contains("auth:1: a credential has the form SCHEME:PROOF"),
        "{said}"
    );
    assert!(!said.contains("swordfish"), "{said}");
}

#[test]
fn credentials_in_a_file_open_what_is_theirs() {
    let servers = Servers::apache();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auth");
    fs::write(&file, "digest:me:swordfish\n").unwrap();
    let me = ["--auth-file", file.to_str().unwrap()];
    let bellwether = |arguments: &[&str]| {
        let mut command = servers.bellwether();
        command.args(arguments).output().unwrap()
    };
    let create = ["create", "-p", "/mine", "data", "--acl", "auth::cdrwa"];
    assert_code(&bellwether(&[&create, &me[..]].concat()), 0);
    assert_code(&bellwether(&["get", "/mine"]), 1);
    assert_eq!(
        text(&bellwether(&[&["get", "/mine"], &me[..]].concat()).stdout),
        "data"
    );
}

/// A server that accepts anything receives nothing that it could read.
#[test]
fn a_session_that_should_be_protected_is_not_opened_in_the_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("bellwether.toml");
    fs::write(&config, "tls-ca = \"missing.pem\"\n").unwrap();
    let by_file = command(&address, &["ls"])
        .env("XDG_CONFIG_HOME", folder.path())
        .output()
        .unwrap();
    let by_flag = run(&address, &["ls", "--tls-ca", "missing.pem"]);
    for output in [by_file, by_flag] {
        assert_code(&output, 125);
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn options_that_make_no_sense_are_wrong_usage() {
    for (arguments, reason) in [
        (&["ls", "--tls-cert", "x"][..], "--tls-cert needs --tls-key"),
        (
            &["ls", "--sasl", "alice"],
            "no password for SASL user alice",
        ),
    ] {
        // Without a terminal there is no prompt.
        let mut apart = Command::new("setsid");
        apart.args(["--wait", env!("CARGO_BIN_EXE_bellwether")]);
        apart.args(arguments).args(["--connect", "127.0.0.1:1"]);
        let output = apart.stdin(Stdio::null()).output().unwrap();
        assert_code(&output, 2);
        assert!(text(&output.stderr).contains(reason), "{output:?}");
    }
}

#[test]
fn the_local_server_needs_no_tls() {
    let servers = Servers::local();
    let mut ls = servers.bellwether();
    let output = ls.arg("ls").env("BELLWETHER_TLS", "true").output();
    assert_code(&output.unwrap(), 0);
}

#[test]
fn a_password_is_asked_for_and_not_shown() {
    let mut shell = Shell::start();
    shell.type_line("bellwether ls --sasl alice; echo \"code=$?\"");
    shell.until_shown("password of alice: ");
    shell.type_line("swordfish");
    let is_over = |rows: &[String]| rows.iter().any(|row| row.starts_with("code=125"));
    shell.until_seen(is_over);
    let seen = shell.seen().join("\n");
    assert!(!seen.contains("swordfish"), "{seen}");

    // Ctrl-C ends the prompt, and the terminal echoes input again.
    shell.type_line("bellwether ls --sasl bob; echo \"code=$?\"");
    shell.until_shown("password of bob: ");
    shell.press("\u{3}");
    shell.until_shown("code=130");
    shell.until_shown("ready> ");
    shell.type_line("true visible");
    shell.until_shown("true visible");
}
