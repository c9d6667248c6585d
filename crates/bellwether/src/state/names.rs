//! A registry of names, and service discovery.

use std::collections::BTreeMap;
use std::pin::pin;

use bellwether_client as zk;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Failure};
use crate::node::data::{Json, Payload};
use crate::node::{Access, OperationId};
use crate::request::receipts::Written;
use crate::request::{Follow, PersistentNode, Seen, Watch};
use crate::session::NameReservation;
use crate::session::client::Client;
use crate::session::telemetry::call;
use crate::state::config::Config;
use crate::state::group::{Group, Membership, Roster};
use crate::state::live::Live;

/// A registry of names with data, in one directory: some end with their owner, some are permanent.
///
/// # What it guarantees
///
/// A name has one owner at a time. A [registered](Self::register) name ends with its owner's session and is restored with the next one, as
/// a member of a [`Group`] is; a [lasting](Self::register_lasting) name stays until it is [removed](Self::remove). A [unique](Self::unique)
/// name is never given twice.
///
/// # What it does not
///
/// The name of a dead owner is found until the session has expired.
///
/// # Node layout
///
/// The path is a container, each name a child: ephemeral or persistent. A service is a child directory with an ephemeral
/// child for each instance, whose data is JSON: `address` and `metadata`.
///
/// # Fairness
///
/// A name belongs to the client that created it first.
///
/// # Session loss
///
/// A registration continues in the next session; see [`Membership`].
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Names};
/// # use bellwether::Error;
/// # use bellwether::state::Instance;
/// # async fn run(client: &Client) -> Result<(), Error> {
/// let names = Names::new(client, "/names");
/// let primary = names.register("db-primary", "10.0.0.7:5432").await?;
/// assert!(names.resolve("db-primary").await?.is_some());
/// let instance = Instance::new("10.0.0.7:8080").with("zone", "b");
/// let announced = names.announce("web", &instance).await?;
/// for (id, instance) in names.instances("web").await? {
///     println!("{id} at {}", instance.address);
/// }
/// announced.leave().await;
/// primary.leave().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Names {
    node: PersistentNode,
}

/// One instance of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Instance {
    /// The address where it can be reached.
    pub address: String,
    /// Further properties.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl Payload for Instance {
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
        Json(self.clone()).to_bytes()
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Json::from_bytes(bytes).map(|Json(instance)| instance)
    }
}

impl Instance {
    /// An instance at an address.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            metadata: BTreeMap::new(),
        }
    }

    /// Adds a property.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}

