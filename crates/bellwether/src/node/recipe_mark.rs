//! The lasting mark of a directory: which recipe it belongs to, as its data.
//!
//! Servers delete empty containers, so directories inside a recipe may be missing, and the remaining ones may not identify the recipe. The
//! mark lives as long as the recipe's own directory.

use serde::{Deserialize, Serialize};

/// Which recipe a directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecipeMark {
    Queue,
    Tasks,
}

#[derive(Serialize, Deserialize)]
struct Data {
    version: u32,
    recipe: RecipeMark,
}

impl RecipeMark {
    pub(crate) fn to_data(self) -> Vec<u8> {
        let data = Data {
            version: 1,
            recipe: self,
        };
        serde_json::to_vec(&data).expect("strings and numbers are JSON")
    }

    /// Reads the data of a directory; `None` if it is no mark.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        let data: Data = serde_json::from_slice(data).ok()?;
        Some(data.recipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_read_as_it_was_written_and_nothing_else_is_a_mark() {
        assert_eq!(
            RecipeMark::Queue.to_data(),
            br#"{"version":1,"recipe":"queue"}"#
        );
        for mark in [RecipeMark::Queue, RecipeMark::Tasks] {
            assert_eq!(RecipeMark::from_data(&mark.to_data()), Some(mark));
        }
        for data in [&b""[..], b"5", br#"{"version":1}"#, br#"{"recipe":"stew"}"#] {
            assert_eq!(RecipeMark::from_data(data), None);
        }
    }
}
