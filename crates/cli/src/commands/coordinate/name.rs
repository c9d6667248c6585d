//! `bellwether name`: names with data.

use bellwether::Names;
use bellwether::state::Roster;
use serde_json::json;

use crate::args::{NameArgs, NameCommand, NameRegisterArgs, NameResolveArgs, PlaceArgs};
use crate::commands::coordinate::presence;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::refusal::Refusal;
use crate::output::rendering::data_json;
use crate::output::{self, Output};
use crate::tree::payload;

pub(crate) fn run(args: NameArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        NameCommand::Register(args) => register(&args, output),
        NameCommand::Unregister(args) => unregister(&args, output),
        NameCommand::Resolve(args) => resolve(&args, output),
        NameCommand::Ls(args) => ls(&args, output),
    }
}

fn register(args: &NameRegisterArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, name) = (&args.place, &args.name);
    let data = match args.lasting {
        true => payload::read(&args.data)?,
        false => payload::given_or_empty(&args.data)?,
    };
    in_session(&place.tree.connect, output, async |client| {
        let names = Names::new(client, &place.path);
        if !args.lasting {
            let registered = names.register(name, data).await;
            return presence::stay(registered, place, &args.data, output).await;
        }
        names.register_lasting(name, data).await?;
        Ok(match place.tree.json {
            true => output::answer_line(json!({"path": place.path, "name": name}))?,
            false => output::answer_line(name)?,
        })
    })
}

fn unregister(args: &NameResolveArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, name) = (&args.place, &args.name);
    in_session(&place.tree.connect, output, async |client| {
        if !Names::new(client, &place.path).remove(name).await? {
            return Err(unregistered(args).into());
        }
        match place.tree.json {
            true => Ok(output::answer_line(
                json!({"path": place.path, "name": name}),
            )?),
            false => Ok(Exit::Done),
        }
    })
}

fn unregistered(args: &NameResolveArgs) -> Refusal {
    let (name, path) = (&args.name, &args.place.path);
    Refusal::no(format!("the name {name} is not registered in {path}"))
}

fn resolve(args: &NameResolveArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, name) = (&args.place, &args.name);
    in_session(&place.tree.connect, output, async |client| {
        let Some(data) = Names::new(client, &place.path).resolve(name).await? else {
            return Err(unregistered(args).into());
        };
        if place.tree.json {
            let object = json!({"path": place.path, "name": name, "data": data_json(Some(&data))});
            return Ok(output::answer_line(object)?);
        }
        output::answer_data(&data, &format!("{name} in {}", place.path))
    })
}

fn ls(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        let names = Names::new(client, &place.path);
        let mut roster = Roster::new();
        for name in names.list().await? {
            // Names that were deleted meanwhile are left out.
            if let Some(data) = names.resolve(&name).await? {
                roster.insert(name, data);
            }
        }
        presence::list(&roster, "names", &place.path, place.tree.json)
    })
}