impl Names {
    /// A directory at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            node: PersistentNode::new(client, path.into()),
        }
    }

    /// Sets which clients may use the nodes. The list of the [client](crate::Connect::acl) unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            node: self.node.with_access(Access::new(acl)),
        }
    }

    /// Registers a name until the result is dropped, across sessions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the name up, in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `Refused`, `NameTaken`.
    pub async fn register(
        &self,
        name: impl Into<String>,
        data: impl Into<Vec<u8>>,
    ) -> Result<Membership, Error> {
        call!("names.register", self.path())
            .run(async { Ok(self.group().join_as(name, data).await?) })
            .await
    }

    /// Does the same as [`register`](Self::register), but waits while the name is taken.
    ///
    /// Several callers that wait for one name get it in no particular order. For an order, use a [`Lock`](crate::Lock).
    ///
    /// # Cancel safety
    ///
    /// As [`register`](Self::register).
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `Refused`.
    pub async fn register_when_free(
        &self,
        name: &str,
        data: impl Into<Vec<u8>>,
    ) -> Result<Membership, Error> {
        call!("names.register_when_free", self.path())
            .run(async {
                let data = data.into();
                let node = self.node.beneath(name);
                loop {
                    match self.register(name, data.clone()).await {
                        Err(Error {
                            kind: ErrorKind::NameTaken,
                            ..
                        }) => {}
                        registered => return Ok(registered?),
                    }
                    // A member of the same session keeps the name also while its node is absent.
                    let opened = node.open_in_time().await?;
                    let free = NameReservation::wait(&opened.session, opened.path.as_str());
                    tokio::select! {
                        biased;
                        reservation = free => drop(reservation),
                        () = opened.session.ended() => {}
                    }
                    let mut seen = pin!(Follow::new(node.clone()).stream());
                    while let Some(seen) = seen.next().await
                        && seen? != Seen::Absent
                    {}
                }
            })
            .await
    }

    /// Creates a permanent name, exactly once.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been made or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `OutcomeUnknown`, `Refused`, `NameTaken`.
    pub async fn register_lasting(
        &self,
        name: &str,
        data: impl Into<Vec<u8>>,
    ) -> Result<(), Error> {
        call!("names.register_lasting", self.path())
            .run(async {
                let node = self.node(name)?;
                match node.create(&data.into()).await? {
                    true => Ok(()),
                    false => Err(self.node.beneath(name).failed(ErrorKind::NameTaken)),
                }
            })
            .await
    }

    /// Removes a name exactly once, and returns whether there was one. A registered name is restored if its owner is alive.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been removed or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `OutcomeUnknown`, `Refused`.
    pub async fn remove(&self, name: &str) -> Result<bool, Error> {
        call!("names.remove", self.path())
            .ask(async { Ok(self.node(name)?.delete().await?) })
            .await
    }

    /// Creates a name that was never used and will never be used again: the prefix, an id, and a number that rises from name to name, as
    /// long as the directory exists. The name stays until it is [removed](Self::remove).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the name may have been made or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `OutcomeUnknown`, `Refused`.
    pub async fn unique(&self, prefix: &str, data: impl Into<Vec<u8>>) -> Result<String, Error> {
        call!("names.unique", self.path())
            .run(self.create_unique(prefix, data.into()))
            .await
    }

    async fn create_unique(&self, prefix: &str, data: Vec<u8>) -> Result<String, Failure> {
        // By the id, the name is found again after a lost reply.
        let prefix = format!("{prefix}{}-", OperationId::new());
        self.node.check_child(&prefix)?;
        let options = zk::CreateMode::PersistentSequential.with_acl(self.node.access().acl());
        // Receipts stand beside the nodes that they are for: in this directory.
        let written = self
            .node
            .beneath(&prefix)
            .once(data.len(), |writer, node| {
                writer.create(node.as_str(), &data, &options);
            })
            .await;
        match written {
            Ok(Written::Answered(results)) => {
                if let Some(zk::MultiResult::Created { path, .. }) = results.first()
                    && let Some((_, name)) = path.rsplit_once('/')
                {
                    return Ok(name.to_owned());
                }
            }
            Ok(Written::ByReceipt) => {}
            Err(error) => return Err(self.node.not_written(error)),
        }
        let names = self.list().await?;
        let found = names.into_iter().find(|name| name.starts_with(&prefix));
        // Another client has removed it already.
        found.ok_or_else(|| self.node.failed(zk::Error::NO_NODE))
    }

    /// The data of a name; `None` if there is no such name. One round trip.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `Refused`.
    pub async fn resolve(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        call!("names.resolve", self.path())
            .find(async {
                let entry = self.node(name)?.get().await?;
                Ok(entry.map(|entry| entry.value))
            })
            .await
    }

    /// All names, sorted.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `Refused`.
    pub async fn list(&self) -> Result<Vec<String>, Error> {
        call!("names.list", self.path())
            .run(async {
                let listed = self
                    .node
                    .ask(|opened| opened.session.zk().children(opened.path.as_str()));
                let mut names = listed.await?.unwrap_or_default();
                names.retain(|name| self.node.check_child(name).is_ok());
                names.sort_unstable();
                Ok(names)
            })
            .await
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.node.path()
    }

    /// All names with their data, kept up to date in the background. See [`Live`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `NoSession`, `Refused`.
    pub async fn live(&self) -> Result<Live<Roster>, Error> {
        call!("names.live", self.path())
            .run(async { Ok(self.group().live().await?) })
            .await
    }

    /// A stream of all names with their data: the current ones first, then after each change. See [`Watch`].
    pub fn watch(&self) -> Watch<Roster> {
        self.group().watch()
    }

    /// Adds an instance to a service until the result is dropped, across sessions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes it back, in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `Refused`.
    pub async fn announce(&self, service: &str, instance: &Instance) -> Result<Membership, Error> {
        call!("names.announce", self.path())
            .run(async {
                let data = serde_json::to_vec(instance).expect("strings are JSON");
                Ok(self.service(service)?.join(data).await?)
            })
            .await
    }

    /// The instances of a service, by their ids. Other nodes are skipped.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `Refused`.
    pub async fn instances(&self, service: &str) -> Result<BTreeMap<String, Instance>, Error> {
        call!("names.instances", self.path())
            .run(async { Ok(instances_in(self.service(service)?.members().await?)) })
            .await
    }

    /// The instances of a service, kept up to date in the background. See [`Live`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `NoSession`, `Refused`.
    pub async fn live_instances(
        &self,
        service: &str,
    ) -> Result<Live<BTreeMap<String, Instance>>, Error> {
        call!("names.live_instances", self.path())
            .run(async {
                let group = self.service(service)?;
                let node = self.node.clone();
                Live::watching("names.live_instances", &node, move || {
                    watch_instances(&group)
                })
                .await
            })
            .await
    }

    /// A stream of the instances of a service: the current ones first, then after each change. See [`Watch`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadPath`] if the service has no proper name.
    pub fn watch_instances(
        &self,
        service: &str,
    ) -> Result<Watch<BTreeMap<String, Instance>>, Error> {
        match self.service(service) {
            Ok(service) => Ok(watch_instances(&service)),
            Err(failure) => Err(failure.of("names.watch_instances", self.path())),
        }
    }

    fn group(&self) -> Group {
        Group::at(self.node.clone())
    }

    fn service(&self, service: &str) -> Result<Group, Failure> {
        self.node.check_child(service)?;
        Ok(Group::at(self.node.beneath(service)))
    }

    fn node(&self, name: &str) -> Result<Config<Vec<u8>>, Failure> {
        self.node.check_child(name)?;
        Ok(Config::at(self.node.beneath(name)))
    }
}

fn watch_instances(service: &Group) -> Watch<BTreeMap<String, Instance>> {
    let members = service.watch();
    Watch::new(
        "names.watch_instances",
        service.path(),
        members.freshness(),
        members.map(|seen| {
            Ok(match seen? {
                Seen::Value(members) => Seen::Value(instances_in(members)),
                Seen::Absent => Seen::Absent,
                Seen::Renewed => Seen::Renewed,
            })
        }),
    )
}

fn instances_in(members: Roster) -> BTreeMap<String, Instance> {
    let instances = members.into_iter().filter_map(|(id, data)| {
        let instance = serde_json::from_slice(&data).ok()?;
        Some((id, instance))
    });
    instances.collect()
}
