//! `bellwether export` and `bellwether import`.

use std::io::Write;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use bellwether_wire::op::Op;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::bellwether::{assert_code, text};
use crate::support::on_tree::{answer, command, proxy, run};

on_both_engines! {
    what_was_exported_is_imported_elsewhere_byte_for_byte,
    ephemeral_nodes_are_left_out_and_it_is_said,
    import_does_nothing_where_nodes_exist,
    merge_overwrites_and_keeps_the_rest,
    replace_deletes_what_the_file_has_not,
    dry_run_shows_and_does_nothing,
    node_that_is_changed_meanwhile_is_not_overwritten,
    what_is_no_export_is_refused_before_anything_is_done,
}

fn import(address: &str, arguments: &[&str], file: &str) -> Output {
    let mut import = command(address, &[&["import"], arguments].concat());
    import
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut import = import.spawn().unwrap();
    import
        .stdin
        .take()
        .unwrap()
        .write_all(file.as_bytes())
        .unwrap();
    import.wait_with_output().unwrap()
}

/// A tree with several kinds of data and access lists at `/from`.
fn make_tree(address: &str) {
    for (path, data) in [
        ("/from", "top"),
        ("/from/a", ""),
        ("/from/a/b c", "käse\n"),
        ("/from/z", "1"),
    ] {
        answer(address, &["create", "-p", path, data]);
        answer(address, &["set", path, data]);
    }
    let mut set = command(address, &["set", "/from/a", "-"]);
    let mut set = set.stdin(Stdio::piped()).spawn().unwrap();
    set.stdin
        .take()
        .unwrap()
        .write_all(&[0xff, 0, b'\n'])
        .unwrap();
    assert!(set.wait().unwrap().success());
    answer(
        address,
        &["acl", "set", "/from/z", "world:anyone:cdra,ip:127.0.0.1:w"],
    );
}

fn what_was_exported_is_imported_elsewhere_byte_for_byte(address: &str) {
    make_tree(address);
    let file = answer(address, &["export", "/from"]);
    let parsed: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(parsed["path"], "/from");
    assert_eq!(parsed["nodes"][1]["data"]["base64"], "/wAK");
    assert_eq!(file.lines().count(), 4 + 2);

    let imported = import(address, &["/to/some/place"], &file);
    assert_code(&imported, 0);
    assert_eq!(
        text(&imported.stderr),
        "bellwether: 4 created, 0 changed, 0 deleted, 0 unchanged\n"
    );
    let again = answer(address, &["export", "/to/some/place"]);
    let nodes = |file: &str| file.split_once('\n').unwrap().1.to_owned();
    assert_eq!(nodes(&again), nodes(&file));
    assert_eq!(
        run(address, &["get", "/to/some/place/a"]).stdout,
        [0xff, 0, b'\n']
    );
    assert_eq!(
        answer(address, &["acl", "get", "/to/some/place/z"]),
        "world:anyone:cdra,ip:127.0.0.1:w\n"
    );
}

