//! List of four-letter words that a server answers.

/// All four-letter words that this server has.
const WORDS: [&str; 20] = [
    "addr", "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok",
    "slow", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
];

/// The enabled words. Other words are refused with a line that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordList(Vec<&'static str>);

impl Default for WordList {
    /// Only `srvr`, as in Apache.
    fn default() -> Self {
        Self(vec!["srvr"])
    }
}

/// A word that this server does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown four-letter word {0:?}")]
pub struct UnknownWord(String);

impl WordList {
    /// All words.
    pub fn all() -> Self {
        Self(WORDS.to_vec())
    }

    /// No words at all.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Parses a list such as `ruok, mntr`, or `*` for all. `srvr` is always included, as in Apache.
    pub fn parse(text: &str) -> Result<Self, UnknownWord> {
        if text.trim() == "*" {
            return Ok(Self::all());
        }
        text.split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(|word| known(word).ok_or_else(|| UnknownWord(word.to_owned())))
            .chain([Ok("srvr")])
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether `word` is answered.
    pub fn contains(&self, word: &str) -> bool {
        self.0.contains(&word)
    }
}

/// Returns the word, if this server has it.
pub(crate) fn known(word: &str) -> Option<&'static str> {
    WORDS.into_iter().find(|known| *known == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_with_spaces_and_stars() {
        let list = WordList::parse("ruok, mntr").unwrap();
        assert!(list.contains("ruok") && list.contains("mntr") && !list.contains("stat"));
        assert!(list.contains("srvr"));
        assert!(WordList::parse(" * ").unwrap().contains("wchp"));
        assert!(WordList::parse("RUOK").is_err());
    }
}
