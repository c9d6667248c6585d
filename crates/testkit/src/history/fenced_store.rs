//! A store outside ZooKeeper that a lock guards, with fencing tokens.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use anyhow::Result;

use crate::history::{Event, What};

/// A file that many processes write to, and that refuses a lower token than the last.
///
/// It shows what a fencing token is for: a holder that was paused or cut off past its deadline may still write, and
/// the store refuses it.
#[derive(Debug)]
pub struct FencedStore {
    /// Holds the highest token so far.
    file: File,
}

impl FencedStore {
    /// Opens the store, which is empty if the file is new.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        Ok(Self { file })
    }

    /// Writes with a token, and returns the result as an event. The times of such events are in the order of the writes.
    pub fn write(&mut self, who: usize, token: i64) -> Result<Event> {
        self.file.lock()?;
        let written = self.write_locked(who, token);
        self.file.unlock()?;
        written
    }

    fn write_locked(&mut self, who: usize, token: i64) -> Result<Event> {
        let mut highest = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut highest)?;
        let accepted = highest.is_empty() || token >= highest.parse()?;
        if accepted {
            // The same length each time: a process that is killed leaves no partial record.
            self.file.rewind()?;
            self.file.write_all(format!("{token:020}").as_bytes())?;
        }
        Ok(Event::now(who, What::Wrote { token, accepted }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_tokens_are_refused_whoever_comes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut writers = [(); 2].map(|()| FencedStore::open(&path).unwrap());
        let mut answers = Vec::new();
        for (who, token) in [
            (0, 5),
            (1, 5),
            (1, 0x1_0000_0000),
            (0, 6),
            (1, 0x1_0000_0000),
        ] {
            match writers[who].write(who, token).unwrap().what {
                What::Wrote { accepted, .. } => answers.push(accepted),
                what => panic!("{what:?}"),
            }
        }
        assert_eq!(answers, [true, true, true, false, true]);
    }
}
