//! `bellwether rendezvous`: a command that begins and ends together with others.

use std::time::Duration;

use bellwether::{BarrierError, DoubleBarrier};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::time::{Interval, interval, timeout};

use crate::args::RendezvousArgs;
use crate::exit::Exit;
use crate::keeper::End;
use crate::output::Output;
use crate::patience::Patience;
use crate::refusal::Refusal;
use crate::waiting;
use crate::workplace::at_workplace;

/// How often those who are there are counted, for people to see.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: RendezvousArgs, output: Output) -> anyhow::Result<Exit> {
    let patience = Patience::new(&args.wait, false);
    at_workplace(&args.job, patience, output, async |workplace| {
        let path = &args.path;
        let size = usize::try_from(args.size).unwrap_or(usize::MAX);
        let mut barrier = DoubleBarrier::new(workplace.client(), path, size);
        if let Some(message) = &args.job.message {
            barrier = barrier.message(message);
        }
        let entered = waiting::telling(
            format!("waiting for others at {path}"),
            counts(barrier.clone()),
            barrier.enter(),
            output,
        );
        let entered = async {
            match patience.left() {
                Some(left) => timeout(left, entered).await.ok(),
                None => Some(entered.await),
            }
        };
        let inside = match workplace.unless_told(entered).await {
            Ok(Some(Err(error @ BarrierError::SizeDiffers { .. }))) => {
                return Err(Refusal::usage(error.to_string()).into());
            }
            Ok(Some(inside)) => inside?,
            Ok(None) => {
                output.notice(format_args!("not all were at {path} in time"));
                return Ok(patience.exit());
            }
            Err(exit) => return Ok(exit),
        };
        let round = inside.round().to_string().into();
        let variables = [("BELLWETHER_ROUND", Some(round))];
        let exit = match workplace.run(&args.command, &inside, variables).await? {
            End::Job(exit) | End::NotStarted(exit) => exit,
            end => return Ok(end.exit()),
        };
        let left = waiting::telling(
            format!("waiting for the others at {path} to end"),
            counts(barrier.clone()),
            inside.leave(),
            output,
        );
        match workplace.unless_told(left).await {
            Ok(Ok(())) => Ok(exit),
            Ok(Err(error)) => {
                output.error(&error.into());
                Ok(Exit::Lost)
            }
            Err(exit) => Ok(exit),
        }
    })
}

/// How many are there, each time that this changes.
fn counts(barrier: DoubleBarrier) -> impl Stream<Item = impl Fn() -> String> {
    let look = async |(barrier, mut looks, mut last): (DoubleBarrier, Interval, Option<usize>)| {
        loop {
            looks.tick().await;
            // A look that fails tells nothing; whoever waits hears why.
            let members = barrier.members().await.ok()?;
            let here = members.here.len();
            if last.replace(here) != Some(here) {
                let text = format!("{here} of {} are there", members.size);
                return Some((move || text.clone(), (barrier, looks, last)));
            }
        }
    };
    unfold((barrier, interval(LOOK_EVERY), None), look)
}
