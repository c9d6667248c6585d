//! Operations that older servers lack, made of older ones.
//!
//! The answers are put together as newer servers encode them, so that callers see no difference but a longer wait. The first request of a
//! session that needs a feature shows whether the servers have it: see [`Client::supports`].

use std::sync::Arc;

use bellwether_wire::jute::Reader;
use bellwether_wire::multi::{self, Ops, ReadOp};
use bellwether_wire::op::Op;
use bellwether_wire::request;
use bytes::{Bytes, BytesMut};

use crate::clock::Moment;
use crate::core::features::Feature;
use crate::core::requests::Answer;
use crate::driver::shared::Shared;
use crate::error::Error;
use crate::handle::client::Client;
use crate::handle::own_session::OwnSession;
use crate::handle::reply::{Answering, Request, decode_body};

impl Client {
    /// Sends a create2. Servers before 3.5 get a create, and then an exists for the Stat.
    pub(crate) fn send_create2(&self, put_body: impl FnOnce(&mut BytesMut)) -> Answering {
        if self.has(Feature::Create2) == Some(true) {
            return self.answering(send(self.shared(), Op::Create2, put_body));
        }
        let mut body = BytesMut::new();
        put_body(&mut body);
        self.send_or(Op::Create2, body.freeze(), create_and_look)
    }

    /// Sends a multiRead with this list of reads. Servers before 3.6 get the reads one by one, but together.
    pub(crate) fn send_multi_read(&self, mut reads: BytesMut) -> Answering {
        multi::put_end(&mut reads);
        if self.has(Feature::MultiRead) == Some(true) {
            let put_reads = |out: &mut BytesMut| out.extend_from_slice(&reads);
            return self.answering(send(self.shared(), Op::MultiRead, put_reads));
        }
        self.send_or(Op::MultiRead, reads.freeze(), read_each)
    }

    fn has(&self, feature: Feature) -> Option<bool> {
        self.shared().look(|session| session.feature(feature))
    }

    /// Sends a request, or the older ones that `instead` sends when it is called, if the servers do not know the operation.
    fn send_or<F>(
        &self,
        op: Op,
        body: Bytes,
        instead: fn(Arc<OwnSession>, &Bytes) -> F,
    ) -> Answering
    where
        F: Future<Output = Answer> + Send + Sync + 'static,
    {
        let shared = Arc::clone(self.shared());
        match send(&shared, op, |out| out.extend_from_slice(&body)) {
            Err(Error::UNIMPLEMENTED) => Answering::later(self.patiently(instead(shared, &body))),
            sent => Answering::later(self.patiently(async move {
                match answer(sent).await {
                    Err(Error::UNIMPLEMENTED) => instead(shared, &body).await,
                    answer => answer,
                }
            })),
        }
    }
}

/// Creates a node, and then looks at it.
fn create_and_look(
    shared: Arc<OwnSession>,
    body: &Bytes,
) -> impl Future<Output = Answer> + Send + Sync + use<> {
    let created = send(&shared, Op::Create, |out| out.extend_from_slice(body));
    async move {
        let created = answer(created).await?;
        let path = decode_body(&created, |reader| reader.string())?;
        loop {
            let looked = send(&shared, Op::Exists, |out| {
                request::put_path_watch(out, &path, false);
            });
            match answer(looked).await {
                Ok(stat) => return Ok([created, stat].concat().into()),
                Err(Error::NotSent | Error::Unknown) => {}
                Err(error @ Error::SessionEnded(_)) => return Err(error),
                // Another client has deleted it, or there are too many requests: for the caller, as if the answer to the create were lost.
                Err(_) => return Err(Error::Unknown),
            }
        }
    }
}

/// Sends every read of a list in a request of its own.
fn read_each(
    shared: Arc<OwnSession>,
    list: &Bytes,
) -> impl Future<Output = Answer> + Send + Sync + use<> {
    let reads = match Ops::decode(&mut Reader::new(list)) {
        Ok(Ops::Reads(reads)) => reads,
        // This client wrote the list itself.
        _ => Vec::new(),
    };
    shared.begin_batch();
    let send = |read: ReadOp<'_>| {
        let (op, node) = match read {
            ReadOp::GetData(node) => (Op::GetData, node),
            ReadOp::GetChildren(node) => (Op::GetChildren, node),
        };
        let path = node.path.unwrap_or_default();
        let sent = send(&shared, op, |out| {
            request::put_path_watch(out, &path, false)
        });
        (op, sent)
    };
    let sent: Vec<(Op, Request)> = reads.into_iter().map(send).collect();
    shared.end_batch();
    async move {
        let mut answers = BytesMut::new();
        for (op, request) in sent {
            match answer(request).await {
                Ok(body) => {
                    multi::put_success(&mut answers, op);
                    answers.extend_from_slice(&body);
                }
                Err(Error::Refused(code)) => multi::put_failure(&mut answers, Err(code)),
                Err(error) => return Err(error),
            }
        }
        multi::put_end(&mut answers);
        Ok(answers.freeze())
    }
}

fn send(shared: &Shared, op: Op, put_body: impl FnOnce(&mut BytesMut)) -> Request {
    let request = shared.with(|session| session.request(Moment::now(), op, None, put_body));
    request.map(|(receiver, _)| receiver)
}

async fn answer(request: Request) -> Answer {
    // The session never drops a request without an answer.
    request?.await.unwrap_or(Err(Error::Unknown))
}
