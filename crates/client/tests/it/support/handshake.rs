//! The answer of a server to a handshake, for servers that tests make up.

/// The handshake of a client, with its length.
pub(crate) const REQUEST_BYTES: usize = 4 + 45;

/// A whole frame that grants a session.
pub(crate) fn granted(timeout_ms: i32, is_read_only: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend(37_i32.to_be_bytes());
    frame.extend(0_i32.to_be_bytes());
    frame.extend(timeout_ms.to_be_bytes());
    frame.extend(7_i64.to_be_bytes());
    frame.extend(16_i32.to_be_bytes());
    frame.extend([1; 16]);
    frame.push(u8::from(is_read_only));
    frame
}
