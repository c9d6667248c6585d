//! The line of contenders: sequential ephemeral nodes in one directory, each waiting for its turn.
//!
//! Locks, semaphores and elections share this engine: its options, its verbs, and the progress of a wait.

pub(crate) mod contender;
pub(crate) mod name;

pub use self::name::Layout;

use std::fmt;
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;

use crate::error::{Error, ErrorKind, Failure, OtherUse};
use crate::events::Events;
use crate::hold::crash_mark;
use crate::hold::{Guard, Hold, acquire_in_session};
use crate::line::contender::{Contender, JoinRequest, LINE_MAX, Mode};
use crate::line::name::{Kind, Name, read_limit};
use crate::node::NodePath;
use crate::node::data::Who;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::recipe_options::RecipeOptions;
use crate::session::retry::{Retry, until_answered};
use crate::session::telemetry::call;

/// The place of a line, and the options of its contenders.
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
    pub(crate) async fn session(&self) -> Result<Session, Failure> {
        self.options.session().await
    }

    pub(crate) fn who(&self, session: &Session) -> Who {
        self.options.who(session)
    }

    /// Joins the end of the line, and waits for its turn.
    pub(crate) async fn acquire(&self, kind: Kind, mode: Mode) -> Result<Hold, Failure> {
        let wait_queue = self.clone();
        let acquired = async move {
            let session = wait_queue.session().await?;
            let contender = match kind {
                Kind::Lock => wait_queue.join_with_slot(&session, kind, mode).await?,
                _ => wait_queue.join(&session, kind, mode).await?,
            };
            wait_queue.turn(contender).await
        };
        acquire_in_session(self.options.client.runtime(), acquired).await
    }

    /// Joins the end of the line when this contender has a slot: of the tasks of one session, at most two have a node.
    pub(crate) async fn join_with_slot(
        &self,
        session: &Session,
        kind: Kind,
        mode: Mode,
    ) -> Result<Contender, Failure> {
        let (wait_queue, in_session) = (self.clone(), session.clone());
        let joined = async move {
            let who = wait_queue.who(&in_session);
            let slot = in_session
                .slot(&wait_queue.dir()?, &who, wait_queue.line_max)
                .await?;
            let mut contender = wait_queue.join_as(&in_session, who, kind, mode).await?;
            contender.keep_slot(slot);
            Ok(contender)
        };
        // Otherwise a caller that does not poll this future could keep a slot without a node.
        let joined = session.runtime().as_task(joined).await;
        joined.unwrap_or_else(|| Err(ErrorKind::SessionEnded.into()))
    }

    /// Joins the end of the line.
    pub(crate) async fn join(
        &self,
        session: &Session,
        kind: Kind,
        mode: Mode,
    ) -> Result<Contender, Failure> {
        self.join_as(session, self.who(session), kind, mode).await
    }

    /// Does the same as [`join`](Self::join), with an identity that the caller has extended.
    pub(crate) async fn join_as(
        &self,
        session: &Session,
        who: Who,
        kind: Kind,
        mode: Mode,
    ) -> Result<Contender, Failure> {
        self.enter(session, who, kind, mode, None).await
    }

    /// Joins the end of a line whose directory holds a limit.
    pub(crate) async fn join_limited(
        &self,
        session: &Session,
        kind: Kind,
        mode: Mode,
        first_limit: u32,
    ) -> Result<Contender, Failure> {
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
    ) -> Result<Contender, Failure> {
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
        let contender = Contender::enter(session, self.dir()?, entry).await?;
        // Of two contenders that join at the same time, the later one sees the other before it, and gives its place up here.
        self.check_recipe(kind, contender.lower())?;
        self.check_layout(&contender).await?;
        Ok(contender)
    }

    /// Waits for the turn of a contender and makes it a hold, with a crash mark if the options say so.
    pub(crate) async fn turn(&self, mut contender: Contender) -> Result<Hold, Failure> {
        contender.turn().await?;
        let wait = contender.wait_so_far();
        let hold = contender
            .hold(&self.options.path, self.crash_mark, self.lock_delay)
            .await?;
        wait.granted();
        Ok(hold)
    }

    /// Acquires if no contender is in the way; `None` otherwise.
    pub(crate) async fn try_acquire(
        &self,
        kind: Kind,
        mode: Mode,
    ) -> Result<Option<Hold>, Failure> {
        let wait_queue = self.clone();
        let tried = async move {
            let session = wait_queue.session().await?;
            match wait_queue.try_join(&session, kind, mode, None).await? {
                Some(contender) => wait_queue.turn(contender).await.map(Some),
                None => Ok(None),
            }
        };
        acquire_in_session(self.options.client.runtime(), tried).await
    }

    /// Joins the end of the line if no contender is in the way, except the node `own` of the same owner. Reads the line first, so that a
    /// refused try writes nothing.
    pub(crate) async fn try_join(
        &self,
        session: &Session,
        kind: Kind,
        mode: Mode,
        own: Option<&str>,
    ) -> Result<Option<Contender>, Failure> {
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
                return Err(ErrorKind::Removed.into());
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
    ) -> Result<(), Failure> {
        let mut kinds = others.into_iter().map(Name::kind);
        match kinds.find(|other| !other.goes_with(kind)) {
            Some(other) if self.layout == Layout::Bellwether => {
                Err(ErrorKind::InUse(OtherUse::Recipe(other.recipe())).into())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a place behind a contender in the layout of another library: neither of them would wait for the other. All nodes of a
    /// directory share one sequence, so of two contenders that join at the same time, the later one is refused.
    async fn check_layout(&self, contender: &Contender) -> Result<(), Failure> {
        let (zk, dir) = (contender.session().zk(), contender.dir());
        for stranger in contender.strangers() {
            let stat = until_answered(|| zk.exists(&dir.child(stranger))).await?;
            // Contenders are ephemeral. A user may give such a name to any other node.
            if stat.is_some_and(|stat| stat.ephemeral_owner != 0) {
                let library = stranger.layout().library();
                return Err(ErrorKind::InUse(OtherUse::Layout(library)).into());
            }
        }
        Ok(())
    }

    /// The contenders in the line now.
    pub(crate) async fn contenders(&self, session: &Session) -> Result<Vec<Name>, Failure> {
        let children = self.children(session).await?;
        Ok(self.layout.contenders(children).collect())
    }

    /// All children of the directory now, except nodes that this client has given up.
    pub(crate) async fn children(&self, session: &Session) -> Result<Vec<String>, Failure> {
        session.cleaner().swept().await;
        match session.zk().children(self.dir()?.as_str()).await {
            Ok(children) => Ok(children),
            Err(zk::Error::NO_NODE) => Ok(Vec::new()),
            // After a lost reply, only the early look is missing.
            Err(error) if error.is_transient() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Clears the crash mark; returns whether there was one.
    pub(crate) async fn clear_mark(&self) -> Result<bool, Failure> {
        let (dir, session) = (self.options.node()?, self.options.session().await?);
        crash_mark::clear(session.zk(), &dir).await
    }

    pub(crate) fn dir(&self) -> Result<NodePath, Failure> {
        self.options.node()
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

/// A place in the line of a recipe, which becomes a guard when its turn has come. When it is dropped, the place is given up.
#[must_use = "the place in the line is given up when this is dropped"]
pub struct Waiting<G> {
    path: String,
    client: Client,
    contender: Contender,
    take: Take<G>,
}

/// Waits for the turn of a contender and makes it a guard.
type Take<G> = Box<dyn FnOnce(Contender) -> BoxFuture<'static, Result<G, Failure>> + Send + Sync>;

impl<G> Waiting<G> {
    pub(crate) fn new<F>(
        wait_queue: &WaitQueue,
        contender: Contender,
        take: impl FnOnce(Contender) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<G, Failure>> + Send + 'static,
    {
        Self {
            path: wait_queue.options.path.clone(),
            client: wait_queue.options.client.clone(),
            contender,
            take: Box::new(|contender| Box::pin(take(contender))),
        }
    }

    /// Returns the progress of the wait. It looks once a second, less often far back in the line, and costs the servers a list each time.
    pub fn progress(&self) -> Progress {
        Progress::of(&self.contender)
    }

    /// Waits for the turn and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The node is deleted in the background, or with the session at the latest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `InUse`, `NoSession`, `SessionEnded`, `Disconnected`, `Removed`, `Refused`.
    pub async fn turn(mut self) -> Result<G, Error>
    where
        G: Guard,
    {
        call!("line.turn", &self.path)
            .waits(&self.client, None)
            .hold(async move {
                // The line was not read since the place was taken, possibly long ago; the place may be lost by now.
                self.contender.list().await?;
                (self.take)(self.contender).await
            })
            .await
    }
}

impl<G> fmt::Debug for Waiting<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("contender", &self.contender)
            .finish_non_exhaustive()
    }
}

/// A look at the line is cheap, but not free, and people do not read faster. Contenders far back look less often, so that a long line costs
/// little more than a short one.
const EVERY: Duration = Duration::from_secs(1);

/// Every `FAR_BACK` contenders before us add a second between two looks.
const FAR_BACK: usize = 10;

/// A place in a line, as of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Position {
    /// The number of contenders before this one, including holders; 0 when it is our turn.
    pub ahead: usize,
    /// The number of them that hold: several if they are readers or have permits.
    pub holders: usize,
    /// The first contender in line; `None` if it left meanwhile, or its node does not say.
    pub holder: Option<Who>,
    /// Since when the first contender holds, by the clock of its machine; known only with a crash mark.
    pub held_since: Option<SystemTime>,
}

/// A stream of places in the line: the current one first, then each change. It ends when the turn has come or the place is
/// gone.
pub type Progress = Events<Position>;

impl Progress {
    pub(crate) fn of(contender: &Contender) -> Self {
        let look = PositionReader {
            session: contender.session().clone(),
            dir: contender.dir().clone(),
            layout: contender.layout(),
            own: contender.name().cloned(),
            last: None,
        };
        Self::from_stream(unfold(look, PositionReader::next))
    }
}

struct PositionReader {
    session: Session,
    dir: NodePath,
    layout: Layout,
    own: Option<Name>,
    last: Option<Position>,
}

impl PositionReader {
    async fn next(mut self) -> Option<(Position, Self)> {
        loop {
            if let Some(last) = &self.last {
                if last.ahead == 0 {
                    return None;
                }
                let seconds = 1 + last.ahead / FAR_BACK;
                let pause = EVERY * u32::try_from(seconds).unwrap_or(u32::MAX);
                self.session.runtime().sleep(pause).await;
            }
            // The call that waits for the turn returns the reason.
            let position = Retry::unlimited().answer(|| self.read()).await.ok()??;
            if self.last.as_ref() != Some(&position) {
                self.last = Some(position.clone());
                return Some((position, self));
            }
        }
    }

    /// `None` if the place is gone.
    async fn read(&self) -> Result<Option<Position>, zk::Error> {
        let Some(own) = &self.own else {
            return Ok(None);
        };
        let zk = self.session.zk();
        let limit = match own.kind() {
            Kind::Permit(_) => Some(zk.get(self.dir.as_str())),
            _ => None,
        };
        let children = zk.children(self.dir.as_str()).await?;
        let is_marked = crash_mark::is_among(&children);
        let mut line: Vec<Name> = self.layout.contenders(children).collect();
        line.retain(|name| name == own || name.is_before(own));
        line.sort_by(Name::cmp_age);
        if !line.contains(own) {
            return Ok(None);
        }
        let limit = match limit {
            Some(limit) => limit.await.ok().and_then(|(data, _)| read_limit(&data)),
            None => None,
        };
        let holders = holders(&line, limit);
        if holders == line.len() {
            return Ok(Some(Position::default()));
        }
        let first = &line[0];
        let path = self.dir.child(first);
        // Made before the first await: they are sent in one packet.
        let holder = zk.get(&path);
        let held_since = is_marked.then(|| crash_mark::held_since(zk, &self.dir, first.as_str()));
        let holder = holder.await.ok();
        Ok(Some(Position {
            ahead: line.len() - 1,
            holders,
            holder: holder.and_then(|(data, _)| Who::from_data(&data)),
            held_since: match held_since {
                Some(held_since) => held_since.await,
                None => None,
            },
        }))
    }
}

/// Returns the number of contenders of a line that hold, as far as names tell: the first, and those that share with it.
fn holders(line: &[Name], limit: Option<u64>) -> usize {
    let mut in_use = 0;
    let holds = |name: &&Name| match name.kind() {
        Kind::Permit(permits) => {
            in_use += u64::from(permits);
            limit.is_none_or(|limit| in_use <= limit)
        }
        kind => *name == &line[0] || (kind == Kind::Read && line[0].kind() == Kind::Read),
    };
    line.iter().take_while(holds).count()
}
