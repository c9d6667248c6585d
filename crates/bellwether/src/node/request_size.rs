//! How much one request may carry.

/// Servers close the connection on a frame of more than a mebibyte, and would do so each time it is sent again.
pub(crate) const REQUEST_BYTES_MAX: usize = 1_000_000;

/// What one write in a request takes besides path, data and access list: headers, lengths, flags or a version.
pub(crate) const WRITE_OVERHEAD_BYTES: usize = 30;
