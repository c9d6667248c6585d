//! Stream format of Java's snappy library: a header, then raw snappy blocks.

use std::io::{self, Read};

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";

/// Decompresses block by block.
pub(in crate::storage) struct Blocks<R> {
    input: R,
    block: Vec<u8>,
    position: usize,
}

impl<R: Read> Blocks<R> {
    /// Reads the header.
    pub(in crate::storage) fn new(mut input: R) -> io::Result<Self> {
        let mut head = [0; 16];
        input.read_exact(&mut head)?;
        if head[..8] != MAGIC {
            let why = "has no snappy header";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Self {
            input,
            block: Vec::new(),
            position: 0,
        })
    }

    /// Decompresses the next block; false at the end.
    fn next(&mut self) -> io::Result<bool> {
        let mut length = [0; 4];
        if self.input.by_ref().take(4).read(&mut length[..1])? == 0 {
            return Ok(false);
        }
        self.input.read_exact(&mut length[1..])?;
        let length = u64::from(u32::from_be_bytes(length));
        let mut packed = Vec::new();
        self.input.by_ref().take(length).read_to_end(&mut packed)?;
        self.block = snap::raw::Decoder::new()
            .decompress_vec(&packed)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.position = 0;
        Ok(true)
    }
}

impl<R: Read> Read for Blocks<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.position == self.block.len() {
            if !self.next()? {
                return Ok(0);
            }
        }
        let count = out.len().min(self.block.len() - self.position);
        out[..count].copy_from_slice(&self.block[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }
}
