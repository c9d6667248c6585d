//! The limit of a semaphore: a decimal number in the data of the directory.

/// The limit in the data of a semaphore's directory.
pub(crate) fn read_limit(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data).ok()?.trim().parse().ok()
}
