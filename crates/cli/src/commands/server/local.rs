//! `bellwether local`: shows, starts and stops the local server.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::args::{LocalArgs, LocalCommand};
use crate::exit::Exit;
use crate::local::users::{self, LocalUser};
use crate::local::{self, Folder};
use crate::output::refusal::Refusal;
use crate::output::{self, Output};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(args: LocalArgs, output: Output) -> anyhow::Result<Exit> {
    let folder = Folder::choose(args.local.as_deref())?;
    match args.command {
        LocalCommand::Path => Ok(output::answer(|out| path(&folder, args.json, out))?),
        LocalCommand::Log => log(&folder),
        LocalCommand::Status => status(&folder, args.json).await,
        LocalCommand::Start => {
            folder.find_or_start().await?;
            status(&folder, args.json).await
        }
        LocalCommand::Stop { force } => {
            let stopped = stop(&folder, force).await?;
            stopped.tell(output);
            Ok(output::answer(|out| stopped.print(args.json, out))?)
        }
    }
}

fn path(folder: &Folder, json: bool, out: &mut dyn Write) -> io::Result<Exit> {
    let path = folder.path().display();
    if json {
        writeln!(out, "{}", json!({ "path": path.to_string() }))?;
    } else {
        writeln!(out, "{path}")?;
    }
    Ok(Exit::Done)
}

/// Prints the log of the server and of previous ones.
fn log(folder: &Folder) -> anyhow::Result<Exit> {
    let path = folder.log();
    let mut log = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Exit::Done),
        opened => opened.with_context(|| format!("cannot read {}", path.display()))?,
    };
    Ok(output::answer(|out| {
        io::copy(&mut log, out)?;
        Ok(Exit::Done)
    })?)
}

async fn status(folder: &Folder, json: bool) -> anyhow::Result<Exit> {
    let server = folder.connect().await?;
    let process = server.as_ref().and_then(local::process);
    let process = process.map(Pid::as_raw_pid);
    let path = folder.path().display().to_string();
    let exit = if server.is_some() {
        Exit::Done
    } else {
        Exit::No
    };
    Ok(output::answer(|out| {
        match (&server, process) {
            (Some(_), pid) if json => {
                let socket = folder.socket().display().to_string();
                let status = json!({ "running": true, "pid": pid, "path": path, "socket": socket });
                writeln!(out, "{status}")?;
            }
            (None, _) if json => writeln!(out, "{}", json!({ "running": false, "path": path }))?,
            (Some(_), Some(pid)) => writeln!(out, "running, pid {pid}, in {path}")?,
            (Some(_), None) => writeln!(out, "running, in {path}")?,
            (None, _) => writeln!(out, "not running, in {path}")?,
        }
        Ok(exit)
    })?)
}

/// The outcome of `local stop`.
enum StoppedServer {
    Yes,
    NotRunning,
    InUse(Vec<LocalUser>),
}

impl StoppedServer {
    fn tell(&self, output: Output) {
        match self {
            Self::Yes => {}
            Self::NotRunning => output.notice("the local server does not run"),
            Self::InUse(users) => {
                output.say("the local server is in use by");
                for user in users {
                    output.say(format_args!("  {user}"));
                }
                output.hint(
                    "--force stops it anyway; these commands start it again, and keep their holds",
                );
            }
        }
    }

    fn print(&self, json: bool, out: &mut dyn Write) -> io::Result<Exit> {
        let (is_stopped, users) = match self {
            Self::Yes => (true, &[][..]),
            Self::NotRunning => (false, &[][..]),
            Self::InUse(users) => (false, &users[..]),
        };
        if json {
            let users: Value = users.iter().map(LocalUser::object).collect();
            writeln!(out, "{}", json!({ "stopped": is_stopped, "users": users }))?;
        }
        Ok(match self {
            Self::InUse(_) => Exit::No,
            Self::Yes | Self::NotRunning => Exit::Done,
        })
    }
}

async fn stop(folder: &Folder, force: bool) -> anyhow::Result<StoppedServer> {
    let Some(server) = folder.connect().await? else {
        return Ok(StoppedServer::NotRunning);
    };
    let Some(process) = local::process(&server) else {
        bail!("the local server runs in another pid namespace");
    };
    if !force {
        let users = users::ask(server).await.with_context(|| {
            let what = "cannot ask the local server which commands use it";
            Refusal::no(what).hint("--force stops it without this check")
        })?;
        if !users.is_empty() {
            return Ok(StoppedServer::InUse(users));
        }
    }
    // The pid comes from the server's socket, so it is that of the server, unless it ended a moment ago.
    let _ = kill_process(process, Signal::TERM);
    if !folder.until_gone(Some(process)).await? {
        bail!("the local server, pid {process}, does not end");
    }
    Ok(StoppedServer::Yes)
}
