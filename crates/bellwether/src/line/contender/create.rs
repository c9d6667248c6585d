//! Creates the node of a contender, over lost replies and missing directories.

use bellwether_client as zk;
use futures_util::future::join3;

use crate::hold::ephemeral_node::{EphemeralNode, Naming};
use crate::line::contender::{Contender, NodeState, SEQUENCE_MAX};
use crate::line::failure::Failure;
use crate::line::name::{Layout, Name};
use crate::request::receipts::{OnceError, Receipts, Written};
use crate::session::retry::{Retry, read_linearizable, until_answered};

impl Contender {
    /// Tries to create the node and to list the line. Returns false if the caller may try again. A node whose create got no answer is found
    /// by its name.
    pub(super) async fn create(
        &mut self,
        payload: &[u8],
        retry: &mut Retry,
    ) -> Result<bool, Failure> {
        if matches!(self.node, NodeState::InDoubt) && self.find().await? {
            return Ok(true);
        }
        let session = self.session.clone();
        let zk = session.zk();
        let prefix = self.dir.child(&self.prefix);
        let options = zk::CreateMode::EphemeralSequential.with_acl(self.entry.access.acl());
        self.connections = session.zk().connections();
        self.node = NodeState::InDoubt;
        // Pipelined: one packet, one round trip.
        let (create, directory, list) = zk.batch(|zk| {
            let create = zk.create(&prefix, payload, options);
            let directory = self.send_directory_read(zk);
            (create, directory, zk.children(self.dir.as_str()))
        });
        match create.await {
            Ok(zk::Created { path, stat }) => {
                self.adopt(path, stat.czxid)?;
                match list.await {
                    Ok(children) => {
                        self.directory = directory.await;
                        self.look(children)?;
                    }
                    Err(_) => self.list().await?,
                }
                Ok(true)
            }
            Err(zk::Error::NO_NODE) => {
                self.node = NodeState::None;
                retry.again_after(self.make_directory().await)?;
                Ok(false)
            }
            Err(error) => {
                if error == zk::Error::Unknown {
                    self.in_doubt_since.get_or_insert(self.connections);
                } else {
                    self.node = NodeState::None;
                }
                retry.again(error)?;
                Ok(false)
            }
        }
    }

    /// Creates the node exactly once, and lists the line.
    pub(super) async fn create_once(
        &mut self,
        payload: &[u8],
        receipts: &Receipts,
        retry: &mut Retry,
    ) -> Result<(), Failure> {
        let session = self.session.clone();
        let zk = session.zk();
        let (prefix, dir) = (self.dir.child(&self.prefix), self.dir.clone());
        let options = zk::CreateMode::EphemeralSequential.with_acl(self.entry.access.acl());
        let mut operation = receipts.operation()?;
        loop {
            self.connections = zk.connections();
            self.node = NodeState::InDoubt;
            // Its stat has the zxid that the answer to a create does not show. All writes of a multi have one zxid.
            let receipt = operation.is_first().then(|| operation.path().to_owned());
            // Polled in this order, so they are sent in this order.
            let (written, receipt, list) = join3(
                operation.send(|writer| writer.create(&prefix, payload, &options)),
                async { zk.exists(receipt.as_ref()?).await.ok()? },
                async { zk.children(dir.as_str()).await },
            )
            .await;
            let czxid = operation.zxid().or(receipt.map(|stat| stat.mzxid));
            let is_in_order = self.connections == zk.connections();
            match (written, czxid, list) {
                (Ok(Written::Answered(results)), Some(czxid), Ok(children)) if is_in_order => {
                    let Some(zk::MultiResult::Created { path }) = results.first() else {
                        return Err(Failure::Removed);
                    };
                    self.adopt(path.clone(), czxid)?;
                    return self.look(children);
                }
                (Ok(_), ..) => {
                    self.is_first_try = false;
                    return match self.find().await? {
                        true => Ok(()),
                        false => Err(Failure::Removed),
                    };
                }
                (Err(OnceError::Refused(error)), ..) => {
                    self.is_first_try = false;
                    // Without its directory the receipt could not be created, and an earlier try may find a new directory.
                    if operation.is_in_doubt() {
                        self.in_doubt_since.get_or_insert(self.connections);
                    } else {
                        self.node = NodeState::None;
                    }
                    match zk::Error::from(error) {
                        zk::Error::NO_NODE => retry.again_after(self.make_directory().await)?,
                        error => return Err(error.into()),
                    }
                }
                (Err(error), ..) => return Err(error.into()),
            }
        }
    }

    /// Takes over a node that was created, unless the numbers of its line are used up.
    fn adopt(&mut self, path: String, czxid: i64) -> Result<(), Failure> {
        let name = path.rsplit_once('/').map(|(_, name)| name.to_owned());
        let name = name.and_then(|name| self.entry.layout.parse(name));
        // Dropped here, the node is removed again.
        let node = EphemeralNode::new(&self.session, path, czxid, Naming::Unique);
        self.node = NodeState::None;
        match name {
            Some(name) if (0..SEQUENCE_MAX).contains(&name.sequence()) => {
                self.place(name, node);
                Ok(())
            }
            _ => Err(Failure::SequenceUsedUp),
        }
    }

    async fn make_directory(&self) -> Result<(), zk::Error> {
        let (dir, access) = (&self.dir, &self.entry.access);
        match self.entry.first_limit {
            // kazoo creates the directory once, and not again after the servers have removed it.
            None if self.entry.layout == Layout::Kazoo => {
                self.session.make_kept_directory(dir, b"", access).await
            }
            None if self.entry.is_inner => self.session.make_inner_directory(dir, access).await,
            None => self.session.make_directory(dir, access).await,
            Some(limit) => {
                let limit = limit.to_string();
                self.session
                    .make_kept_directory(dir, limit.as_bytes(), access)
                    .await
            }
        }
    }

    /// Looks for the node of a create whose reply was lost. The server that answers now may be another, and lag behind.
    async fn find(&mut self) -> Result<bool, Failure> {
        let session = self.session.clone();
        self.connections = session.zk().connections();
        let (zk, dir) = (session.zk(), self.dir.as_str());
        let list = || read_linearizable(zk, dir, || zk.children(dir));
        let children = match until_answered(list).await {
            Ok(children) => children,
            Err(zk::Error::NO_NODE) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let names = self.entry.layout.contenders(children.clone());
        let own: Vec<Name> = names
            .filter(|name| name.as_str().starts_with(&self.prefix))
            .collect();
        let mut found = None;
        // Every try that took effect has left a node, and each of them counts in the line. One is adopted, the others are deleted.
        for name in own {
            let path = self.dir.child(&name);
            match until_answered(|| zk.get(&path)).await {
                // A node of another session is not this contender's: it disappears with that session.
                Ok((_, stat)) if stat.ephemeral_owner == session.session_id() => {
                    let node = EphemeralNode::new(&session, path, stat.czxid, Naming::Unique);
                    // Dropped, the other node is deleted by the cleaner.
                    match &found {
                        Some((first, _)) if !name.is_before(first) => drop(node),
                        _ => found = Some((name, node)),
                    }
                }
                Ok(_) | Err(zk::Error::NO_NODE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some((name, node)) = found else {
            return Ok(false);
        };
        self.place(name, node);
        self.look(children)?;
        Ok(true)
    }
}
