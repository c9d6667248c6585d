//! A scheduler that runs in many processes and acts in one.

use std::time::Duration;

use anyhow::Result;
use bellwether::election::CandidacyState;
use bellwether::{Client, Election, FencingToken, Leadership};
use futures_util::StreamExt;

/// Is a candidate for ever. While it leads, `tick` gets the fencing token of the term, to be sent with every write.
pub(crate) async fn run(client: &Client, mut tick: impl FnMut(FencingToken)) -> Result<()> {
    let mut candidacy = Election::new(client, "/services/scheduler").candidacy();
    while let Some(standing) = candidacy.next().await {
        match standing {
            CandidacyState::Elected(leadership) => lead(leadership, &mut tick).await,
            // The candidacy continues by itself.
            CandidacyState::Interrupted(error) => eprintln!("not a candidate: {error}"),
            _ => {}
        }
    }
    Ok(())
}

async fn lead(leadership: Leadership, tick: &mut impl FnMut(FencingToken)) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let term = async {
        loop {
            ticks.tick().await;
            tick(leadership.token());
        }
    };
    // No further tick once the term is over, whatever the reason.
    let Err(lost) = leadership.run(term).await;
    eprintln!("{lost}");
}
