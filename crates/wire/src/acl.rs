//! Access lists (ACLs) as records of the protocol.

use crate::jute::{Malformed, Reader, Writer};

/// The right to read data, children and access list.
pub const READ: i32 = 1;
/// The right to set data.
pub const WRITE: i32 = 2;
/// The right to create children.
pub const CREATE: i32 = 4;
/// The right to delete children.
pub const DELETE: i32 = 8;
/// The right to set the access list, and to read it unredacted.
pub const ADMIN: i32 = 16;
/// All rights.
pub const ALL: i32 = 31;

/// An identity, in the terms of an authentication scheme.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id {
    /// The scheme: `world`, `digest`, `ip` …
    pub scheme: String,
    /// The identity, in the format of the scheme.
    pub id: String,
}

impl Id {
    /// The id `id` of `scheme`.
    pub fn new(scheme: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            scheme: scheme.into(),
            id: id.into(),
        }
    }

    /// All clients: `world:anyone`.
    pub fn anyone() -> Self {
        Self::new("world", "anyone")
    }

    /// The length of the record in bytes.
    pub fn encoded_bytes(&self) -> usize {
        4 + self.scheme.len() + 4 + self.id.len()
    }
}

/// The rights of one identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl {
    /// Sum of [`READ`], [`WRITE`], [`CREATE`], [`DELETE`] and [`ADMIN`]; other bits are kept as sent.
    pub perms: i32,
    /// The identity that has the rights.
    pub id: Id,
}

impl Acl {
    /// The rights `perms` for `id`.
    pub fn new(perms: i32, id: Id) -> Self {
        Self { perms, id }
    }

    /// All rights for all clients.
    pub fn open() -> Self {
        Self::new(ALL, Id::anyone())
    }

    /// All rights for the identities that the client of the request has authenticated as.
    pub fn creator() -> Self {
        Self::new(ALL, Id::new("auth", ""))
    }

    /// The length of the record in bytes.
    pub fn encoded_bytes(&self) -> usize {
        4 + self.id.encoded_bytes()
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut impl Writer) {
        out.put_i32(self.perms);
        out.put_ustring(&self.id.scheme);
        out.put_ustring(&self.id.id);
    }

    /// Reads a record of a server or of its log, in which neither scheme nor id is null.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let RawAcl { perms, scheme, id } = RawAcl::decode(reader)?;
        let id = Id::new(scheme.ok_or(Malformed)?, id.ok_or(Malformed)?);
        Ok(Self { perms, id })
    }

    /// Appends a list of records.
    pub fn encode_list(list: &[Self], out: &mut impl Writer) {
        out.put_count(list.len());
        for acl in list {
            acl.encode(out);
        }
    }
}

/// One entry of a list as a client sent it: scheme and id may be null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawAcl {
    /// The rights.
    pub perms: i32,
    /// The scheme, or null.
    pub scheme: Option<String>,
    /// The id, or null.
    pub id: Option<String>,
}

impl RawAcl {
    /// Reads one entry.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            perms: reader.int()?,
            scheme: reader.ustring()?.map(Into::into),
            id: reader.ustring()?.map(Into::into),
        })
    }
}
