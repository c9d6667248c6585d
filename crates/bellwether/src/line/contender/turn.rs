//! How a contender waits for its turn.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::FutureExt as _;

use crate::hold::ephemeral_node::OwnWatch;
use crate::line::contender::{Contender, NodeState};
use crate::line::failure::Failure;
use crate::line::name::Name;
use crate::session::retry::{Happened, NodeEvent, Retry};

/// How long a contender deep in the line waits before it also watches its own node. Its next list would show a removal anyway, but may
/// be far off.
const OWN_WATCH_AFTER: Duration = Duration::from_secs(1);

/// A watched read of the own node.
type OwnRead = zk::Reply<(Bytes, zk::Stat, zk::Watch)>;

impl Contender {
    /// Waits until no node blocks this one and the session is known to be alive.
    pub(crate) async fn turn(&mut self) -> Result<(), Failure> {
        let session = self.session.clone();
        while let Some((blocker, alone)) = self.blocker() {
            let (theirs, own) = session.zk().batch(|zk| {
                // getData instead of exists: on a deleted node it leaves no watch behind.
                let theirs = zk.get_watched(&self.dir.child(&blocker));
                // A watch on the own node is sent with it: without one, the deletion of the blocker alone would not prove the turn.
                (theirs, alone.then(|| self.send_own_watch()))
            });
            if let Some(Some(own)) = own.transpose()? {
                self.own_watched(own.await)?;
            }
            match theirs.await {
                Ok((data, _, _)) if (self.entry.mode.gave_way)(&data) => {
                    self.tolerate(blocker.as_str());
                }
                Ok((_, _, watch)) => {
                    if self.wait(NodeEvent::of(watch)).await? == Happened::Deleted {
                        self.is_gone(&blocker, alone).await?;
                    }
                }
                Err(zk::Error::NO_NODE) => {
                    self.hear_of_own().await?;
                    self.is_gone(&blocker, alone).await?;
                }
                Err(error) if error.is_transient() => self.list().await?,
                Err(error) => return Err(error.into()),
            }
        }
        self.prove_alive().await
    }

    fn blocker(&self) -> Option<(Name, bool)> {
        self.line.as_ref()?.blocker(self.entry.mode)
    }

