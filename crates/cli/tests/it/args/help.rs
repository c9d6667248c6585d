//! The help of commands, and what the parser says about mistakes.

use crate::support::bellwether::{assert_code, bellwether, text};

fn help(arguments: &[&str]) -> String {
    let output = bellwether().args(arguments).output().unwrap();
    assert_code(&output, 0);
    text(&output.stdout)
}

/// Stderr of a command line that is refused.
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = bellwether();
    let output = command.args(arguments).envs(environment.iter().copied());
    let output = output.output().unwrap();
    assert_code(&output, 2);
    text(&output.stderr)
}

#[test]
fn own_options_of_a_command_stand_before_those_of_the_connection() {
    for (command, own) in [
        (
            &["queue", "put"][..],
            &["[DATA]", "--file", "--priority"][..],
        ),
        (&["counter", "set"], &["<VALUE>", "--expect"]),
        (&["tx", "vote"], &["<SITE>", "<VOTE>", "--reason"]),
        (&["lock"], &["[COMMAND]...", "--max-time"]),
    ] {
        let long = help(&[command, &["--help"]].concat());
        let (before, after) = long.split_once("\nConnection:\n").unwrap();
        for option in own {
            assert!(before.contains(option), "{option}: {long}");
        }
        let (connection, security) = after.split_once("\nSecurity options:\n").unwrap();
        assert!(connection.contains("--session-timeout"), "{long}");
        assert!(security.contains("--tls-ca"), "{long}");
        for option in own {
            assert!(!after.contains(&format!("  {option}")), "{option}: {long}");
        }
        // Those who need them ask for more.
        let short = help(&[command, &["-h"]].concat());
        assert!(short.contains("--connect"), "{short}");
        assert!(
            !short.contains("--tls") && !short.contains("--sasl"),
            "{short}"
        );
    }
}

#[test]
fn usage_is_the_same_in_every_environment() {
    let arguments = ["get", "x", "--unheard-of"];
    let plain = refused(&arguments, &[]);
    assert!(
        plain.contains("Usage: bellwether get [OPTIONS] <PATH>"),
        "{plain}"
    );
    let environment = [
        ("BELLWETHER_CONNECT", "zk1"),
        ("BELLWETHER_AUTH_FILE", "ops.auth"),
        ("BELLWETHER_TLS", "true"),
    ];
    assert_eq!(refused(&arguments, &environment), plain);
    let help = |environment: &[(&str, &str)]| {
        let mut command = bellwether();
        let command = command.args(["get", "--help"]);
        text(
            &command
                .envs(environment.iter().copied())
                .output()
                .unwrap()
                .stdout,
        )
    };
    assert_eq!(help(&environment), help(&[]));
}

#[test]
fn option_that_was_meant_is_suggested() {
    for (arguments, meant) in [
        (&["lock", "x", "--tyr", "--", "true"][..], "'--try'"),
        (
            &["queue", "put", "q", "--priorty", "1", "x"],
            "'--priority'",
        ),
        (&["rm", "--recursiv", "x"], "'--recursive'"),
    ] {
        let said = refused(arguments, &[]);
        assert!(
            said.contains(&format!("a similar argument exists: {meant}")),
            "{said}"
        );
        assert!(!said.contains("as a value"), "{said}");
    }
    let said = refused(&["ls", "--tyr", "x"], &[]);
    assert!(!said.contains("tip:"), "{said}");
}
