//! Requests with a null or truncated part.

use bellwether_testkit::Request;
use bellwether_wire::acl::{self, Acl};
use bellwether_wire::jute::Writer as _;
use bellwether_wire::op::Op;
use bytes::{BufMut as _, BytesMut};
use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Vocabulary;

impl Vocabulary {
    /// A request that contains a null.
    pub(super) fn with_null(&mut self) -> Request {
        match self.rng.random_range(0..4) {
            0 | 1 => self.null_path(&[
                Op::Create,
                Op::Create2,
                Op::Delete,
                Op::GetData,
                Op::SetData,
                Op::GetAcl,
                Op::SetAcl,
                Op::GetChildren,
                Op::GetChildren2,
                Op::Sync,
                Op::Check,
                Op::GetEphemerals,
                Op::GetAllChildrenNumber,
                Op::CheckWatches,
                Op::RemoveWatches,
            ]),
            2 => self.null_acl(),
            _ => {
                // Null lists, or a list with one null.
                let mut body = BytesMut::new();
                body.put_i64(0);
                for _ in 0..3 {
                    match self.rng.random_range(0..3) {
                        0 => body.put_i32(0),
                        1 => body.put_i32(-1),
                        _ => body.put_slice(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
                    }
                }
                raw(Op::SetWatches, body)
            }
        }
    }

    pub(super) fn null_path(&mut self, ops: &[Op]) -> Request {
        let op = *ops.choose(&mut self.rng).unwrap();
        let mut body = BytesMut::new();
        body.put_buffer(None);
        match op {
            Op::Create | Op::Create2 => {
                body.put_buffer(None);
                Acl::encode_list(&self.acl(), &mut body);
                body.put_i32(self.rng.random_range(0..4));
            }
            Op::SetData => {
                body.put_buffer(None);
                body.put_i32(-1);
            }
            Op::SetAcl => {
                Acl::encode_list(&self.acl(), &mut body);
                body.put_i32(-1);
            }
            Op::GetData | Op::GetChildren | Op::GetChildren2 => body.put_bool(false),
            Op::CheckWatches | Op::RemoveWatches => body.put_i32(3),
            Op::Delete | Op::Check => body.put_i32(-1),
            _ => {}
        }
        raw(op, body)
    }

    /// A create or setACL whose list, scheme or id is null.
    pub(super) fn null_acl(&mut self) -> Request {
        let op = *[Op::Create, Op::SetAcl].choose(&mut self.rng).unwrap();
        let mut body = BytesMut::new();
        body.put_ustring(&self.path());
        if op == Op::Create {
            body.put_buffer(None);
        }
        let schemes = ["world", "digest", "ip", "auth", "none"];
        match self.rng.random_range(0..3) {
            0 => body.put_i32(-1),
            1 => {
                body.put_i32(1);
                body.put_i32(acl::ALL);
                body.put_buffer(None);
                body.put_ustring("anyone");
            }
            _ => {
                body.put_i32(1);
                body.put_i32(acl::ALL);
                body.put_ustring(schemes.choose(&mut self.rng).unwrap());
                body.put_buffer(None);
            }
        }
        body.put_i32(-1);
        if op == Op::Create {
            let end = body.len() - 4;
            body[end..].copy_from_slice(&0i32.to_be_bytes());
        }
        raw(op, body)
    }

    /// The request without its end.
    pub(super) fn cut(&mut self, request: Request) -> Request {
        let mut body = BytesMut::new();
        request.encode_body(&mut body);
        body.truncate(self.rng.random_range(0..body.len()));
        Request::Raw {
            op: request.number(),
            body: body.to_vec(),
        }
    }
}

fn raw(op: Op, body: BytesMut) -> Request {
    Request::Raw {
        op: op.number(),
        body: body.to_vec(),
    }
}
