//! The holders and waiters of a line, seen from outside: asking a holder to release, and removing it by force.

use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::error::{Error, ErrorKind, Failure};
use crate::hold::Hold;
use crate::hold::crash_mark::{CrashRecord, Ended, HELD};
use crate::hold::fence::FencingToken;
use crate::line::name::{Kind, Layout, Name, read_limit};
use crate::node::data::{CURATOR_REVOKE, NodeData, Revocation, Who};
use crate::node::{NodePath, created_at, now_ms};
use crate::session::Session;
use crate::session::client::{Client, SessionId};
use crate::session::retry::{Happened, NodeEvent, found, until_answered};
use crate::session::telemetry::call;

/// A look from outside at a line of contenders: of a lock, a read/write lock or a semaphore, in any [layout](Layout).
///
/// # What it guarantees
///
/// A [look](Self::line) is no older than the call. A holder that is [asked](Self::revoke) to release gets the request through the watch on
/// its own node, and the node keeps its data. A holder that is [broken](Self::break_hold) was asked first, and had the announced grace;
/// then its node is deleted, its [`lost`](crate::Hold::lost) resolves, and the line records who did it.
///
/// # What it does not
///
/// When a look returns, the line may have changed already. A broken holder that does not listen continues until it checks its hold or a
/// store refuses its token: when another client deletes the node, `lost` cannot resolve before the deletion.
///
/// # Node layout
///
/// A request is a field `revoke` in the data of the holder's node, beside the rest; the last break is a persistent node `broken` in
/// the directory. Nodes of other libraries get Curator's form of the request, and their lines no record of breaks.
///
/// # Fairness and session loss
///
/// It takes no place in the line, and holds nothing that could be lost.
///
/// # Example
///
/// ```no_run
/// # use std::time::Duration;
/// # use bellwether::Client;
/// # use bellwether::inspect::Contention;
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let contention = Contention::new(client, "/jobs/nightly").message("the machine goes down");
/// for entry in contention.line().await? {
///     println!("{} {:?}", entry.holds, entry.who);
///     if entry.holds {
///         let ending = contention
///             .break_hold(&entry.node, entry.token, Duration::from_secs(30))
///             .await?;
///         println!("{ending:?}");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Contention {
    pub(crate) client: Client,
    pub(crate) path: String,
    pub(crate) message: Option<String>,
}

/// A contender in a line, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueEntry {
    /// The path of its node.
    pub path: String,
    /// The name of its node in the directory.
    pub node: String,
    /// The library whose rules the name follows.
    pub layout: Layout,
    /// The number of contenders that are before it.
    pub place: usize,
    /// The kind of hold that it wants.
    pub wants: Wants,
    /// True if it holds, or will as soon as it looks. Otherwise other contenders are in its way.
    pub holds: bool,
    /// True if it is a writer that has downgraded to a reader.
    pub is_downgraded: bool,
    /// The contender's fencing token, if it holds or will.
    pub token: FencingToken,
    /// The contender's identity, by its own account; `None` for a contender of another library.
    pub who: Option<Who>,
    /// The data of its node: for contenders of other libraries.
    pub data: Vec<u8>,
    /// The time when its node was created, by the clock of the servers.
    pub since: SystemTime,
    /// The session that the node belongs to.
    pub session: SessionId,
    /// The request to release that it has received, if any.
    pub revocation: Option<Revocation>,
}

/// The kinds of hold that a contender can want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wants {
    /// An exclusive hold: a lock.
    Lock,
    /// The read side.
    Read,
    /// The write side.
    Write,
    /// A number of permits.
    Permits(u32),
    /// The leadership.
    Leadership,
    /// A meeting with others at a barrier.
    Barrier,
    /// An item of a queue.
    Item,
}

impl Contention {
    /// The line at a path. Nothing is sent, nor is the path checked, until it is looked at.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            message: None,
        }
    }

    /// A message to the holders that are asked to release.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The contenders in the line, in order. Empty if there are none.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn line(&self) -> Result<Vec<QueueEntry>, Error> {
        call!("contention.line", self.path())
            .run(async {
                let dir = self.dir()?;
                let session = self.session().await?;
                let zk = session.zk();
                // A read may be answered by a lagging server.
                let synced = zk.sync("/");
                let line = read_line(zk, &dir, &self.path).await;
                Ok(synced.await.and(line)?)
            })
            .await
    }

    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        Ok(self.client.session().await?)
    }

    pub(crate) fn dir(&self) -> Result<NodePath, Failure> {
        self.client.node(&self.path)
    }

    /// The directory as the prefix of its children: the node of a [`SimpleLock`](crate::SimpleLock) may stand in the root.
    pub(crate) fn prefix(&self) -> Result<NodePath, Failure> {
        Ok(self.client.resolve(&NodePath::parse_prefix(&self.path)?))
    }
}

