use bellwether_testkit::TestServer;
use futures_util::FutureExt as _;

use super::*;
use crate::session::pretended_ensemble::session;

const NODE: &str = "/dir/node-";

fn create(writer: &mut zk::Multi<'_>) {
    writer.create(NODE, b"", zk::CreateMode::PersistentSequential);
}

struct Scene {
    _server: TestServer,
    receipts: Receipts,
}

impl Scene {
    /// With a receipt that an operation has used before, or without any.
    async fn new(is_used: bool) -> Self {
        let server = TestServer::start().await.unwrap();
        let session = session(server.connect_string()).await;
        let dir = NodePath::parse("/dir").unwrap();
        let container = zk::CreateMode::Persistent;
        session.zk().create("/dir", b"", container).await.unwrap();
        let receipts = Receipts::new(&session, dir, Access::default());
        if is_used {
            let mut operation = receipts.operation().unwrap();
            let written = operation.send(|writer| writer.check("/dir", None));
            written.await.unwrap();
        }
        Self {
            _server: server,
            receipts,
        }
    }

    /// A try that was sent and got no answer: it is on its way.
    fn sent<'a>(&'a self, operation: &mut Operation<'_>) -> zk::Multi<'a> {
        let mut late = self.receipts.session.zk().new_multi();
        operation.add_receipt(&mut late);
        create(&mut late);
        operation.in_doubt = true;
        // The connection was lost, and the session has another one.
        operation.connection = 0;
        late
    }

    async fn nodes(&self) -> usize {
        let names = self.receipts.session.zk().children("/dir").await.unwrap();
        let is_receipt = |name: &String| name.starts_with(RECEIPT);
        names.len() - names.iter().filter(|name| is_receipt(name)).count()
    }
}

fn is_refused(late: Result<Vec<zk::MultiResult>, zk::MultiError>) -> bool {
    matches!(late, Err(zk::MultiError::Refused { index: 0, .. }))
}

#[tokio::test]
async fn try_that_arrives_after_a_later_one_has_no_effect() {
    for is_used in [false, true] {
        let scene = Scene::new(is_used).await;
        let mut operation = scene.receipts.operation().unwrap();
        let late = scene.sent(&mut operation);
        let written = operation.send(create).await;
        assert!(matches!(written, Ok(Written::Answered(_))), "{written:?}");
        assert!(is_refused(late.commit().await));
        assert_eq!(scene.nodes().await, 1);
    }
}

#[tokio::test]
async fn try_that_arrives_when_the_receipt_is_no_longer_needed_has_no_effect() {
    for is_used in [false, true] {
        let scene = Scene::new(is_used).await;
        let mut operation = scene.receipts.operation().unwrap();
        let late = scene.sent(&mut operation);
        operation.send(create).await.unwrap();
        drop(operation);
        scene.receipts.sweep();
        scene.receipts.session.cleaner().swept().await;
        assert!(is_refused(late.commit().await));
        assert_eq!(scene.nodes().await, 1);
    }
}

#[tokio::test]
async fn try_that_arrives_when_its_caller_has_given_up_has_no_effect() {
    for is_used in [false, true] {
        let scene = Scene::new(is_used).await;
        let mut operation = scene.receipts.operation().unwrap();
        let late = scene.sent(&mut operation);
        drop(operation);
        scene.receipts.session.cleaner().swept().await;
        assert!(is_refused(late.commit().await));
        assert_eq!(scene.nodes().await, 0);
    }
}

#[tokio::test]
async fn try_to_create_a_receipt_has_no_effect_when_a_later_operation_is_given_up() {
    let scene = Scene::new(false).await;
    let mut operation = scene.receipts.operation().unwrap();
    let late = scene.sent(&mut operation);
    operation.send(create).await.unwrap();
    drop(operation);
    let mut next = scene.receipts.operation().unwrap();
    let next_late = scene.sent(&mut next);
    drop(next);
    scene.receipts.session.cleaner().swept().await;
    assert!(is_refused(late.commit().await));
    assert!(is_refused(next_late.commit().await));
    assert_eq!(scene.nodes().await, 1);
}

/// The later operation is dropped while its request is under way, and all its requests have one connection.
#[tokio::test]
async fn try_to_create_a_receipt_has_no_effect_when_a_later_call_is_dropped() {
    let scene = Scene::new(false).await;
    let mut operation = scene.receipts.operation().unwrap();
    let late = scene.sent(&mut operation);
    operation.send(create).await.unwrap();
    drop(operation);
    let mut next = scene.receipts.operation().unwrap();
    assert!(next.send(create).now_or_never().is_none());
    drop(next);
    let session = &scene.receipts.session;
    session.cleaner().swept().await;
    // What the cleaner does next would be ahead of this.
    session.zk().sync("/dir").await.unwrap();
    assert!(is_refused(late.commit().await));
    assert_eq!(scene.nodes().await, 2);
}

