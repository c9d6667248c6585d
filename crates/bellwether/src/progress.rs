//! How a wait in a line is going.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use crate::client::Client;
use crate::contender::Contender;
use crate::crash_mark;
use crate::error::{Outcome, outcome};
use crate::name::{Kind, Layout, Name};
use crate::path::NodePath;
use crate::semaphore::read_limit;
use crate::who::Who;

/// A look at the line is cheap, but not free, and people do not read faster. Those far back look less often: a long line
/// costs little more than a short one then.
const EVERY: Duration = Duration::from_secs(1);

/// So many more before us, and the time between two looks is a second longer.
const FAR_BACK: usize = 10;

/// A place in a line, as of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// How many stand before us, holders among them; 0 when it is our turn.
    pub ahead: usize,
    /// How many of those hold: several where readers or permits do.
    pub holders: usize,
    /// Who is first; `None` if that one left while we looked, or does not say.
    pub holder: Option<Who>,
    /// Since when that one holds, by the clock of its machine; known where it leaves a crash mark.
    pub held_since: Option<SystemTime>,
}

/// A stream of places in the line: the present one first, then each change. It ends when the turn has come or the place is
/// gone.
pub struct Progress(BoxStream<'static, Place>);

impl Progress {
    pub(crate) fn of(contender: &Contender) -> Self {
        let look = Look {
            client: contender.client().clone(),
            dir: contender.dir().clone(),
            layout: contender.layout(),
            own: contender.name().cloned(),
            last: None,
        };
        Self(unfold(look, Look::next).boxed())
    }
}

impl Stream for Progress {
    type Item = Place;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Place>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").finish_non_exhaustive()
    }
}

struct Look {
    client: Client,
    dir: NodePath,
    layout: Layout,
    own: Option<Name>,
    last: Option<Place>,
}

impl Look {
    async fn next(mut self) -> Option<(Place, Self)> {
        loop {
            if let Some(last) = &self.last {
                if last.ahead == 0 {
                    return None;
                }
                let seconds = 1 + last.ahead / FAR_BACK;
                let pause = EVERY * u32::try_from(seconds).unwrap_or(u32::MAX);
                self.client.home().sleep(pause).await;
            }
            let place = match self.look().await {
                Ok(place) => place?,
                // The next request waits in the client until there is a connection again: this does not spin.
                Err(error) if outcome(&error) == Outcome::Unknown => continue,
                // Whoever waits for the turn hears why.
                Err(_) => return None,
            };
            if self.last.as_ref() != Some(&place) {
                self.last = Some(place.clone());
                return Some((place, self));
            }
        }
    }

    /// `None` if the place is gone.
    async fn look(&self) -> Result<Option<Place>, zk::Error> {
        let Some(own) = &self.own else {
            return Ok(None);
        };
        let zk = self.client.zk();
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
            return Ok(Some(Place::default()));
        }
        let first = &line[0];
        let path = self.dir.child(first);
        // Made before the first await: they travel together.
        let holder = zk.get(&path);
        let held_since = is_marked.then(|| crash_mark::held_since(zk, &self.dir, first));
        let holder = holder.await.ok();
        Ok(Some(Place {
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

/// How many of a line hold, as far as names tell: the first one, and those who share with it.
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
