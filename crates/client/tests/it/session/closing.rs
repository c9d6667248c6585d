//! The end of a session: closed, dropped, or gone with its runtime.

use std::time::{Duration, Instant};

use bellwether_client::{
    Client, ConnectError, CreateMode, Error, SessionEnd, SessionState, WatchMode,
};
use bellwether_testkit::{Cut, Direction, Op, TestServer};

use crate::support::place::{Place, SESSION_TIMEOUT, soon, until_down};

on_both_engines! {
    close_ends_the_session_whatever_handles_exist,
    requests_made_before_the_close_are_answered,
    the_last_clone_closes_the_session,
    close_reaches_the_servers_after_a_reconnect,
    a_close_whose_answer_is_lost_is_a_close,
}

const CLOSED: Error = Error::SessionEnded(SessionEnd::Closed);

async fn close_ends_the_session_whatever_handles_exist(place: Place) {
    let client = place.client().await;
    let (clone, chrooted) = (client.clone(), client.chroot("/a").unwrap());
    client
        .create("/e", b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let (_, _, one_shot) = client.get_watched("/e").await.unwrap();
    let mut stream = client.watch("/", WatchMode::Recursive).await.unwrap();
    soon(client.close()).await;
    assert_eq!(clone.state(), SessionState::Ended(SessionEnd::Closed));
    assert_eq!(clone.get("/e").await, Err(CLOSED));
    assert_eq!(chrooted.children("/").await, Err(CLOSED));
    assert_eq!(clone.auth("digest", b"a:b").await, Err(CLOSED));
    // The server deletes the node with the session, and may say so before it acknowledges the close.
    if let Err(error) = soon(one_shot).await {
        assert_eq!(error, CLOSED);
    }
    soon(async { while stream.next().await.is_ok() {} }).await;
    assert_eq!(stream.next().await, Err(CLOSED));
    soon(clone.close()).await;
    assert_eq!(place.client().await.exists("/e").await, Ok(None));
}

async fn requests_made_before_the_close_are_answered(place: Place) {
    let client = place.client().await;
    let created: Vec<_> = (0..50)
        .map(|_| client.create("/n-", b"", CreateMode::PersistentSequential))
        .collect();
    soon(client.close()).await;
    for created in created {
        created.await.unwrap();
    }
    let children = place.client().await.children("/").await.unwrap();
    assert_eq!(children.len(), 50);
}

async fn the_last_clone_closes_the_session(place: Place) {
    let outside = place.client().await;
    let client = place.client().await;
    let clone = client.clone();
    client
        .create("/e", b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let (_, gone) = outside.exists_watched("/e").await.unwrap();
    let (_, own) = client.exists_watched("/e").await.unwrap();
    drop(client);
    clone.exists("/e").await.unwrap().unwrap();
    // A watch does not keep the session open.
    drop(clone);
    soon(gone).await.unwrap();
    drop(own);
}

async fn close_reaches_the_servers_after_a_reconnect(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    client
        .create("/e", b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    until_down(&client).await;
    let mut closing = Box::pin(client.close());
    // It is closed for all handles at once, though no server knows yet.
    assert!(futures_util::poll!(&mut closing).is_pending());
    assert_eq!(client.get("/e").await, Err(CLOSED));
    proxy.refuse(false);
    soon(closing).await;
    assert_eq!(client.state(), SessionState::Ended(SessionEnd::Closed));
    assert_eq!(place.client().await.exists("/e").await, Ok(None));
}

async fn a_close_whose_answer_is_lost_is_a_close(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(40)).await;
    let lost = proxy.swallow_reply(Op::CloseSession);
    soon(client.close()).await;
    lost.happened().await.unwrap();
    assert_eq!(client.state(), SessionState::Ended(SessionEnd::Closed));
}

#[tokio::test]
async fn close_without_servers_returns_when_the_session_cannot_live() {
    let mut server = TestServer::start().await.unwrap();
    let connect = Client::connect(server.connect_string()).session_timeout(SESSION_TIMEOUT);
    let client = connect.await.unwrap();
    server.stop().await;
    let began = Instant::now();
    soon(client.close()).await;
    assert_eq!(client.state(), SessionState::Ended(SessionEnd::Closed));
    assert!(began.elapsed() < SESSION_TIMEOUT * 3);
}

#[tokio::test]
async fn a_silent_server_does_not_hold_up_the_close_for_ever() {
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    proxy.hold(Direction::Both);
    let read = client.exists("/");
    soon(client.close()).await;
    // It was sent, so its outcome is unknown, unless the session has ended first.
    let read = read.await.unwrap_err();
    assert!(read == Error::Unknown || read == CLOSED, "{read:?}");
}

#[test]
fn a_session_ends_with_the_runtime_that_carries_it() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let (here, carrier, servers) = (runtime(), runtime(), runtime());
    // Its tasks run only while a thread is inside this runtime.
    let server = servers.block_on(TestServer::start()).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        servers.block_on(async {
            tokio::task::spawn_blocking(move || stopped.recv())
                .await
                .unwrap()
                .unwrap_err();
        });
    });
    let connect_string = server.connect_string();
    let client = carrier.block_on(async {
        let connect = Client::connect(&connect_string).on_current_runtime();
        connect.await.unwrap()
    });
    let (_, watch) = carrier.block_on(client.exists_watched("/n")).unwrap();
    let pending = client.exists("/");
    drop(carrier);
    let gone = Error::SessionEnded(SessionEnd::RuntimeGone);
    here.block_on(async {
        assert_eq!(pending.await, Err(gone));
        assert_eq!(client.exists("/").await, Err(gone));
        assert_eq!(watch.await, Err(gone));
        soon(client.close()).await;
    });
    // And none begins on a runtime that is gone.
    let ended = runtime();
    let connect = {
        let _inside = ended.enter();
        Client::connect(&connect_string).on_current_runtime()
    };
    drop(ended);
    let error = here.block_on(connect.into_future()).unwrap_err();
    assert!(matches!(error, ConnectError::RuntimeGone), "{error:?}");
    drop(stop);
    serving.join().unwrap();
}
