//! What a recipe with a line is asked for, whatever its kind: where the line is, and how contenders present themselves.

use std::time::Duration;

use zookeeper_client as zk;

use crate::access::Access;
use crate::client::Client;
use crate::contender::{Contender, Entry, Failure, LINE_MAX, Rule};
use crate::crash_mark::{self, ClearFailure};
use crate::error::{AcquireError, ClearError, Outcome, outcome};
use crate::hold::{Hold, acquire_there};
use crate::name::{Kind, Layout, Name};
use crate::path::NodePath;
use crate::who::Who;

#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) client: Client,
    pub(crate) path: String,
    pub(crate) owner: Option<String>,
    pub(crate) command: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) access: Access,
    pub(crate) line_max: usize,
    pub(crate) crash_mark: bool,
    pub(crate) lock_delay: Duration,
    pub(crate) layout: Layout,
}

impl Terms {
    pub(crate) fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            owner: None,
            command: None,
            message: None,
            access: Access::default(),
            line_max: LINE_MAX,
            crash_mark: false,
            lock_delay: Duration::ZERO,
            layout: Layout::default(),
        }
    }

    pub(crate) fn who(&self) -> Who {
        let mut who = self.client.who();
        who.command.clone_from(&self.command);
        who.message.clone_from(&self.message);
        if let Some(owner) = &self.owner {
            who.owner.clone_from(owner);
        }
        who
    }

    /// Takes a place at the end of the line, and waits for its turn.
    pub(crate) async fn acquire(&self, kind: Kind, rule: Rule) -> Result<Hold, AcquireError> {
        let terms = self.clone();
        let acquired = async move {
            let contender = terms.join(kind, rule).await?;
            terms.turn(contender).await
        };
        acquire_there(self.client.home(), acquired).await
    }

    /// Takes a place at the end of the line.
    pub(crate) async fn join(&self, kind: Kind, rule: Rule) -> Result<Contender, AcquireError> {
        self.join_as(self.who(), kind, rule).await
    }

    /// As [`join`](Self::join), for one who says more of itself.
    pub(crate) async fn join_as(
        &self,
        who: Who,
        kind: Kind,
        rule: Rule,
    ) -> Result<Contender, AcquireError> {
        self.enter(who, kind, rule, None).await
    }

    /// Takes a place at the end of a line whose directory holds a limit.
    pub(crate) async fn join_limited(
        &self,
        kind: Kind,
        rule: Rule,
        first_limit: u32,
    ) -> Result<Contender, AcquireError> {
        self.enter(self.who(), kind, rule, Some(first_limit)).await
    }

    async fn enter(
        &self,
        who: Who,
        kind: Kind,
        rule: Rule,
        first_limit: Option<u32>,
    ) -> Result<Contender, AcquireError> {
        let entry = Entry {
            rule,
            kind,
            layout: self.layout,
            who,
            access: self.access.clone(),
            line_max: self.line_max,
            first_limit,
        };
        let contender = Contender::enter(&self.client, self.dir()?, entry).await;
        let contender = contender.map_err(|failure| self.error(failure))?;
        // Of two that come at once, the later one sees the other before it, and gives its place up here.
        self.check_recipe(kind, contender.lower())?;
        Ok(contender)
    }

    /// Waits for the turn of a contender and makes it a hold; an exclusive one leaves a crash mark if that is asked for.
    pub(crate) async fn turn(&self, mut contender: Contender) -> Result<Hold, AcquireError> {
        let held = async {
            contender.turn().await?;
            contender
                .hold(&self.path, self.crash_mark, self.lock_delay)
                .await
        };
        held.await.map_err(|failure| self.error(failure))
    }

    /// Takes the turn if nobody is in the way; `None` if somebody is.
    pub(crate) async fn try_acquire(
        &self,
        kind: Kind,
        rule: Rule,
    ) -> Result<Option<Hold>, AcquireError> {
        let terms = self.clone();
        let tried = async move {
            match terms.try_join(kind, rule, None).await? {
                Some(contender) => terms.turn(contender).await.map(Some),
                None => Ok(None),
            }
        };
        acquire_there(self.client.home(), tried).await
    }

    /// Takes a place at the end of the line if nobody is in its way but the node `own`, of the same owner. Looks first, so that
    /// a try in vain writes nothing.
    pub(crate) async fn try_join(
        &self,
        kind: Kind,
        rule: Rule,
        own: Option<&str>,
    ) -> Result<Option<Contender>, AcquireError> {
        let is_own = |name: &Name| Some(name.as_str()) == own;
        let before = self.contenders().await?;
        self.check_recipe(kind, &before)?;
        if (before.iter()).any(|name| (rule.blocks)(name.kind()) && !is_own(name)) {
            return Ok(None);
        }
        let mut contender = self.join(kind, rule).await?;
        if let Some(own) = own {
            // Names do not come back: if it is there now, it has been there all the time.
            if !contender.lower().iter().any(is_own) {
                return Err(self.error(Failure::Removed));
            }
            contender.pass(own);
        }
        Ok((!contender.is_blocked()).then_some(contender))
    }

    /// Refuses to stand in one line with contenders of another recipe: a semaphore does not count locks, so they would not
    /// exclude each other. The names of other libraries do not tell the recipe.
    fn check_recipe(&self, kind: Kind, others: &[Name]) -> Result<(), AcquireError> {
        let mut kinds = others.iter().map(Name::kind);
        match kinds.find(|other| !other.goes_with(kind)) {
            Some(other) if self.layout == Layout::Bellwether => Err(AcquireError::OtherRecipe {
                path: self.path.clone(),
                recipe: other.recipe(),
            }),
            _ => Ok(()),
        }
    }

    /// Who stands in the line now.
    pub(crate) async fn contenders(&self) -> Result<Vec<Name>, AcquireError> {
        Ok(self.layout.contenders(self.children().await?).collect())
    }

    /// All that is in the directory now, but for what this client has given up.
    pub(crate) async fn children(&self) -> Result<Vec<String>, AcquireError> {
        self.client.janitor().swept().await;
        match self.client.zk().list_children(self.dir()?.as_str()).await {
            Ok(children) => Ok(children),
            Err(zk::Error::NoNode) => Ok(Vec::new()),
            // A lost reply here costs the look only.
            Err(error) if outcome(&error) == Outcome::Unknown => Ok(Vec::new()),
            Err(error) => Err(self.error(error.into())),
        }
    }

    /// Forgets the crash of a holder; tells whether there was one.
    pub(crate) async fn clear_mark(&self) -> Result<bool, ClearError> {
        let path = self.path.clone();
        let dir = match NodePath::parse(&path) {
            Ok(dir) => self.client.resolve(&dir),
            Err(source) => return Err(ClearError::BadPath { path, source }),
        };
        match crash_mark::clear(self.client.zk(), &dir).await {
            Ok(cleared) => Ok(cleared),
            Err(ClearFailure::Held(who)) => Err(ClearError::Held {
                path,
                who: who.map(Box::new),
            }),
            Err(ClearFailure::Zk(source)) => Err(ClearError::Failed { path, source }),
        }
    }

    /// Awaits an acquisition for so long at most.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        acquisition: impl Future<Output = Result<T, AcquireError>>,
    ) -> Result<T, AcquireError> {
        match self.client.home().timeout(limit, acquisition).await {
            Some(result) => result,
            None => Err(AcquireError::TimedOut {
                path: self.path.clone(),
                limit,
            }),
        }
    }

    pub(crate) fn dir(&self) -> Result<NodePath, AcquireError> {
        match NodePath::parse(&self.path) {
            Ok(path) => Ok(self.client.resolve(&path)),
            Err(source) => Err(AcquireError::BadPath {
                path: self.path.clone(),
                source,
            }),
        }
    }

    pub(crate) fn error(&self, failure: Failure) -> AcquireError {
        AcquireError::new(failure, &self.path)
    }
}

