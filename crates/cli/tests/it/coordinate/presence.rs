//! `bellwether group` and `bellwether name`: members and names that exist as long as a command runs.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::bellwether::assert_code;
use crate::support::servers::Servers;

on_local_and_apache! {
    group_members_are_listed_while_they_stay,
    group_watch_tells_who_comes_and_goes,
    names_are_borne_or_stay,
}

fn group_members_are_listed_while_they_stay(servers: &Servers) {
    let mut first = servers.staying(&["group", "join", "workers", "idle", "--name", "one"]);
    assert_eq!(first.line().as_deref(), Some("one"));
    let mut second = servers.staying(&["group", "join", "workers", "--json"]);
    let name: Value = serde_json::from_str(&second.line().unwrap()).unwrap();
    let listed = servers.object(&["group", "ls", "workers"]);
    assert_eq!(listed["members"].as_array().unwrap().len(), 2);
    assert!(
        servers
            .done(&["group", "ls", "workers"])
            .contains("one \"idle\"\n")
    );
    assert_code(
        &servers.run(&["group", "join", "workers", "--name", "one"]),
        1,
    );
    first.end_input();
    assert_eq!(first.code(), Some(0));
    second.signal(Signal::TERM);
    assert_eq!(second.code(), Some(143));
    assert!(name["name"].is_string());
    assert_eq!(servers.done(&["group", "ls", "workers"]), "");
}

fn group_watch_tells_who_comes_and_goes(servers: &Servers) {
    let mut watch = servers.staying(&["group", "watch", "workers"]);
    let mut member = servers.staying(&["group", "join", "workers", "idle", "--name", "one"]);
    assert_eq!(watch.line().as_deref(), Some("joined  one \"idle\""));
    assert_eq!(member.line().as_deref(), Some("one"));
    member.end_input();
    assert_eq!(watch.line().as_deref(), Some("left    one"));
}

fn names_are_borne_or_stay(servers: &Servers) {
    assert_code(&servers.run(&["name", "resolve", "names", "db"]), 1);
    let mut bearer = servers.staying(&["name", "register", "names", "db", "10.0.0.7"]);
    assert_eq!(bearer.line().as_deref(), Some("db"));
    assert_eq!(
        servers.done(&["name", "resolve", "names", "db"]),
        "10.0.0.7"
    );
    let lasting = ["name", "register", "--lasting", "names", "depot", "x"];
    servers.done(&lasting);
    assert_code(&servers.run(&lasting), 1);
    assert_eq!(
        servers.done(&["name", "ls", "names"]),
        "db \"10.0.0.7\"\ndepot \"x\"\n"
    );
    bearer.end_input();
    assert_eq!(bearer.code(), Some(0));
    assert_eq!(servers.done(&["name", "ls", "names"]), "depot \"x\"\n");
}
