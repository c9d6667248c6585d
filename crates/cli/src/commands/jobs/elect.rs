//! `bellwether elect`: runs a command while its candidate leads.

use bellwether::error::AcquireError;
use bellwether::hold::Previous;
use bellwether::{Election, Leadership};

use crate::args::ElectArgs;
use crate::connect::patience::Patience;
use crate::exit::Exit;
use crate::hold::keeper::End;
use crate::hold::nested;
use crate::hold::waiting::{self, Having};
use crate::hold::workplace::{Workplace, at_workplace};
use crate::output::Output;
use crate::output::crash_text;

pub(crate) fn run(args: ElectArgs, output: Output) -> anyhow::Result<Exit> {
    at_workplace(
        &args.job,
        &args.command,
        Patience::endless(),
        output,
        async |workplace| {
            loop {
                if let Err(exit) = workplace.renew().await {
                    return Ok(exit);
                }
                nested::check(workplace.client(), &args.path, |_| false).await?;
                let elected = campaign(&args, workplace);
                let leadership = match workplace.unless_interrupted(elected).await {
                    Ok(Ok(leadership)) => leadership,
                    // Only the place in the line is lost.
                    Ok(Err(
                        error @ (AcquireError::Removed { .. }
                        | AcquireError::SessionEnded { .. }
                        | AcquireError::Disconnected { .. }),
                    )) => {
                        output.notice(format_args!("{error}; joining the election again"));
                        continue;
                    }
                    Ok(Err(error)) => return Err(error.into()),
                    Err(exit) => return Ok(exit),
                };
                if let Previous::Crashed(crash) = leadership.previous() {
                    output.say(crash_text::report(&args.path, crash));
                }
                match workplace.run(&args.command, &leadership, []).await? {
                    End::Lost if let Some(exit) = workplace.interrupted_in_job() => {
                        return Ok(exit);
                    }
                    End::Lost => {
                        output.notice(format_args!("joining the election at {} again", args.path))
                    }
                    End::Job(exit @ Exit::Command(_)) | End::NotStarted(exit) => {
                        let resigned = leadership.resign();
                        return Ok(workplace.settle(&args.path, resigned, exit).await);
                    }
                    // The leadership ends with the session, and the next leader sees a crash.
                    end => return Ok(end.exit()),
                }
            }
        },
    )
}

async fn campaign(args: &ElectArgs, workplace: &Workplace<'_>) -> Result<Leadership, AcquireError> {
    let client = workplace.client();
    let mut election = Election::new(client, &args.path).crash_mark();
    if let Some(value) = &args.value {
        election = election.value(value);
    }
    let candidate = election.join().await?;
    let progress = candidate.progress();
    waiting::for_turn(
        &args.path,
        Having::Led,
        progress,
        candidate.turn(),
        workplace.output,
    )
    .await
}
