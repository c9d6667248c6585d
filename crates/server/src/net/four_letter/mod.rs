//! The answers to four-letter words: plain facts in, text out, in the formats of Apache 3.8.
//!
//! Tools read these texts with patterns of their own, so each blank counts. The tests pin them as
//! Apache's server prints them.

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
pub(crate) use monitor::{Monitor, SummaryReport, mntr};
pub(crate) use server::{ServerReport, srvr, stat};
pub(crate) use summary::{Percentiles, Summary};
pub(crate) use watches::{wchc, wchp, wchs};

/// What stands for the version of ZooKeeper: the release whose formats these are, as tools look
/// for `x.y.z-` at its start, then who answers. A build records no date, so that it can be repeated.
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
/// The trace mask at the start (`ZooTrace.traceMask`); it has no effect here.
pub(crate) const TRACE_MASK: i64 = 306;
/// The answer to most words while the server does not serve.
pub(crate) const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// The answer to a word that is not on the list.
pub(crate) fn refused(word: &str) -> String {
    format!("{word} is not executed because it is not in the whitelist.\n")
}

/// The answer to `gtmk`, and to `stmk` with the mask that it sets.
pub(crate) fn mask(mask: i64) -> String {
    mask.to_string()
}

/// The answer to `hash`: digests of the tree as it was after the zxid of each.
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
        assert_eq!(mask(TRACE_MASK), "306");
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
