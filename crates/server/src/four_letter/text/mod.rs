//! Formats the answers to four-letter words as Apache 3.8 does.
//!
//! Tools parse these texts with their own patterns, so every space matters. The tests pin the output of Apache's server.

mod configuration;
mod connections;
mod dump;
mod monitor;
mod server;
mod summary;
mod watches;

pub(crate) use configuration::{DirectorySizes, Environment, conf, dirs, envi};
pub(crate) use connections::{ConnectionReport, Interest, SessionReport, cons};
pub(crate) use dump::{ConnectionEntry, Dump, ExpiryBucket, dump};
pub(crate) use monitor::{MonitorText, mntr};
pub(crate) use server::{ServerReport, srvr, stat};
pub(crate) use watches::{wchc, wchp, wchs};

/// Stands for the version of ZooKeeper: first the release whose formats these are, because tools expect `x.y.z-` at the start, then the
/// name of this server. There is no build date, so that builds are reproducible.
pub(crate) const VERSION: &str = concat!(
    "3.8.0-bellwether-",
    env!("CARGO_PKG_VERSION"),
    ", built on an unrecorded date"
);

/// The answer to `ruok`.
pub(crate) const RUOK: &str = "imok";
/// The answer to `isro` of a server that takes writes.
pub(crate) const ISRO: &str = "rw";
/// The answer to `srst`.
pub(crate) const SRST: &str = "Server stats reset.\n";
/// The answer to `crst`.
pub(crate) const CRST: &str = "Connection stats reset.\n";

/// The answer to a word that is not enabled.
pub(crate) fn refused(word: &str) -> String {
    format!("{word} is not executed because it is not in the whitelist.\n")
}

/// The answer to `gtmk`, and to `stmk` with the new mask.
pub(crate) fn mask(mask: i64) -> String {
    mask.to_string()
}

/// The answer to `hash`: digests of the tree with their zxids.
pub(crate) fn hash(digests: impl IntoIterator<Item = (i64, u64)>) -> String {
    digests
        .into_iter()
        .map(|(zxid, digest)| format!("{zxid:x}: {digest}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_answers_are_as_in_apache() {
        assert_eq!(mask(306), "306");
        assert_eq!(mask(-1), "-1");
        assert_eq!(
            refused("stat"),
            "stat is not executed because it is not in the whitelist.\n"
        );
        assert_eq!(hash([(0x80, 10_901_358_764)]), "80: 10901358764\n");
        assert_eq!(hash([]), "");
    }

    #[test]
    fn the_version_starts_with_three_numbers_and_a_hyphen() {
        let (numbers, rest) = VERSION.split_once('-').unwrap();
        let numbers: Vec<u32> = numbers.split('.').map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 3);
        assert!(rest.contains(", built on ") && !VERSION.contains(['\t', '\n', ':']));
    }
}
