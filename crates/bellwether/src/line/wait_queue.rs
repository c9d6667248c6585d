//! The options that all recipes with a line share, and the verbs built on them.

use std::time::Duration;

use bellwether_client as zk;

use crate::error::{AcquireError, ClearError};
use crate::hold::crash_mark::{self, ClearFailure};
use crate::hold::{Hold, acquire_there};
use crate::line::contender::{Contender, JoinRequest, LINE_MAX, Mode};
use crate::line::failure::Failure;
use crate::line::name::{Kind, Layout, Name};
use crate::node::NodePath;
use crate::node::data::Who;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::recipe_options::RecipeOptions;
use crate::session::retry::until_answered;

/// Where a line is, and the options of its contenders.
#[derive(Clone, Debug)]
pub(crate) struct WaitQueue {
    pub(crate) options: RecipeOptions,
    pub(crate) line_max: usize,
    pub(crate) crash_mark: bool,
    pub(crate) lock_delay: Duration,
    pub(crate) layout: Layout,
}

impl WaitQueue {
    pub(crate) fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            options: RecipeOptions::new(client, path),
            line_max: LINE_MAX,
            crash_mark: false,
            lock_delay: Duration::ZERO,
            layout: Layout::default(),
        }
    }

    /// The current session.
    pub(crate) async fn session(&self) -> Result<Session, AcquireError> {
        Ok(self.options.session().await?)
    }

    pub(crate) fn who(&self, session: &Session) -> Who {
        self.options.who(session)
    }

    /// Joins the end of the line, and waits for its turn.
    pub(crate) async fn acquire(&self, kind: Kind, mode: Mode) -> Result<Hold, AcquireError> {
        let wait_queue = self.clone();
        let acquired = async move {
            let session = wait_queue.session().await?;
            let contender = match kind {
                Kind::Lock => wait_queue.join_with_slot(&session, kind, mode).await?,
                _ => wait_queue.join(&session, kind, mode).await?,
            };
            wait_queue.turn(contender).await
        };
        acquire_there(self.options.client.runtime(), acquired).await
    }

    /// Joins the end of the line when this contender has a slot: of the tasks of one session, at most two have a node.
    pub(crate) async fn join_with_slot(
        &self,
        session: &Session,
        kind: Kind,
        mode: Mode,
    ) -> Result<Contender, AcquireError> {
        let (wait_queue, in_session) = (self.clone(), session.clone());
        let joined = async move {
            let who = wait_queue.who(&in_session);
            let slot = in_session
                .slot(&wait_queue.dir()?, &who, wait_queue.line_max)
                .await;
            let slot = slot.map_err(|reason| wait_queue.error(reason.into()))?;
            let mut contender = wait_queue.join_as(&in_session, who, kind, mode).await?;
            contender.keep_slot(slot);
            Ok(contender)
        };
        // Otherwise a caller that does not poll this future could keep a slot without a node.
        let joined = session.runtime().as_task(joined).await;
        joined.unwrap_or_else(|| Err(self.error(Failure::SessionEnded)))
    }

    /// Joins the end of the line.
    pub(crate) async fn join(
        &self,
        session: &Session,
        kind: Kind,
        mode: Mode,
    ) -> Result<Contender, AcquireError> {
        self.join_as(session, self.who(session), kind, mode).await
    }

    /// As [`join`](Self::join), with an identity that the caller has extended.
    pub(crate) async fn join_as(
        &self,
        session: &Session,
        who: Who,
        kind: Kind,
        mode: Mode,
    ) -> Result<Contender, AcquireError> {
        self.enter(session, who, kind, mode, None).await
    }

    /// Joins the end of a line whose directory holds a limit.
    pub(crate) async fn join_limited(
        &self,
        session: &Session,
        kind: Kind,
        mode: Mode,
        first_limit: u32,
    ) -> Result<Contender, AcquireError> {
        self.enter(session, self.who(session), kind, mode, Some(first_limit))
            .await
    }

    async fn enter(
        &self,
        session: &Session,
        who: Who,
        kind: Kind,
        mode: Mode,
        first_limit: Option<u32>,
    ) -> Result<Contender, AcquireError> {
        let entry = JoinRequest {
            mode,
            kind,
            layout: self.layout,
            who,
            access: self.options.access.clone(),
            is_inner: false,
            line_max: self.line_max,
            first_limit,
            once: None,
        };
        let contender = Contender::enter(session, self.dir()?, entry).await;
        let contender = contender.map_err(|failure| self.error(failure))?;
        // Of two contenders that join at the same time, the later one sees the other before it, and gives its place up here.
        self.check_recipe(kind, contender.lower())?;
        self.check_layout(&contender).await?;
        Ok(contender)
    }

    /// Waits for the turn of a contender and makes it a hold, with a crash mark if the options say so.
    pub(crate) async fn turn(&self, mut contender: Contender) -> Result<Hold, AcquireError> {
        let held = async {
            contender.turn().await?;
            let wait = contender.wait_so_far();
            let hold = contender
                .hold(&self.options.path, self.crash_mark, self.lock_delay)
                .await?;
            wait.granted();
            Ok(hold)
        };
        held.await.map_err(|failure| self.error(failure))
    }

    /// Acquires if no contender is in the way; `None` otherwise.
    pub(crate) async fn try_acquire(
        &self,
        kind: Kind,
        mode: Mode,
    ) -> Result<Option<Hold>, AcquireError> {
        let wait_queue = self.clone();
        let tried = async move {
            let session = wait_queue.session().await?;
            match wait_queue.try_join(&session, kind, mode, None).await? {
                Some(contender) => wait_queue.turn(contender).await.map(Some),
                None => Ok(None),
            }
        };
        acquire_there(self.options.client.runtime(), tried).await
    }

    /// Joins the end of the line if no contender is in the way, except the node `own` of the same owner. Reads the line first, so that a
    /// refused try writes nothing.
    pub(crate) async fn try_join(
        &self,
        session: &Session,
        kind: Kind,
        mode: Mode,
        own: Option<&str>,
    ) -> Result<Option<Contender>, AcquireError> {
        let is_own = |name: &Name| Some(name.as_str()) == own;
        let before = self.contenders(session).await?;
        self.check_recipe(kind, &before)?;
        if (before.iter()).any(|name| (mode.blocks)(name.kind()) && !is_own(name)) {
            return Ok(None);
        }
        let mut contender = self.join(session, kind, mode).await?;
        if let Some(own) = own {
            // Names are never reused: if the node is there now, it was there all the time.
            if !contender.lower().any(is_own) {
                return Err(self.error(Failure::Removed));
            }
            contender.tolerate(own);
        }
        Ok((!contender.is_blocked()).then_some(contender))
    }

    /// Refuses to join a line with contenders of another recipe: a semaphore does not count locks, so they would not exclude each other.
    /// Node names of other libraries do not show the recipe.
    fn check_recipe<'a>(
        &self,
        kind: Kind,
        others: impl IntoIterator<Item = &'a Name>,
    ) -> Result<(), AcquireError> {
        let mut kinds = others.into_iter().map(Name::kind);
        match kinds.find(|other| !other.goes_with(kind)) {
            Some(other) if self.layout == Layout::Bellwether => Err(AcquireError::OtherRecipe {
                path: self.options.path.clone(),
                recipe: other.recipe(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a place behind a contender in the layout of another library: neither of them would wait for the other. All nodes of a
    /// directory share one sequence, so of two contenders that join at the same time, the later one is refused.
    async fn check_layout(&self, contender: &Contender) -> Result<(), AcquireError> {
        let (zk, dir) = (contender.session().zk(), contender.dir());
        for stranger in contender.strangers() {
            let stat = until_answered(|| zk.exists(&dir.child(stranger))).await;
            let stat = stat.map_err(|error| self.error(error.into()))?;
            // Contenders are ephemeral. A user may give such a name to any other node.
            if stat.is_some_and(|stat| stat.ephemeral_owner != 0) {
                return Err(AcquireError::OtherLayout {
                    path: self.options.path.clone(),
                    library: stranger.layout().library(),
                });
            }
        }
        Ok(())
    }

    /// The contenders in the line now.
    pub(crate) async fn contenders(&self, session: &Session) -> Result<Vec<Name>, AcquireError> {
        let children = self.children(session).await?;
        Ok(self.layout.contenders(children).collect())
    }

    /// All children of the directory now, except nodes that this client has given up.
    pub(crate) async fn children(&self, session: &Session) -> Result<Vec<String>, AcquireError> {
        session.cleaner().swept().await;
        match session.zk().children(self.dir()?.as_str()).await {
            Ok(children) => Ok(children),
            Err(zk::Error::NO_NODE) => Ok(Vec::new()),
            // After a lost reply, only the early look is missing.
            Err(error) if error.is_transient() => Ok(Vec::new()),
            Err(error) => Err(self.error(error.into())),
        }
    }

    /// Clears the crash mark; returns whether there was one.
    pub(crate) async fn clear_mark(&self) -> Result<bool, ClearError> {
        let (dir, session) = (self.options.node()?, self.options.session().await?);
        let path = self.options.path.clone();
        match crash_mark::clear(session.zk(), &dir).await {
            Ok(cleared) => Ok(cleared),
            Err(ClearFailure::Held(who)) => Err(ClearError::Held {
                path,
                who: who.map(Box::new),
            }),
            Err(ClearFailure::Zk(source)) => Err(ClearError::Failed { path, source }),
        }
    }

    /// Awaits an acquisition for at most `limit`.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        acquisition: impl Future<Output = Result<T, AcquireError>>,
    ) -> Result<T, AcquireError> {
        let late = || AcquireError::TimedOut {
            path: self.options.path.clone(),
            limit,
        };
        let runtime = self.options.client.runtime();
        runtime.within(limit, acquisition, late).await
    }

    pub(crate) fn dir(&self) -> Result<NodePath, AcquireError> {
        Ok(self.options.node()?)
    }

    pub(crate) fn error(&self, failure: Failure) -> AcquireError {
        AcquireError::new(failure, &self.options.path)
    }
}

/// The options that every recipe with a line has. They go into its `wait_queue`.
macro_rules! line_options {
    () => {
        $crate::session::recipe_options::recipe_options!(wait_queue.options);

        /// The largest length of the line, including the holder. Further contenders are refused. 10,000 unless set, because Apache's
        /// clients refuse to list much more than 20,000 nodes.
        #[must_use]
        pub fn line_max(mut self, line_max: usize) -> Self {
            self.wait_queue.line_max = line_max;
            self
        }
    };
}

/// The option of recipes that other libraries also have.
macro_rules! layout_option {
    () => {
        /// Names the nodes by the rules of another library, to share the line with its users.
        #[must_use]
        pub fn layout(mut self, layout: $crate::line::Layout) -> Self {
            self.wait_queue.layout = layout;
            self
        }
    };
}

/// The options of recipes with exclusive holds.
macro_rules! exclusive_options {
    () => {
        /// Keeps a crash mark while the lock is held exclusively, so that the next holder knows whether this holder released:
        /// [`Hold::previous`](crate::Hold::previous). It costs one more write with fsync per acquisition. All contenders of a line should
        /// set it, or none. Lines in the [layout](crate::line::Layout) of another library have no mark.
        #[must_use]
        pub fn crash_mark(mut self) -> Self {
            self.wait_queue.crash_mark = true;
            self
        }

        /// After a crash of the previous holder, waits for `lock_delay` before the guard is returned, so that requests of the crashed
        /// holder can finish. Sets the [crash mark](Self::crash_mark) too.
        #[must_use]
        pub fn lock_delay(mut self, lock_delay: std::time::Duration) -> Self {
            self.wait_queue.lock_delay = lock_delay;
            self.crash_mark()
        }
    };
}

pub(crate) use {exclusive_options, layout_option, line_options};
