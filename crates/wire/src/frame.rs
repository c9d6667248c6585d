//! Frames: every message is a length and `length` bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// How many bytes the length takes.
pub const LENGTH_BYTES: usize = 4;

/// A length that is negative or above the limit. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame of {0} bytes")]
pub struct BadLength(pub i32);

/// Takes one whole frame from the front of `input`, or returns `None` while it is incomplete.
///
/// A bad length is refused before its body has arrived.
pub fn take(input: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, BadLength> {
    let Some(length) = peek(input, bytes_max)?.map(<[u8]>::len) else {
        return Ok(None);
    };
    input.advance(LENGTH_BYTES);
    Ok(Some(input.split_to(length).freeze()))
}

/// Returns the body of the frame at the front of `input`, or `None` while it is incomplete.
pub fn peek(input: &[u8], bytes_max: usize) -> Result<Option<&[u8]>, BadLength> {
    let Some((prefix, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let announced = i32::from_be_bytes(*prefix);
    let length = usize::try_from(announced)
        .ok()
        .filter(|length| *length <= bytes_max)
        .ok_or(BadLength(announced))?;
    Ok(rest.get(..length))
}

/// Appends one frame whose body `write` appends. The body must be shorter than 2 GiB: a caller whose
/// body may be longer checks that first.
pub fn put(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_i32(0);
    write(out);
    let length = out.len() - start - 4;
    let length = i32::try_from(length).expect("the body of a frame is shorter than 2 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_out_as_it_went_in_however_it_is_cut() {
        let mut wire = BytesMut::new();
        put(&mut wire, |body| body.put_slice(b"one"));
        put(&mut wire, |_| {});
        let mut input = BytesMut::new();
        let mut frames = Vec::new();
        for byte in wire {
            input.put_u8(byte);
            frames.extend(take(&mut input, 3).unwrap());
        }
        assert_eq!(frames, [Bytes::from("one"), Bytes::new()]);
    }

    #[test]
    fn bad_lengths_are_refused_before_the_body() {
        for (bytes, length) in [([0xff; 4], -1), ([0, 0, 0, 4], 4)] {
            assert_eq!(
                take(&mut BytesMut::from(&bytes[..]), 3),
                Err(BadLength(length))
            );
        }
    }
}
