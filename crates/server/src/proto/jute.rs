//! Jute, the encoding of ZooKeeper's records: big-endian numbers and length-prefixed strings.

use std::borrow::Cow;

use bytes::{Buf, BufMut};

/// A record that ends early, or a length that cannot be.
///
/// In a request it is answered with [`ErrorCode::MarshallingError`](super::code::ErrorCode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed record")]
pub struct Malformed;

/// Reads fields from the front of a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// One byte; anything but zero is true, as Apache reads it.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        self.rest
            .try_get_u8()
            .map(|byte| byte != 0)
            .map_err(|_| Malformed)
    }

    /// A signed 32-bit number.
    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.rest.try_get_i32().map_err(|_| Malformed)
    }

    /// A signed 64-bit number.
    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.rest.try_get_i64().map_err(|_| Malformed)
    }

    /// A byte string; `None` is null, which is not the same as empty.
    pub fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(Some(bytes))
    }

    /// A text; bytes that are not UTF-8 become U+FFFD, as in Java.
    pub fn ustring(&mut self) -> Result<Option<Cow<'a, str>>, Malformed> {
        Ok(self.buffer()?.map(String::from_utf8_lossy))
    }

    /// A list; `None` is null. Any other count below one is an empty list.
    ///
    /// The count is not trusted: memory grows with the elements that are really there.
    pub fn vector<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = self.int()?;
        if count == -1 {
            return Ok(None);
        }
        (0..count)
            .map(|_| element(self))
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// Appends fields to a buffer.
pub trait Writer: BufMut {
    /// One byte, 0 or 1.
    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    /// A byte string, or null.
    fn put_buffer(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.put_i32(-1),
            Some(bytes) => {
                self.put_count(bytes.len());
                self.put_slice(bytes);
            }
        }
    }

    /// A text.
    fn put_ustring(&mut self, text: &str) {
        self.put_buffer(Some(text.as_bytes()));
    }

    /// The length or count that stands before a string or a list.
    fn put_count(&mut self, count: usize) {
        self.put_i32(i32::try_from(count).expect("frames are far smaller than 2 GiB"));
    }
}

impl<B: BufMut + ?Sized> Writer for B {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_are_different() {
        let mut bytes = Vec::new();
        bytes.put_buffer(None);
        bytes.put_buffer(Some(b""));
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.buffer(), Ok(None));
        assert_eq!(reader.buffer(), Ok(Some(&b""[..])));
        assert_eq!(reader.buffer(), Err(Malformed));
    }

    #[test]
    fn a_huge_count_costs_no_memory() {
        let bytes = i32::MAX.to_be_bytes();
        assert_eq!(Reader::new(&bytes).vector(Reader::long), Err(Malformed));
    }

    #[test]
    fn negative_counts_read_as_empty_but_minus_one_is_null() {
        assert_eq!(
            Reader::new(&(-2i32).to_be_bytes()).vector(Reader::int),
            Ok(Some(vec![]))
        );
        assert_eq!(
            Reader::new(&(-1i32).to_be_bytes()).vector(Reader::int),
            Ok(None)
        );
        assert_eq!(Reader::new(&(-2i32).to_be_bytes()).buffer(), Err(Malformed));
    }
}
