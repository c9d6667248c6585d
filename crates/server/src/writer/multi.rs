//! `multi`: several writes that succeed or fail together.

use bellwether_wire::acl::Id;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::multi::{self, Ops, WriteOp};
use bellwether_wire::op::Op;
use bytes::BytesMut;

use super::acl_pool::AclPool;
use super::growth::{Allowance, Shortage};
use super::prepare::{Mode, Preparation, Rules};
use super::writer::put_result;
use crate::tree::txn::{Lifetime, Txn, TxnBody};
use crate::tree::{Change, Growth, Tree};

/// Result of a multi.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What the log records: the writes, or errors from the failed operation on.
    pub(super) body: TxnBody,
    /// The next tree version; the unchanged one if the multi failed.
    pub(super) tree: Tree,
    pub(super) changes: Vec<Change>,
    /// Encoded results. A failed multi is answered in the same form as a successful one.
    pub(super) results: BytesMut,
    /// Why the multi is refused although each of its operations is valid.
    pub(super) shortage: Option<Shortage>,
}

/// Why a multi has no results.
#[derive(Debug)]
pub(super) enum Spoiled {
    /// Answered with the error code alone.
    Malformed,
    /// Apache detects a null path late: the reply has the code and an empty list.
    NullPath,
}

/// Decides the operations in order, each on the result of the previous ones.
pub(super) fn decide(
    tree: &Tree,
    rules: Rules,
    ids: &[Id],
    acl_pool: &mut AclPool,
    txn: &Txn,
    ops: Ops<'_>,
    allowance: Option<Allowance>,
) -> Result<Outcome, Spoiled> {
    let ops = match ops {
        Ops::Writes(ops) => ops,
        Ops::Empty => Vec::new(),
        Ops::Reads(_) => return Err(Spoiled::Malformed),
    };
    if ops.iter().any(WriteOp::path_is_null) {
        return Err(Spoiled::NullPath);
    }
    let count = ops.len();
    let mut next = tree.clone();
    let mut bodies = Vec::with_capacity(count);
    let mut changes = Vec::new();
    let mut results = BytesMut::new();
    let mut acl_bytes_left = rules.acl_bytes_max;
    let mut growth = Growth::default();
    let mut first_that_stores = None;
    for op in ops {
        let mut preparation = Preparation {
            tree: &next,
            rules,
            session_id: txn.session_id,
            ids,
            acl_pool,
            acl_bytes_left: &mut acl_bytes_left,
        };
        match prepare(&mut preparation, op) {
            Ok((kind, body)) => {
                if allowance.is_some() {
                    let part = next.growth(&body);
                    growth += part;
                    first_that_stores = first_that_stores.or(part.stores.then_some(bodies.len()));
                }
                next.apply_body(txn, &body, &mut changes);
                multi::put_success(&mut results, kind);
                put_result(&mut results, kind, &body, &next);
                bodies.push(body);
            }
            // Also fails the whole multi, but only once the operation is reached: an access list with a null id, or a TTL mode in a record
            // that has no TTL field.
            Err(ErrorCode::MarshallingError) => return Err(Spoiled::Malformed),
            Err(code) => return Ok(failed(tree, bodies, count, code)),
        }
    }
    if let Some(shortage) = allowance.and_then(|allowance| allowance.refuses(growth)) {
        bodies.truncate(first_that_stores.unwrap_or(0));
        return Ok(Outcome {
            shortage: Some(shortage),
            ..failed(tree, bodies, count, ErrorCode::QuotaExceeded)
        });
    }
    multi::put_end(&mut results);
    Ok(Outcome {
        body: TxnBody::Multi(bodies),
        tree: next,
        changes,
        results,
        shortage: None,
    })
}

/// Prepares one operation. Also returns the operation type to report in its result.
fn prepare(preparation: &mut Preparation<'_>, op: WriteOp<'_>) -> Result<(Op, TxnBody), ErrorCode> {
    match op {
        WriteOp::Create(_, create) if matches!(create.flags, 5 | 6) && create.ttl_ms.is_none() => {
            Err(ErrorCode::MarshallingError)
        }
        WriteOp::Create(op, create) => {
            let mode = Mode::of_flags(&create, preparation.rules)?;
            let reported = match mode.lifetime {
                Lifetime::Container | Lifetime::Ttl { .. } => Op::Create2,
                _ if op == Op::Create2 => Op::Create2,
                _ => Op::Create,
            };
            Ok((reported, preparation.create(mode, create)?))
        }
        WriteOp::Delete(body) => Ok((Op::Delete, preparation.delete(&body)?)),
        WriteOp::SetData(body) => Ok((Op::SetData, preparation.set_data(&body)?)),
        WriteOp::Check(body) => Ok((Op::Check, preparation.check(&body)?)),
    }
}

/// Operations before the failed one keep their records; those after it are not checked.
fn failed(tree: &Tree, mut bodies: Vec<TxnBody>, count: usize, code: ErrorCode) -> Outcome {
    let mut results = BytesMut::new();
    for _ in &bodies {
        multi::put_failure(&mut results, Ok(()));
    }
    multi::put_failure(&mut results, Err(code));
    let failed_at = bodies.len();
    bodies.push(TxnBody::Error(code.number()));
    for _ in failed_at + 1..count {
        multi::put_failure(&mut results, Err(ErrorCode::RuntimeInconsistency));
        bodies.push(TxnBody::Error(ErrorCode::RuntimeInconsistency.number()));
    }
    multi::put_end(&mut results);
    Outcome {
        body: TxnBody::Multi(bodies),
        tree: tree.clone(),
        changes: Vec::new(),
        results,
        shortage: None,
    }
}
