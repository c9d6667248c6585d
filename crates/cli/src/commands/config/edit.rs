//! `bellwether config edit`: a value in an editor.
//!
//! There is no session while somebody types, which may take hours: the version tells whether the value is still the same.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bellwether::Entry;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::value;
use crate::args::PlaceArgs;
use crate::exit::Exit;
use crate::output::{Hinted, Output};
use crate::refusal::{self, Refusal};
use crate::session::in_session;
use crate::signals::Signals;

/// How long an editor that is told to end may take to write what it has.
const EDITOR_ENDS: Duration = Duration::from_secs(2);

pub(super) fn run(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    let mut before = None;
    let read = in_session(&place.tree, output, async |client| {
        before = value(client, place).get().await?;
        Ok(Exit::Done)
    })?;
    if read != Exit::Done {
        return Ok(read);
    }
    let text = before.as_ref().map_or(&[][..], |entry| &entry.value);
    let mut file = NamedTempFile::with_prefix("bellwether-")?;
    file.write_all(text)?;
    file.flush()?;
    let ended = match edited(file.path()) {
        Ok(Edited::Text(after)) if after == text => {
            output.notice("nothing has changed");
            Ok(Exit::Done)
        }
        Ok(Edited::Text(after)) => set(place, before.as_ref(), after, output),
        Ok(Edited::Signal(signal)) => Ok(Exit::Signal(signal.as_raw())),
        Err(error) => Err(error),
    };
    match ended {
        Ok(Exit::Done) => ended,
        ended => keep(file, place, ended, output),
    }
}

fn set(
    place: &PlaceArgs,
    before: Option<&Entry<Vec<u8>>>,
    after: Vec<u8>,
    output: Output,
) -> anyhow::Result<Exit> {
    in_session(&place.tree, output, async |client| {
        let config = value(client, place);
        let is_set = match before {
            Some(entry) => {
                let set = config.compare_and_set(entry.version, &after).await;
                set.map_err(refusal::of_state)?.is_some()
            }
            None => config.create(&after).await.map_err(refusal::of_state)?,
        };
        if !is_set {
            let what = format!("somebody else has set {} meanwhile", place.path);
            return Err(Refusal::no(what).into());
        }
        Ok(Exit::Done)
    })
}

/// Keeps what was typed, and tells where it is.
fn keep(
    file: NamedTempFile,
    place: &PlaceArgs,
    ended: anyhow::Result<Exit>,
    output: Output,
) -> anyhow::Result<Exit> {
    let (_, kept) = file.keep()?;
    let kept = format!("the text is kept in {}", kept.display());
    match ended {
        Ok(exit) => {
            output.say(kept);
            Ok(exit)
        }
        Err(error) => Err(match error.downcast::<Refusal>() {
            Ok(refusal) => refusal.hint(kept).into(),
            Err(error) => error.context(Hinted::new(format!("{} is not set", place.path), kept)),
        }),
    }
}

/// What became of a file in an editor.
enum Edited {
    Text(Vec<u8>),
    /// Somebody has told this process to end, and so the editor.
    Signal(Signal),
}

#[tokio::main(flavor = "current_thread")]
async fn edited(file: &Path) -> anyhow::Result<Edited> {
    let mut signals = Signals::beside_editor()?;
    let editor = ["VISUAL", "EDITOR"].iter().find_map(std::env::var_os);
    let editor = editor.unwrap_or_else(|| "vi".into());
    let shown = editor.display().to_string();
    // It may have arguments of its own.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec $0 \"$1\""]).arg(&editor).arg(file);
    let started = shell.spawn();
    let mut editor = started.with_context(|| format!("cannot run {shown}"))?;
    let status = loop {
        tokio::select! {
            status = editor.wait() => break status?,
            signal = signals.next() => match signal {
                // From the terminal, which has sent it to the editor as well: there it has another meaning.
                Signal::INT | Signal::QUIT => {}
                signal => {
                    end(&mut editor, signal).await;
                    return Ok(Edited::Signal(signal));
                }
            },
        }
    };
    if !status.success() {
        return Err(Refusal::no(format!("{shown} has ended with {status}")).into());
    }
    let text = std::fs::read(file).context("cannot read what was edited")?;
    Ok(Edited::Text(text))
}

async fn end(editor: &mut Child, signal: Signal) {
    let process = editor.id().and_then(|id| i32::try_from(id).ok());
    if let Some(process) = process.and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(process, signal);
    }
    if timeout(EDITOR_ENDS, editor.wait()).await.is_err() {
        tracing::warn!("the editor has not ended");
    }
}
