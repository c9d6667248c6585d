//! Commands on servers that lack newer features.

use bellwether_testkit::{FaultProxy, Op};
use tokio::runtime::Runtime;

use crate::support::bellwether::{Running, assert_code, bellwether, serve, text};
use crate::support::on_tree::{answer, command, proxy, run};

const MISSING: [Op; 6] = [
    Op::Create2,
    Op::CreateContainer,
    Op::CreateTtl,
    Op::AddWatch,
    Op::MultiRead,
    Op::RemoveWatches,
];

/// A server behind a proxy that hides newer features.
struct OlderServer {
    address: String,
    _proxy: FaultProxy,
    _runtime: Runtime,
    _server: Running,
}

impl OlderServer {
    fn start() -> Self {
        let (server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
        let runtime = Runtime::new().unwrap();
        let (proxy, address) = proxy(&addresses[0], &runtime);
        MISSING.iter().for_each(|op| proxy.hide(*op));
        Self {
            address,
            _proxy: proxy,
            _runtime: runtime,
            _server: server,
        }
    }
}

#[test]
fn commands_work_on_servers_without_newer_features() {
    let server = OlderServer::start();
    let address = &server.address;
    let job = |hold: &[&str], job: &[&str]| {
        let output = command(address, hold).arg("--").args(job).output();
        let output = output.unwrap();
        assert_code(&output, 0);
        text(&output.stdout)
    };

    answer(address, &["create", "/n", "one"]);
    assert_eq!(answer(address, &["get", "/n"]), "one");
    assert_eq!(job(&["lock", "/a/lock"], &["echo", "held"]), "held\n");
    let crash_marked = ["lock", "--on-crash", "fail", "/a/marked"];
    assert_eq!(job(&crash_marked, &["echo", "held"]), "held\n");
    answer(address, &["queue", "put", "/a/queue", "item"]);
    job(&["queue", "take", "/a/queue"], &["true"]);
    let left = run(address, &["queue", "ls", "/a/queue"]);
    assert!(!text(&left.stdout).contains("item"), "{left:?}");
    answer(address, &["tasks", "add", "/a/tasks", "task"]);
    job(&["tasks", "run", "/a/tasks"], &["true"]);
    assert_code(&run(address, &["tasks", "ls", "/a/tasks"]), 0);
    answer(address, &["counter", "add", "/a/counter", "2"]);
    assert_eq!(answer(address, &["counter", "get", "/a/counter"]), "2\n");
    answer(address, &["config", "set", "/a/config", "value"]);
    assert_eq!(answer(address, &["config", "get", "/a/config"]), "value");
}

#[test]
fn what_a_server_lacks_is_refused_with_the_release_that_has_it() {
    let server = OlderServer::start();
    let address = &server.address;
    for (arguments, hint) in [
        (&["watch", "/"][..], "3.6"),
        (&["create", "--container", "/box", ""], "3.5.3"),
    ] {
        let output = run(address, arguments);
        assert_code(&output, 1);
        let told = text(&output.stderr);
        assert!(told.contains("does not support this"), "{told}");
        assert!(told.contains(hint), "{told}");
    }
}