#[tokio::test]
async fn withdrawal_whose_reply_was_lost_is_no_change_by_another_client() {
    for is_used in [false, true] {
        let scene = Scene::new(is_used).await;
        let mut operation = scene.receipts.operation().unwrap();
        let late = scene.sent(&mut operation);
        let zk = scene.receipts.session.zk();
        // What the withdrawal has written before its reply was lost.
        match is_used {
            true => drop(zk.set(&operation.path, b"", None).await.unwrap()),
            false => {
                let mode = zk::CreateMode::Ephemeral;
                zk.create(&operation.path, b"", mode).await.unwrap();
            }
        }
        let refusal = zk::MultiError::Refused {
            index: 1,
            code: zk::ErrorCode::NoNode,
        };
        let withdrawn = operation.withdraw(refusal).await;
        assert!(
            matches!(withdrawn, Err(OnceError::Refused(_))),
            "{withdrawn:?}"
        );
        assert!(is_refused(late.commit().await));
    }
}

#[tokio::test]
async fn try_that_took_effect_is_found() {
    for is_used in [false, true] {
        let scene = Scene::new(is_used).await;
        let mut operation = scene.receipts.operation().unwrap();
        scene.sent(&mut operation).commit().await.unwrap();
        let written = operation.send(create).await;
        assert!(matches!(written, Ok(Written::ByReceipt)), "{written:?}");
        assert_eq!(scene.nodes().await, 1);
        drop(operation);
        // The receipt can be used again.
        let mut next = scene.receipts.operation().unwrap();
        next.send(create).await.unwrap();
        assert_eq!(scene.nodes().await, 2);
    }
}

#[tokio::test]
async fn receipt_that_stays_for_late_tries_keeps_its_room() {
    for was_in_doubt in [false, true] {
        let scene = Scene::new(false).await;
        let mut operation = scene.receipts.operation().unwrap();
        let late = was_in_doubt.then(|| scene.sent(&mut operation));
        operation.send(create).await.unwrap();
        drop((operation, late));
        scene.receipts.sweep();
        let session = &scene.receipts.session;
        session.cleaner().swept().await;
        let names = session.zk().children("/dir").await.unwrap();
        let is_there = names.iter().any(|name| name.starts_with(RECEIPT));
        assert_eq!(is_there, was_in_doubt);
        assert_eq!(session.ephemeral_quota().bytes() > 0, was_in_doubt);
    }
}

#[tokio::test]
async fn try_that_arrives_after_a_refusal_has_no_effect() {
    for is_used in [false, true] {
        let scene = Scene::new(is_used).await;
        let mut operation = scene.receipts.operation().unwrap();
        let late = scene.sent(&mut operation);
        let written = operation
            .send(|writer| writer.delete("/missing", None))
            .await;
        assert!(matches!(written, Err(OnceError::Refused(_))), "{written:?}");
        assert!(is_refused(late.commit().await));
        assert_eq!(scene.nodes().await, 0);
    }
}

#[tokio::test]
async fn refusal_of_a_try_whose_predecessor_took_effect_is_its_success() {
    for is_used in [false, true] {
        let scene = Scene::new(is_used).await;
        let mut operation = scene.receipts.operation().unwrap();
        scene.sent(&mut operation).commit().await.unwrap();
        let written = operation
            .send(|writer| writer.delete("/missing", None))
            .await;
        assert!(matches!(written, Ok(Written::ByReceipt)), "{written:?}");
    }
}

#[tokio::test]
async fn receipt_that_another_client_deleted_is_replaced_or_leaves_the_outcome_unknown() {
    for is_in_doubt in [false, true] {
        let scene = Scene::new(true).await;
        let mut operation = scene.receipts.operation().unwrap();
        let zk = scene.receipts.session.zk();
        zk.delete(&operation.path, None).await.unwrap();
        operation.in_doubt = is_in_doubt;
        let written = operation.send(create).await;
        match is_in_doubt {
            false => assert!(matches!(written, Ok(Written::Answered(_))), "{written:?}"),
            true => assert!(
                matches!(written, Err(OnceError::OutcomeUnknown(zk::Error::NO_NODE))),
                "{written:?}"
            ),
        }
    }
}

#[tokio::test]
async fn call_that_is_dropped_while_it_waits_leaves_no_receipt() {
    for is_used in [false, true] {
        let scene = Scene::new(is_used).await;
        let session = &scene.receipts.session;
        let mut operation = scene.receipts.operation().unwrap();
        // Polled once: the request is sent, and not answered.
        assert!(operation.send(create).now_or_never().is_none());
        drop(operation);
        scene.receipts.sweep();
        session.cleaner().swept().await;
        let names = session.zk().children("/dir").await.unwrap();
        assert!(!names.iter().any(|name| name.starts_with(RECEIPT)));
        assert_eq!(session.ephemeral_quota().bytes(), 0);
    }
}

#[tokio::test]
async fn refusal_after_which_the_directory_is_missing_too_can_be_mended() {
    let scene = Scene::new(false).await;
    let zk = scene.receipts.session.zk();
    let mut operation = scene.receipts.operation().unwrap();
    operation.in_doubt = true;
    zk.delete("/dir", None).await.unwrap();
    let refusal = zk::MultiError::Refused {
        index: 1,
        code: zk::ErrorCode::NoNode,
    };
    let withdrawn = operation.withdraw(refusal).await;
    let missing = zk::MultiError::Refused {
        index: 0,
        code: zk::ErrorCode::NoNode,
    };
    assert!(
        matches!(withdrawn, Err(OnceError::Refused(error)) if error == missing),
        "the caller makes the directory"
    );
    let persistent = zk::CreateMode::Persistent;
    zk.create("/dir", b"", persistent).await.unwrap();
    operation.send(create).await.unwrap();
    assert_eq!(scene.nodes().await, 1);
}
