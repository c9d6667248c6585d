//! Cost of `bellwether locks` over very many locks.

use bellwether_testkit::Op;

use crate::support::bellwether::assert_code;
use crate::support::line::through_proxy;
use crate::support::servers::Servers;
use crate::support::servers::json;

on_both_engines! {
    thousand_locks_are_read_with_few_requests_under_way,
}

fn thousand_locks_are_read_with_few_requests_under_way(address: &str) {
    const LOCKS: usize = 1000;
    const DEEP: usize = 11;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.json");
    std::fs::write(&file, many(LOCKS, DEEP)).unwrap();
    let servers = Servers::at(address);
    let import = servers.run(&["import", "many", file.to_str().unwrap()]);
    assert_code(&import, 0);
    let (_runtime, proxy, through) = through_proxy(address);
    let seen = json(&Servers::at(&through).run(&["locks", "--json", "many"]));
    let sights = seen["sights"].as_array().unwrap();
    let waiters = sights
        .iter()
        .map(|sight| sight["waiters"].as_array().unwrap().len());
    assert_eq!((sights.len(), waiters.sum()), (LOCKS, LOCKS * (DEEP - 1)));
    // A list of each directory, and a read of each contender; the session needs one more to detect the kind of server.
    assert_eq!(proxy.count(Op::GetChildren2), LOCKS + 1);
    let reads = proxy.count(Op::GetData);
    assert!(
        (LOCKS * DEEP..=LOCKS * DEEP + 1).contains(&reads),
        "{reads}"
    );
    let in_flight = proxy.in_flight_max();
    assert!((2..=128).contains(&in_flight), "{in_flight}");
}

/// An export of `locks` locks with `deep` contenders each.
fn many(locks: usize, deep: usize) -> String {
    let acl = serde_json::json!([{"scheme": "world", "id": "anyone", "rights": "cdrwa"}]);
    let node = |path: String, data: &str| serde_json::json!({"path": path, "kind": "persistent", "data": {"text": data}, "acl": acl});
    let mut nodes = vec![node("/".to_owned(), "")];
    for lock in 0..locks {
        nodes.push(node(format!("/{lock:04}"), ""));
        nodes.extend((0..deep).map(|place| {
            let name = format!("lock-{:x}-{place:016x}-{place:010}", lock * deep + place);
            node(
                format!("/{lock:04}/{name}"),
                r#"{"version": 1, "host": "db7"}"#,
            )
        }));
    }
    serde_json::json!({
        "format": "bellwether-export",
        "version": 1,
        "path": "/many",
        "nodes": nodes,
    })
    .to_string()
}
