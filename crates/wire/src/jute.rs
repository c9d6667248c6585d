//! Jute, the encoding of ZooKeeper's records: big-endian numbers and length-prefixed strings.

use std::borrow::Cow;

use bytes::{Buf, BufMut};

/// A record that ends early, or an impossible length.
///
/// A server answers such a request with [`ErrorCode::MarshallingError`](crate::code::ErrorCode).
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

    /// The bytes that have not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// One byte; any value but zero is true, as in Apache.
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

    /// A text, read as [`text`] does.
    pub fn ustring(&mut self) -> Result<Option<Cow<'a, str>>, Malformed> {
        Ok(self.buffer()?.map(text))
    }

    /// A text that may not be null, as an owned string.
    pub fn string(&mut self) -> Result<String, Malformed> {
        Ok(self.ustring()?.ok_or(Malformed)?.into_owned())
    }

    /// A list of texts, none of which may be null.
    pub fn strings(&mut self) -> Result<Vec<String>, Malformed> {
        self.vector(Self::string)?.ok_or(Malformed)
    }

    /// A list; `None` is null. Any other count below one is an empty list.
    ///
    /// The count is not trusted: memory grows only with the elements that are present.
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

/// Decodes `bytes` as text. Java writes a character beyond the basic plane as two surrogates of three bytes each
/// (`BinaryOutputArchive.stringToByteBuffer`), which is not UTF-8 but is accepted here. Other invalid bytes become
/// U+FFFD, as in Java.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(String::from_utf8_lossy(&join_surrogates(bytes)).into_owned()),
    }
}

/// The same bytes, with each pair of surrogates replaced by one character.
fn join_surrogates(mut bytes: &[u8]) -> Vec<u8> {
    let unit =
        |middle: u8, last: u8| 0xD000 | u16::from(middle & 0x3F) << 6 | u16::from(last & 0x3F);
    let mut joined = Vec::with_capacity(bytes.len());
    while let [first, rest @ ..] = bytes {
        bytes = match bytes {
            [
                0xED,
                high @ 0xA0..=0xAF,
                high_end @ 0x80..=0xBF,
                0xED,
                low @ 0xB0..=0xBF,
                low_end @ 0x80..=0xBF,
                behind @ ..,
            ] => {
                let pair = [unit(*high, *high_end), unit(*low, *low_end)];
                joined.extend(String::from_utf16_lossy(&pair).bytes());
                behind
            }
            _ => {
                joined.push(*first);
                rest
            }
        };
    }
    joined
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

    /// A text, or null.
    fn put_ustring_or_null(&mut self, text: Option<&str>) {
        self.put_buffer(text.map(str::as_bytes));
    }

    /// The length or count before a string or a list.
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
    fn a_pair_of_surrogates_is_a_character_and_a_single_one_is_none() {
        for (bytes, expected) in [
            (&b"\xed\xa0\xbd\xed\xb8\x80"[..], "\u{1f600}"),
            (b"\xed\xa0\x80\xed\xb0\x80", "\u{10000}"),
            (b"\xed\xaf\xbf\xed\xbf\xbf", "\u{10ffff}"),
            (b"\xf0\x9f\x98\x80", "\u{1f600}"),
            (
                b"a\xed\xa0\xbd\xed\xb8\x80\xc3\xa9\xff",
                "a\u{1f600}\u{e9}\u{fffd}",
            ),
            (b"\xed\xa0\xbd", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xed\x9f\xbf\xee\x80\x80", "\u{d7ff}\u{e000}"),
        ] {
            assert_eq!(text(bytes), expected, "{bytes:x?}");
        }
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
