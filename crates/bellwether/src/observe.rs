//! Following who leads.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bellwether_client as zk;
use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use crate::candidacy::REST;
use crate::contender::Failure;
use crate::election::{Candidate, Election, in_order};
use crate::error::{Outcome, StandError, outcome};
use crate::node_event::NodeEvent;
use crate::path::NodePath;

/// A stream of leaders: the present one first, then each change, `None` where nobody runs. What came and went between two
/// looks is not told; what is told is never older than what was told before, in one session.
///
/// An error does not end it: the next item is waited for in the next session, if need be.
pub struct Observe(BoxStream<'static, Result<Option<Candidate>, StandError>>);

impl Observe {
    pub(crate) fn new(election: Election) -> Self {
        let observer = Observer {
            election,
            last: None,
            event: None,
            rests: false,
        };
        let next = async |mut observer: Observer| {
            if observer.rests {
                observer.election.client().home().sleep(REST).await;
            }
            let leader = observer.next().await;
            observer.rests = leader.is_err();
            Some((leader, observer))
        };
        Self(unfold(observer, next).boxed())
    }
}

impl Stream for Observe {
    type Item = Result<Option<Candidate>, StandError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Observe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observe").finish_non_exhaustive()
    }
}

struct Observer {
    election: Election,
    /// What was told last.
    last: Option<Option<Candidate>>,
    /// Tells of the next change.
    event: Option<NodeEvent>,
    /// Whether the last look failed for a reason that may be there still.
    rests: bool,
}

impl Observer {
    async fn next(&mut self) -> Result<Option<Candidate>, StandError> {
        loop {
            if let Some(event) = &mut self.event {
                event.await;
            }
            self.event = None;
            let client = self.election.client().successor().await?;
            self.election = self.election.through(client);
            let dir = self.election.dir()?;
            match self.look(&dir).await {
                Ok((leader, event)) => {
                    self.event = Some(event);
                    if self.last.as_ref() != Some(&leader) {
                        self.last = Some(leader.clone());
                        return Ok(leader);
                    }
                }
                // It left while we looked, or the look was lost: again. While there is no connection, the next request
                // waits in the client: this does not spin.
                Err(zk::Error::NO_NODE) => {}
                Err(error) => match outcome(&error) {
                    Outcome::Unknown | Outcome::SessionEnded => {}
                    Outcome::Refused => {
                        return Err(self.election.error(Failure::from(error)).into());
                    }
                },
            }
        }
    }

    /// Who is first, and a watch that tells when that may have changed: on the first in line alone, since nobody comes before
    /// it. `NoNode` if that one left meanwhile.
    async fn look(&self, dir: &NodePath) -> Result<(Option<Candidate>, NodeEvent), zk::Error> {
        let zk = self.election.client().zk();
        let mut line = self.election.line(dir).await?;
        if line.is_empty() {
            let listed = zk.children_watched(dir.as_str()).await;
            let (children, watch) = match listed {
                // Not even a directory: wait for that.
                Err(zk::Error::NO_NODE) => {
                    let (stat, watch) = zk.exists_watched(dir.as_str()).await?;
                    return match stat {
                        Some(_) => Err(zk::Error::NO_NODE),
                        None => Ok((None, NodeEvent::of(watch))),
                    };
                }
                listed => listed?,
            };
            line = in_order(children);
            if line.is_empty() {
                return Ok((None, NodeEvent::of(watch)));
            }
        }
        let (data, stat, watch) = zk.get_watched(&dir.child(&line[0])).await?;
        Ok((Some(Candidate::new(&data, &stat)), NodeEvent::of(watch)))
    }
}
