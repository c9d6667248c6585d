//! What users of `flock`, `timeout` and `zkCli.sh` type by habit.

use std::process::Output;

use crate::support::bellwether::{assert_code, bellwether, holding, text};

on_both_engines! {
    command_needs_no_separator,
    flags_of_flock_work,
}

fn run(address: &str, arguments: &[&str]) -> Output {
    let mut command = bellwether();
    command.env("BELLWETHER_CONNECT", address).args(arguments);
    command.output().unwrap()
}

#[track_caller]
fn done(address: &str, arguments: &[&str]) -> String {
    let output = run(address, arguments);
    assert_code(&output, 0);
    text(&output.stdout)
}

fn command_needs_no_separator(address: &str) {
    // After the start of the command, options belong to the command.
    assert_eq!(
        done(address, &["lock", "x", "echo", "--try", "-n", "a"]),
        "--try -n a\n"
    );
    assert_eq!(done(address, &["lock", "x", "-w", "5", "echo", "b"]), "b\n");
    assert_eq!(done(address, &["once", "o", "echo", "c"]), "c\n");
    assert_eq!(done(address, &["elect", "e", "echo", "d"]), "d\n");
    assert_eq!(
        done(address, &["rendezvous", "-n", "1", "r", "echo", "e"]),
        "e\n"
    );
    done(address, &["queue", "put", "q", "f"]);
    assert_eq!(done(address, &["queue", "take", "q", "cat"]), "f");
    done(address, &["tasks", "add", "t", "g"]);
    assert_eq!(done(address, &["tasks", "run", "t", "echo", "h"]), "h\n");
    // A separator after what could be the command is ambiguous.
    let output = run(address, &["elect", "x", "y", "--", "echo", "ran"]);
    assert_code(&output, 2);
    assert_eq!(text(&output.stdout), "");
    assert!(
        text(&output.stderr).contains("hint: write `-- y"),
        "{output:?}"
    );
    // Several locks are meant.
    assert_eq!(
        done(address, &["lock", "x", "y", "--", "echo", "ran"]),
        "ran\n"
    );
    assert_eq!(
        done(address, &["lock", "x", "--", "echo", "a", "--", "b"]),
        "a -- b\n"
    );
}

fn flags_of_flock_work(address: &str) {
    {
        let _holder = holding(address, &["lock", "x"]);
        assert_code(&run(address, &["lock", "-n", "x", "true"]), 124);
        assert_code(&run(address, &["lock", "-n", "-E", "7", "x", "true"]), 7);
        assert_code(&run(address, &["lock", "-w", "0.2", "x", "true"]), 124);
        assert_code(&run(address, &["lock", "--nb", "x", "true"]), 124);
        let waited = run(address, &["lock", "--timeout", "0.2", "x", "true"]);
        assert_code(&waited, 124);
    }
    let _reader = holding(address, &["lock", "y", "-s"]);
    assert_code(&run(address, &["lock", "-n", "-s", "y", "true"]), 0);
    assert_code(&run(address, &["lock", "-n", "-x", "y", "true"]), 124);
}

#[test]
fn command_after_c_is_told_from_servers() {
    let typed = |arguments: &[&str]| {
        let output = bellwether().arg("lock").args(arguments).output().unwrap();
        assert_code(&output, 2);
        text(&output.stderr)
    };
    let hint = "\nhint: -c names the servers";
    // With a blank or a path it is run.
    for arguments in [&["x", "-c", "date"][..], &["x", "-c", "echo hi", "--hold"]] {
        let told = typed(arguments);
        assert!(told.contains(hint), "{told}");
    }
    for arguments in [&["x", "-c", "zk1:2181"][..], &["x"]] {
        let told = typed(arguments);
        assert!(!told.contains(hint), "{told}");
    }
}

#[test]
fn commands_of_other_tools_get_an_answer_that_helps() {
    for (typed, instead) in [
        ("unlock", "`bellwether revoke PATH`"),
        ("delete", "`bellwether rm PATH`"),
        ("mkdir", "`bellwether create -p PATH`"),
        ("getAcl", "`bellwether acl get PATH`"),
        ("election", "`bellwether elect PATH COMMAND`"),
    ] {
        let output = bellwether().args([typed, "x"]).output().unwrap();
        assert_code(&output, 2);
        let said = text(&output.stderr);
        assert!(
            said.contains(&format!("there is no command `{typed}`")),
            "{said}"
        );
        assert!(
            said.contains("\nhint: ") && said.contains(instead),
            "{said}"
        );
    }
}