fn ephemeral_nodes_are_left_out_and_it_is_said(address: &str) {
    answer(address, &["create", "-p", "/from"]);
    let mut holder = command(address, &["create", "--ephemeral", "/from/e"]);
    let mut holder = holder
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(holder.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut String::new()).unwrap();

    let export = run(address, &["export", "/from"]);
    assert_code(&export, 0);
    assert_eq!(
        text(&export.stderr),
        "bellwether: left out: 1 ephemeral node\n"
    );
    let file = text(&export.stdout);
    assert!(!file.contains("/e"), "{file}");
    // A node that is missing in the file is not deleted.
    let replaced = import(address, &["/from", "--replace"], &file);
    assert_code(&replaced, 0);
    assert!(text(&replaced.stderr).contains("kept: 1 ephemeral node"));
    assert_eq!(answer(address, &["ls", "/from"]), "e\n");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

fn import_does_nothing_where_nodes_exist(address: &str) {
    make_tree(address);
    let file = answer(address, &["export", "/from"]);
    answer(address, &["rm", "/from/z"]);
    let refused = import(address, &["/from"], &file);
    assert_code(&refused, 1);
    let said = text(&refused.stderr);
    assert!(
        said.contains("/from: the node exists already") && said.contains("hint: --merge"),
        "{said}"
    );
    assert_eq!(answer(address, &["ls", "/from"]), "a\n");
}

fn merge_overwrites_and_keeps_the_rest(address: &str) {
    make_tree(address);
    let file = answer(address, &["export", "/from"]);
    answer(address, &["set", "/from", "other"]);
    answer(address, &["acl", "set", "/from/z", "world:anyone:cdrwa"]);
    answer(address, &["rm", "/from/a/b c"]);
    answer(address, &["create", "/from/more", "kept"]);
    let merged = import(address, &["/from", "--merge", "--json"], &file);
    assert_code(&merged, 0);
    let told: Value = serde_json::from_slice(&merged.stdout).unwrap();
    assert_eq!(told["created"], serde_json::json!(["/from/a/b c"]));
    assert_eq!(told["changed"], serde_json::json!(["/from", "/from/z"]));
    assert_eq!(told["unchanged"], 1);
    assert_eq!(answer(address, &["get", "/from"]), "top");
    assert_eq!(answer(address, &["get", "/from/more"]), "kept");
    answer(address, &["rm", "/from/more"]);
    assert_eq!(answer(address, &["export", "/from"]), file);
}

fn replace_deletes_what_the_file_has_not(address: &str) {
    make_tree(address);
    let file = answer(address, &["export", "/from"]);
    answer(address, &["create", "-p", "/from/more/and/more"]);
    answer(address, &["set", "/from/a", "other"]);
    let replaced = import(address, &["/from", "--replace"], &file);
    assert_code(&replaced, 0);
    assert!(text(&replaced.stderr).contains("0 created, 1 changed, 3 deleted, 3 unchanged"));
    assert_eq!(answer(address, &["export", "/from"]), file);
}

fn dry_run_shows_and_does_nothing(address: &str) {
    make_tree(address);
    let file = answer(address, &["export", "/from"]);
    answer(address, &["set", "/from", "other"]);
    answer(address, &["rm", "/from/z"]);
    answer(address, &["create", "/from/more"]);
    let before = answer(address, &["tree", "/from", "--json"]);
    let shown = import(address, &["/from", "--replace", "--dry-run"], &file);
    assert_code(&shown, 0);
    assert_eq!(text(&shown.stdout), "+ /from/z\n~ /from\n- /from/more\n");
    assert!(text(&shown.stderr).contains("nothing was changed"));
    assert_eq!(answer(address, &["tree", "/from", "--json"]), before);
    assert_eq!(answer(address, &["get", "/from"]), "other");
}

fn node_that_is_changed_meanwhile_is_not_overwritten(address: &str) {
    make_tree(address);
    let file = answer(address, &["export", "/from"]);
    answer(address, &["set", "/from/z", "other"]);
    let runtime = Runtime::new().unwrap();
    let (proxy, through) = proxy(address, &runtime);
    let (direct, came) = (address.to_owned(), AtomicBool::new(false));
    // Loses nothing: this lets the test act between the comparison and the transaction.
    let _fault = proxy.drop_request_where(move |request| {
        if request.op == Op::Multi && !came.swap(true, Ordering::SeqCst) {
            answer(&direct, &["set", "/from/z", "newer"]);
        }
        false
    });
    let refused = import(&through, &["/from", "--merge"], &file);
    assert_code(&refused, 1);
    let said = text(&refused.stderr);
    assert!(
        said.contains("stopped after 0 of 1 change: cannot set /from/z: its version differs"),
        "{said}"
    );
    assert_eq!(answer(address, &["get", "/from/z"]), "newer");
}

fn what_is_no_export_is_refused_before_anything_is_done(address: &str) {
    answer(address, &["create", "-p", "/from"]);
    let file = answer(address, &["export", "/from"]);
    for (bad, why) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "expected what `bellwether export` writes"),
        (
            file.replace("\"version\":1", "\"version\":9"),
            "not bellwether-export 1",
        ),
        (
            file.replace("\"text\":\"\"", "\"base64\":\"?\""),
            "its data",
        ),
        (
            file.replace("\"path\":\"/\",", "\"path\":\"/x\","),
            "/x has no parent",
        ),
        (
            file.replace("cdrwa", "cdrwz"),
            "'z' is not one of the rights",
        ),
    ] {
        let refused = import(address, &["/to"], &bad);
        assert_code(&refused, 2);
        let said = text(&refused.stderr);
        assert!(said.contains(why), "{said}");
    }
    assert_code(&run(address, &["stat", "/to"]), 1);
    assert_code(&run(address, &["import", "/to", "/no/such/file"]), 125);
}
