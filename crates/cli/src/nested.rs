//! Locks that a command asks for while the job around it holds them: it would wait for itself.

use bellwether::{Client, Contention, Wants};

use crate::refusal::Refusal;
use crate::workplace::owner;

/// The tokens of all holds around a command.
pub(crate) const VARIABLE: &str = "BELLWETHER_HELD";

/// What the variable says to a job under one more hold.
pub(crate) fn tokens_with(token: i64) -> String {
    let mut tokens: Vec<_> = tokens().iter().map(i64::to_string).collect();
    tokens.push(token.to_string());
    tokens.join(" ")
}

/// Refuses to wait at a path for a hold of the job around this command. Other commands of the same job are no reason: they end
/// by themselves.
pub(crate) async fn check(
    client: &Client,
    path: &str,
    shares_with: impl Fn(Wants) -> bool,
) -> Result<(), Refusal> {
    let around = tokens();
    if around.is_empty() {
        return Ok(());
    }
    // Whoever takes a place in the line next hears why it cannot be read.
    let line = Contention::new(client, path).line().await;
    let owner = owner(client);
    let mut line = line.iter().flatten();
    let is_around = line.any(|one| {
        let is_own = around.contains(&one.token) && one.owner() == owner;
        is_own && one.holds && !shares_with(one.wants)
    });
    match is_around {
        true => Err(Refusal::usage(format!(
            "the job around this command holds {path}: it would wait for itself"
        ))
        .hint("within the job, what needs the lock can run without another one")),
        false => Ok(()),
    }
}

fn tokens() -> Vec<i64> {
    let tokens = std::env::var(VARIABLE).unwrap_or_default();
    let tokens = tokens.split(' ').map(str::parse);
    tokens.filter_map(Result::ok).collect()
}
