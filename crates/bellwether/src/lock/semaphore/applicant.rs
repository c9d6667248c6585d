//! A contender for permits, and its wait for admission.

use bellwether_client as zk;

use crate::line::Failure;
use crate::line::contender::Contender;
use crate::line::name::{Name, read_limit};
use crate::node::data::NodeData;
use crate::session::retry::{Happened, NodeEvent};

/// How many permits these want together.
pub(super) fn weight<'a>(names: impl IntoIterator<Item = &'a Name>) -> u64 {
    let permits = names.into_iter().map(|name| u64::from(name.permits()));
    permits.sum()
}

/// A contender for permits.
pub(super) struct Applicant {
    pub(super) contender: Contender,
    pub(super) permits: u32,
    first_limit: u32,
    /// Whether it watches the whole line, because all contenders before it have their permits, or may have. A change of the limit does not
    /// change that.
    is_first: bool,
    /// Kept over wake-ups by other things.
    limit_watch: Option<NodeEvent>,
}

impl Applicant {
    pub(super) fn new(contender: Contender, permits: u32, first_limit: u32) -> Self {
        Self {
            contender,
            permits,
            first_limit,
            is_first: false,
            limit_watch: None,
        }
    }

    pub(super) async fn wait_for_admission(&mut self) -> Result<(), Denial> {
        while !self.is_admitted().await? {
            self.is_first |= weight(self.contender.lower()) <= self.limit().await?.0;
            if self.is_first {
                self.wait_for_the_line().await?;
            } else {
                self.wait_for_the_one_before().await?;
            }
        }
        Ok(())
    }

    /// Whether the contenders before it leave enough permits, as of the last look. Contenders behind it do not count, since none overtakes.
    pub(super) async fn is_admitted(&mut self) -> Result<bool, Denial> {
        let (limit, _) = self.limit().await?;
        Ok(weight(self.contender.lower()) + u64::from(self.permits) <= limit)
    }

    /// The limit, and the zxid that set it, as of the last look. Sets it if it was never set.
    async fn limit(&mut self) -> Result<(u64, i64), Denial> {
        loop {
            let (data, stat) = match self.contender.directory() {
                Some(directory) => directory,
                None => {
                    self.contender.list().await?;
                    continue;
                }
            };
            if !data.is_empty() {
                let limit = read_limit(data).ok_or(Denial::NoLimit)?;
                return Ok((limit, stat.mzxid));
            }
            let (zk, dir) = (self.contender.session().zk(), self.contender.dir());
            let limit = self.first_limit.to_string();
            let set = zk.set(dir.as_str(), limit.as_bytes(), Some(stat.version));
            match set.await {
                // The next look shows the limit that was set.
                Ok(_) | Err(zk::Error::BAD_VERSION) => {}
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(Failure::from(error).into()),
            }
            self.contender.list().await?;
        }
    }

    /// First waiter in line: reads the line with watches, and waits until a holder leaves or the limit changes.
    async fn wait_for_the_line(&mut self) -> Result<(), Denial> {
        let limit_watch = self.limit_watch.take();
        let (mut line, mut limit) = self.contender.watch_line(limit_watch).await?;
        if self.is_admitted().await? {
            return Ok(());
        }
        let event = tokio::select! {
            biased;
            event = &mut line => {
                self.limit_watch = Some(limit);
                event
            }
            event = &mut limit => event,
        };
        match event {
            Happened::SessionEnded => Err(Failure::SessionEnded.into()),
            _ => Ok(()),
        }
    }

    /// Behind another waiter: waits until that waiter is admitted or leaves.
    async fn wait_for_the_one_before(&mut self) -> Result<(), Denial> {
        let (_, limit_set_at) = self.limit().await?;
        let Some(before) = self.contender.nearest() else {
            return Ok(());
        };
        let path = self.contender.dir().child(before);
        let zk = self.contender.session().zk();
        match zk.get_watched(&path).await {
            // A contender from before the last change of the limit may have been admitted by the earlier limit.
            Ok((data, stat, _)) if stat.czxid < limit_set_at || is_granted(&data) => {
                self.is_first = true;
                Ok(())
            }
            Ok((_, _, watch)) => match self.contender.wait(NodeEvent::of(watch)).await? {
                Happened::Deleted => Ok(self.contender.list().await?),
                // Admitted, or its data changed: watching the line is safe in both cases.
                _ => {
                    self.is_first = true;
                    Ok(())
                }
            },
            Err(error) if error == zk::Error::NO_NODE || error.is_transient() => {
                Ok(self.contender.list().await?)
            }
            Err(error) => Err(Failure::from(error).into()),
        }
    }
}

/// Why an applicant has no permits.
pub(super) enum Denial {
    NoLimit,
    Failed(Failure),
}

impl From<Failure> for Denial {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn is_granted(data: &[u8]) -> bool {
    NodeData::from_data(data).is_some_and(|data| data.granted)
}
