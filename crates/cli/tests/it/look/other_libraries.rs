//! `bellwether locks` on nodes of other libraries.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::bellwether::{Running, text};
use crate::support::servers::Servers;
use crate::support::servers::json;

on_both_engines! {
    locks_of_other_libraries_are_seen_for_what_they_are,
}

fn locks_of_other_libraries_are_seen_for_what_they_are(address: &str) {
    let (server, chroot) = match address.split_once('/') {
        Some((server, chroot)) => (server, format!("/{chroot}")),
        None => (address, String::new()),
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let clients = here.join("tests/clients");
    let mut kazoo = Command::new(here.join("../../.venv/bin/python"));
    kazoo.arg(clients.join("kazoo_holder.py"));
    let mut curator = Command::new("java");
    let jars = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar";
    curator.args(["-Xmx128m", "-classpath", jars]);
    curator.arg(clients.join("CuratorHolder.java"));
    let mut holders = [(kazoo, "kazoo"), (curator, "curator")].map(|(mut command, name)| {
        command.args([server, &format!("{chroot}/{name}")]);
        Running::start_with(command.stdin(Stdio::piped()))
    });
    for holder in &mut holders {
        let held = holder.line();
        assert_eq!(held.as_deref(), Some("held"), "{:?}", holder.errors());
    }
    let servers = Servers::at(address);
    let seen = json(&servers.run(&["locks", "--json"]));
    let sights = seen["sights"].as_array().unwrap();
    let sights: Vec<_> = sights
        .iter()
        .map(|sight| {
            let holders = sight["holders"].as_array().unwrap();
            let texts = ["path", "recipe", "layout"].map(|field| sight[field].as_str().unwrap());
            (texts.join(" "), holders.len())
        })
        .collect();
    let expected = [
        "/curator/leader election Curator",
        "/curator/lock lock Curator",
        "/curator/permits semaphore Curator",
        "/curator/shared rwlock Curator",
        "/kazoo/lock lock kazoo",
        "/kazoo/permits semaphore kazoo",
        "/kazoo/shared rwlock kazoo",
    ];
    assert_eq!(sights, expected.map(|sight| (sight.to_owned(), 1)));
    let said = text(&servers.run(&["locks"]).stdout);
    assert!(said.contains("/kazoo/lock  lock of kazoo\n"), "{said}");
    assert!(said.contains("\"kazoo's own\", "), "{said}");
    assert!(said.contains("\"curator's own\", "), "{said}");
    for mut holder in holders {
        holder.end_input();
        assert_eq!(holder.code(), Some(0));
    }
}
