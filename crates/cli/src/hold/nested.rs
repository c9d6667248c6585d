//! Refuses to wait for a lock that the job around this command holds: it would wait for itself.

use bellwether::inspect::{Contention, Wants};
use bellwether::{Client, FencingToken};

use crate::hold::job_runner::owner;
use crate::output::refusal::Refusal;

/// The variable with the tokens of all holds around a command.
pub(crate) const VARIABLE: &str = "BELLWETHER_HELD";

/// The value of the variable for a job under further holds.
pub(crate) fn tokens_with(further: impl IntoIterator<Item = FencingToken>) -> String {
    let all = tokens().into_iter().chain(further);
    let all: Vec<_> = all.map(|token| token.to_string()).collect();
    all.join(" ")
}

/// Refuses to wait for a hold of the job around this command. Waiting for other commands of the same job is allowed: they end by
/// themselves.
pub(crate) async fn check(
    client: &Client,
    path: &str,
    shares_with: impl Fn(Wants) -> bool,
) -> Result<(), Refusal> {
    let around = tokens();
    if around.is_empty() {
        return Ok(());
    }
    // If the line cannot be read, entering it fails with the reason.
    let line = Contention::new(client, path).line().await;
    let owner = owner(client);
    let mut line = line.iter().flatten();
    let is_around = line.any(|one| {
        let is_own = around.contains(&one.token) && one.owner() == owner;
        is_own && one.holds && !shares_with(one.wants)
    });
    match is_around {
        true => Err(Refusal::usage(format!(
            "the job around this command holds {path}, so this command would wait for itself"
        ))
        .hint("commands within the job are under its lock already")),
        false => Ok(()),
    }
}

fn tokens() -> Vec<FencingToken> {
    let tokens = std::env::var(VARIABLE).unwrap_or_default();
    let tokens = tokens.split(' ').map(str::parse);
    tokens.filter_map(Result::ok).collect()
}
