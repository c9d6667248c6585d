//! Groups many writes into few transactions.

use bellwether::zk;
use zk::{Multi, MultiError};

/// The most writes in a transaction.
const WRITES_MAX: usize = 500;

/// The most bytes of paths, data and access lists in a transaction. Servers accept frames of 1 MiB, and each write has a header. A larger
/// write is sent alone.
const BYTES_MAX: usize = 512 * 1024;

/// Splits writes into transactions, in order. `bytes` estimates the size of a write.
pub(crate) fn split<T>(writes: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    let mut batch_bytes = 0;
    for write in writes {
        let write_bytes = bytes(&write);
        if batch.len() == WRITES_MAX || (!batch.is_empty() && batch_bytes + write_bytes > BYTES_MAX)
        {
            batches.push(std::mem::take(&mut batch));
            batch_bytes = 0;
        }
        batch_bytes += write_bytes;
        batch.push(write);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// Why a transaction failed: the error, and the index of the write that was refused, if there is one.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) place: Option<usize>,
    pub(crate) error: zk::Error,
}

/// Sends one transaction.
pub(crate) async fn commit<T>(
    zk: &zk::Client,
    writes: &[T],
    add: impl Fn(&mut Multi<'_>, &T),
) -> Result<(), Refused> {
    let mut writer = zk.new_multi();
    for write in writes {
        add(&mut writer, write);
    }
    match writer.commit().await {
        Ok(_) => Ok(()),
        Err(MultiError::Request(error)) => Err(Refused { place: None, error }),
        Err(MultiError::Refused { index, code }) => Err(Refused {
            place: Some(index),
            error: zk::Error::Refused(code),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_split_by_number_and_by_size() {
        let numbers = split((0..1001).collect(), |_| 1);
        assert_eq!(
            numbers.iter().map(Vec::len).collect::<Vec<_>>(),
            [500, 500, 1]
        );
        let sizes = split(vec![10, BYTES_MAX, 1, 2 * BYTES_MAX, 5, 5], |&bytes| bytes);
        assert_eq!(
            sizes,
            [
                vec![10],
                vec![BYTES_MAX],
                vec![1],
                vec![2 * BYTES_MAX],
                vec![5, 5]
            ]
        );
        assert!(split(Vec::<usize>::new(), |&bytes| bytes).is_empty());
    }
}
