//! The read/write lock in its plain form, in which every waiter watches the list of all: the thundering herd.

use anyhow::Result;
use zookeeper_client as zk;

/// A hold. It ends with [`release`](Self::release) or the session.
pub(crate) struct PlainHold {
    client: zk::Client,
    node: String,
}

/// Waits until no contender is ahead, or no writer if it reads.
pub(crate) async fn acquire(client: &zk::Client, path: &str, is_reader: bool) -> Result<PlainHold> {
    let acls = zk::Acls::anyone_all();
    let prefix = match is_reader {
        true => format!("{path}/read-"),
        false => format!("{path}/write-"),
    };
    let options = zk::CreateMode::EphemeralSequential.with_acls(acls);
    let sequence = loop {
        match client.create(&prefix, b"", &options).await {
            Ok((_, sequence)) => break sequence.to_string(),
            Err(zk::Error::NoNode) => {
                let container = zk::CreateMode::Container.with_acls(acls);
                match client.create(path, b"", &container).await {
                    Ok(_) | Err(zk::Error::NodeExists) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    };
    let before = |child: &String| match child.rsplit_once('-') {
        Some(("read", other)) => !is_reader && *other < *sequence,
        Some((_, other)) => *other < *sequence,
        None => false,
    };
    loop {
        let (children, watch) = client.list_and_watch_children(path).await?;
        if !children.iter().any(before) {
            return Ok(PlainHold {
                client: client.clone(),
                node: format!("{prefix}{sequence}"),
            });
        }
        watch.changed().await;
    }
}

impl PlainHold {
    pub(crate) async fn release(self) -> Result<()> {
        Ok(self.client.delete(&self.node, None).await?)
    }
}
