//! Reads a snapshot of either server.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use adler2::Adler32;
use bellwether_wire::acl::{Acl, Id};
use bellwether_wire::jute;

use crate::storage::names::{Compression, DataFile};
use crate::storage::progress::Progress;
use crate::storage::snapshot::writer::{DIGEST_VERSION, HEADER, OPEN_ACL};
use crate::tree::txn::{AclList, Data};
use crate::tree::{Node, Owner, Tree, access};

/// Maximum bytes to read after the nodes. The trailer is far shorter.
const TRAILER_BYTES_MAX: u64 = 1024;

/// Length of a digest with its zxid and version, and of the checksum after it.
const DIGEST_BYTES: usize = 20;
const SEAL_BYTES: usize = 13;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum SnapshotError {
    /// The disk failed.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// It is not a snapshot, is incomplete, or was changed since. The offset counts decompressed bytes.
    #[error("{why} at offset {offset}")]
    Damaged { offset: u64, why: &'static str },
}

/// One node of a snapshot.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "named as in ZooKeeper's StatPersisted")]
pub struct SnapshotNode {
    /// Its position in the decompressed file.
    pub offset: u64,
    /// Its full path, `/` for the root.
    pub path: Arc<str>,
    pub data: Data,
    /// One entry of the scheme `unknown` if the file lacks the list. Apache writes nodes created meanwhile without their lists, and
    /// recovers those from the log.
    pub acl: AclList,
    pub czxid: i64,
    pub mzxid: i64,
    pub pzxid: i64,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    /// Number of children ever created here; clients see a different number.
    pub cversion: i32,
    pub aversion: i32,
    /// Session id of an ephemeral node; other values mark containers and TTLs.
    pub ephemeral_owner: i64,
}

impl SnapshotNode {
    /// Whether the file lacks its access list.
    pub fn lacks_acl(&self) -> bool {
        access::is_unknown(&self.acl)
    }
}

/// Reads a snapshot: first its sessions, then node by node.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether_server::files::SnapshotReader;
///
/// let file = std::fs::File::open("version-2/snapshot.0")?;
/// let mut snapshot = SnapshotReader::open(file, "snapshot.0")?;
/// println!("{} sessions", snapshot.sessions().len());
/// while let Some(node) = snapshot.next()? {
///     println!("{}", node.path);
/// }
/// # Ok(()) }
/// ```
pub struct SnapshotReader<'a> {
    source: Source<Box<dyn Read + 'a>>,
    sessions: Vec<(i64, i32)>,
    acls: HashMap<i64, AclList>,
    done: bool,
}

impl<'a> SnapshotReader<'a> {
    /// Reads everything before the nodes. The extension of `name` tells whether the file is compressed.
    pub fn open(input: impl Read + 'a, name: &str) -> Result<Self, SnapshotError> {
        let packing = match DataFile::parse(name) {
            Some(DataFile::Snapshot(_, packing)) => packing,
            _ => Compression::None,
        };
        Self::unpack(input, packing)
    }

    fn unpack(input: impl Read + 'a, packing: Compression) -> Result<Self, SnapshotError> {
        Self::begin(match packing {
            Compression::None => Box::new(input),
            Compression::Gzip => Box::new(flate2::read::GzDecoder::new(input)),
            Compression::Snappy => Box::new(super::snappy::Blocks::new(input).map_err(at(0))?),
        })
    }

    fn begin(input: Box<dyn Read + 'a>) -> Result<Self, SnapshotError> {
        let mut source = Source {
            input: BufReader::with_capacity(1 << 20, input),
            offset: 0,
            sum: Adler32::new(),
        };
        let mut header = [0; 16];
        source.exact(&mut header)?;
        if header[..4] != HEADER[..4] {
            return Err(SnapshotError::Damaged {
                offset: 0,
                why: "has no snapshot header",
            });
        }
        let mut sessions = Vec::new();
        for _ in 0..source.int()? {
            sessions.push((source.long()?, source.int()?));
        }
        let mut acls = HashMap::from([(OPEN_ACL, access::open())]);
        for _ in 0..source.int()? {
            let number = source.long()?;
            acls.insert(number, source.acl_list()?);
        }
        Ok(Self {
            source,
            sessions,
            acls,
            done: false,
        })
    }

