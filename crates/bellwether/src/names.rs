//! A directory of names.

use std::collections::BTreeMap;

use bellwether_client as zk;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::client::Client;
use crate::config::Config;
use crate::group::{Group, Membership, Roster, check_name};
use crate::name::AcquisitionId;
use crate::receipt::Written;
use crate::state::{NotWritten, Seen, Site, StateError, Watch};

/// Names with data, in one directory: some for as long as who bears them, some to stay.
///
/// # What it guarantees
///
/// A name is borne by one at a time. A [registered](Self::register) name goes with its bearer and comes back with it, as
/// a member of a [`Group`]; a [lasting](Self::register_lasting) one stays until it is [removed](Self::remove). A
/// [unique](Self::unique) name is never given twice.
///
/// # What it does not
///
/// A name whose bearer died is found until the session has expired.
///
/// # Node layout
///
/// The path is a container, each name a child: ephemeral or persistent. A service is a child directory with an ephemeral
/// child for each instance, whose data is JSON: `address` and `metadata`.
///
/// # Fairness
///
/// A name belongs to whoever made it first.
///
/// # Session loss
///
/// A registration goes on with the next session; see [`Membership`].
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Instance, Names, StateError};
/// # async fn run(client: &Client) -> Result<(), StateError> {
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
    site: Site,
}

/// One instance of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Instance {
    /// Where it can be reached.
    pub address: String,
    /// What else there is to know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
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

    /// Says one more thing about it.
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
            site: Site::new(client, path.into()),
        }
    }

    /// Who may touch the nodes. Everybody unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            site: self.site.with_access(Access::new(acl)),
        }
    }

    /// Bears a name until the result is dropped, over the end of sessions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the name up, in the background.
    ///
    /// # Errors
    ///
    /// [`StateError::NameTaken`], or another [`StateError`].
    pub async fn register(
        &self,
        name: impl Into<String>,
        data: impl Into<Vec<u8>>,
    ) -> Result<Membership, StateError> {
        self.group().join_as(name, data).await
    }

    /// Makes a name that stays, exactly once.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been made or not.
    ///
    /// # Errors
    ///
    /// [`StateError::NameTaken`], or another [`StateError`].
    pub async fn register_lasting(
        &self,
        name: &str,
        data: impl Into<Vec<u8>>,
    ) -> Result<(), StateError> {
        let node = self.node(name)?;
        match node.create(&data.into()).await? {
            true => Ok(()),
            false => Err(StateError::NameTaken {
                path: format!("{}/{name}", self.site.path()),
            }),
        }
    }

    /// Removes a name, exactly once, and tells whether there was one. A registered one comes back, if its bearer lives.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been removed or not.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn remove(&self, name: &str) -> Result<bool, StateError> {
        self.node(name)?.delete().await
    }

    /// Makes a name that nobody had and nobody will have: the prefix, an id, and a number that rises from name to name. It stays
    /// until it is [removed](Self::remove).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the name may have been made or not.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn unique(
        &self,
        prefix: &str,
        data: impl Into<Vec<u8>>,
    ) -> Result<String, StateError> {
        // The id finds the name again when the reply was lost.
        let prefix = format!("{prefix}{}-", AcquisitionId::new());
        check_name(&self.site, &prefix)?;
        let data = data.into();
        let options = zk::CreateMode::PersistentSequential.with_acl(self.site.access().acl());
        // Receipts stand beside the nodes that they are for: in this directory.
        let written = self
            .site
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
            Err(NotWritten::Refused(source)) => return Err(self.site.refused(source)),
            Err(NotWritten::Failed(error)) => return Err(error),
        }
        let names = self.list().await?;
        let found = names.into_iter().find(|name| name.starts_with(&prefix));
        // Another hand has removed it already.
        found.ok_or_else(|| self.site.refused(zk::Error::NO_NODE))
    }

    /// The data of a name; `None` if nobody bears it. One round trip.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn resolve(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        let entry = self.node(name)?.get().await?;
        Ok(entry.map(|entry| entry.value))
    }

    /// All names, in the order of the alphabet.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn list(&self) -> Result<Vec<String>, StateError> {
        loop {
            let visit = self.site.visit().await?;
            match visit.client.zk().children(visit.node.as_str()).await {
                Ok(mut names) => {
                    names.retain(|name| check_name(&self.site, name).is_ok());
                    names.sort_unstable();
                    return Ok(names);
                }
                Err(zk::Error::NO_NODE) => return Ok(Vec::new()),
                Err(error) => self.site.again(&visit, error).await?,
            }
        }
    }

    /// All names with their data, each time that one of them changes. See [`Watch`].
    pub fn watch(&self) -> Watch<Roster> {
        self.group().watch()
    }

    /// Adds an instance to a service until the result is dropped, over the end of sessions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes it back, in the background.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn announce(
        &self,
        service: &str,
        instance: &Instance,
    ) -> Result<Membership, StateError> {
        let data = serde_json::to_vec(instance).expect("strings are JSON");
        self.service(service)?.join(data).await
    }

    /// The instances of a service, by their ids. What is no instance is left out.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn instances(&self, service: &str) -> Result<BTreeMap<String, Instance>, StateError> {
        Ok(instances_in(self.service(service)?.members().await?))
    }

    /// The instances of a service, each time that one of them comes, goes or changes. See [`Watch`].
    ///
    /// # Errors
    ///
    /// [`StateError::BadPath`] if the service has no proper name.
    pub fn watch_instances(
        &self,
        service: &str,
    ) -> Result<Watch<BTreeMap<String, Instance>>, StateError> {
        let members = self.service(service)?.watch();
        Ok(Watch::new(members.map(|seen| {
            Ok(match seen? {
                Seen::Value(members) => Seen::Value(instances_in(members)),
                Seen::Absent => Seen::Absent,
                Seen::Renewed => Seen::Renewed,
            })
        })))
    }

    fn group(&self) -> Group {
        Group::at(self.site.clone())
    }

    fn service(&self, service: &str) -> Result<Group, StateError> {
        check_name(&self.site, service)?;
        Ok(Group::at(self.site.beneath(service)))
    }

    fn node(&self, name: &str) -> Result<Config<Vec<u8>>, StateError> {
        check_name(&self.site, name)?;
        Ok(Config::at(self.site.beneath(name)))
    }
}

fn instances_in(members: Roster) -> BTreeMap<String, Instance> {
    let instances = members.into_iter().filter_map(|(id, data)| {
        let instance = serde_json::from_slice(&data).ok()?;
        Some((id, instance))
    });
    instances.collect()
}
