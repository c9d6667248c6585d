//! Asking one in a line to let go, and making it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::info;
use zookeeper_client as zk;

use crate::contention::Contention;
use crate::error::{ContentionError, Outcome, WriteError, outcome};
use crate::hold::Hold;
use crate::name::Layout;
use crate::node_data::{CURATOR_REVOKE, NodeData, Revocation};
use crate::node_event::NodeEvent;
use crate::path::NodePath;
use crate::who::Who;

/// The node in the directory of a line that tells who was last removed from it by force.
pub(crate) const BROKEN: &str = "broken";

/// Somebody who was removed from a line by force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Broken {
    version: u32,
    /// The name of its node.
    pub node: String,
    /// Its fencing token.
    pub token: i64,
    /// Who it was, by its own words.
    pub who: Option<Who>,
    /// Who did it, and when.
    pub by: Who,
    /// Why, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a holder was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// It let go when it was asked, or was gone already.
    LetGo,
    /// It was removed by force when the grace was over.
    Broken,
}

impl Contention {
    /// Who was last removed from this line by force, if anybody ever was.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`ContentionError`].
    pub async fn last_broken(&self) -> Result<Option<Broken>, ContentionError> {
        let path = self.dir()?.child(BROKEN);
        match self.client.zk().get_data(&path).await {
            Ok((data, _)) => Ok(serde_json::from_slice(&data).ok()),
            Err(zk::Error::NoNode) => Ok(None),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// Asks one in the line to let go, by the name of its node and its token, and does not wait for an answer. It keeps what it has
    /// unless it agrees. Tells whether it was still there: the names of some nodes go from holder to holder, and the token tells which
    /// is meant.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the request may have been made or not.
    ///
    /// # Errors
    ///
    /// See [`ContentionError`].
    pub async fn revoke(&self, node: &str, token: i64) -> Result<bool, ContentionError> {
        let asked = self.ask(&self.prefix()?, (node, token), None).await;
        Ok(asked.map_err(|source| self.failed(source))?.is_some())
    }

    /// Asks one in the line to let go, by the name of its node and its token, waits for the grace, and then removes it by force.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the request may have been made, and the holder be gone or not.
    ///
    /// # Errors
    ///
    /// See [`ContentionError`].
    pub async fn break_hold(
        &self,
        node: &str,
        token: i64,
        grace: Duration,
    ) -> Result<Ending, ContentionError> {
        let dir = self.prefix()?;
        let broken = async {
            let Some(asked) = self.ask(&dir, (node, token), Some(grace)).await? else {
                return Ok(Ending::LetGo);
            };
            let gone = asked.until_gone(self.client.zk());
            match self.client.home().timeout(grace, gone).await {
                Some(gone) => gone.map(|()| Ending::LetGo),
                None => self.remove(&dir, node, asked).await,
            }
        };
        broken.await.map_err(|source| self.failed(source))
    }

    /// Puts the request beside what the node says. `None` if it is not there, or another's by now.
    async fn ask(
        &self,
        dir: &NodePath,
        (node, token): (&str, i64),
        grace: Option<Duration>,
    ) -> Result<Option<Asked>, zk::Error> {
        let zk = self.client.zk();
        let path = dir.child(node);
        let by = Who::here(self.client.session_id());
        let revocation = Revocation::new(by, self.message.clone(), grace);
        loop {
            let (data, stat) = match zk.get_data(&path).await {
                Err(zk::Error::NoNode) => return Ok(None),
                Ok((_, stat)) if stat.czxid != token => return Ok(None),
                read => read?,
            };
            let asking = match NodeData::from_data(&data) {
                Some(mut said) => {
                    said.revoke = Some(revocation.clone());
                    said.to_data()
                }
                // Another library's, which knows no other form.
                None => CURATOR_REVOKE.to_vec(),
            };
            match zk.set_data(&path, &asking, Some(stat.version)).await {
                Ok(stat) => {
                    return Ok((stat.czxid == token).then(|| Asked {
                        path,
                        token,
                        version: stat.version,
                        who: Who::from_data(&data),
                    }));
                }
                Err(zk::Error::NoNode) => return Ok(None),
                // Somebody else wrote to it meanwhile.
                Err(zk::Error::BadVersion) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes the node and records who did it, in one step.
    async fn remove(
        &self,
        dir: &NodePath,
        node: &str,
        mut asked: Asked,
    ) -> Result<Ending, zk::Error> {
        let zk = self.client.zk();
        // Curator counts every child of the directory as a contender.
        let is_ours = Layout::Bellwether.parse(node.to_owned()).is_some();
        let record = is_ours.then(|| dir.child(BROKEN));
        let broken = Broken {
            version: 1,
            node: node.to_owned(),
            token: asked.token,
            who: asked.who.clone(),
            by: Who::here(self.client.session_id()),
            message: self.message.clone(),
        };
        let data = serde_json::to_vec(&broken).expect("strings and numbers are JSON");
        let options = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
        let mut exists = false;
        loop {
            let mut writer = zk.new_multi_writer();
            // At the version of the request: one that another has made there since has none yet.
            writer.add_delete(&asked.path, Some(asked.version))?;
            match &record {
                Some(record) if exists => writer.add_set_data(record, &data, None)?,
                Some(record) => writer.add_create(record, &data, &options)?,
                None => {}
            }
            match writer.commit().await {
                Ok(_) => {
                    info!(node, token = broken.token, "hold was broken");
                    return Ok(Ending::Broken);
                }
                Err(zk::MultiWriteError::OperationFailed {
                    index: 0,
                    source: zk::Error::NoNode,
                }) => return Ok(Ending::LetGo),
                Err(zk::MultiWriteError::OperationFailed {
                    index: 0,
                    source: zk::Error::BadVersion,
                }) => match asked.is_there_at(zk).await? {
                    Some(version) => asked.version = version,
                    None => return Ok(Ending::LetGo),
                },
                Err(zk::MultiWriteError::OperationFailed { index: 1, source })
                    if matches!(source, zk::Error::NodeExists | zk::Error::NoNode) =>
                {
                    exists = source == zk::Error::NodeExists;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Hold {
    /// Records in the line that this hold ends because somebody breaks it, as a break by force does: for a holder that
    /// stops its work in time and lets go. Items of queues and lines in the layout of another library have no such record.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been recorded or not.
    ///
    /// # Errors
    ///
    /// As [`FencedWrite::commit`](crate::FencedWrite::commit).
    pub async fn record_break(&self, asked: &Revocation) -> Result<(), WriteError> {
        let node = self.node();
        if Layout::Bellwether.parse(node.to_owned()).is_none() {
            return Ok(());
        }
        let broken = Broken {
            version: 1,
            node: node.to_owned(),
            token: self.token(),
            who: self.who().await,
            by: asked.by.clone().unwrap_or_default(),
            message: asked.message.clone(),
        };
        let data = serde_json::to_vec(&broken).expect("strings and numbers are JSON");
        let path = format!("{}/{BROKEN}", self.path());
        loop {
            // Both are harmless twice.
            let mut write = self.write();
            write.set(&path, &*data, None);
            match write.commit_again().await {
                Err(WriteError::Refused {
                    source: zk::Error::NoNode,
                    ..
                }) => {}
                written => return written,
            }
            let mut write = self.write();
            write.create(&path, &*data);
            match write.commit_again().await {
                Err(WriteError::Refused {
                    source: zk::Error::NodeExists,
                    ..
                }) => {}
                written => return written,
            }
        }
    }
}

/// One who was asked to let go.
struct Asked {
    path: String,
    token: i64,
    /// The version of its node with the request.
    version: i32,
    who: Option<Who>,
}

impl Asked {
    /// Waits until the node is gone, or another's.
    async fn until_gone(&self, zk: &zk::Client) -> Result<(), zk::Error> {
        loop {
            match zk.get_and_watch_data(&self.path).await {
                Ok((_, stat, _)) if stat.czxid != self.token => return Ok(()),
                Ok((_, _, watch)) => match NodeEvent::of(watch).await {
                    zk::EventType::NodeDeleted => return Ok(()),
                    zk::EventType::Session => return Err(zk::Error::SessionExpired),
                    _ => {}
                },
                Err(zk::Error::NoNode) => return Ok(()),
                // The next request waits in the client until there is a connection again: this does not spin.
                Err(error) if outcome(&error) == Outcome::Unknown => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The version of the node now; `None` if it is gone, or another's.
    async fn is_there_at(&self, zk: &zk::Client) -> Result<Option<i32>, zk::Error> {
        let stat = zk.check_stat(&self.path).await?;
        let same = stat.filter(|stat| stat.czxid == self.token);
        Ok(same.map(|stat| stat.version))
    }
}
