//! `bellwether elect`: runs a command while its candidate leads.

use bellwether::hold::Previous;
use bellwether::{Election, Error, ErrorKind, Leadership};
use tokio::time::timeout;

use crate::args::ElectArgs;
use crate::connect::patience::Patience;
use crate::exit::Exit;
use crate::hold::job_runner::{JobRunner, with_job_runner};
use crate::hold::keeper::End;
use crate::hold::nested;
use crate::hold::waiting::{self, Having};
use crate::output::Output;
use crate::output::crash_text;

pub(crate) fn run(args: ElectArgs, output: Output) -> anyhow::Result<Exit> {
    let mut patience = Patience::new(&args.wait);
    with_job_runner(
        &args.job,
        &args.command,
        patience,
        output,
        async |job_runner| {
            loop {
                if let Err(exit) = job_runner.renew().await {
                    return Ok(exit);
                }
                nested::check(job_runner.client(), &args.path, |_| false).await?;
                let elected = campaign(&args, patience, job_runner);
                let leadership = match job_runner.unless_interrupted(elected).await {
                    Ok(Ok(Some(leadership))) => leadership,
                    Ok(Ok(None)) => return patience.exit(job_runner.client()).await,
                    // Only the place in the line is lost.
                    Ok(Err(
                        error @ Error {
                            kind:
                                ErrorKind::Removed
                                | ErrorKind::SessionEnded
                                | ErrorKind::Disconnected(_),
                            ..
                        },
                    )) => {
                        output.notice(format_args!("{error}; joining the election again"));
                        continue;
                    }
                    Ok(Err(error)) => return Err(error.into()),
                    Err(exit) => return Ok(exit),
                };
                patience = Patience::endless();
                if let Previous::Crashed(crash) = leadership.previous() {
                    output.say(crash_text::report(&args.path, crash));
                }
                match job_runner.run(&args.command, &leadership, []).await? {
                    End::Lost if let Some(exit) = job_runner.interrupted_in_job() => {
                        return Ok(exit);
                    }
                    End::Lost => {
                        output.notice(format_args!("joining the election at {} again", args.path))
                    }
                    End::Job(exit @ Exit::Command(_)) | End::NotStarted(exit) => {
                        let resigned = leadership.resign();
                        return Ok(job_runner.settle(&args.path, resigned, exit).await);
                    }
                    // The leadership ends with the session, and the next leader sees a crash.
                    end => return Ok(end.exit()),
                }
            }
        },
    )
}

/// The leadership; `None` if the wait limit passed.
async fn campaign(
    args: &ElectArgs,
    patience: Patience,
    job_runner: &JobRunner<'_>,
) -> Result<Option<Leadership>, Error> {
    let (path, output) = (&args.path, job_runner.output);
    let led_by = async |job_runner: &JobRunner<'_>| match output.is_quiet() {
        true => None,
        false => waiting::holders(job_runner.client(), path).await,
    };
    let mut election = Election::new(job_runner.client(), path).crash_mark();
    if let Some(value) = &args.value {
        election = election.value(value);
    }
    if patience.is_at_once() {
        let leadership = election.try_campaign().await?;
        if leadership.is_none() {
            let by = led_by(job_runner).await;
            let by = by.map_or_else(String::new, |who| format!(" by {who}"));
            output.notice(format_args!("{path} is led{by}"));
        }
        return Ok(leadership);
    }
    let elected = async {
        let candidate = election.join().await?;
        let progress = candidate.progress();
        waiting::for_turn(path, Having::Led, progress, candidate.turn(), output).await
    };
    let (Some(left), Some(limit)) = (patience.left(), patience.limit()) else {
        return elected.await.map(Some);
    };
    match timeout(left, elected).await {
        Ok(leadership) => leadership.map(Some),
        Err(_) => {
            let by = led_by(job_runner).await;
            let by = by.map_or_else(String::new, |who| format!(", led by {who}"));
            output.notice(format_args!(
                "timed out after {limit:?} waiting for {path}{by}"
            ));
            Ok(None)
        }
    }
}
