//! The numbers of the operations.

/// An operation that a client may request, or that the log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in ZooKeeper's OpCode")]
pub enum Op {
    Create,
    Delete,
    Exists,
    GetData,
    SetData,
    GetAcl,
    SetAcl,
    GetChildren,
    Sync,
    Ping,
    GetChildren2,
    Check,
    Multi,
    Create2,
    Reconfig,
    CheckWatches,
    RemoveWatches,
    CreateContainer,
    DeleteContainer,
    CreateTtl,
    MultiRead,
    Auth,
    SetWatches,
    Sasl,
    GetEphemerals,
    GetAllChildrenNumber,
    SetWatches2,
    AddWatch,
    WhoAmI,
    CreateSession,
    CloseSession,
}

/// Every operation with its number on the wire and its name in the output of `cons`.
const NUMBERS: [(Op, i32, &str); 31] = [
    (Op::Create, 1, "CREA"),
    (Op::Delete, 2, "DELE"),
    (Op::Exists, 3, "EXIS"),
    (Op::GetData, 4, "GETD"),
    (Op::SetData, 5, "SETD"),
    (Op::GetAcl, 6, "GETA"),
    (Op::SetAcl, 7, "SETA"),
    (Op::GetChildren, 8, "GETC"),
    (Op::Sync, 9, "SYNC"),
    (Op::Ping, 11, "PING"),
    (Op::GetChildren2, 12, "GETC"),
    (Op::Check, 13, "CHEC"),
    (Op::Multi, 14, "MULT"),
    (Op::Create2, 15, "CREA"),
    (Op::Reconfig, 16, "RECO"),
    (Op::CheckWatches, 17, "CHKW"),
    (Op::RemoveWatches, 18, "REMW"),
    (Op::CreateContainer, 19, "CREA"),
    (Op::DeleteContainer, 20, "DELE"),
    (Op::CreateTtl, 21, "CREA"),
    (Op::MultiRead, 22, "MLTR"),
    (Op::Auth, 100, "NA"),
    (Op::SetWatches, 101, "SETW"),
    (Op::Sasl, 102, "NA"),
    (Op::GetEphemerals, 103, "GETE"),
    (Op::GetAllChildrenNumber, 104, "GETACN"),
    (Op::SetWatches2, 105, "STW2"),
    (Op::AddWatch, 106, "ADDW"),
    (Op::WhoAmI, 107, "HOMI"),
    (Op::CreateSession, -10, "SESS"),
    (Op::CloseSession, -11, "CLOS"),
];

impl Op {
    /// The operation with this number, or `None` if it is unknown.
    pub fn from_number(number: i32) -> Option<Self> {
        NUMBERS.iter().find(|row| row.1 == number).map(|row| row.0)
    }

    /// All operations, each at the place of its discriminant.
    pub fn all() -> impl Iterator<Item = Self> {
        NUMBERS.into_iter().map(|row| row.0)
    }

    /// The number on the wire.
    pub fn number(self) -> i32 {
        NUMBERS[self as usize].1
    }

    /// The short name that `cons` shows for the last operation of a connection.
    pub fn short_name(self) -> &'static str {
        NUMBERS[self as usize].2
    }

    /// Whether the operation takes a zxid, also if it fails.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Create2
                | Self::CreateContainer
                | Self::CreateTtl
                | Self::Delete
                | Self::DeleteContainer
                | Self::SetData
                | Self::SetAcl
                | Self::Check
                | Self::Multi
                | Self::CreateSession
                | Self::CloseSession
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_stands_in_its_own_row() {
        for (index, (op, number, _)) in NUMBERS.into_iter().enumerate() {
            assert_eq!(op as usize, index);
            assert_eq!(Op::from_number(number), Some(op));
            assert_eq!(op.number(), number);
        }
        for unassigned in [-12, -1, 0, 10, 23, 99, 108] {
            assert_eq!(Op::from_number(unassigned), None);
        }
    }
}
