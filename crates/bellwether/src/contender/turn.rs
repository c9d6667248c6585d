//! The wait of a contender until its turn comes.

use std::future::pending;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;

use super::{Contender, Failure, Node, TRIES_MAX};
use crate::error::{Outcome, outcome};
use crate::node_event::{Happened, NodeEvent, OwnWatch};
use crate::sabotage::Sabotage;

/// How long a contender deep in the line waits before it watches its own node too. It would learn of a removal from its
/// next list anyway; this is for those who wait long.
const OWN_WATCH_AFTER: Duration = Duration::from_secs(1);

/// A watched read of the own node.
type OwnRead = zk::Reply<(Bytes, zk::Stat, zk::Watch)>;

impl Contender {
    /// Waits until nothing stands in the way of this node, and the session is known to be alive.
    pub(crate) async fn turn(&mut self) -> Result<(), Failure> {
        let client = self.client.clone();
        while let Some((blocker, alone)) = self.line.blocker(self.entry.rule) {
            let (theirs, own) = client.zk().batch(|zk| {
                // getData and not exists: on a node that has vanished it leaves no watch behind.
                let theirs = zk.get_watched(&self.dir.child(&blocker));
                // The watch on the own node rides along: without it, the last deletion alone would prove nothing.
                (theirs, alone.then(|| self.send_own_watch()))
            });
            if let Some(Some(own)) = own.transpose()? {
                self.own_watched(own.await)?;
            }
            match theirs.await {
                Ok((data, _, _)) if (self.entry.rule.gave_way)(&data) => {
                    self.line.pass(blocker.as_str())
                }
                Ok((_, _, watch)) => match self.wait(NodeEvent::of(watch)).await? {
                    // The lower nodes only become fewer: if the last list showed this one alone, nothing is left. A
                    // waiter deeper in line cannot tell a holder's end from a waiter's, and lists. So does one whose
                    // connection broke since then.
                    Happened::Deleted
                        if alone
                            && self.entry.layout.only_shrinks(&blocker)
                            && self.would_have_heard().await =>
                    {
                        self.line.pass(blocker.as_str());
                    }
                    Happened::Deleted if self.client.is_sabotaged(Sabotage::SkipRelist) => {
                        self.line.lower.clear();
                    }
                    Happened::Deleted => self.list().await?,
                    _ => {}
                },
                Err(zk::Error::NO_NODE) => self.list().await?,
                Err(error) if outcome(&error) == Outcome::Unknown => self.list().await?,
                Err(error) => return Err(error.into()),
            }
        }
        self.prove_alive().await
    }

    /// Waits until the session is known to be alive: a hold that began would else be over already.
    pub(crate) async fn prove_alive(&self) -> Result<(), Failure> {
        let client = &self.client;
        Ok(client.heart().prove().await?)
    }

    /// Whether an end of the own node by another hand would have been told since the last look.
    pub(crate) async fn would_have_heard(&mut self) -> bool {
        self.own_watch.is_some() && !self.reconnected()
    }

    /// Waits for a change of the watched node, and meanwhile for a deletion of our own.
    pub(crate) async fn wait(&mut self, mut theirs: NodeEvent) -> Result<Happened, Failure> {
        let client = self.client.clone();
        let mut own_watch_due = Box::pin(client.home().sleep(OWN_WATCH_AFTER));
        loop {
            let is_watched = self.own_watch.is_some();
            let own = async {
                match &mut self.own_watch {
                    Some(watch) => (&mut watch.event).await,
                    None => pending().await,
                }
            };
            let own = tokio::select! {
                biased;
                event = own => Some(event),
                event = &mut theirs => {
                    return match event {
                        Happened::SessionEnded => Err(Failure::SessionEnded),
                        event => Ok(event),
                    };
                }
                () = &mut own_watch_due, if !is_watched => None,
            };
            match own {
                Some(Happened::Deleted) => return Err(Failure::Removed),
                Some(Happened::SessionEnded) => return Err(Failure::SessionEnded),
                // Somebody wrote to it, or it is time to watch it.
                Some(_) | None => {
                    self.own_watch = None;
                    self.watch_own().await?;
                    own_watch_due = Box::pin(client.home().sleep(OWN_WATCH_AFTER));
                }
            }
        }
    }

    /// Watches the own node, if the connection lets us.
    pub(crate) async fn watch_own(&mut self) -> Result<(), Failure> {
        match self.send_own_watch()? {
            Some(sent) => self.own_watched(sent.await),
            None => Ok(()),
        }
    }

    /// Sends for a watch on the own node; `None` if there is one.
    fn send_own_watch(&self) -> Result<Option<OwnRead>, Failure> {
        let Node::At(_, node) = &self.node else {
            return Err(Failure::Removed);
        };
        Ok(match self.own_watch {
            Some(_) => None,
            None => Some(self.client.zk().get_watched(node.path())),
        })
    }

    fn own_watched(&mut self, read: <OwnRead as Future>::Output) -> Result<(), Failure> {
        match read {
            Ok((data, _, watch)) => self.own_watch = Some(OwnWatch::of(&data, watch)),
            Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
            Err(error) if outcome(&error) == Outcome::Unknown => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Looks again at what stands before the own node.
    pub(crate) async fn list(&mut self) -> Result<(), Failure> {
        let client = self.client.clone();
        let mut last = zk::Error::Unknown;
        for _ in 0..TRIES_MAX {
            self.connections = client.zk().connections();
            let (directory, list) = client.zk().batch(|zk| {
                let directory = self.send_directory_read(zk);
                (directory, zk.children(self.dir.as_str()))
            });
            match list.await {
                Ok(children) => {
                    self.directory = directory.await;
                    return self.look(children);
                }
                Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
                Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }

    /// As [`list`](Self::list), with watches for changes of the line and of the directory's data. The latter is kept if there
    /// is one, and nothing is read anew there.
    pub(crate) async fn watch_line(
        &mut self,
        directory_watch: Option<NodeEvent>,
    ) -> Result<(NodeEvent, NodeEvent), Failure> {
        let client = self.client.clone();
        let mut directory_watch = directory_watch;
        let mut last = zk::Error::Unknown;
        for _ in 0..TRIES_MAX {
            let directory = match directory_watch {
                None => Some(client.zk().get_watched(self.dir.as_str())),
                Some(_) => None,
            };
            let list = client.zk().children_watched(self.dir.as_str());
            let looked = async {
                let (children, line) = list.await?;
                if let Some(directory) = directory {
                    let (data, stat, watch) = directory.await?;
                    self.directory = Some((data, stat));
                    directory_watch = Some(NodeEvent::of(watch));
                }
                Ok((children, NodeEvent::of(line)))
            };
            match looked.await {
                Ok((children, line)) => {
                    self.look(children)?;
                    // An event comes before the reply to a later request: what was known of the directory when the list was
                    // made is still true if the kept watch says nothing now.
                    directory_watch = directory_watch.and_then(NodeEvent::unless_told);
                    if let Some(directory) = directory_watch {
                        return Ok((line, directory));
                    }
                }
                Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
                Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }

    /// Whether the connection was lost since the last list.
    fn reconnected(&self) -> bool {
        self.connections != self.client.zk().connections()
    }
}