/// The options that every recipe with a line has. They go into its `terms`.
macro_rules! line_options {
    () => {
        /// A word for people who look at the line, kept in the node of each acquisition.
        #[must_use]
        pub fn message(mut self, message: impl Into<String>) -> Self {
            self.terms.message = Some(message.into());
            self
        }

        /// The command that runs under the hold, for people who look at the line.
        #[must_use]
        pub fn command(mut self, command: impl Into<String>) -> Self {
            self.terms.command = Some(command.into());
            self
        }

        /// The name of the task that acquires, where several share a session: whom a search for deadlocks takes for one. The
        /// session unless set.
        #[must_use]
        pub fn owner(mut self, owner: impl Into<String>) -> Self {
            self.terms.owner = Some(owner.into());
            self
        }

        /// Who may touch the directory and the nodes in it. Everybody unless set. Directories that have to be made
        /// above it stay open: make them first if they should not be.
        #[must_use]
        pub fn acl(mut self, acl: impl Into<Vec<$crate::zk::Acl>>) -> Self {
            self.terms.access = $crate::access::Access::new(acl);
            self
        }

        /// How many may stand in the line, the holder among them, before the next is refused. 10,000 unless set, because
        /// servers refuse to list much more.
        #[must_use]
        pub fn line_max(mut self, line_max: usize) -> Self {
            self.terms.line_max = line_max;
            self
        }

        /// The path.
        #[must_use]
        pub fn path(&self) -> &str {
            &self.terms.path
        }
    };
}

/// The option of recipes that other libraries have too.
macro_rules! layout_option {
    () => {
        /// Names the nodes by the rules of another library, to stand in one line with its users.
        #[must_use]
        pub fn layout(mut self, layout: $crate::Layout) -> Self {
            self.terms.layout = layout;
            self
        }
    };
}

/// The options of recipes that can be held by one alone.
macro_rules! exclusive_options {
    () => {
        /// Leaves a mark while one alone holds, by which the next holder knows whether that one released:
        /// [`Hold::previous`](crate::Hold::previous). It costs one more synced write an acquisition. Every contender of a line
        /// should ask for it, or none. Lines in the [layout](crate::Layout) of another library have no mark.
        #[must_use]
        pub fn crash_mark(mut self) -> Self {
            self.terms.crash_mark = true;
            self
        }

        /// After a crash of the holder before, waits so long before the guard is returned, in the hope that what that one had
        /// begun comes to rest. Asks for a [crash mark](Self::crash_mark) too.
        #[must_use]
        pub fn lock_delay(mut self, lock_delay: std::time::Duration) -> Self {
            self.terms.lock_delay = lock_delay;
            self.crash_mark()
        }
    };
}

pub(crate) use {exclusive_options, layout_option, line_options};