impl QueueEntry {
    /// The owner of this contender, for deadlock searches: the name that the task gave, or else the session.
    #[must_use]
    pub fn owner(&self) -> String {
        match &self.who {
            Some(who) if !who.owner.is_empty() => who.owner.clone(),
            _ => format!("{:x}", self.session),
        }
    }

    /// A holder of the node `node` below `path` that is in no line.
    pub(crate) fn alone(
        path: &str,
        node: &str,
        wants: Wants,
        (data, stat): (Bytes, zk::Stat),
    ) -> Self {
        Self {
            path: format!("{}/{node}", path.trim_end_matches('/')),
            node: node.to_owned(),
            layout: Layout::Bellwether,
            place: 0,
            wants,
            holds: true,
            is_downgraded: false,
            token: stat.czxid.into(),
            who: Who::from_data(&data),
            since: created_at(&stat),
            session: stat.ephemeral_owner.into(),
            revocation: Revocation::from_data(&data),
            data: data.to_vec(),
        }
    }

    /// Returns whether others may share with it what it has or wants.
    pub(crate) fn shares(&self) -> bool {
        self.is_downgraded || matches!(self.wants, Wants::Read | Wants::Barrier)
    }
}

/// Reads the line in a directory, which the user knows by `path`.
async fn read_line(
    zk: &zk::Client,
    dir: &NodePath,
    path: &str,
) -> Result<Vec<QueueEntry>, zk::Error> {
    let limit = zk.get(dir.as_str());
    let names = match zk.children(dir.as_str()).await {
        Ok(children) => in_order(&children),
        Err(zk::Error::NO_NODE) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let limit = limit.await.ok().and_then(|(data, _)| read_limit(&data));
    // Requests leave when their futures are made, so these are sent in one packet.
    let reads = Vec::from_iter(names.iter().map(|name| zk.get(&dir.child(name))));
    let mut line = Vec::with_capacity(names.len());
    for (name, read) in names.iter().zip(reads) {
        match read.await {
            Ok(content) => line.push(entry(&line, limit, path, name, content)),
            // It left while we looked.
            Err(zk::Error::NO_NODE) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(line)
}

/// The contenders among the children of a directory, in their order.
pub(crate) fn in_order(children: &[String]) -> Vec<Name> {
    let mut names = Vec::from_iter(children.iter().filter_map(|child| Name::parse(child)));
    names.sort_by(Name::cmp_age);
    names
}

/// The next contender in the line at `path`, behind the contenders `before`.
pub(crate) fn entry(
    before: &[QueueEntry],
    limit: Option<u64>,
    path: &str,
    name: &Name,
    (data, stat): (Bytes, zk::Stat),
) -> QueueEntry {
    let said = NodeData::from_data(&data);
    // Contenders in different layouts do not see each other.
    let mut ahead = before.iter().filter(|one| one.layout == name.layout());
    let holds = match name.kind() {
        Kind::Lock | Kind::Write | Kind::Candidate | Kind::Consumer => ahead.next().is_none(),
        Kind::Read | Kind::Member => ahead.all(QueueEntry::shares),
        Kind::Permit(permits) => {
            let in_use = ahead.map(|before| match before.wants {
                Wants::Permits(permits) => u64::from(permits),
                _ => 0,
            });
            let wanted = in_use.sum::<u64>() + u64::from(permits);
            limit.is_none_or(|limit| wanted <= limit)
                || said.as_ref().is_some_and(|said| said.granted)
        }
    };
    QueueEntry {
        place: before.len(),
        wants: match name.kind() {
            Kind::Lock => Wants::Lock,
            Kind::Read => Wants::Read,
            Kind::Write => Wants::Write,
            Kind::Permit(permits) => Wants::Permits(permits),
            Kind::Candidate => Wants::Leadership,
            Kind::Member => Wants::Barrier,
            Kind::Consumer => Wants::Item,
        },
        holds,
        layout: name.layout(),
        is_downgraded: said.as_ref().is_some_and(|said| said.downgraded),
        ..QueueEntry::alone(path, name.as_str(), Wants::Lock, (data, stat))
    }
}

/// The node in the directory of a line that records the last removal by force.
pub(crate) const BROKEN: &str = "broken";

/// A contender that was removed from a line by force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Broken {
    version: u32,
    /// The name of its node.
    pub node: String,
    /// The contender's fencing token.
    pub token: FencingToken,
    /// The contender's identity, by its own account.
    pub who: Option<Who>,
    /// The user who did it, and when.
    pub by: Who,
    /// The reason, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Broken {
    /// The crash mark of the hold, which now says how it ended, with its path and version; `None` if it has no mark, or if the holder has
    /// recorded its end.
    async fn mark(
        &self,
        zk: &zk::Client,
        dir: &NodePath,
    ) -> Result<Option<(String, Vec<u8>, i32)>, zk::Error> {
        let path = dir.child(HELD);
        let (data, stat) = match zk.get(&path).await {
            Err(zk::Error::NO_NODE | zk::Error::NO_AUTH) => return Ok(None),
            read => read?,
        };
        let record = CrashRecord::from_data(&data)
            .filter(|record| record.node == self.node && record.ended.is_none());
        Ok(record.map(|mut record| {
            record.ended = Some(Ended {
                how: self.text(),
                at_ms: now_ms(),
            });
            (path, record.to_data(), stat.version)
        }))
    }

    fn text(&self) -> String {
        let Who {
            user, host, pid, ..
        } = &self.by;
        let user = user
            .as_ref()
            .map_or_else(String::new, |user| format!("{user}@"));
        let reason = self.message.as_ref();
        let reason = reason.map_or_else(String::new, |message| format!(": {message}"));
        format!("broken by {user}{host} pid {pid}{reason}")
    }
}

/// The ways in which a hold ends that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Released when it was asked, or was gone already.
    LetGo,
    /// Removed by force when the grace was over.
    Broken,
}

impl Contention {
    /// The contender that was last removed from this line by force, if any.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn last_broken(&self) -> Result<Option<Broken>, Error> {
        let read = async {
            let path = self.dir()?.child(BROKEN);
            let read = self.session().await?.zk().get(&path).await;
            Ok(found(read)?)
        };
        let read = read
            .await
            .map_err(|failure: Failure| failure.of("contention.last_broken", self.path()))?;
        Ok(read.and_then(|(data, _)| serde_json::from_slice(&data).ok()))
    }

    /// Asks a contender to release, by the name of its node and its token, and does not wait for an answer. The holder may ignore the
    /// request. Returns whether the contender was still there. Some node names pass from holder to holder; the token says which holder is
    /// meant.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the request may have been made or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn revoke(&self, node: &str, token: FencingToken) -> Result<bool, Error> {
        call!("contention.revoke", self.path())
            .ask(async {
                let (dir, session) = (self.prefix()?, self.session().await?);
                let asked = self.ask(&session, &dir, (node, token), None).await;
                Ok(asked?.is_some())
            })
            .await
    }

    /// Asks a contender to release, by the name of its node and its token, waits for the grace, and then removes it by force.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the request may have been made, and the holder be gone or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn break_hold(
        &self,
        node: &str,
        token: FencingToken,
        grace: Duration,
    ) -> Result<Ending, Error> {
        call!("contention.break_hold", self.path())
            .run(async {
                let (dir, session) = (self.prefix()?, self.session().await?);
                let Some(asked) = self.ask(&session, &dir, (node, token), Some(grace)).await?
                else {
                    return Ok(Ending::LetGo);
                };
                let gone = asked.until_gone(session.zk());
                Ok(match session.runtime().timeout(grace, gone).await {
                    Some(gone) => gone.map(|()| Ending::LetGo)?,
                    None => self.remove(&session, &dir, node, asked).await?,
                })
            })
            .await
    }

    /// Adds the request to the data of the node. `None` if the node is gone, or another contender's by now.
    async fn ask(
        &self,
        session: &Session,
        dir: &NodePath,
        (node, token): (&str, FencingToken),
        grace: Option<Duration>,
    ) -> Result<Option<Asked>, zk::Error> {
        let zk = session.zk();
        let path = dir.child(node);
        let by = Who::here(session.session_id());
        let revocation = Revocation::new(by, self.message.clone(), grace);
        loop {
            let (data, stat) = match zk.get(&path).await {
                Err(zk::Error::NO_NODE) => return Ok(None),
                Ok((_, stat)) if stat.czxid != token.number() => return Ok(None),
                read => read?,
            };
            let asking = match NodeData::from_data(&data) {
                Some(mut said) => {
                    said.revoke = Some(revocation.clone());
                    said.to_data()
                }
                // A node of another library, which knows no other form.
                None => CURATOR_REVOKE.to_vec(),
            };
            match zk.set(&path, &asking, Some(stat.version)).await {
                Ok(stat) => {
                    return Ok((stat.czxid == token.number()).then(|| Asked {
                        path,
                        token,
                        version: stat.version,
                        who: Who::from_data(&data),
                    }));
                }
                Err(zk::Error::NO_NODE) => return Ok(None),
                // Another client wrote to it meanwhile.
                Err(zk::Error::BAD_VERSION) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes the node and records who did it, in the line and for the next holder, in one multi.
    async fn remove(
        &self,
        session: &Session,
        dir: &NodePath,
        node: &str,
        mut asked: Asked,
    ) -> Result<Ending, zk::Error> {
        let zk = session.zk();
        // Curator counts every child of the directory as a contender.
        let is_ours = Layout::Bellwether.parse(node.to_owned()).is_some();
        let record = is_ours.then(|| dir.child(BROKEN));
        let broken = Broken {
            version: 1,
            node: node.to_owned(),
            token: asked.token,
            who: asked.who.clone(),
            by: Who::here(session.session_id()),
            message: self.message.clone(),
        };
        let data = serde_json::to_vec(&broken).expect("strings and numbers are JSON");
        let options = zk::CreateMode::Persistent.with_acl(session.access().acl());
        let mut exists = false;
        let mut mark = match is_ours {
            true => broken.mark(zk, dir).await?,
            false => None,
        };
        loop {
            let mut writer = zk.new_multi();
            // At the version of the request: a node that another client has created since has a lower version.
            writer.delete(&asked.path, Some(asked.version));
            match &record {
                Some(record) if exists => writer.set(record, &data, None),
                Some(record) => writer.create(record, &data, &options),
                None => {}
            }
            if let Some((mark, data, version)) = &mark {
                writer.set(mark, data, Some(*version));
            }
            match writer.commit().await {
                Ok(_) => {
                    info!(node, token = broken.token.number(), "hold was broken");
                    return Ok(Ending::Broken);
                }
                Err(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                }) => return Ok(Ending::LetGo),
                Err(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::BadVersion,
                }) => match asked.is_there_at(zk).await? {
                    Some(version) => asked.version = version,
                    None => return Ok(Ending::LetGo),
                },
                Err(zk::MultiError::Refused { index: 1, code })
                    if matches!(code, zk::ErrorCode::NodeExists | zk::ErrorCode::NoNode) =>
                {
                    exists = code == zk::ErrorCode::NodeExists;
                }
                Err(zk::MultiError::Refused { index: 2, code }) => {
                    mark = match code {
                        // The holder has written to it meanwhile.
                        zk::ErrorCode::BadVersion | zk::ErrorCode::NoNode => {
                            broken.mark(zk, dir).await?
                        }
                        // The break does not depend on it.
                        _ => None,
                    };
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Hold {
    /// Records in the line that this hold ends because it is broken, as a break by force does. For a holder that stops its work in time and
    /// releases. Simple locks, items of queues, and lines in the layout of another library have no such record.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been recorded or not.
    ///
    /// # Errors
    ///
    /// As [`FencedWrite::commit`](crate::hold::FencedWrite::commit).
    pub async fn record_break(&self, asked: &Revocation) -> Result<(), Error> {
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
        let is_refused = |written: &Result<(), Failure>, code| {
            let refused = written.as_ref().err().map(|failure| &failure.kind);
            matches!(refused, Some(ErrorKind::Refused { source, .. }) if *source == code)
        };
        let written = loop {
            let set = self.write().set(&path, &*data, None);
            let written = set.send().await;
            if !is_refused(&written, zk::Error::NO_NODE) {
                break written;
            }
            let create = self.write().create(&path, &*data);
            let written = create.send().await;
            if !is_refused(&written, zk::Error::NODE_EXISTS) {
                break written;
            }
        };
        written.map_err(|failure| failure.of("hold.record_break", self.path()))
    }
}

/// A holder that was asked to release.
struct Asked {
    path: String,
    token: FencingToken,
    /// The version of its node with the request.
    version: i32,
    who: Option<Who>,
}

impl Asked {
    /// Waits until the node is gone, or another contender's.
    async fn until_gone(&self, zk: &zk::Client) -> Result<(), zk::Error> {
        loop {
            match until_answered(|| zk.get_watched(&self.path)).await {
                Ok((_, stat, _)) if stat.czxid != self.token.number() => return Ok(()),
                Ok((_, _, watch)) => match NodeEvent::of(watch).await {
                    Happened::Deleted => return Ok(()),
                    Happened::SessionEnded => {
                        return Err(zk::Error::SessionEnded(zk::SessionEnd::Expired));
                    }
                    _ => {}
                },
                Err(zk::Error::NO_NODE) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The current version of the node; `None` if it is gone, or another contender's.
    async fn is_there_at(&self, zk: &zk::Client) -> Result<Option<i32>, zk::Error> {
        let stat = zk.exists(&self.path).await?;
        let same = stat.filter(|stat| stat.czxid == self.token.number());
        Ok(same.map(|stat| stat.version))
    }
}
