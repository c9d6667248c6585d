//! `bellwether config`: configuration values.

mod edit;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use bellwether::state::{Entry, Roster, Seen};
use bellwether::{Client, Config, ConfigFolder, Group};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::args::{
    ConfigArgs, ConfigCommand, ConfigImportArgs, ConfigSetArgs, ConfigWatchArgs, PlaceArgs,
};
use crate::commands::coordinate::presence;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::refusal::Refusal;
use crate::output::rendering::{counted, data_json};
use crate::output::{self, Output, print_now};
use crate::tree::payload;
use crate::value::data_json::DataJson;
use crate::value::node_path;

/// The node of a [`ConfigFolder`] that is no value.
const READY: &str = "ready";

/// The longest file of values that is read. An update is one request, so servers accept at most about 1 MiB.
const FILE_BYTES_MAX: u64 = 16 << 20;

pub(crate) fn run(args: ConfigArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        ConfigCommand::Get(args) => get(&args, output),
        ConfigCommand::Set(args) => set(&args, output),
        ConfigCommand::Rm(args) => rm(&args, output),
        ConfigCommand::Edit(args) => edit::run(&args, output),
        ConfigCommand::Watch(args) => watch(&args, output),
        ConfigCommand::Import(args) => import(&args, output),
        ConfigCommand::Ls(args) => ls(&args, output),
        ConfigCommand::Export(args) => export(&args, output),
    }
}

fn value(client: &Client, place: &PlaceArgs) -> Config {
    Config::new(client, &place.path)
}

fn object(place: &PlaceArgs, entry: Option<&Entry<Vec<u8>>>) -> Value {
    json!({
        "path": place.path,
        "data": data_json(entry.map(|entry| &*entry.value)),
        "version": entry.map(|entry| entry.version.number()),
    })
}

fn get(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        let Some(entry) = value(client, place).get().await? else {
            return Err(Refusal::no(format!("there is no value at {}", place.path)).into());
        };
        Ok(match place.tree.json {
            true => output::answer_line(object(place, Some(&entry)))?,
            false => output::answer_data(&entry.value, &place.path)?,
        })
    })
}

fn set(args: &ConfigSetArgs, output: Output) -> anyhow::Result<Exit> {
    let place = &args.place;
    // Before the session, which should not wait for a user who types.
    let data = payload::read(&args.data)?;
    in_session(&place.tree.connect, output, async |client| {
        let config = value(client, place);
        match args.expect {
            None => config.set(&data).await?,
            Some(version) => {
                let set = config.compare_and_set(version.into(), &data).await?;
                set.ok_or_else(|| another(place))?;
            }
        }
        if !place.tree.json {
            return Ok(Exit::Done);
        }
        Ok(output::answer_line(object(
            place,
            config.get().await?.as_ref(),
        ))?)
    })
}

fn rm(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        if !value(client, place).delete().await? {
            return Err(Refusal::no(format!("there is no value at {}", place.path)).into());
        }
        match place.tree.json {
            true => Ok(output::answer_line(object(place, None))?),
            false => Ok(Exit::Done),
        }
    })
}

fn another(place: &PlaceArgs) -> Refusal {
    let path = &place.path;
    Refusal::no(format!("the version of {path} differs")).hint(format!(
        "`bellwether config get --json {path}` shows the version"
    ))
}

fn watch(args: &ConfigWatchArgs, output: Output) -> anyhow::Result<Exit> {
    let place = &args.place;
    in_session(&place.tree.connect, output, async |client| {
        if args.folder || is_folder(client, place).await? {
            return watch_folder(client, args, output).await;
        }
        let mut seen = value(client, place).watch();
        let mut left = args.count.unwrap_or(u64::MAX);
        while left > 0
            && let Some(change) = seen.next().await
        {
            let entry = match change? {
                Seen::Value(entry) => Some(entry),
                Seen::Absent => None,
                Seen::Renewed => {
                    output.notice("the session ended; continuing in a new one");
                    continue;
                }
                _ => continue,
            };
            let text = match (&entry, place.tree.json) {
                (entry, true) => object(place, entry.as_ref()).to_string().into_bytes(),
                (Some(entry), false) => match output::check_plain(&entry.value, &place.path) {
                    Ok(()) => entry.value.clone(),
                    Err(refusal) => {
                        output.error(&refusal.into());
                        left -= 1;
                        continue;
                    }
                },
                (None, false) => {
                    output.notice(format_args!("there is no value at {}", place.path));
                    continue;
                }
            };
            if let ControlFlow::Break(()) = print_now([&*text, b"\n"].concat())? {
                break;
            }
            left -= 1;
        }
        Ok(Exit::Done)
    })
}

