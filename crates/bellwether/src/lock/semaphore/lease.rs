//! Semaphores in the layouts of other libraries: the holder of a lock adds a lease to a directory, up to the limit.

use crate::error::AcquireError;
use crate::hold::Hold;
use crate::line::contender::{Contender, Rule};
use crate::line::failure::Failure;
use crate::line::name::{Kind, Layout};
use crate::line::options::Terms;
use crate::session::open_session::Session;

/// The line of contenders for a lease, and the directory of leases.
struct Places {
    line: Terms,
    leases: Terms,
}

impl Places {
    fn of(terms: &Terms) -> Self {
        let path = &terms.place.path;
        let at = |path| {
            let mut terms = terms.clone();
            terms.is_inner = terms.layout == Layout::Curator;
            terms.place.path = path;
            terms
        };
        match terms.layout {
            // `InterProcessSemaphoreV2`.
            Layout::Curator => Self {
                line: at(format!("{path}/locks")),
                leases: at(format!("{path}/leases")),
            },
            // `kazoo.recipe.lock.Semaphore`.
            Layout::Kazoo | Layout::Bellwether => Self {
                line: at(format!("{path}-__lock__")),
                leases: at(path.clone()),
            },
        }
    }

    /// Adds a lease, which may exceed the limit until another lease ends. Only the first contender in line may call it.
    async fn add(&self, session: &Session, limit: u32) -> Result<Contender, AcquireError> {
        let Self { leases, .. } = self;
        match leases.layout {
            Layout::Curator => leases.join(session, Kind::Permit(1), Rule::COUNTED).await,
            // kazoo compares the data of the directory with its own limit.
            Layout::Kazoo | Layout::Bellwether => {
                let kind = Kind::Permit(1);
                leases
                    .join_limited(session, kind, Rule::COUNTED, limit)
                    .await
            }
        }
    }
}

/// Waits for a lease.
pub(crate) async fn acquire(
    session: &Session,
    terms: &Terms,
    limit: u32,
) -> Result<Hold, AcquireError> {
    take(terms, join(session, terms).await?, limit).await
}

/// Joins the line of contenders for a lease.
pub(crate) async fn join(session: &Session, terms: &Terms) -> Result<Contender, AcquireError> {
    let places = Places::of(terms);
    places.line.join(session, Kind::Lock, Rule::EXCLUSIVE).await
}

/// Waits for a lease at a place in the line.
pub(crate) async fn take(
    terms: &Terms,
    contender: Contender,
    limit: u32,
) -> Result<Hold, AcquireError> {
    let places = Places::of(terms);
    let session = contender.session().clone();
    let turn = places.line.turn(contender).await?;
    let mut lease = places.add(&session, limit).await?;
    let enough = wait_for_room(&mut lease, limit).await;
    enough.map_err(|failure| places.leases.error(failure))?;
    let hold = places.leases.turn(lease).await?;
    // The lock is no longer needed, and its release may fail; only the lease counts.
    let _ = turn.release().await;
    Ok(hold)
}

/// Acquires a lease if one is free and no contender waits.
pub(crate) async fn try_acquire(
    session: &Session,
    terms: &Terms,
    limit: u32,
) -> Result<Option<Hold>, AcquireError> {
    let places = Places::of(terms);
    if !is_below(places.leases.children(session).await?.len(), limit) {
        return Ok(None);
    }
    let (kind, rule) = (Kind::Lock, Rule::EXCLUSIVE);
    let Some(contender) = places.line.try_join(session, kind, rule, None).await? else {
        return Ok(None);
    };
    let turn = places.line.turn(contender).await?;
    let lease = places.add(session, limit).await?;
    if !has_room(&lease, limit) {
        return Ok(None);
    }
    let hold = places.leases.turn(lease).await?;
    let _ = turn.release().await;
    Ok(Some(hold))
}

async fn wait_for_room(lease: &mut Contender, limit: u32) -> Result<(), Failure> {
    while !has_room(lease, limit) {
        let (changed, _) = lease.watch_line(None).await?;
        if !has_room(lease, limit) {
            lease.wait(changed).await?;
            lease.list().await?;
        }
    }
    Ok(())
}

/// The other libraries count every child, whatever its name.
fn has_room(lease: &Contender, limit: u32) -> bool {
    is_below(lease.siblings(), limit)
}

fn is_below(count: usize, limit: u32) -> bool {
    count < usize::try_from(limit).unwrap_or(usize::MAX)
}
