//! `bellwether ensemble`: turns the data folder of a single server into those of an ensemble.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use bellwether_server::SessionPasswords;
use bellwether_server::files::{Repair, session_passwords};
use serde_json::{Value, json};

use crate::args::EnsembleArgs;
use crate::exit::Exit;
use crate::output::refusal::Refusal;
use crate::output::rendering::counted;
use crate::output::{self, Output};

/// In ticks: how long a follower may take to connect and to sync, and how far it may fall behind.
const INIT_LIMIT: u32 = 10;
const SYNC_LIMIT: u32 = 5;

/// An ensemble of fewer servers does not survive the loss of one.
const HOSTS_MIN: usize = 3;

pub(crate) fn run(args: EnsembleArgs, output: Output) -> anyhow::Result<Exit> {
    let hosts = args.hosts.len();
    if hosts < HOSTS_MIN {
        return Err(Refusal::usage(format!(
            "{} cannot survive the loss of one; an ensemble has three or five servers",
            counted(hosts, "server")
        ))
        .into());
    }
    let mut pairs = args.hosts.iter().enumerate();
    let twice = pairs.find(|(index, host)| {
        let before = &args.hosts[..*index];
        before.iter().any(|other| other.clashes_with(host))
    });
    if let Some((_, host)) = twice {
        return Err(
            Refusal::usage(format!("two servers have the same ports on {}", host.host)).into(),
        );
    }
    if hosts.is_multiple_of(2) {
        output.notice(format_args!(
            "{hosts} servers survive the loss of no more servers than {} would",
            hosts - 1
        ));
    }
    let logs = args.data_log.as_deref().unwrap_or(&args.data);
    if !args.data.join("version-2").is_dir() {
        let data = args.data.display();
        return Err(Refusal::no(format!("there are no data files in {data}")).into());
    }
    // Locks the files while it lives.
    let sound = Repair::plan(&args.data, logs).context("the data cannot be used")?;
    if let Some(wrong) = sound.wrong() {
        let data = args.data.display();
        return Err(
            Refusal::no(format!("a server cannot start from {data}: {wrong}"))
                .hint("`bellwether serve --repair --data FOLDER` shows what can be done")
                .into(),
        );
    }
    if session_passwords(&args.data)? == SessionPasswords::Secret {
        output.notice(
            "the sessions in this folder end, because Apache's servers do not know their passwords; to keep them, first run `bellwether \
             serve` with --session-passwords apache until all clients have reconnected",
        );
    }
    let files = data_files(&args.data, logs)?;
    let mut folders = Vec::new();
    for id in 1..=hosts {
        let folder = args.into.join(id.to_string());
        let written = write_node(&folder, id, &files, &args);
        written.with_context(|| format!("cannot write {}", folder.display()))?;
        folders.push(folder);
    }
    tell(&folders, &args)
}

/// The snapshots and logs. Other files belong to a previous ensemble, and servers create them anew.
fn data_files(data: &Path, logs: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let folders = [data, logs];
    let folders = if data == logs {
        &folders[..1]
    } else {
        &folders[..]
    };
    for folder in folders {
        let folder = folder.join("version-2");
        let entries = fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("snapshot.") || name.starts_with("log.") {
                files.push(path);
            }
        }
    }
    let is_snapshot = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("snapshot.")
    };
    if !files.iter().any(is_snapshot) {
        return Err(
            Refusal::no(format!("there is no snapshot in {}", data.display()))
                .hint(
                    "start and stop `bellwether serve --data FOLDER` once, which writes a snapshot",
                )
                .into(),
        );
    }
    Ok(files)
}

/// Everything is synced to disk (fsync) when this returns.
fn write_node(
    folder: &Path,
    id: usize,
    files: &[PathBuf],
    args: &EnsembleArgs,
) -> anyhow::Result<()> {
    if folder.exists() {
        return Err(Refusal::no(format!("{} exists already", folder.display())).into());
    }
    let version_2 = folder.join("version-2");
    fs::create_dir_all(&version_2)?;
    for file in files {
        let name = file.file_name().context("a file has a name")?;
        let copy = version_2.join(name);
        fs::copy(file, &copy)?;
        File::open(copy)?.sync_all()?;
    }
    write(&folder.join("myid"), &format!("{id}\n"))?;
    let data_dir = match args.in_place {
        true => fs::canonicalize(folder)?,
        false => args.data_dir.clone(),
    };
    write(&folder.join("zoo.cfg"), &zoo_cfg(id, &data_dir, args))?;
    for folder in [version_2.as_path(), folder, &args.into] {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn zoo_cfg(id: usize, data_dir: &Path, args: &EnsembleArgs) -> String {
    let own = &args.hosts[id - 1];
    let mut text = String::new();
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{key}={value}").expect("a string takes everything");
    };
    line("dataDir", &data_dir.display());
    line("clientPort", &own.client_port);
    if own.is_loopback() {
        line("clientPortAddress", &own.host);
    }
    line("tickTime", &args.tick_time.as_millis());
    line("initLimit", &INIT_LIMIT);
    line("syncLimit", &SYNC_LIMIT);
    for (index, host) in args.hosts.iter().enumerate() {
        let (peer, election) = (host.peer_port, host.election_port);
        let value = format!("{}:{peer}:{election}", host.host);
        line(&format!("server.{}", index + 1), &value);
    }
    // Without it, nodes with a time to live would be deleted at the first start.
    line("extendedTypesEnabled", &true);
    line("4lw.commands.whitelist", &"srvr,ruok,mntr,conf");
    // Its port, 8080, is often in use.
    line("admin.enableServer", &false);
    line("autopurge.snapRetainCount", &3);
    line("autopurge.purgeInterval", &24);
    text
}

fn tell(folders: &[PathBuf], args: &EnsembleArgs) -> anyhow::Result<Exit> {
    let connect = args.hosts.iter();
    let connect = connect.map(|host| format!("{}:{}", host.host, host.client_port));
    let connect = connect.collect::<Vec<_>>().join(",");
    Ok(output::answer(|out| {
        let nodes = folders.iter().zip(&args.hosts);
        if args.json {
            let nodes: Value = nodes
                .map(|(folder, host)| {
                    json!({"host": host.host, "folder": folder.display().to_string()})
                })
                .collect();
            writeln!(out, "{}", json!({"nodes": nodes, "connect": connect}))?;
            return Ok(Exit::Done);
        }
        for (folder, host) in nodes {
            let folder = folder.display();
            match args.in_place {
                true => writeln!(out, "start the server with {folder}/zoo.cfg")?,
                false => {
                    let (host, data_dir) = (&host.host, args.data_dir.display());
                    writeln!(
                        out,
                        "copy {folder} to {host}:{data_dir}, and start the server with its zoo.cfg"
                    )?;
                }
            }
        }
        writeln!(out, "then: bellwether doctor --connect {connect}")?;
        Ok(Exit::Done)
    })?)
}
