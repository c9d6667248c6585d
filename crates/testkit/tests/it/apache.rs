use bellwether_testkit::{Apache, Ensemble, RawClient, Request};

#[tokio::test]
async fn data_survives_a_kill_and_a_stop() {
    let mut server = Apache::start().await.unwrap();
    let address = server.address();
    let mut client = RawClient::connect(address).await.unwrap();
    client
        .call(Request::create("/a", ""))
        .await
        .unwrap()
        .ok()
        .unwrap();
    server.kill();
    client.closed().await.unwrap();
    server.restart().await.unwrap();
    let mut client = client.reattach(address).await.unwrap();
    client
        .call(Request::delete("/a"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    server.stop().await.unwrap();
    server.restart().await.unwrap();
    let mut client = client.reattach(address).await.unwrap();
    client
        .call(Request::exists("/a"))
        .await
        .unwrap()
        .ok()
        .unwrap_err();
}

#[tokio::test]
async fn an_ensemble_elects_another_leader() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
    let first = ensemble.leader().await.unwrap();
    let mut client = RawClient::connect(ensemble.address(first)).await.unwrap();
    client
        .call(Request::create("/a", ""))
        .await
        .unwrap()
        .ok()
        .unwrap();
    ensemble.kill(first);
    let second = ensemble.leader().await.unwrap();
    assert_ne!(first, second);
    let mut client = client.reattach(ensemble.address(second)).await.unwrap();
    client
        .call(Request::exists("/a"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    ensemble.restart(first).await.unwrap();
}
