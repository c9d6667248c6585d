//! Observing the leader.

use bellwether_client as zk;
use futures_util::stream::unfold;

use crate::election::candidacy::REST;
use crate::election::{Candidate, Election, in_order, line};
use crate::error::CandidacyError;
use crate::line::Failure;
use crate::node::NodePath;
use crate::request::Events;
use crate::session::retry::NodeEvent;

/// A stream of leaders: the current leader first, then each change; `None` if there is no candidate. A leader that came and went between
/// two looks is skipped. Within one session, the stream never goes back to an earlier leader.
///
/// An error does not end it: the next item is waited for in the next session, if need be. It ends when the client is closed.
pub type Observe = Events<Result<Option<Candidate>, CandidacyError>>;

impl Observe {
    pub(crate) fn new(election: Election) -> Self {
        let observer = Observer {
            election,
            last: None,
            event: None,
            rests: false,
        };
        let next = async |observer: Option<Observer>| {
            let mut observer = observer?;
            if observer.rests {
                observer.election.client().runtime().sleep(REST).await;
            }
            let leader = observer.next().await;
            observer.rests = leader.is_err();
            let is_over = leader.as_ref().is_err_and(CandidacyError::is_final);
            Some((leader, (!is_over).then_some(observer)))
        };
        Self::from_stream(unfold(Some(observer), next))
    }
}

struct Observer {
    election: Election,
    /// The leader that was reported last.
    last: Option<Option<Candidate>>,
    /// Waits for the next change.
    event: Option<NodeEvent>,
    /// Whether the last look failed for a reason that may persist.
    rests: bool,
}

impl Observer {
    async fn next(&mut self) -> Result<Option<Candidate>, CandidacyError> {
        loop {
            if let Some(event) = &mut self.event {
                event.await;
            }
            self.event = None;
            let session = self.election.client().session().await?;
            let dir = self.election.dir()?;
            match look(session.zk(), &dir).await {
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
                Err(error) if !error.is_refusal() => {}
                Err(error) => return Err(self.election.error(Failure::from(error)).into()),
            }
        }
    }
}

/// The first candidate, and a watch on its node alone, since no candidate can join before it. `NoNode` if it left meanwhile.
async fn look(
    zk: &zk::Client,
    dir: &NodePath,
) -> Result<(Option<Candidate>, NodeEvent), zk::Error> {
    let mut names = line(zk, dir).await?;
    if names.is_empty() {
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
        names = in_order(children);
        if names.is_empty() {
            return Ok((None, NodeEvent::of(watch)));
        }
    }
    let (data, stat, watch) = zk.get_watched(&dir.child(&names[0])).await?;
    Ok((Some(Candidate::new(&data, &stat)), NodeEvent::of(watch)))
}
