//! Semaphores in the layouts of other libraries: whoever holds a lock may add a lease to a directory, of which there may be so
//! many.

use crate::contender::{Contender, Failure, Rule};
use crate::error::AcquireError;
use crate::hold::Hold;
use crate::name::{Kind, Layout};
use crate::terms::Terms;

/// Where one who wants a lease stands in line, and where the leases are.
struct Places {
    line: Terms,
    leases: Terms,
}

impl Places {
    fn of(terms: &Terms) -> Self {
        let path = &terms.path;
        let at = |path| Terms {
            path,
            ..terms.clone()
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

    /// Adds a lease, which may be one too many until another goes. Only for one whose turn it is.
    async fn add(&self, limit: u32) -> Result<Contender, AcquireError> {
        let Self { leases, .. } = self;
        match leases.layout {
            Layout::Curator => leases.join(Kind::Permit(1), Rule::COUNTED).await,
            // kazoo compares the data of the directory with its own limit.
            Layout::Kazoo | Layout::Bellwether => {
                let kind = Kind::Permit(1);
                leases.join_limited(kind, Rule::COUNTED, limit).await
            }
        }
    }
}

/// Waits for a lease.
pub(crate) async fn acquire(terms: &Terms, limit: u32) -> Result<Hold, AcquireError> {
    take(terms, join(terms).await?, limit).await
}

/// Takes a place in the line of those who want one.
pub(crate) async fn join(terms: &Terms) -> Result<Contender, AcquireError> {
    let places = Places::of(terms);
    places.line.join(Kind::Lock, Rule::EXCLUSIVE).await
}

/// Waits for a lease at a place in the line.
pub(crate) async fn take(
    terms: &Terms,
    contender: Contender,
    limit: u32,
) -> Result<Hold, AcquireError> {
    let places = Places::of(terms);
    let turn = places.line.turn(contender).await?;
    let mut lease = places.add(limit).await?;
    let enough = wait_for_room(&mut lease, limit).await;
    enough.map_err(|failure| places.leases.error(failure))?;
    let hold = places.leases.turn(lease).await?;
    // Whatever became of the turn, it is over; the lease is what counts.
    let _ = turn.release().await;
    Ok(hold)
}

/// Takes a lease if there is one and nobody waits.
pub(crate) async fn try_acquire(terms: &Terms, limit: u32) -> Result<Option<Hold>, AcquireError> {
    let places = Places::of(terms);
    if !is_below(places.leases.children().await?.len(), limit) {
        return Ok(None);
    }
    let (kind, rule) = (Kind::Lock, Rule::EXCLUSIVE);
    let Some(contender) = places.line.try_join(kind, rule, None).await? else {
        return Ok(None);
    };
    let turn = places.line.turn(contender).await?;
    let lease = places.add(limit).await?;
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
