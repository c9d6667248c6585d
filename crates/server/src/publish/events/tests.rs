use bellwether_testkit::Request;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::server::core::{Client, Core};

fn watch(core: &Core, client: &Client, request: &Request) {
    assert!(
        core.published
            .read(&client.session, client.request(request))
    );
    client.peer.outbox.take_all();
}

fn add_watch(path: &str, mode: i32) -> Request {
    Request::AddWatch {
        path: path.into(),
        mode,
    }
}

/// Decides and publishes requests as groups of `size`.
fn publish(core: &mut Core, client: &Client, requests: &[Request], size: usize) {
    for requests in requests.chunks(size) {
        let submissions = requests
            .iter()
            .map(|request| core.submission(client, client.request(request)))
            .collect();
        let group = core.decide(submissions);
        drop(core.published.make_visible(group));
    }
}

/// A frame of a megabyte holds some 45,000 such changes.
#[test]
fn many_changes_for_many_watchers_take_the_memory_of_one_watcher() {
    const WATCHERS: usize = 60;
    const CHANGES: usize = 4500;
    let mut core = Core::new();
    let writer = core.connect();
    publish(&mut core, &writer, &[Request::create("/n", "")], 1);
    let watchers: Vec<_> = (0..WATCHERS).map(|_| core.connect()).collect();
    for (number, watcher) in watchers.iter().enumerate() {
        let (path, mode) = [("/n", 0), ("/n", 1), ("/", 1)][number % 3];
        watch(&core, watcher, &add_watch(path, mode));
    }
    for client in watchers.iter().chain([&writer]) {
        client.peer.outbox.take_all();
    }
    assert_eq!(core.outboxes.bytes(), 0);
    let multi = Request::Multi(vec![Request::set_data("/n", ""); CHANGES]);
    publish(&mut core, &writer, &[multi], 1);
    let reply = writer.peer.outbox.len();
    let events = watchers[0].peer.outbox.len();
    assert!(events > CHANGES * "/n".len(), "{events} bytes of events");
    let held = core.outboxes.bytes() - reply;
    assert!(
        held <= events,
        "{held} bytes wait, {events} for each watcher"
    );
    for watcher in &watchers {
        assert_eq!(watcher.peer.outbox.len(), events);
        watcher.peer.outbox.take_all();
    }
    assert_eq!(core.outboxes.bytes(), reply);
}

/// Also watchers that write, watchers of several paths, and one-shot watches.
#[test]
fn each_client_receives_the_same_bytes_whether_writes_are_published_alone_or_together() {
    const PATHS: [&str; 5] = ["/a", "/a/b", "/a/b/c", "/d", "/"];
    for seed in 0..40 {
        println!("seed {seed}");
        let received = [1, 7, 100].map(|size| {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut core = Core::new();
            let clients: Vec<_> = (0..6).map(|_| core.connect()).collect();
            let made = ["/a", "/a/b"].map(|path| Request::create(path, ""));
            publish(&mut core, &clients[0], &made, 1);
            for _ in 0..12 {
                let path = PATHS[rng.random_range(0..PATHS.len())];
                let request = match rng.random_range(0..4) {
                    0 => add_watch(path, 0),
                    1 => add_watch(path, 1),
                    2 => Request::exists(path).watching(),
                    _ => Request::get_children(path).watching(),
                };
                watch(&core, &clients[rng.random_range(0..6)], &request);
            }
            let mut write = || {
                let path = PATHS[rng.random_range(0..PATHS.len())];
                match rng.random_range(0..6) {
                    0 => Request::create(path, ""),
                    1 => Request::delete(path),
                    _ => Request::set_data(path, "x"),
                }
            };
            let writes: Vec<_> = (0..40)
                .map(|number| match number % 4 {
                    0 => Request::Multi((0..300).map(|_| Request::set_data("/a", "")).collect()),
                    1 => Request::Multi(vec![write(), write()]),
                    _ => write(),
                })
                .collect();
            publish(&mut core, &clients[0], &writes, size);
            let all = clients.iter().map(|client| client.peer.outbox.take_all());
            all.collect::<Vec<_>>()
        });
        assert_eq!(received[0], received[1], "seed {seed}");
        assert_eq!(received[0], received[2], "seed {seed}");
    }
}
