//! `bellwether serve` when its disk or memory fills up.

use std::process::{Command, Stdio};

use bellwether_testkit::{Body, MultiResult, RawClient, Request};
use bellwether_wire::code::ErrorCode;

use super::faulty_disks::{serving, with_small_disk};
use crate::support::bellwether::{Running, bellwether, text};

/// Maximum number of tries of what must happen soon.
const TRIES: usize = 2000;

async fn call(client: &mut RawClient, request: Request) -> Result<Body, ErrorCode> {
    let op = request.op();
    // The error would have all data of the request.
    let reply = client.call(request).await;
    reply
        .unwrap_or_else(|_| panic!("no answer to {op:?}"))
        .outcome
}

async fn ok(client: &mut RawClient, request: Request) -> Body {
    let shown = format!("{:?}", request.op());
    call(client, request)
        .await
        .unwrap_or_else(|code| panic!("{shown}: {code}"))
}

fn all_done(body: Body) {
    let Body::Multi(results) = body else {
        panic!("not the reply to a multi");
    };
    let failed = results
        .iter()
        .find(|one| matches!(one, MultiResult::Failed(_)));
    assert_eq!(failed, None);
}

/// Creates nodes until the server refuses one, and returns their number.
async fn fill(client: &mut RawClient, prefix: &str, bytes: usize) -> usize {
    for number in 0..TRIES * 100 {
        let create = Request::create(format!("/{prefix}-{number}"), vec![7; bytes]);
        match call(client, create).await {
            Ok(_) => {}
            Err(ErrorCode::QuotaExceeded) => return number,
            Err(code) => panic!("{code}"),
        }
    }
    panic!("nothing is refused");
}

/// The next address that the server says, and other lines passed over.
fn next_serving(server: &mut Running) -> String {
    loop {
        let line = server.error_line().expect("the server serves");
        if let Some(address) = line.strip_prefix("bellwether: serving on ") {
            return address.to_owned();
        }
    }
}

#[tokio::test]
async fn t103_full_disk_refuses_what_needs_space_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let serve = "\"$BW\" serve --listen 127.0.0.1:0 --data \"$DATA\"";
    let script = format!("{serve} & while read -r line; do eval \"$line\"; done");
    let Some(mut server) = with_small_disk(folder.path(), "16m", &script) else {
        return;
    };
    let address = serving(&mut server);
    let mut client = RawClient::connect(&address).await.unwrap();
    let large = fill(&mut client, "large", 100_000).await;
    assert!((100..160).contains(&large), "{large} nodes");

    // However often it is refused, a write takes no space.
    for _ in 0..TRIES {
        let create = Request::create("/more", "x");
        assert_eq!(
            call(&mut client, create).await,
            Err(ErrorCode::QuotaExceeded)
        );
    }
    let longer = Request::set_data("/large-0", vec![7; 100_001]);
    assert_eq!(
        call(&mut client, longer).await,
        Err(ErrorCode::QuotaExceeded)
    );
    let said = bellwether()
        .args(["create", "--connect", &address, "/more"])
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(1), "{}", text(&said.stderr));
    assert!(
        text(&said.stderr).contains("the disk is nearly full"),
        "{}",
        text(&said.stderr)
    );
    let doctor = bellwether()
        .args(["doctor", "--connect", &address])
        .output()
        .unwrap();
    assert_eq!(doctor.status.code(), Some(3), "{}", text(&doctor.stdout));
    assert!(
        text(&doctor.stdout).contains("the disk is nearly full"),
        "{}",
        text(&doctor.stdout)
    );
    works_without_space(&mut client, &address, 1).await;

    // Another program takes the rest. The server dies, and starts on a disk without a free byte.
    server.tell("cat /dev/zero > \"$DATA\"/ballast 2>/dev/null; kill -9 $!; wait $!; echo down");
    while server.line().expect("the server is killed") != "down" {}
    server.tell(&format!("{serve} &"));
    let address = next_serving(&mut server);
    let mut client = RawClient::connect(&address).await.unwrap();
    let create = Request::create("/more", "x");
    assert_eq!(
        call(&mut client, create).await,
        Err(ErrorCode::QuotaExceeded)
    );
    works_without_space(&mut client, &address, 20).await;
    let Body::Children(names) = ok(&mut client, Request::get_children("/")).await else {
        panic!("no list");
    };
    for number in 22..large {
        assert!(
            names.contains(&format!("large-{number}")),
            "{number} is lost"
        );
    }

    // With a larger disk there is space again, and another reserve.
    server.tell("mount -o remount,size=32m \"$DATA\"; echo larger");
    assert_eq!(server.line().as_deref(), Some("larger"));
    let mut tries = 0;
    while call(&mut client, Request::create("/more", "x"))
        .await
        .is_err()
    {
        tries += 1;
        assert!(tries < TRIES * 100, "creates are refused for ever");
    }
    server.tell(
        "until test -s \"$DATA\"/version-2/bellwether.reserve; do sleep 0.1; done; echo reserved",
    );
    assert_eq!(server.line().as_deref(), Some("reserved"));
}

/// Deletes, releases, heartbeats and sessions. Deletes two of the large nodes, from `first` on.
async fn works_without_space(client: &mut RawClient, address: &str, first: usize) {
    let path = |number: usize| format!("/large-{number}");
    ok(client, Request::delete(path(first))).await;
    let release = vec![
        Request::delete(path(first + 1)),
        Request::set_data(path(0), vec![8; 100_000]),
    ];
    all_done(ok(client, Request::Multi(release)).await);
    let heartbeat = Request::Check {
        path: path(0),
        version: -1,
    };
    all_done(ok(client, Request::Multi(vec![heartbeat])).await);
    let mut other = RawClient::connect(address).await.unwrap();
    ok(&mut other, Request::CloseSession).await;
}

/// The kernel refuses more memory from some point on, at which a program aborts.
#[tokio::test]
async fn server_with_little_memory_refuses_what_does_not_fit() {
    let script = "ulimit -v 1000000 && exec \"$BW\" serve --listen 127.0.0.1:0";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command.env("BW", env!("CARGO_BIN_EXE_bellwether"));
    command.env_remove("RUST_LOG").env_remove("NOTIFY_SOCKET");
    let mut server = Running::start(&mut command);
    let line = next_serving(&mut server);
    let address = line.split(';').next().unwrap().to_owned();
    let mut client = RawClient::connect(&address).await.unwrap();
    let large = fill(&mut client, "large", 500_000).await;
    let small = fill(&mut client, "small", 10).await;
    println!("{large} large nodes, {small} small ones");
    // The allocator reserves the greater part of the addresses for its threads.
    assert!((50..700).contains(&large), "{large} large nodes");
    let said = bellwether()
        .args(["create", "--connect", &address, "/more"])
        .output()
        .unwrap();
    assert!(
        text(&said.stderr).contains("limit of memory"),
        "{}",
        text(&said.stderr)
    );
    for number in 0..10 {
        ok(&mut client, Request::delete(format!("/large-{number}"))).await;
    }
    assert!(fill(&mut client, "again", 500_000).await >= 9);
    assert!(server.is_running());
}
