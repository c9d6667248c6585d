//! Settings that change while the program runs.

use anyhow::Result;
use bellwether::state::Seen;
use bellwether::{Client, Config, Json};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Settings {
    pub(crate) workers: u32,
}

pub(crate) fn settings(client: &Client) -> Config<Json<Settings>> {
    Config::new(client, "/services/settings")
}

/// Applies each new value. The last one stays in use while no server answers.
pub(crate) async fn run(client: &Client, mut apply: impl FnMut(Settings)) -> Result<()> {
    let mut values = settings(client).watch();
    while let Some(seen) = values.next().await {
        match seen {
            Ok(Seen::Value(entry)) => apply(entry.value.0),
            Ok(Seen::Absent) => apply(Settings::default()),
            Ok(_) => {}
            // A value that cannot be decoded is ignored: the last value stays in use.
            Err(error) => eprintln!("settings: {error}"),
        }
    }
    Ok(())
}
