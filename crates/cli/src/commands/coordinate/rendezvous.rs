//! `bellwether rendezvous`: starts and ends a command together with others.

use std::time::Duration;

use bellwether::DoubleBarrier;
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::time::{Interval, interval, timeout};

use crate::args::RendezvousArgs;
use crate::connect::patience::Patience;
use crate::exit::Exit;
use crate::hold::job_runner::with_job_runner;
use crate::hold::keeper::End;
use crate::hold::waiting;
use crate::output::Output;

/// How often the members are counted, for the progress of the wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: RendezvousArgs, output: Output) -> anyhow::Result<Exit> {
    let patience = Patience::limited(&args.limit);
    with_job_runner(
        &args.job,
        &args.command,
        patience,
        output,
        async |job_runner| {
            let path = &args.path;
            let size = usize::try_from(args.size).unwrap_or(usize::MAX);
            let barrier = DoubleBarrier::new(job_runner.client(), path, size);
            let entered = waiting::showing(
                format!("waiting for others at {path}"),
                counts(barrier.clone(), "have arrived"),
                barrier.enter(),
                output,
            );
            let entered = async {
                match patience.left() {
                    Some(left) => timeout(left, entered).await.ok(),
                    None => Some(entered.await),
                }
            };
            let inside = match job_runner.unless_interrupted(entered).await {
                Ok(Some(inside)) => inside?,
                Ok(None) => {
                    let limit = patience.limit().unwrap_or_default();
                    let members = timeout(waiting::WHO_LIMIT, barrier.members()).await;
                    let members = members.ok().and_then(Result::ok);
                    let arrived = members.map_or_else(String::new, |members| {
                        // This caller has left the place that it had.
                        let here = members.here.len().max(1);
                        format!(": {here} of {} had arrived", members.size)
                    });
                    output.notice(format_args!(
                        "timed out after {limit:?} waiting for others at {path}{arrived}"
                    ));
                    return patience.exit(job_runner.client()).await;
                }
                Err(exit) => return Ok(exit),
            };
            let round = inside.round().to_string().into();
            let variables = [("BELLWETHER_ROUND", Some(round))];
            let exit = match job_runner.run(&args.command, &inside, variables).await? {
                End::Job(exit) | End::NotStarted(exit) => exit,
                end @ End::TooLong(_) => end.exit(),
                end => return Ok(end.exit()),
            };
            let left = waiting::showing(
                format!("waiting for the others at {path} to end"),
                counts(barrier.clone(), "are inside"),
                inside.leave(),
                output,
            );
            match job_runner.unless_interrupted(left).await {
                Ok(Ok(())) => Ok(exit),
                Ok(Err(error)) => {
                    output.error(&error.into());
                    Ok(Exit::Lost)
                }
                Err(exit) => Ok(exit),
            }
        },
    )
}

/// The number of members, and what they do, each time the number changes.
fn counts(
    barrier: DoubleBarrier,
    they_do: &'static str,
) -> impl Stream<Item = impl Fn() -> String> {
    type State = (DoubleBarrier, Interval, Option<usize>, &'static str);
    let look = async |(barrier, mut looks, mut last, they_do): State| {
        loop {
            looks.tick().await;
            // The wait itself fails with the reason.
            let members = barrier.members().await.ok()?;
            let here = members.here.len();
            if last.replace(here) != Some(here) {
                let text = format!("{here} of {} {they_do}", members.size);
                return Some((move || text.clone(), (barrier, looks, last, they_do)));
            }
        }
    };
    unfold((barrier, interval(LOOK_EVERY), None, they_do), look)
}
