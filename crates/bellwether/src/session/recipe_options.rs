//! The parts that every recipe is built from: a client, a path, the identity that other users see, and the access list of its nodes.

use crate::error::Failure;
use crate::node::data::Who;
use crate::node::{Access, NodePath};
use crate::session::Session;
use crate::session::client::Client;

/// The place of a recipe, and the identity with which it acts there.
#[derive(Clone, Debug)]
pub(crate) struct RecipeOptions {
    pub(crate) client: Client,
    /// The path, as the user wrote it.
    pub(crate) path: String,
    pub(crate) identity: Identity,
    pub(crate) access: Access,
}

/// The identity of a handle in its nodes, beyond host, process and user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) owner: Option<String>,
    pub(crate) command: Option<String>,
    pub(crate) message: Option<String>,
}

impl RecipeOptions {
    pub(crate) fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            identity: Identity::default(),
            access: client.access().clone(),
        }
    }

    /// The node at the path, with the chroot in front.
    pub(crate) fn node(&self) -> Result<NodePath, Failure> {
        self.client.node(&self.path)
    }

    /// The current session, or the next one.
    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        Ok(self.client.session().await?)
    }

    pub(crate) fn who(&self, session: &Session) -> Who {
        self.identity.who(session)
    }
}

impl Identity {
    pub(crate) fn who(&self, session: &Session) -> Who {
        let mut who = session.who();
        // Without a command or message of the recipe, those of the client stay.
        if let Some(command) = &self.command {
            who.command = Some(command.clone());
        }
        if let Some(message) = &self.message {
            who.message = Some(message.clone());
        }
        if let Some(owner) = &self.owner {
            who.owner.clone_from(owner);
        }
        who
    }
}

impl Client {
    /// Checks a path, and puts the chroot in front.
    pub(crate) fn node(&self, path: &str) -> Result<NodePath, Failure> {
        Ok(self.resolve(&NodePath::parse(path)?))
    }
}

/// Options for the [`Identity`] in a field of the recipe.
macro_rules! identity_options {
    ($($identity:ident).+) => {
        /// A message for people who ask who holds, waits or takes. It is stored in the nodes that this handle creates.
        #[must_use]
        pub fn message(mut self, message: impl Into<String>) -> Self {
            self.$($identity).+.message = Some(message.into());
            self
        }

        /// The command that runs under the hold, for people who ask who holds.
        #[must_use]
        pub fn command(mut self, command: impl Into<String>) -> Self {
            self.$($identity).+.command = Some(command.into());
            self
        }

        /// The name of the task that acquires. Set it where several tasks share a session, so that a search for deadlocks can tell them
        /// apart. The session unless set.
        #[must_use]
        pub fn owner(mut self, owner: impl Into<String>) -> Self {
            self.$($identity).+.owner = Some(owner.into());
            self
        }
    };
}

/// Options for the [`RecipeOptions`] in a field of the recipe.
macro_rules! recipe_options {
    ($($options:ident).+) => {
        $crate::session::recipe_options::identity_options!($($options).+.identity);

        /// Sets which clients may use the nodes of this recipe. The list of the [client](crate::Connect::acl) unless set. Directories that
        /// have to be created above the path stay open: create them first if they should not be.
        #[must_use]
        pub fn acl(mut self, acl: impl Into<Vec<$crate::zk::Acl>>) -> Self {
            self.$($options).+.access = $crate::node::Access::new(acl);
            self
        }

        /// The path.
        #[must_use]
        pub fn path(&self) -> &str {
            &self.$($options).+.path
        }
    };
}

pub(crate) use {identity_options, recipe_options};