    /// Sessions with their timeouts in milliseconds.
    pub fn sessions(&self) -> &[(i64, i32)] {
        &self.sessions
    }

    /// Returns the next node, parents before their children; `None` when all were read and the checksum matches.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator could not fail so simply"
    )]
    pub fn next(&mut self) -> Result<Option<SnapshotNode>, SnapshotError> {
        if self.done {
            return Ok(None);
        }
        let offset = self.source.offset;
        let path = self
            .source
            .text()?
            .ok_or_else(|| self.source.damaged("has a node without a path"))?;
        if path != "/" {
            return self.source.node(offset, path, &self.acls).map(Some);
        }
        let expected = i64::from(self.source.sum.checksum());
        if self.source.long()? != expected || self.source.text()?.as_deref() != Some("/") {
            return Err(self.source.damaged("has a checksum that does not match"));
        }
        self.done = true;
        Ok(None)
    }

    /// Digest after the nodes, and its zxid; known once [`SnapshotReader::next`] has returned `None`. Files without a digest are equally
    /// valid.
    pub fn digest(&mut self) -> Result<Option<(i64, u64)>, SnapshotError> {
        let mut sum = self.source.sum;
        let mut trailer = Vec::new();
        let (input, offset) = (&mut self.source.input, self.source.offset);
        let read = input.take(TRAILER_BYTES_MAX).read_to_end(&mut trailer);
        read.map_err(at(offset))?;
        let Some((digest, rest)) = trailer.split_at_checked(DIGEST_BYTES) else {
            return Ok(None);
        };
        sum.write_slice(digest);
        let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        if rest.len() < SEAL_BYTES || digest[8..12] != DIGEST_VERSION.to_be_bytes() {
            return Ok(None);
        }
        if number(&rest[..8]) != i64::from(sum.checksum()) {
            let why = "has a digest whose checksum does not match";
            return Err(SnapshotError::Damaged { offset, why });
        }
        Ok(Some((
            number(&digest[..8]),
            number(&digest[12..]).cast_unsigned(),
        )))
    }
}

impl std::fmt::Debug for SnapshotReader<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SnapshotReader")
            .field("offset", &self.source.offset)
            .finish_non_exhaustive()
    }
}

/// Content of a snapshot.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) tree: Tree,
    /// Nodes whose access lists are missing here and must be in the log.
    pub(crate) without_acl: Vec<Arc<str>>,
    /// Its digest, with the zxid of the digest.
    pub(crate) digest: Option<(i64, u64)>,
}

/// Reads a snapshot into a tree. `packing` and `zxid` come from its name.
pub(crate) fn read(
    input: Box<dyn Read + Send>,
    name: &str,
    packing: Compression,
    zxid: i64,
) -> Result<Snapshot, SnapshotError> {
    let mut snapshot = SnapshotReader::unpack(input, packing)?;
    let mut tree = Tree::empty();
    let mut without_acl = Vec::new();
    for (id, timeout_ms) in snapshot.sessions() {
        tree.open_session(*id, *timeout_ms);
    }
    let mut progress = Progress::of(name);
    while let Some(node) = snapshot.next()? {
        progress.count();
        let offset = node.offset;
        if node.lacks_acl() {
            without_acl.push(node.path.clone());
        }
        if !tree.restore(node.path.clone(), node.into()) {
            return Err(SnapshotError::Damaged {
                offset,
                why: "contains a node before its parent",
            });
        }
    }
    if tree.get("/").is_none() {
        return Err(snapshot.source.damaged("has no root"));
    }
    tree.restored(zxid);
    Ok(Snapshot {
        tree,
        without_acl,
        digest: snapshot.digest()?,
    })
}

