use std::time::Duration;

use bellwether_testkit::{Engine, RawClient, Request};

#[tokio::test]
async fn what_is_left_is_seen_on_the_embedded_server() {
    what_is_left_is_seen(Engine::embedded().await.unwrap()).await;
}

#[tokio::test]
async fn what_is_left_is_seen_on_apache() {
    what_is_left_is_seen(Engine::apache().await.unwrap()).await;
}

#[tokio::test]
async fn what_is_left_is_seen_on_an_ensemble() {
    what_is_left_is_seen(Engine::ensemble().await.unwrap()).await;
}

async fn what_is_left_is_seen(mut engine: Engine) {
    let before = engine.census().await.unwrap();
    let mut client = RawClient::connect(engine.addresses()[0]).await.unwrap();
    for request in [
        Request::create_ephemeral("/a"),
        Request::get_data("/a").watching(),
    ] {
        client.call(request).await.unwrap().ok().unwrap();
    }
    let now = engine.census().await.unwrap();
    assert_eq!(now.nodes, before.nodes + 1);
    assert_eq!(now.ephemerals, before.ephemerals + 1);
    assert_eq!(now.watches, before.watches + 1);
    assert_eq!(now.sessions, before.sessions + 1);
    let moment = Duration::from_millis(50);
    let left = engine.back_at(&before, moment).await.unwrap_err();
    assert!(left.to_string().contains("something is left"), "{left}");

    engine.restart().await.unwrap();
    let mut client = client.reattach(engine.addresses()[0]).await.unwrap();
    client
        .call(Request::CloseSession)
        .await
        .unwrap()
        .ok()
        .unwrap();
    engine
        .back_at(&before, Duration::from_secs(10))
        .await
        .unwrap();
}
