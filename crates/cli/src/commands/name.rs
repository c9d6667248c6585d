//! `bellwether name`: names with data.

use bellwether::{Names, Roster};
use serde_json::json;

use crate::args::{NameArgs, NameCommand, NameRegisterArgs, NameResolveArgs, PlaceArgs};
use crate::exit::Exit;
use crate::output::{self, Output};
use crate::refusal::{self, Refusal};
use crate::rendering::data_json;
use crate::session::in_session;
use crate::{payload, presence};

pub(crate) fn run(args: NameArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        NameCommand::Register(args) => register(&args, output),
        NameCommand::Resolve(args) => resolve(&args, output),
        NameCommand::Ls(args) => ls(&args, output),
    }
}

fn register(args: &NameRegisterArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, name) = (&args.place, &args.name);
    let data = match args.lasting {
        true => payload::read_or_empty(&args.data)?,
        false => payload::given_or_empty(&args.data)?,
    };
    in_session(&place.tree, output, async |client| {
        let names = Names::new(client, &place.path);
        if !args.lasting {
            let registered = names.register(name, data).await;
            return presence::stay(registered, place, &args.data, output).await;
        }
        let made = names.register_lasting(name, data).await;
        made.map_err(refusal::of_state)?;
        Ok(match place.tree.json {
            true => output::answer_line(json!({"path": place.path, "name": name}))?,
            false => output::answer_line(name)?,
        })
    })
}

fn resolve(args: &NameResolveArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, name) = (&args.place, &args.name);
    in_session(&place.tree, output, async |client| {
        let Some(data) = Names::new(client, &place.path).resolve(name).await? else {
            let path = &place.path;
            return Err(Refusal::no(format!("nobody bears the name {name} in {path}")).into());
        };
        if place.tree.json {
            let object = json!({"path": place.path, "name": name, "data": data_json(Some(&data))});
            return Ok(output::answer_line(object)?);
        }
        Ok(output::answer_data(&data)?)
    })
}

fn ls(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree, output, async |client| {
        let names = Names::new(client, &place.path);
        let mut roster = Roster::new();
        for name in names.list().await? {
            // One that has gone meanwhile is not there.
            if let Some(data) = names.resolve(&name).await? {
                roster.insert(name, data);
            }
        }
        presence::list(&roster, "names", place)
    })
}
