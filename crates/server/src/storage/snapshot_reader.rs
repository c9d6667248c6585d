//! Reads a snapshot, whichever server wrote it.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use adler2::Adler32;

use super::names::Compression;
use super::snapshot_writer::{HEADER, OPEN_ACL};
use crate::proto::acl::{Acl, Id};
use crate::proto::txn::AclList;
use crate::tree::{Node, Owner, Tree, access};

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// The disk failed, or the file ends early.
    #[error("cannot be read")]
    Read(#[from] io::Error),
    /// It is no snapshot, or was changed since it was written.
    #[error("{0}")]
    Damaged(&'static str),
}

/// Reads a snapshot into a tree. `zxid` is the number in its name.
pub(crate) fn read(
    input: Box<dyn Read + Send>,
    packing: Compression,
    zxid: i64,
) -> Result<Tree, SnapshotError> {
    match packing {
        Compression::None => read_plain(input, zxid),
        Compression::Gzip => read_plain(flate2::read::GzDecoder::new(input), zxid),
        Compression::Snappy => read_plain(super::snappy::Blocks::new(input)?, zxid),
    }
}

fn read_plain(input: impl Read, zxid: i64) -> Result<Tree, SnapshotError> {
    let mut source = Source {
        input: BufReader::with_capacity(1 << 20, input),
        sum: Adler32::new(),
    };
    let mut header = [0; 16];
    source.exact(&mut header)?;
    if header[..4] != HEADER[..4] {
        return Err(SnapshotError::Damaged("does not begin as a snapshot does"));
    }
    let mut tree = Tree::empty();
    for _ in 0..source.int()? {
        let (id, timeout_ms) = (source.long()?, source.int()?);
        tree.restore_session(id, timeout_ms);
    }
    let mut acls = HashMap::from([(OPEN_ACL, access::open())]);
    for _ in 0..source.int()? {
        let number = source.long()?;
        acls.insert(number, source.acl_list()?);
    }
    loop {
        let path = source
            .text()?
            .ok_or(SnapshotError::Damaged("has a node without a path"))?;
        if path == "/" {
            break;
        }
        let node = source.node(&acls)?;
        let path = if path.is_empty() {
            "/".into()
        } else {
            Arc::from(path)
        };
        if !tree.restore(path, node) {
            return Err(SnapshotError::Damaged(
                "has a node whose parent does not come before it",
            ));
        }
    }
    // What follows, digests and more seals, is for those who compare; the nodes are all here.
    let expected = i64::from(source.sum.checksum());
    if source.long()? != expected || source.text()?.as_deref() != Some("/") {
        return Err(SnapshotError::Damaged("has a checksum that does not match"));
    }
    if tree.get("/").is_none() {
        return Err(SnapshotError::Damaged("has no root"));
    }
    tree.restored(zxid);
    Ok(tree)
}

/// Reads fields from a file and adds up what it reads.
struct Source<R> {
    input: BufReader<R>,
    sum: Adler32,
}

impl<R: Read> Source<R> {
    fn exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.input.read_exact(bytes)?;
        self.sum.write_slice(bytes);
        Ok(())
    }

    fn int(&mut self) -> io::Result<i32> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes)?;
        Ok(i32::from_be_bytes(bytes))
    }

    fn long(&mut self) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.exact(&mut bytes)?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// A byte string or null. Memory grows with what is really there, not with what is announced.
    fn buffer(&mut self) -> Result<Option<Vec<u8>>, SnapshotError> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let length =
            u64::try_from(length).map_err(|_| SnapshotError::Damaged("has a negative length"))?;
        let mut bytes = Vec::new();
        (&mut self.input).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.sum.write_slice(&bytes);
        Ok(Some(bytes))
    }

    fn text(&mut self) -> Result<Option<String>, SnapshotError> {
        let bytes = self.buffer()?;
        let text = bytes.map(String::from_utf8).transpose();
        text.map_err(|_| SnapshotError::Damaged("has a text that is not UTF-8"))
    }

    fn acl_list(&mut self) -> Result<AclList, SnapshotError> {
        let null = || SnapshotError::Damaged("has an access list with a null in it");
        let mut list = Vec::new();
        for _ in 0..self.int()? {
            let perms = self.int()?;
            let scheme = self.text()?.ok_or_else(null)?;
            let id = self.text()?.ok_or_else(null)?;
            list.push(Acl {
                perms,
                id: Id { scheme, id },
            });
        }
        Ok(list.into())
    }

    fn node(&mut self, acls: &HashMap<i64, AclList>) -> Result<Node, SnapshotError> {
        let data = self.buffer()?.map(Arc::from);
        let acl = acls.get(&self.long()?);
        let acl = acl
            .ok_or(SnapshotError::Damaged("has a node without an access list"))?
            .clone();
        let (czxid, mzxid) = (self.long()?, self.long()?);
        let (ctime, mtime) = (self.long()?, self.long()?);
        let (version, cversion, aversion) = (self.int()?, self.int()?, self.int()?);
        let owner = Owner::from_stored(self.long()?);
        let pzxid = self.long()?;
        Ok(Node {
            data,
            acl,
            czxid,
            mzxid,
            pzxid,
            ctime,
            mtime,
            version,
            cversion,
            aversion,
            owner,
            children: imbl::OrdSet::new(),
            digest: 0,
        })
    }
}
