//! How a wait in a line is going.

use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use futures_util::stream::unfold;

use crate::hold::crash_mark;
use crate::line::contender::Contender;
use crate::line::limit::read_limit;
use crate::line::name::{Kind, Layout, Name};
use crate::node::NodePath;
use crate::node::data::Who;
use crate::request::Events;
use crate::session::Session;
use crate::session::retry::Retry;

/// A look at the line is cheap, but not free, and people do not read faster. Contenders far back look less often, so that a long line costs
/// little more than a short one.
const EVERY: Duration = Duration::from_secs(1);

/// Every `FAR_BACK` contenders before us add a second between two looks.
const FAR_BACK: usize = 10;

/// A place in a line, as of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Position {
    /// How many contenders are before us, including holders; 0 when it is our turn.
    pub ahead: usize,
    /// How many of them hold: several if they are readers or have permits.
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
            let position = Retry::unlimited().answer(|| self.look()).await.ok()??;
            if self.last.as_ref() != Some(&position) {
                self.last = Some(position.clone());
                return Some((position, self));
            }
        }
    }

    /// `None` if the place is gone.
    async fn look(&self) -> Result<Option<Position>, zk::Error> {
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

/// How many contenders of a line hold, as far as names tell: the first, and those that share with it.
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
