//! Record format of a log file.

use adler2::adler32_slice;
use bytes::{BufMut, BytesMut};

use crate::tree::txn::Txn;

/// File header: `ZKLG`, version 2, database 0.
pub(crate) const HEADER: [u8; 16] = *b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0";

/// Part of the header that readers check.
pub(crate) const MAGIC: &[u8] = b"ZKLG";

/// Bytes before the payload: checksum and length.
pub(crate) const PREFIX_BYTES: usize = 12;

/// Byte after the payload.
pub(crate) const END: u8 = b'B';

/// Appends a record. The checksum covers only the payload.
pub(crate) fn put(out: &mut BytesMut, txn: &Txn, digest: Option<u64>) {
    let start = out.len();
    out.put_bytes(0, PREFIX_BYTES);
    txn.encode(digest, out);
    let payload = &out[start + PREFIX_BYTES..];
    let checksum = adler32_slice(payload);
    let length = i32::try_from(payload.len()).expect("a transaction is about as long as a frame");
    out[start..start + 8].copy_from_slice(&i64::from(checksum).to_be_bytes());
    out[start + 8..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    out.put_u8(END);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::txn::TxnBody;

    /// A record that Apache's own reader accepted.
    #[test]
    fn a_record_is_apaches_byte_for_byte() {
        let txn = Txn {
            session_id: 0x0100_0000_0000_0001,
            cxid: 0,
            zxid: 1,
            time_ms: 1_700_000_000_000,
            body: TxnBody::CreateSession { timeout_ms: 10_000 },
        };
        let mut record = BytesMut::new();
        put(&mut record, &txn, Some(1_371_985_504));
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "000000009101092500000030010000000000000100000000000000000000000100000",
                "18bcfe56800fffffff600002710000000020000000051c6d66042"
            )
        );
    }
}
