//! `bellwether counter`: a shared number.

use bellwether::{Counter, Error};
use serde_json::json;

use crate::args::{CounterArgs, CounterCommand, CounterSetArgs};
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::refusal::Refusal;
use crate::output::{self, Output};

pub(crate) fn run(args: CounterArgs, output: Output) -> anyhow::Result<Exit> {
    let place = match &args.command {
        CounterCommand::Get(place) => place,
        CounterCommand::Add(args) => &args.place,
        CounterCommand::Set(args) => &args.place,
    };
    in_session(&place.tree.connect, output, async |client| {
        let counter = Counter::new(client, &place.path);
        let value = match &args.command {
            CounterCommand::Get(_) => counter.get().await?,
            CounterCommand::Add(args) => counter.add(args.by).await?,
            CounterCommand::Set(args) => {
                set(&counter, args).await??;
                args.value
            }
        };
        Ok(match place.tree.json {
            true => output::answer_line(json!({"path": place.path, "value": value}))?,
            false => output::answer_line(value)?,
        })
    })
}

async fn set(counter: &Counter, args: &CounterSetArgs) -> Result<Result<(), Refusal>, Error> {
    loop {
        let before = match args.expect {
            Some(expected) => expected,
            None => counter.get().await?,
        };
        if counter.compare_and_set(before, args.value).await? {
            return Ok(Ok(()));
        }
        if args.expect.is_some() {
            let path = &args.place.path;
            let refusal = Refusal::no(format!("{path} is not {before}"));
            return Ok(Err(refusal.hint(format!(
                "`bellwether counter get {path}` prints the number"
            ))));
        }
    }
}
