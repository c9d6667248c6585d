//! Requests that a server shall not know: their operations get numbers that no server has.

use std::collections::HashSet;

use bellwether_wire::jute::{Malformed, Reader};
use bellwether_wire::op::Op;
use bellwether_wire::request::{Create, PathVersion, PathWatch, RequestHeader, SetData};
use bytes::{Bytes, BytesMut};

/// An operation number that no server has.
const UNKNOWN_OP: [u8; 4] = 999_999_i32.to_be_bytes();

/// Hides operations in a frame without its length: that of the request, and those in the list of a multi.
pub(super) fn disguise(frame: &Bytes, hidden: &HashSet<Op>) -> Bytes {
    // What is malformed is for the server to refuse.
    let places = operations(frame).unwrap_or_default();
    let mut disguised = BytesMut::from(&frame[..]);
    for (op, place) in places {
        if hidden.contains(&op) {
            disguised[place..place + UNKNOWN_OP.len()].copy_from_slice(&UNKNOWN_OP);
        }
    }
    disguised.freeze()
}

/// The operations of a request, and where their numbers are.
fn operations(frame: &Bytes) -> Result<Vec<(Op, usize)>, Malformed> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader)?;
    // After the xid.
    let mut found: Vec<_> = Op::from_number(header.op)
        .map(|op| (op, 4))
        .into_iter()
        .collect();
    if !matches!(found[..], [(Op::Multi | Op::MultiRead, _)]) {
        return Ok(found);
    }
    loop {
        let place = frame.len() - reader.rest().len();
        let op = reader.int()?;
        let is_end = reader.bool()?;
        reader.int()?;
        if is_end {
            return Ok(found);
        }
        let op = Op::from_number(op).ok_or(Malformed)?;
        found.push((op, place));
        match op {
            Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
                Create::decode(op, &mut reader)?;
            }
            Op::Delete | Op::Check => drop(PathVersion::decode(&mut reader)?),
            Op::SetData => drop(SetData::decode(&mut reader)?),
            Op::GetData | Op::GetChildren => drop(PathWatch::decode(&mut reader)?),
            _ => return Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use bellwether_wire::multi;
    use bellwether_wire::request;

    use super::*;

    fn multi() -> Bytes {
        let mut frame = BytesMut::new();
        request::put(&mut frame, 7, Op::Multi, |out| {
            multi::put_op(out, Op::Check);
            request::put_path_version(out, "/", -1);
            multi::put_op(out, Op::CreateContainer);
            request::put_create(out, "/n", None, &[], 4, None);
            multi::put_end(out);
        });
        frame.freeze().slice(4..)
    }

    #[test]
    fn operations_are_hidden_alone_and_in_lists() {
        let frame = multi();
        let hide = |op| disguise(&frame, &HashSet::from([op]));
        assert_eq!(hide(Op::Create2), frame);
        assert_eq!(disguise(&frame, &HashSet::new()), frame);
        assert_eq!(operations(&hide(Op::Multi)), Ok(Vec::new()));
        let hidden = hide(Op::CreateContainer);
        assert_eq!(operations(&hidden), Err(Malformed));
        let changed = frame.iter().zip(&hidden).filter(|(a, b)| a != b);
        assert!((1..=4).contains(&changed.count()));
    }
}
