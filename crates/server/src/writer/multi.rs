//! Several writes as one: all or nothing.

use bytes::BytesMut;

use super::acl_pool::AclPool;
use super::prepare::{Mode, Preparation, Rules};
use super::writer::put_result;
use crate::proto::acl::Id;
use crate::proto::code::ErrorCode;
use crate::proto::multi::{self, Ops, WriteOp};
use crate::proto::op::Op;
use crate::proto::txn::{Lifetime, Txn, TxnBody};
use crate::tree::{Change, Tree};

/// What a multi came to.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What the log records: the writes, or errors from the one that failed on.
    pub(super) body: TxnBody,
    /// The version that it makes; the one before if it failed.
    pub(super) tree: Tree,
    pub(super) changes: Vec<Change>,
    /// The results, one by one: a multi that failed is answered like one that succeeded.
    pub(super) results: BytesMut,
}

/// Why a multi has no results.
#[derive(Debug)]
pub(super) enum Spoiled {
    /// Answered with the code alone.
    Malformed,
    /// A path that is null is noticed late in Apache: the code comes with an empty list.
    NullPath,
}

/// Decides the operations in order, each on what the ones before it made.
pub(super) fn decide(
    tree: &Tree,
    rules: Rules,
    ids: &[Id],
    acl_pool: &mut AclPool,
    txn: &Txn,
    ops: Ops<'_>,
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
    for op in ops {
        let mut preparation = Preparation {
            tree: &next,
            rules,
            ids,
            acl_pool,
            acl_bytes_left: &mut acl_bytes_left,
        };
        match prepare(&mut preparation, op) {
            Ok((kind, body)) => {
                next.apply_body(txn, &body, &mut changes);
                multi::put_success(&mut results, kind);
                put_result(&mut results, kind, &body, &next);
                bodies.push(body);
            }
            // Spoils all of it, too, but only when its turn comes: an access list with a null id, or
            // a mode with a time to live in a record that has no place for one.
            Err(ErrorCode::MarshallingError) => return Err(Spoiled::Malformed),
            Err(code) => return Ok(failed(tree, bodies, count, code)),
        }
    }
    multi::put_end(&mut results);
    Ok(Outcome {
        body: TxnBody::Multi(bodies),
        tree: next,
        changes,
        results,
    })
}

/// Prepares one operation, and tells as what its result is reported.
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

/// The writes before the failure keep their records, the ones behind it are not even looked at.
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
    }
}
