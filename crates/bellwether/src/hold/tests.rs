//! What a clock that passes a deadline does to holds.

use bellwether_testkit::TestServer;

use crate::hold::HoldState;
use crate::hold::hold_watch::HoldWatch;
use crate::session::liveness::pretended_ensemble::{session, until_unproven};

#[tokio::test]
async fn loss_that_a_watch_has_told_is_final() {
    let server = TestServer::start().await.unwrap();
    let session = session(server.connect_string()).await;
    let watch = HoldWatch::new("/lock", 1.into(), &session);
    assert!(watch.is_held());
    // No hold is there to keep the heart beating.
    until_unproven(&session).await;
    assert!(!watch.is_held());
    session.liveness().prove().await.unwrap();
    assert!(!watch.is_held(), "lost, and held again");
    assert_eq!(watch.state(), HoldState::Lost);
}