/// Whether there are values below a path.
async fn is_folder(client: &Client, place: &PlaceArgs) -> anyhow::Result<bool> {
    let entries = ConfigFolder::new(client, &place.path).get().await?;
    Ok(!entries.is_empty())
}

async fn watch_folder(
    client: &Client,
    args: &ConfigWatchArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let place = &args.place;
    // Not that of the folder, which is about changes of all values together.
    let mut seen = Group::new(client, &place.path).watch();
    let (mut known, mut left) = (Roster::new(), args.count.unwrap_or(u64::MAX));
    while left > 0
        && let Some(change) = seen.next().await
    {
        let mut values = match change? {
            Seen::Value(values) => values,
            Seen::Absent => Roster::new(),
            Seen::Renewed => {
                output.notice("the session ended; continuing in a new one");
                continue;
            }
            _ => continue,
        };
        // As `config ls`: the node that says that the folder is complete is no value.
        values.remove(READY);
        let events = ["deleted", "set", "changed"];
        let lines = presence::changes(&known, &values, events, place.tree.json);
        for line in lines.lines() {
            if left == 0 {
                break;
            }
            if let ControlFlow::Break(()) = print_now(format!("{line}\n"))? {
                return Ok(Exit::Done);
            }
            left -= 1;
        }
        known = values;
    }
    Ok(Exit::Done)
}

/// A value in a file: text, or base64 if it is not UTF-8.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
enum FileValue {
    Text(String),
    Data(DataJson),
}

fn import(args: &ConfigImportArgs, output: Output) -> anyhow::Result<Exit> {
    let place = &args.place;
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let text = payload::read_file(file, FILE_BYTES_MAX)?;
    let wrong = |error: &dyn std::fmt::Display| {
        Refusal::usage(format!(
            "{} is not a file of values: {error}",
            payload::name(file)
        ))
    };
    let values: BTreeMap<String, FileValue> =
        serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    let mut entries = BTreeMap::new();
    for (name, value) in values {
        node_path::parse_name(&name).map_err(|error| wrong(&format_args!("{name:?}: {error}")))?;
        let data = match value {
            FileValue::Text(text) => text.into_bytes(),
            FileValue::Data(data) => data.try_into().map_err(|error| wrong(&error))?,
        };
        entries.insert(name, data);
    }
    in_session(&place.tree.connect, output, async |client| {
        let folder = ConfigFolder::new(client, &place.path);
        let now = folder
            .update(|all| {
                if !args.merge {
                    all.clear();
                }
                all.extend(entries.clone());
            })
            .await?;
        if place.tree.json {
            let object = json!({"path": place.path, "values": now.len()});
            return Ok(output::answer_line(object)?);
        }
        output.notice(format_args!(
            "{} in {}",
            counted(now.len(), "value"),
            place.path
        ));
        Ok(Exit::Done)
    })
}

fn ls(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        let entries = ConfigFolder::new(client, &place.path).get().await?;
        presence::list(&entries, "values", &place.path, place.tree.json)
    })
}

fn export(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        let entries = ConfigFolder::new(client, &place.path).get().await?;
        let values: BTreeMap<_, _> = entries
            .into_iter()
            .map(|(name, data)| match DataJson::from(data) {
                DataJson::Text(text) => (name, FileValue::Text(text)),
                data => (name, FileValue::Data(data)),
            })
            .collect();
        Ok(output::answer_line(serde_json::to_string_pretty(&values)?)?)
    })
}
