//! The holders and waiters of a line, seen from outside.

use std::time::SystemTime;

use bellwether_client as zk;
use bytes::Bytes;

use crate::error::ContentionError;
use crate::hold::fence::FencingToken;
use crate::line::name::{Kind, Layout, Name, read_limit};
use crate::node::data::{NodeData, Revocation, Who};
use crate::node::{NodePath, PathError, created_at};
use crate::session::Session;
use crate::session::client::{Client, SessionId};
use crate::session::recipe_options::Unreached;
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
    /// How many contenders are before it.
    pub place: usize,
    /// What it wants.
    pub wants: Wants,
    /// Whether it holds, or will as soon as it looks. Otherwise other contenders are in its way.
    pub holds: bool,
    /// Whether it is a writer that has downgraded to a reader.
    pub is_downgraded: bool,
    /// Its fencing token, if it holds or will.
    pub token: FencingToken,
    /// Its identity, by its own account; `None` for a contender of another library.
    pub who: Option<Who>,
    /// The data of its node: for contenders of other libraries.
    pub data: Vec<u8>,
    /// When its node was created, by the clock of the servers.
    pub since: SystemTime,
    /// The session that the node belongs to.
    pub session: SessionId,
    /// The request to release that it has received, if any.
    pub revocation: Option<Revocation>,
}

/// What a contender in a line wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wants {
    /// To be alone: a lock.
    Lock,
    /// To read.
    Read,
    /// To write.
    Write,
    /// This number of permits.
    Permits(u32),
    /// To lead.
    Leadership,
    /// To meet others at a barrier.
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
    /// See [`ContentionError`].
    pub async fn line(&self) -> Result<Vec<QueueEntry>, ContentionError> {
        call!("contention.line", self.path())
            .run(async {
                let dir = self.dir()?;
                let session = self.session().await?;
                let zk = session.zk();
                // A read may be answered by a lagging server.
                let synced = zk.sync("/");
                let line = read_line(zk, &dir, &self.path).await;
                synced.await.and(line).map_err(|source| self.failed(source))
            })
            .await
    }

    pub(crate) async fn session(&self) -> Result<Session, ContentionError> {
        Ok(self.client.session_for(&self.path).await?)
    }

    pub(crate) fn dir(&self) -> Result<NodePath, ContentionError> {
        self.resolved(NodePath::parse(&self.path))
    }

    /// The directory as the prefix of its children: the node of a [`SimpleLock`](crate::SimpleLock) may stand in the root.
    pub(crate) fn prefix(&self) -> Result<NodePath, ContentionError> {
        self.resolved(NodePath::parse_prefix(&self.path))
    }

    fn resolved(&self, parsed: Result<NodePath, PathError>) -> Result<NodePath, ContentionError> {
        match parsed {
            Ok(path) => Ok(self.client.resolve(&path)),
            Err(source) => Err(Unreached::bad_path(&self.path, source).into()),
        }
    }

    pub(crate) fn failed(&self, source: zk::Error) -> ContentionError {
        ContentionError::Failed {
            path: self.path.clone(),
            source,
        }
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

    /// Whether others may share with it what it has or wants.
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
