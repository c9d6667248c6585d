//! `bellwether local`: the local server, looked at and stopped.

use std::io::{self, Write};

use anyhow::bail;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::args::{LocalArgs, LocalCommand};
use crate::exit::Exit;
use crate::local::Folder;
use crate::output::{self, Output};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(args: LocalArgs, output: Output) -> anyhow::Result<Exit> {
    let folder = Folder::of_user()?;
    match args.command {
        LocalCommand::Path => Ok(output::answer(|out| path(&folder, args.json, out))?),
        LocalCommand::Status => {
            let status = Status::of(&folder)?;
            Ok(output::answer(|out| status.print(args.json, out))?)
        }
        LocalCommand::Stop => {
            let stopped = stop(&folder).await?;
            if !stopped {
                output.notice("no local server runs");
            }
            Ok(output::answer(|out| {
                if args.json {
                    writeln!(out, "{}", json!({ "stopped": stopped }))?;
                }
                Ok(Exit::Done)
            })?)
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

struct Status {
    folder: String,
    /// Address and process.
    server: Option<(String, i32)>,
}

impl Status {
    fn of(folder: &Folder) -> anyhow::Result<Self> {
        let server = folder.running()?;
        Ok(Self {
            folder: folder.path().display().to_string(),
            server: server.map(|server| {
                let address = server.address.to_string();
                (address, server.process.as_raw_pid())
            }),
        })
    }

    fn print(&self, json: bool, out: &mut dyn Write) -> io::Result<Exit> {
        let folder = &self.folder;
        match &self.server {
            Some((address, pid)) if json => {
                let status =
                    json!({ "running": true, "address": address, "pid": pid, "path": folder });
                writeln!(out, "{status}")?;
            }
            Some((address, pid)) => {
                writeln!(out, "running on {address}, process {pid}, in {folder}")?;
            }
            None if json => writeln!(out, "{}", json!({ "running": false, "path": folder }))?,
            None => writeln!(out, "not running, in {folder}")?,
        }
        Ok(if self.server.is_some() {
            Exit::Done
        } else {
            Exit::No
        })
    }
}

/// Ends the server; false if there was none.
async fn stop(folder: &Folder) -> anyhow::Result<bool> {
    let Some(server) = folder.running()? else {
        return Ok(false);
    };
    // It has its lock until it ends, so the number is still its own, or nobody's since a moment ago.
    let _ = kill_process(server.process, Signal::TERM);
    if !folder.until_gone(&server).await? {
        bail!("the local server, process {}, does not end", server.process);
    }
    Ok(true)
}