impl From<SnapshotNode> for Node {
    fn from(node: SnapshotNode) -> Self {
        Self {
            data: node.data,
            acl: node.acl,
            czxid: node.czxid,
            mzxid: node.mzxid,
            pzxid: node.pzxid,
            ctime: node.ctime,
            mtime: node.mtime,
            version: node.version,
            cversion: node.cversion,
            aversion: node.aversion,
            owner: Owner::from_stored(node.ephemeral_owner),
            children: imbl::OrdSet::new(),
            below: Default::default(),
            digest: 0,
        }
    }
}

/// Maps an input error at `offset` to a disk failure or a damaged file.
fn at(offset: u64) -> impl Fn(io::Error) -> SnapshotError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::Damaged {
            offset,
            why: "ends early",
        },
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => SnapshotError::Damaged {
            offset,
            why: "cannot be decompressed",
        },
        _ => SnapshotError::Read(error),
    }
}

/// Reads fields from a file and computes the checksum.
struct Source<R> {
    input: BufReader<R>,
    offset: u64,
    sum: Adler32,
}

impl<R: Read> Source<R> {
    fn damaged(&self, why: &'static str) -> SnapshotError {
        let offset = self.offset;
        SnapshotError::Damaged { offset, why }
    }

    fn exact(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotError> {
        self.input.read_exact(bytes).map_err(at(self.offset))?;
        self.took(bytes);
        Ok(())
    }

    fn took(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
        self.sum.write_slice(bytes);
    }

    fn int(&mut self) -> Result<i32, SnapshotError> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes)?;
        Ok(i32::from_be_bytes(bytes))
    }

    fn long(&mut self) -> Result<i64, SnapshotError> {
        let mut bytes = [0; 8];
        self.exact(&mut bytes)?;
        Ok(i64::from_be_bytes(bytes))
    }

    /// Reads a byte string or null. Memory grows with the bytes actually present, not with the announced length.
    fn buffer(&mut self) -> Result<Option<Vec<u8>>, SnapshotError> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        let length = u64::try_from(length).map_err(|_| self.damaged("has a negative length"))?;
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(length).read_to_end(&mut bytes);
        read.map_err(at(self.offset))?;
        if bytes.len() as u64 != length {
            return Err(self.damaged("ends early"));
        }
        self.took(&bytes);
        Ok(Some(bytes))
    }

    /// Reads a text or null, encoded as on the wire and in logs.
    fn text(&mut self) -> Result<Option<String>, SnapshotError> {
        let bytes = self.buffer()?;
        Ok(bytes.map(|bytes| jute::text(&bytes).into_owned()))
    }

    fn acl_list(&mut self) -> Result<AclList, SnapshotError> {
        let mut list = Vec::new();
        for _ in 0..self.int()? {
            let perms = self.int()?;
            let (Some(scheme), Some(id)) = (self.text()?, self.text()?) else {
                return Err(self.damaged("has an access list with a null in it"));
            };
            list.push(Acl {
                perms,
                id: Id { scheme, id },
            });
        }
        Ok(list.into())
    }

    fn node(
        &mut self,
        offset: u64,
        path: String,
        acls: &HashMap<i64, AclList>,
    ) -> Result<SnapshotNode, SnapshotError> {
        let data = self.buffer()?.map(Arc::from);
        let acl = acls.get(&self.long()?).cloned();
        let acl = acl.unwrap_or_else(access::unknown);
        let (czxid, mzxid) = (self.long()?, self.long()?);
        let (ctime, mtime) = (self.long()?, self.long()?);
        let (version, cversion, aversion) = (self.int()?, self.int()?, self.int()?);
        let (ephemeral_owner, pzxid) = (self.long()?, self.long()?);
        Ok(SnapshotNode {
            offset,
            path: if path.is_empty() { "/" } else { &path }.into(),
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
            ephemeral_owner,
        })
    }
}
