//! `bellwether config edit`: edits a value in an editor.
//!
//! No session is open while the user types, which may take hours: the version shows whether the value was changed meanwhile.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bellwether::state::Entry;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::value;
use crate::args::PlaceArgs;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::Output;
use crate::output::refusal::{self, Refusal};
use crate::signals::Signals;

/// How long an editor may take to end after a signal.
const EDITOR_ENDS: Duration = Duration::from_secs(2);

pub(super) fn run(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    check_terminal(place)?;
    let mut before = None;
    let read = in_session(&place.tree.connect, output, async |client| {
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
            output.notice("nothing changed");
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

/// Refuses to start an editor in a script, where it would wait for keys that cannot come.
fn check_terminal(place: &PlaceArgs) -> Result<(), Refusal> {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return Ok(());
    }
    let path = &place.path;
    Err(Refusal::usage("an editor needs a terminal")
        .hint(format!("`bellwether config set {path} DATA` needs none")))
}

fn set(
    place: &PlaceArgs,
    before: Option<&Entry<Vec<u8>>>,
    after: Vec<u8>,
    output: Output,
) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        let config = value(client, place);
        let is_set = match before {
            Some(entry) => {
                let set = config.compare_and_set(entry.version, &after).await?;
                set.is_some()
            }
            None => config.create(&after).await?,
        };
        if !is_set {
            let what = format!("{} was changed meanwhile", place.path);
            return Err(Refusal::no(what).into());
        }
        Ok(Exit::Done)
    })
}

/// Keeps the text of the user, and says where.
fn keep(
    file: NamedTempFile,
    place: &PlaceArgs,
    ended: anyhow::Result<Exit>,
    output: Output,
) -> anyhow::Result<Exit> {
    let (_, kept) = file.keep()?;
    let kept = format!("your text is kept in {}", kept.display());
    match ended {
        Ok(exit) => {
            output.say(kept);
            Ok(exit)
        }
        Err(error) => Err(match error.downcast::<Refusal>() {
            Ok(refusal) => refusal.hint(kept).into(),
            Err(error) => {
                let (exit, _) = refusal::meaning(&error);
                let what = format!("{} is not set", place.path);
                error.context(Refusal::no(what).with_exit(exit).hint(kept))
            }
        }),
    }
}

/// The result of an editor.
enum Edited {
    Text(Vec<u8>),
    /// A signal ended this process, and so the editor.
    Signal(Signal),
}

#[tokio::main(flavor = "current_thread")]
async fn edited(file: &Path) -> anyhow::Result<Edited> {
    let mut signals = Signals::beside_editor()?;
    let editor = ["VISUAL", "EDITOR"].iter().find_map(std::env::var_os);
    let editor = editor.unwrap_or_else(|| "vi".into());
    let shown = editor.display().to_string();
    // The variable may contain arguments.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec $0 \"$1\""]).arg(&editor).arg(file);
    let started = shell.spawn();
    let mut editor = started.with_context(|| format!("cannot run {shown}"))?;
    let status = loop {
        tokio::select! {
            status = editor.wait() => break status?,
            signal = signals.next() => if is_to_end(signal) {
                end(&mut editor, signal).await;
                return Ok(Edited::Signal(signal));
            },
        }
    };
    while let Some(signal) = signals.come().await {
        if is_to_end(signal) {
            return Ok(Edited::Signal(signal));
        }
    }
    if !status.success() {
        return Err(Refusal::no(format!("the editor {shown} failed: {status}")).into());
    }
    let text = std::fs::read(file).context("cannot read the edited file")?;
    Ok(Edited::Text(text))
}

/// SIGINT and SIGQUIT come from the terminal, which also sends them to the editor, where they have another meaning.
fn is_to_end(signal: Signal) -> bool {
    !matches!(signal, Signal::INT | Signal::QUIT)
}

async fn end(editor: &mut Child, signal: Signal) {
    let process = editor.id().and_then(|id| i32::try_from(id).ok());
    if let Some(process) = process.and_then(Pid::from_raw) {
        // The editor may have ended meanwhile.
        let _ = kill_process(process, signal);
    }
    if timeout(EDITOR_ENDS, editor.wait()).await.is_err() {
        tracing::warn!("the editor has not ended");
    }
}
