//! For tests: a session that takes one server for an ensemble, so that its proof of life runs out early.

use std::time::Duration;

use bellwether_client as zk;

use crate::session::connect::connect;
use crate::session::liveness::ServerKind;
use crate::session::open_session::Session;

/// A session on one server that takes it for an ensemble: what counts as proof is over long before the session is.
pub(crate) async fn session(address: String) -> Session {
    session_within(address, zk::Limits::default()).await
}

/// The same with other limits.
pub(crate) async fn session_within(address: String, limits: zk::Limits) -> Session {
    let timeout = Duration::from_secs(4);
    let zk = zk::Client::connect(&*address)
        .session_timeout(timeout)
        .limits(limits)
        .await
        .unwrap();
    Session::start(zk, ServerKind::Ensemble, None, connect(address))
}

/// Waits until nothing proves any more that the session is alive.
pub(crate) async fn until_unproven(session: &Session) {
    let passed = async {
        while session.liveness().is_alive() {
            session.runtime().sleep(Duration::from_millis(5)).await;
        }
    };
    let limit = session.session_timeout();
    tokio::time::timeout(limit, passed).await.unwrap();
}
