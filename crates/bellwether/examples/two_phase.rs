//! Three plain threads agree whether to have dinner, without `async`. Each prepares, votes, and applies the decision.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example two_phase
//! cargo run -p bellwether --example two_phase -- 127.0.0.1:2181 bob # who will not come
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::{Context, Result, anyhow};
use bellwether::blocking::{Wait, iter};
use bellwether::two_phase::{Participant, Proposal, Vote};
use bellwether::{TwoPhase, connect};

const GUESTS: [&str; 3] = ["alice", "bob", "carol"];

struct Guest {
    has_time: bool,
}

impl Participant for Guest {
    type Error = std::convert::Infallible;

    async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote, Self::Error> {
        println!("{}: looks at the calendar", proposal.site());
        Ok(match self.has_time {
            true => Vote::Commit,
            false => Vote::Abort("no time".into()),
        })
    }

    async fn commit(&mut self, proposal: &Proposal) -> Result<(), Self::Error> {
        println!("{}: comes", proposal.site());
        Ok(())
    }

    async fn abort(&mut self, proposal: &Proposal) -> Result<(), Self::Error> {
        println!("{}: stays at home", proposal.site());
        Ok(())
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:2181".into());
    let absent = arguments.next();
    let client = connect(address).wait()?;
    let dinners = TwoPhase::new(&client, "/examples/dinners");
    let mut coordinator = dinners.begin(GUESTS, "at eight").wait()?;

    let guests = GUESTS.map(|name| {
        let dinner = dinners.transaction(coordinator.id());
        let has_time = absent.as_deref() != Some(name);
        std::thread::spawn(move || dinner.participate(name, &mut Guest { has_time }).wait())
    });
    let decision = coordinator.decide().wait()?;
    let votes = coordinator.last_seen().sites.iter();
    for (name, site) in votes.filter(|(_, site)| site.ballot.is_some()) {
        let ballot = site.ballot.as_ref().context("it was looked for")?;
        println!("coordinator: {name} says {:?}", ballot.vote);
    }
    println!("coordinator: {decision}");
    for guest in guests {
        guest.join().map_err(|_| anyhow!("a guest has left"))??;
    }
    // The stream ends when all sites are done.
    for status in iter(coordinator.progress()) {
        println!(
            "not done yet: {:?}",
            status?.unapplied().collect::<Vec<_>>()
        );
    }
    coordinator.forget().wait()?;
    drop((coordinator, dinners));
    client.close().wait();
    Ok(())
}
