//! Long histories compared with the reference model, with restarts and without Apache.

use bellwether_testkit::{Body, Create, Model, RawClient, Request, TestServer};
use bellwether_wire::acl::Acl;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::apache::vocabulary::{Theme, Vocabulary};

const HISTORIES: u64 = 40;
const SEGMENTS: usize = 100;
const SESSIONS: usize = 3;

#[tokio::test]
async fn long_histories_are_those_of_the_model() {
    for seed in 0..HISTORIES {
        compare(seed).await;
    }
}

async fn compare(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut vocabulary = Vocabulary::new(seed, Theme::Watches);
    let mut server = TestServer::start().await.unwrap();
    let mut model = Model::new().with_extended_types().with_create2_in_multi();
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        clients.push(RawClient::connect(server.address()).await.unwrap());
        model.open_session();
    }
    for segment in 0..SEGMENTS {
        let who = rng.random_range(0..SESSIONS);
        match rng.random_range(0..100) {
            0..2 => {
                server.restart().await.unwrap();
                for client in &mut clients {
                    *client = client.reattach(server.address()).await.unwrap();
                    assert!(!client.is_refused(), "seed {seed}: the session is lost");
                }
            }
            2..4 => {
                // The end of the counter's range, where it stays.
                let counter = i32::MAX - rng.random_range(0..4);
                if model.set_child_counter("/a", counter).is_ok() {
                    server.set_child_counter("/a", counter).await.unwrap();
                }
            }
            4..8 => {
                let session = clients[who].session_id();
                let reply = clients[who].call(Request::CloseSession).await.unwrap();
                let expected = model.apply(session, 0, &Request::CloseSession);
                assert_eq!((reply.outcome, reply.zxid), (expected, model.zxid()));
                clients[who] = RawClient::connect(server.address()).await.unwrap();
                model.open_session();
            }
            _ => {
                let count = rng.random_range(1..=40);
                let requests: Vec<_> = (0..count)
                    .map(|_| modelled_request(&mut vocabulary, who))
                    .collect();
                let client = &mut clients[who];
                client.send_all(&requests).await.unwrap();
                for request in requests {
                    let reply = client.receive_reply().await.unwrap();
                    let expected = model.apply(client.session_id(), 0, &request);
                    assert_eq!(
                        (reply.outcome.map(Body::without_times), reply.zxid),
                        (expected, model.zxid()),
                        "seed {seed}, segment {segment}: {request:?}"
                    );
                }
                client.take_events();
            }
        }
    }
}

fn modelled_request(vocabulary: &mut Vocabulary, who: usize) -> Request {
    loop {
        let request = vocabulary.request(who);
        if is_modelled(&request) {
            return request;
        }
    }
}

/// No authentication, no requests about watches alone, no raw ones.
fn is_modelled(request: &Request) -> bool {
    let is_simple = |acl: &[Acl]| {
        let schemes = ["world", "none"];
        acl.iter().all(|acl| schemes.contains(&&*acl.id.scheme))
    };
    match request {
        Request::Create(Create { acl, .. }) | Request::SetAcl { acl, .. } => is_simple(acl),
        Request::Multi(operations) | Request::MultiRead(operations) => {
            operations.iter().all(is_modelled)
        }
        Request::AddWatch { .. }
        | Request::CheckWatches { .. }
        | Request::RemoveWatches { .. }
        | Request::SetWatches(_)
        | Request::SetWatches2(_)
        | Request::WhoAmI
        | Request::Reconfig { .. }
        | Request::Raw { .. } => false,
        _ => true,
    }
}
