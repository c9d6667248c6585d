//! Reads many nodes with pipelined requests.

use std::collections::VecDeque;

use bellwether::zk;

use crate::output::progress::Progress;
use crate::output::refusal::{Refusal, Verb};
use crate::value::node_path;

/// The most unanswered requests.
const AHEAD_MAX: usize = 128;

/// A node on a walk.
#[derive(Debug)]
pub(crate) struct Visited {
    pub(crate) path: String,
    /// The stat of the node and the sorted names of its children; `None` if it may not be read.
    pub(crate) read: Option<(zk::Stat, Vec<String>)>,
}

impl Visited {
    pub(crate) fn is_ephemeral(&self) -> bool {
        self.read
            .as_ref()
            .is_some_and(|(stat, _)| stat.ephemeral_owner != 0)
    }
}

/// Visits a node and all nodes below it, level by level, at most `depth` levels below the top. Nodes that are deleted meanwhile are left
/// out.
pub(crate) async fn walk(
    zk: &zk::Client,
    top: &str,
    depth: Option<usize>,
    progress: &Progress,
) -> Result<Vec<Visited>, Refusal> {
    let mut visited = Vec::new();
    let mut level = vec![top.to_owned()];
    let mut levels_left = depth.unwrap_or(usize::MAX);
    while !level.is_empty() {
        let mut below = Vec::new();
        for (path, answer) in ask_all(level, |path| zk.children_stat(path)).await {
            let read = match answer {
                Ok((mut names, stat)) => {
                    names.sort_unstable();
                    below.extend(names.iter().map(|name| node_path::child(&path, name)));
                    Some((stat, names))
                }
                Err(zk::Error::NO_AUTH) => None,
                Err(zk::Error::NO_NODE) if path != top => continue,
                Err(error) => return Err(Refusal::of(Verb::List, &path, error)),
            };
            visited.push(Visited { path, read });
            progress.advance();
        }
        if levels_left == 0 {
            break;
        }
        levels_left -= 1;
        level = below;
    }
    Ok(visited)
}

/// Sends a request for each item, with a limit on unanswered requests, and returns the answers in order. The client sends a request when
/// its future is made.
pub(crate) async fn ask_all<T, F: Future>(
    items: impl IntoIterator<Item = T>,
    mut request: impl FnMut(&T) -> F,
) -> Vec<(T, F::Output)> {
    let mut answers = Vec::new();
    let mut under_way = VecDeque::with_capacity(AHEAD_MAX);
    for item in items {
        if under_way.len() == AHEAD_MAX
            && let Some((item, answer)) = under_way.pop_front()
        {
            answers.push((item, answer.await));
        }
        let answer = request(&item);
        under_way.push_back((item, answer));
    }
    for (item, answer) in under_way {
        answers.push((item, answer.await));
    }
    answers
}