    /// Checks the watch on the own node. The server sends an event before the reply to a later request, so without an event the node
    /// existed when that request was processed.
    async fn hear_of_own(&mut self) -> Result<(), Failure> {
        let told = match &mut self.own_watch {
            Some(watch) => (&mut watch.event).now_or_never(),
            None => None,
        };
        match told {
            Some(Happened::Deleted) => Err(self.why_deleted().await),
            Some(Happened::SessionEnded) => Err(Failure::SessionEnded),
            Some(_) => {
                self.own_watch = None;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Why the own node was deleted. A session that expires gets the events of its own nodes too: its server fires watches before it closes
    /// the connection (`FinalRequestProcessor`). An answer proves that the session has outlived its node.
    async fn why_deleted(&self) -> Failure {
        loop {
            match self.session.zk().exists("/").await {
                // A refusal is an answer too.
                Ok(_) | Err(zk::Error::Refused(_)) => return Failure::Removed,
                Err(error) if error.is_transient() => {}
                Err(error) => return error.into(),
            }
        }
    }

    /// Continues after the blocker was deleted.
    ///
    /// The nodes ahead only become fewer: if the last list showed the blocker alone, none is left. A waiter deeper in line lists again,
    /// because the blocker may have been a waiter that gave up. So does a waiter whose connection broke since the last list.
    async fn is_gone(&mut self, blocker: &Name, alone: bool) -> Result<(), Failure> {
        let only_shrinks = self.entry.layout.only_shrinks(blocker);
        let is_sure = alone && only_shrinks && self.would_have_heard();
        match &mut self.line {
            Some(line) if is_sure => line.pass(blocker),
            _ => self.list().await?,
        }
        Ok(())
    }

    /// Waits until the session is known to be alive. Otherwise a new hold could be lost already.
    pub(crate) async fn prove_alive(&self) -> Result<(), Failure> {
        let session = &self.session;
        Ok(session.liveness().prove().await?)
    }

    /// Whether a watch would have reported a deletion of the own node since the last list.
    pub(crate) fn would_have_heard(&self) -> bool {
        self.own_watch.is_some() && !self.reconnected()
    }

    /// Waits for a change of the watched node. Fails if the own node is deleted meanwhile.
    pub(crate) async fn wait(&mut self, theirs: NodeEvent) -> Result<Happened, Failure> {
        match self.wait_for(theirs).await? {
            Happened::SessionEnded => Err(Failure::SessionEnded),
            event => Ok(event),
        }
    }

    /// Waits for a future. Fails if the own node is deleted meanwhile.
    async fn wait_for<T>(&mut self, other: impl Future<Output = T>) -> Result<T, Failure> {
        self.wait.is_for_another = true;
        let session = self.session.clone();
        let mut other = pin!(other);
        let mut own_watch_due = Box::pin(session.runtime().sleep(OWN_WATCH_AFTER));
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
                value = &mut other => return Ok(value),
                () = &mut own_watch_due, if !is_watched => None,
            };
            match own {
                Some(Happened::Deleted) => return Err(self.why_deleted().await),
                Some(Happened::SessionEnded) => return Err(Failure::SessionEnded),
                // A client wrote to the node, or it is time to watch it.
                Some(_) | None => {
                    self.own_watch = None;
                    self.watch_own().await?;
                    own_watch_due = Box::pin(session.runtime().sleep(OWN_WATCH_AFTER));
                }
            }
        }
    }

    /// Watches the own node, if the connection allows it.
    pub(crate) async fn watch_own(&mut self) -> Result<(), Failure> {
        match self.send_own_watch()? {
            Some(sent) => self.own_watched(sent.await),
            None => Ok(()),
        }
    }

    /// Sends a watched read of the own node; `None` if it is watched already.
    fn send_own_watch(&self) -> Result<Option<OwnRead>, Failure> {
        let NodeState::At(_, node) = &self.node else {
            return Err(Failure::Removed);
        };
        Ok(match self.own_watch {
            Some(_) => None,
            None => Some(self.session.zk().get_watched(node.path())),
        })
    }

    fn own_watched(&mut self, read: <OwnRead as Future>::Output) -> Result<(), Failure> {
        match read {
            Ok((data, _, watch)) => self.own_watch = Some(OwnWatch::of(&data, watch)),
            Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Lists the line again.
    pub(crate) async fn list(&mut self) -> Result<(), Failure> {
        let session = self.session.clone();
        let mut retry = Retry::limited();
        loop {
            self.connections = session.zk().connections();
            let (directory, list) = session.zk().batch(|zk| {
                let directory = self.send_directory_read(zk);
                (directory, zk.children(self.dir.as_str()))
            });
            match list.await {
                Ok(children) => {
                    self.directory = directory.await;
                    return self.look(children);
                }
                Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
                Err(error) => retry.again(error)?,
            }
        }
    }

    /// As [`list`](Self::list), for a contender that has to wait: with watches on the line and on the data of the directory. An existing watch
    /// on the data is kept, and the data is not read again.
    pub(crate) async fn watch_line(
        &mut self,
        directory_watch: Option<NodeEvent>,
    ) -> Result<(NodeEvent, NodeEvent), Failure> {
        self.wait.is_for_another = true;
        let session = self.session.clone();
        let mut directory_watch = directory_watch;
        let mut retry = Retry::limited();
        loop {
            let directory = match directory_watch {
                None => Some(session.zk().get_watched(self.dir.as_str())),
                Some(_) => None,
            };
            let list = session.zk().children_watched(self.dir.as_str());
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
                    // The server sends an event before the reply to a later request: if the kept watch has none by now, the known data
                    // was still current when the list was made.
                    directory_watch = directory_watch.and_then(NodeEvent::unless_told);
                    if let Some(directory) = directory_watch {
                        return Ok((line, directory));
                    }
                }
                Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
                Err(error) => retry.again(error)?,
            }
        }
    }

    /// Whether the connection broke since the last list.
    fn reconnected(&self) -> bool {
        self.connections != self.session.zk().connections()
    }
}
