//! Reads of nodes: many in one request, or one with watches.

use std::ops::BitOr;

use bellwether_client as zk;

use super::tree::CachedNode;

/// What is to be read of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    data: bool,
    names: bool,
    /// Whether to read all children then, and not only new and deleted ones.
    pub(super) below: bool,
}

impl Ask {
    pub(super) const DATA: Self = Self {
        data: true,
        names: false,
        below: false,
    };

    /// The names of the children.
    pub(super) const NAMES: Self = Self {
        data: false,
        names: true,
        below: false,
    };

    /// Everything: it may have changed while no watch was set.
    pub(super) const SUBTREE: Self = Self {
        data: true,
        names: true,
        below: true,
    };
}

impl BitOr for Ask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            data: self.data | other.data,
            names: self.names | other.names,
            below: self.below | other.below,
        }
    }
}

/// What a read found.
pub(super) struct ReadAnswer {
    pub(super) below: String,
    pub(super) ask: Ask,
    /// `None` if there is no such node.
    pub(super) content: Result<Option<NodeContent>, zk::Error>,
    /// The watches that the read has set.
    pub(super) watches: Vec<zk::Watch>,
}

/// What was asked for.
#[derive(Default)]
pub(super) struct NodeContent {
    pub(super) node: Option<CachedNode>,
    pub(super) names: Option<Vec<String>>,
}

/// Reads many nodes in one request, or in more where the server does not answer so much at once. They are named by their paths
/// below the root.
pub(super) async fn read_many(
    zk: &zk::Client,
    root: &str,
    mut asks: Vec<(String, Ask)>,
) -> Vec<ReadAnswer> {
    match read_together(zk, root, &asks).await {
        Err(zk::Error::Refused(zk::ErrorCode::MarshallingError)) if asks.len() > 1 => {
            let rest = asks.split_off(asks.len() / 2);
            let mut found = Box::pin(read_many(zk, root, asks)).await;
            found.extend(Box::pin(read_many(zk, root, rest)).await);
            found
        }
        Ok(results) => {
            let mut results = results.into_iter();
            let found = |(below, ask): (String, Ask)| {
                let own: Vec<_> = results
                    .by_ref()
                    .take(usize::from(ask.data) + usize::from(ask.names))
                    .collect();
                ReadAnswer {
                    below,
                    ask,
                    content: content_of(own),
                    watches: Vec::new(),
                }
            };
            asks.into_iter().map(found).collect()
        }
        Err(error) => {
            let failed = |(below, ask)| ReadAnswer {
                below,
                ask,
                content: Err(error),
                watches: Vec::new(),
            };
            asks.into_iter().map(failed).collect()
        }
    }
}

async fn read_together(
    zk: &zk::Client,
    root: &str,
    asks: &[(String, Ask)],
) -> Result<Vec<zk::MultiReadResult>, zk::Error> {
    let mut reader = zk.new_multi_read();
    let mut node = root.to_owned();
    for (below, ask) in asks {
        node.truncate(root.len());
        node.push_str(below);
        if ask.data {
            reader.get(&node);
        }
        if ask.names {
            reader.children(&node);
        }
    }
    reader.commit().await
}

fn content_of(results: Vec<zk::MultiReadResult>) -> Result<Option<NodeContent>, zk::Error> {
    let mut content = NodeContent::default();
    for result in results {
        match result {
            zk::MultiReadResult::Data(data, stat) => {
                content.node = Some(CachedNode::new(data.to_vec(), &stat));
            }
            zk::MultiReadResult::Children(children) => content.names = Some(children),
            zk::MultiReadResult::Refused(zk::ErrorCode::NoNode) => return Ok(None),
            zk::MultiReadResult::Refused(code) => return Err(zk::Error::Refused(code)),
        }
    }
    Ok(Some(content))
}

/// Reads a node, and sets watches on what was read. A missing node is watched only at the root: otherwise the watch on its parent reports
/// it.
pub(super) async fn read_and_watch(
    zk: &zk::Client,
    root: &str,
    (below, ask): (String, Ask),
) -> ReadAnswer {
    let node = format!("{root}{below}");
    let mut watches = Vec::new();
    let content = loop {
        watches.clear();
        match watch_content(zk, &node, ask, &mut watches).await {
            Err(zk::Error::NO_NODE) if below.is_empty() => {
                match zk.exists_watched(&node).await {
                    // Made in between.
                    Ok((Some(_), _)) => {}
                    Ok((None, watch)) => {
                        watches = vec![watch];
                        break Ok(None);
                    }
                    Err(error) => break Err(error),
                }
            }
            Err(zk::Error::NO_NODE) => break Ok(None),
            content => break content.map(Some),
        }
    };
    ReadAnswer {
        below,
        ask,
        content,
        watches,
    }
}

async fn watch_content(
    zk: &zk::Client,
    node: &str,
    ask: Ask,
    watches: &mut Vec<zk::Watch>,
) -> Result<NodeContent, zk::Error> {
    // Made before the first await: they are sent in one packet.
    let data = ask.data.then(|| zk.get_watched(node));
    let names = ask.names.then(|| zk.children_watched(node));
    let mut content = NodeContent::default();
    if let Some(data) = data {
        let (data, stat, watch) = data.await?;
        content.node = Some(CachedNode::new(data.to_vec(), &stat));
        watches.push(watch);
    }
    if let Some(names) = names {
        let (names, watch) = names.await?;
        content.names = Some(names);
        watches.push(watch);
    }
    Ok(content)
}
