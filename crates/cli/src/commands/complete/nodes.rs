//! Words from the servers: paths of nodes, and holders.

use std::time::Duration;

use bellwether::inspect::{LineKind, Recipe, RecipeAt, Survey};
use bellwether::{Client, Connect};
use clap::FromArgMatches;
use tokio::time::timeout;

use super::Candidate;
use crate::args::ConnectArgs;
use crate::args::config_file::ConfigFile;
use crate::connect::{self, Whereabouts, security};
use crate::output::Output;
use crate::output::overview::line_kind;
use crate::output::people::holders_text;
use crate::value::node_path;

/// The time limit: the user has pressed a key and waits.
const LIMIT: Duration = Duration::from_secs(1);

/// The share of it for holders. Then paths of nodes are offered instead.
const HOLDERS_LIMIT: Duration = Duration::from_millis(600);

/// Holders are looked for in this many directories.
const DIRECTORIES_MAX: usize = 1000;

/// Which words are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Paths of nodes.
    Paths,
    /// Paths of what is held now; of nodes, if nothing is.
    Holders,
    /// Paths of elections with a leader; of nodes, if there is none.
    Leaders,
}

/// The paths that begin with a word. There are none without servers, or if they do not answer in time.
#[tokio::main(flavor = "current_thread")]
pub(super) async fn paths(wanted: Wanted, begin: &str, connection: &[String]) -> Vec<Candidate> {
    let found = timeout(LIMIT, async {
        let client = open(connection).await.ok().flatten()?;
        let paths = find(&client, wanted, begin).await;
        client.close().await;
        paths
    });
    found.await.ok().flatten().unwrap_or_default()
}

/// The names of the nodes directly below a path.
pub(super) fn names_below(path: &str, begin: &str, connection: &[String]) -> Vec<Candidate> {
    let folder = format!("{}/", path.trim_end_matches('/'));
    let mut found = paths(Wanted::Paths, &format!("{folder}{begin}"), connection);
    for candidate in &mut found {
        candidate.word.drain(..folder.len());
    }
    found
}

/// A session, with the options of the connection that are typed. It starts no server, and asks for no password.
async fn open(connection: &[String]) -> anyhow::Result<Option<Client>> {
    use clap::Args as _;
    let command = ConnectArgs::augment_args(clap::Command::new("complete"));
    let command = ConfigFile::read()?.apply(command).no_binary_name(true);
    let matches = command.try_get_matches_from(connection)?;
    let args = ConnectArgs::from_arg_matches(&matches)?;
    if security::would_ask(&args.security) {
        return Ok(None);
    }
    if let Whereabouts::Local(folder) = connect::whereabouts(&args)?
        && folder.connect().await?.is_none()
    {
        return Ok(None);
    }
    let client = connect::open(&args, Output::new(true), Connect::fail_fast).await?;
    Ok(Some(client))
}

async fn find(client: &Client, wanted: Wanted, begin: &str) -> Option<Vec<Candidate>> {
    // With or without the leading slash, as it was typed.
    let (above, name) = begin.rsplit_once('/').unwrap_or(("", begin));
    let directory = match above {
        "" => "/".to_owned(),
        above => node_path::parse(above).ok()?,
    };
    if wanted != Wanted::Paths {
        let held = timeout(HOLDERS_LIMIT, held(client, wanted, &directory, begin)).await;
        if let Ok(Some(held)) = held {
            return Some(held);
        }
    }
    let prefix = &begin[..begin.len() - name.len()];
    let mut children = client.raw().children(&directory).await.ok()?;
    children.sort_unstable();
    let fitting = children.iter().filter(|child| child.starts_with(name));
    Some(
        fitting
            .map(|child| Candidate::new(format!("{prefix}{child}")))
            .collect(),
    )
}

/// What is held in a directory and below it, with its holders.
async fn held(
    client: &Client,
    wanted: Wanted,
    directory: &str,
    begin: &str,
) -> Option<Vec<Candidate>> {
    let survey = Survey::new(client, directory).directories_max(DIRECTORIES_MAX);
    let overview = survey.look().await.ok()?;
    let has_slash = begin.starts_with('/') || begin.is_empty();
    let candidates = overview.recipes.iter().filter_map(|at| {
        let about = holders(at, wanted)?;
        let path = match has_slash {
            true => &*at.path,
            false => at.path.trim_start_matches('/'),
        };
        let fits = path.starts_with(begin);
        fits.then(|| Candidate::new(path).about(about))
    });
    let candidates: Vec<_> = candidates.collect();
    (!candidates.is_empty()).then_some(candidates)
}

/// Who holds a recipe, if it is one that is wanted.
fn holders(at: &RecipeAt, wanted: Wanted) -> Option<String> {
    match &at.what {
        Recipe::Line(line) if wanted == Wanted::Leaders && line.kind != LineKind::Election => None,
        Recipe::Line(line) => Some(format!(
            "{}, {}",
            line_kind(line.kind),
            holders_text(line.holders())?
        )),
        Recipe::Queue(queue) if wanted == Wanted::Holders => {
            Some(format!("queue, {}", holders_text(&queue.claims)?))
        }
        _ => None,
    }
}
