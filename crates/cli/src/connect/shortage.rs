//! Finds out why a server refuses to store more: the error code is that of an exceeded quota.

use std::io;

use bellwether::zk::{Dial as _, four_letter_word};

use super::{Whereabouts, dial_for_words, whereabouts};
use crate::args::ConnectArgs;
use crate::output::refusal::is_over_quota;

/// The line of `srvr` that embedded servers add while they refuse writes that make the tree larger.
const LINE: &str = "Refuses growth: ";

/// The same error, with what the server says of its disk and memory, if it says anything.
pub(super) async fn explained(error: anyhow::Error, args: &ConnectArgs) -> anyhow::Error {
    if !is_over_quota(&error) {
        return error;
    }
    match reason(args).await {
        Some(reason) => error.context(format!("the server cannot store more: {reason}")),
        None => error,
    }
}

async fn reason(args: &ConnectArgs) -> Option<String> {
    let dial = dial_for_words(args).await.ok()?;
    let answers = match whereabouts(args).ok()? {
        Whereabouts::Local(folder) => {
            let connecting = async {
                let stream = folder.connect().await.map_err(io::Error::other)?;
                stream.ok_or_else(|| io::ErrorKind::NotConnected.into())
            };
            vec![four_letter_word(connecting, "srvr").await]
        }
        Whereabouts::Named(endpoints) => {
            let mut answers = Vec::new();
            for endpoint in endpoints {
                answers.push(four_letter_word(dial.dial(&endpoint), "srvr").await);
            }
            answers
        }
    };
    let answers = answers.into_iter().flatten();
    let mut reasons = answers.filter_map(|answer| {
        let line = answer.lines().find_map(|line| line.strip_prefix(LINE))?;
        Some(line.to_owned())
    });
    reasons.next()
}
