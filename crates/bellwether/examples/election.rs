//! A service that leads when it can, and an observer that follows the leader.
//!
//! Start it in several terminals and end the leader with Ctrl-C: the next in line takes over.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example election -- 127.0.0.1:2181 alice
//! ```
//!
//! With a number of terms, it resigns after each second, and ends after that many terms: `… 127.0.0.1:2181 alice 3`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use anyhow::Result;
use bellwether::election::CandidacyState;
use bellwether::{Election, Leadership, connect};
use futures_util::StreamExt;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let name = arguments
        .next()
        .unwrap_or_else(|| format!("process {}", std::process::id()));
    let terms: Option<usize> = arguments.next().map(|terms| terms.parse()).transpose()?;
    let client = connect(address).await?;
    let election = Election::new(&client, "/examples/election").value(&name);
    let observer = tokio::spawn(observe(election.clone()));

    let mut candidacy = election.candidacy();
    let mut led = 0;
    while terms.is_none_or(|terms| led < terms)
        && let Some(standing) = candidacy.next().await
    {
        match standing {
            CandidacyState::Running { session } => println!("{name} runs in session {session}"),
            CandidacyState::Interrupted(error) => println!("{name} does not run: {error}"),
            CandidacyState::Elected(leadership) => {
                led += 1;
                println!("{name} leads with token {}", leadership.token());
                let term = lead(&name, &leadership, terms.is_some());
                match leadership.run(term).await {
                    Ok(()) => leadership.resign().await?,
                    Err(_) => println!("{name} has lost the lead"),
                }
            }
            _ => {}
        }
    }
    observer.abort();
    Ok(())
}

/// The work of a leader: continues until it resigns, or for ever.
#[expect(clippy::disallowed_methods, reason = "stands for work")]
async fn lead(name: &str, leadership: &Leadership, resigns: bool) {
    let mut beats = 0;
    while !resigns || beats < 10 {
        beats += 1;
        let value = format!("{name}, beat {beats}");
        if let Err(error) = leadership.set_value(value).await {
            println!("not proclaimed: {error}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn observe(election: Election) {
    let mut leaders = election.observe();
    let mut token = None;
    while let Some(leader) = leaders.next().await {
        match leader {
            Ok(leader) if token == leader.as_ref().map(|leader| leader.token) => {}
            Ok(Some(leader)) => {
                token = Some(leader.token);
                println!("  the leader is {:?}", leader.value.unwrap_or_default());
            }
            Ok(None) => {
                token = None;
                println!("  there is no leader");
            }
            Err(error) => println!("  cannot see who leads: {error}"),
        }
    }
}
