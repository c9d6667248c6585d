//! `bellwether counter`: a number that many add to.

use bellwether::Counter;
use serde_json::json;

use crate::args::{CounterArgs, CounterCommand};
use crate::exit::Exit;
use crate::output::{self, Output};
use crate::session::in_session;

pub(crate) fn run(args: CounterArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, by) = match args.command {
        CounterCommand::Get(place) => (place, None),
        CounterCommand::Add(args) => (args.place, Some(args.by)),
    };
    in_session(&place.tree, output, async |client| {
        let counter = Counter::new(client, &place.path);
        let value = match by {
            Some(by) => counter.add(by).await?,
            None => counter.get().await?,
        };
        Ok(match place.tree.json {
            true => output::answer_line(json!({"path": place.path, "value": value}))?,
            false => output::answer_line(value)?,
        })
    })
}
