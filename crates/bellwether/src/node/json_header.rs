//! The data of a node that is for programs and for people: a line of JSON, then bytes as they are.

use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) fn to_data(header: &impl Serialize, bytes: &[u8]) -> Vec<u8> {
    let mut data = serde_json::to_vec(header).expect("strings and numbers are JSON");
    data.push(b'\n');
    data.extend_from_slice(bytes);
    data
}

/// The header and the bytes; `None` if another program wrote the data.
pub(crate) fn from_data<T: DeserializeOwned>(data: &[u8]) -> Option<(T, &[u8])> {
    let end = data.iter().position(|&byte| byte == b'\n')?;
    let header = serde_json::from_slice(&data[..end]).ok()?;
    Some((header, &data[end + 1..]))
}
