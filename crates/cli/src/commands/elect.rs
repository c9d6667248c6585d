//! `bellwether elect`: a command for as long as its candidate leads.

use bellwether::{AcquireError, Election, Leadership, Previous};

use crate::args::ElectArgs;
use crate::exit::Exit;
use crate::keeper::End;
use crate::output::Output;
use crate::patience::Patience;
use crate::presented::presented;
use crate::previous;
use crate::refusal;
use crate::waiting::{self, Having};
use crate::workplace::{Workplace, at_workplace};

pub(crate) fn run(args: ElectArgs, output: Output) -> anyhow::Result<Exit> {
    at_workplace(&args.job, Patience::endless(), output, async |workplace| {
        loop {
            if let Err(exit) = workplace.renew().await {
                return Ok(exit);
            }
            let elected = campaign(&args, workplace);
            let leadership = match workplace.unless_told(elected).await {
                Ok(Ok(leadership)) => leadership,
                // The place in line is gone, and nothing else is wrong.
                Ok(Err(
                    error @ (AcquireError::Removed { .. }
                    | AcquireError::SessionEnded { .. }
                    | AcquireError::Disconnected { .. }),
                )) => {
                    output.notice(format_args!("{error}; standing again"));
                    continue;
                }
                Ok(Err(error)) => return Err(refusal::of_acquire(error)),
                Err(exit) => return Ok(exit),
            };
            if let Previous::Crashed(crash) = leadership.previous() {
                output.notice(previous::told(&args.path, crash));
            }
            match workplace.run(&args.command, &leadership, []).await? {
                End::Lost if let Some(exit) = workplace.was_told_to_end() => return Ok(exit),
                End::Lost => output.notice(format_args!("standing again at {}", args.path)),
                End::Job(exit @ Exit::Command(_)) | End::NotStarted(exit) => {
                    let resigned = leadership.resign();
                    return Ok(workplace.give_back(&args.path, resigned, exit).await);
                }
                // The leadership goes with the session, and the next leader is told.
                end => return Ok(end.exit()),
            }
        }
    })
}

async fn campaign(args: &ElectArgs, workplace: &Workplace<'_>) -> Result<Leadership, AcquireError> {
    let client = workplace.client();
    let election = Election::new(client, &args.path).crash_mark();
    let mut election = presented!(election, client, args);
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
