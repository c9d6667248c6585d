//! How a wait in a line is going.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use crate::client::Client;
use crate::contender::Contender;
use crate::name::{Layout, Name};
use crate::path::NodePath;
use crate::who::Who;

/// A look at the line is cheap, but not free, and people do not read faster.
const EVERY: Duration = Duration::from_secs(1);

/// A place in a line, as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// How many stand before us, the holder among them; 0 when it is our turn.
    pub ahead: usize,
    /// Who is first; `None` if that one left while we looked, or does not say.
    pub holder: Option<Who>,
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
                self.client.home().sleep(EVERY).await;
            }
            // A look that fails tells nothing; whoever waits for the turn hears why.
            let place = self.look().await?;
            if self.last.as_ref() != Some(&place) {
                self.last = Some(place.clone());
                return Some((place, self));
            }
        }
    }

    async fn look(&self) -> Option<Place> {
        let own = self.own.as_ref()?;
        let zk = self.client.zk();
        let children = zk.list_children(self.dir.as_str()).await.ok()?;
        let mut first = None::<Name>;
        let mut ahead = 0;
        let mut here = false;
        for name in self.layout.contenders(children) {
            here |= name == *own;
            if name.is_before(own) {
                ahead += 1;
                if first.as_ref().is_none_or(|first| name.is_before(first)) {
                    first = Some(name);
                }
            }
        }
        let holder = match first {
            Some(first) => zk.get_data(&self.dir.child(first)).await.ok(),
            None => None,
        };
        here.then(|| Place {
            ahead,
            holder: holder.and_then(|(data, _)| Who::from_data(&data)),
        })
    }
}
