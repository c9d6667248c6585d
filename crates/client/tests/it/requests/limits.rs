//! Limits of one session, in both directions.

use std::time::Duration;

use bellwether_client::{CreateMode, Error, Invalid, Limits, PersistentEvent, WatchMode};
use bellwether_testkit::{Cut, Direction};
use futures_util::FutureExt as _;

use crate::support::place::{Place, soon, until_connections, until_down};

on_both_engines! {
    a_request_that_is_too_large_is_not_sent,
    the_largest_request_is_answered,
    requests_in_flight_are_limited,
    bytes_that_wait_are_limited,
    a_reply_that_is_too_large_breaks_the_connection_only,
    large_replies_arrive_whole,
    unread_events_are_limited,
}

async fn a_request_that_is_too_large_is_not_sent(place: Place) {
    let client = place.client().await;
    let refused = client
        .create("/n", &vec![0; 2 << 20], CreateMode::Persistent)
        .await;
    let Err(Error::Invalid(Invalid::TooLarge { bytes, bytes_max })) = refused else {
        panic!("{refused:?}");
    };
    assert!(bytes > 2 << 20);
    assert_eq!(bytes_max, 1_048_575);
    // The connection is unaffected.
    assert_eq!(client.exists("/n").await, Ok(None));
    assert_eq!(client.connections(), 1);
}

async fn the_largest_request_is_answered(place: Place) {
    let client = place.client().await;
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let path = place.chroot().len() + 2;
    let largest = 1_048_575 - 8 - (4 + path) - 4 - 4;
    let data = vec![7; largest + 1];
    let refused = client.set("/n", &data, None).await;
    assert!(matches!(
        refused,
        Err(Error::Invalid(Invalid::TooLarge { .. }))
    ));
    let stat = soon(client.set("/n", &data[1..], None)).await.unwrap();
    assert_eq!(stat.data_length, i32::try_from(largest).unwrap());
    assert_eq!(soon(client.get("/n")).await.unwrap().0, data[1..]);
    assert_eq!(client.connections(), 1);
}

async fn requests_in_flight_are_limited(place: Place) {
    let proxy = place.proxy().await;
    let limits = Limits {
        requests_max: 10,
        ..Limits::default()
    };
    let connect = place.connect_through(&proxy).limits(limits);
    let client = connect
        .session_timeout(Duration::from_secs(40))
        .await
        .unwrap();
    let too_many = Err(Error::Invalid(Invalid::TooManyRequests));
    proxy.hold(Direction::ToClient);
    let replies: Vec<_> = (0..10).map(|_| client.exists("/")).collect();
    // A caller that repeats its request in a loop leaves room for others.
    assert_eq!(client.exists("/").now_or_never(), None);
    assert!(client.exists_watched("/").now_or_never().is_none());
    assert!(
        client
            .create("/n", b"", CreateMode::Persistent)
            .now_or_never()
            .is_none()
    );
    assert_eq!(client.exists("/").await, too_many);
    assert_eq!(
        client.exists_watched("/").await.map(drop),
        too_many.map(drop)
    );
    proxy.resume(Direction::ToClient);
    for reply in replies {
        assert!(soon(reply).await.unwrap().is_some());
    }
    assert!(client.exists("/").await.unwrap().is_some());
    // Without a connection too.
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    until_down(&client).await;
    let replies: Vec<_> = (0..10).map(|_| client.exists("/")).collect();
    assert_eq!(client.exists("/").await, too_many);
    proxy.refuse(false);
    for reply in replies {
        assert!(soon(reply).await.unwrap().is_some());
    }
}

async fn bytes_that_wait_are_limited(place: Place) {
    let proxy = place.proxy().await;
    let limits = Limits {
        buffered_bytes_max: 1 << 20,
        ..Limits::default()
    };
    let connect = place.connect_through(&proxy).limits(limits);
    let client = connect
        .session_timeout(Duration::from_secs(40))
        .await
        .unwrap();
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    proxy.hold(Direction::ToServer);
    let data = vec![0; 500_000];
    let mut replies = Vec::new();
    // More than fits into the buffers of the sockets.
    let refused = loop {
        assert!(replies.len() < 200, "100 MB are buffered");
        let sent = client.requests();
        let reply = client.set("/n", &data, None);
        match client.requests() == sent {
            true => break reply.await,
            false => replies.push(reply),
        }
    };
    assert_eq!(refused, Err(Error::Invalid(Invalid::TooManyRequests)));
    proxy.resume(Direction::ToServer);
    for reply in replies {
        soon(reply).await.unwrap();
    }
}

async fn a_reply_that_is_too_large_breaks_the_connection_only(place: Place) {
    let limits = Limits {
        reply_bytes_max: 10_000,
        ..Limits::default()
    };
    let connect = place.connect().limits(limits);
    let client = connect
        .session_timeout(Duration::from_secs(40))
        .await
        .unwrap();
    client
        .create("/big", &[1; 20_000], CreateMode::Persistent)
        .await
        .unwrap();
    client
        .create("/small", &[1; 9_000], CreateMode::Persistent)
        .await
        .unwrap();
    assert_eq!(soon(client.get("/big")).await, Err(Error::Unknown));
    until_connections(&client, 2).await;
    assert_eq!(soon(client.get("/small")).await.unwrap().0.len(), 9_000);
}

async fn large_replies_arrive_whole(place: Place) {
    let client = place.client().await;
    let data: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    client
        .create("/big", &data, CreateMode::Persistent)
        .await
        .unwrap();
    client
        .create("/small", b"s", CreateMode::Persistent)
        .await
        .unwrap();
    let replies: Vec<_> = (0..20)
        .map(|_| (client.get("/big"), client.get("/small")))
        .collect();
    for (big, small) in replies {
        assert_eq!(soon(big).await.unwrap().0, data);
        assert_eq!(&soon(small).await.unwrap().0[..], b"s");
    }
    assert_eq!(client.connections(), 1);
}

async fn unread_events_are_limited(place: Place) {
    let limits = Limits {
        events_max: 10,
        ..Limits::default()
    };
    let client = place.connect().limits(limits).await.unwrap();
    client
        .create("/n", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let mut watch = client.watch("/n", WatchMode::Persistent).await.unwrap();
    for _ in 0..3 {
        let sets: Vec<_> = (0..50).map(|_| client.set("/n", b"", None)).collect();
        for set in sets {
            set.await.unwrap();
        }
        for _ in 0..10 {
            let event = soon(watch.next()).await.unwrap();
            assert!(matches!(event, PersistentEvent::Node(_)), "{event:?}");
        }
        assert_eq!(soon(watch.next()).await, Ok(PersistentEvent::Missed));
    }
    client.delete("/n", None).await.unwrap();
    let event = soon(watch.next()).await.unwrap();
    assert!(matches!(event, PersistentEvent::Node(_)), "{event:?}");
}
