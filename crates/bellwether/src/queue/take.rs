//! Claims an item, or waits in line until there is one.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::future::{join, select_all};

use crate::catch_up::caught_up;
use crate::contender::{Contender, Entry, Failure, LINE_MAX, Rule, TRIES_MAX};
use crate::crash_mark::Previous;
use crate::error::{Outcome, outcome};
use crate::hold::Hold;
use crate::janitor::Litter;
use crate::name::{AcquisitionId, Kind, Layout};
use crate::node_event::{Happened, NodeEvent};
use crate::own_node::{Naming, OwnNode};
use crate::path::NodePath;
use crate::queue::held::Held;
use crate::queue::shelf::{Shelf, Tally};
use crate::queue::warm::{Next, Pick, Ready};
use crate::simple_lock::Claim;

/// The longest sleep of one who waits for a due time: clocks are set, and timers stand still while the machine is suspended.
const CLOCK_LOOK: Duration = Duration::from_secs(1);

/// What becomes of one who waits for an item when there is none left, claimed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    Waits,
    Ends,
}

/// How a try to claim ended.
enum Try<T> {
    Claimed(T),
    /// Somebody else has it, or had.
    Lost,
    /// Something that may have to be taken first has been put since the list was made.
    Overtaken,
}

impl Shelf {
    /// Claims the next item that there is; `None` if there is none.
    pub(crate) async fn try_take(&self) -> Result<Option<Held>, Failure> {
        let shelf = self.clone();
        let taken = async move { shelf.take_listed(None, false).await };
        self.apart(taken).await
    }

    /// Claims the next item, and waits in line until there is one; `None` if none is left and that is the end.
    ///
    /// It goes on while the caller does something else: the first in line would else keep everybody from what comes.
    pub(crate) async fn take(&self, empty: Empty) -> Result<Option<Held>, Failure> {
        let shelf = self.clone();
        let taken = async move {
            match shelf.take_listed(None, false).await? {
                Some(held) => Ok(Some(held)),
                None => shelf.take_in_line(empty).await,
            }
        };
        self.apart(taken).await
    }

    /// Runs a take as a task of the session. The session ends with its runtime.
    async fn apart<T: Send + 'static>(
        &self,
        take: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let taken = self.client().home().apart(take).await;
        taken.unwrap_or(Err(Failure::SessionEnded))
    }

    async fn take_in_line(&self, empty: Empty) -> Result<Option<Held>, Failure> {
        loop {
            if empty == Empty::Ends && self.warm.depth() == 0 {
                let taken = self.take_caught_up().await?;
                if taken.is_some() || self.warm.depth() == 0 {
                    return Ok(taken);
                }
            }
            let entry = Entry {
                rule: Rule::EXCLUSIVE,
                kind: Kind::Consumer,
                who: self.who(),
                access: self.access.clone(),
                line_max: LINE_MAX,
                layout: Layout::Bellwether,
                first_limit: None,
            };
            let place = async {
                let mut place = Contender::enter(self.client(), self.dir("line"), entry).await?;
                place.turn().await?;
                Ok(place)
            };
            match place.await {
                Ok(place) => match self.take_as_first(place, empty).await {
                    Err(Failure::Removed) => {}
                    taken => return taken,
                },
                // Another hand has emptied the line.
                Err(Failure::Removed) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Claims the next item, if any is left when the server has caught up with the others: one that lags may not show it yet.
    async fn take_caught_up(&self) -> Result<Option<Held>, Failure> {
        let items = self.dir("items");
        self.retry(|| self.client().zk().sync(items.as_str()))
            .await?;
        self.refill().await?;
        self.take_listed(None, true).await
    }

    /// Waits for something to claim. Only the first in line watches, so one consumer wakes for one item.
    async fn take_as_first(&self, place: Contender, empty: Empty) -> Result<Option<Held>, Failure> {
        let dirs = self.watched_dirs();
        let mut watches: Vec<Option<NodeEvent>> = dirs.iter().map(|_| None).collect();
        loop {
            let came_back = self.warm.came_back();
            self.warm.begin_refill();
            let (version, lists) = self.list_and_watch(&dirs, &mut watches).await?;
            self.warm.stock(self.rule(), version, lists);
            if let Some(held) = self.take_listed(Some(&place), true).await? {
                place.forget();
                return Ok(Some(held));
            }
            if empty == Empty::Ends && self.warm.depth() == 0 {
                return Ok(None);
            }
            let changed = select_all(watches.iter_mut().map(|watch| match watch {
                Some(event) => event,
                None => unreachable!("each directory is watched"),
            }));
            tokio::select! {
                (event, index, _) = changed => {
                    if event == Happened::SessionEnded {
                        return Err(Failure::SessionEnded);
                    }
                    watches[index] = None;
                }
                () = came_back => {}
                () = self.first_due() => {}
            }
        }
    }

    /// Resolves when the first item is due. One that became due since the last look is so at once.
    async fn first_due(&self) {
        loop {
            match self.warm.first_due(self.rule()) {
                Some(Duration::ZERO) => return,
                Some(wait) => self.client().home().sleep(wait.min(CLOCK_LOOK)).await,
                None => pending().await,
            }
        }
    }

    /// Lists the directories in one round trip, and watches those that are not watched yet. The number is the version of
    /// the lists.
    async fn list_and_watch(
        &self,
        dirs: &[NodePath],
        watches: &mut [Option<NodeEvent>],
    ) -> Result<(i32, Vec<Option<(Vec<String>, zk::Stat)>>), Failure> {
        let zk = self.client().zk();
        let mut last = zk::Error::Unknown;
        for _ in 0..TRIES_MAX {
            let version = self.list_version();
            let requests: Vec<_> = dirs
                .iter()
                .zip(&*watches)
                .map(|(dir, watch)| {
                    let dir = dir.as_str();
                    match watch {
                        Some(_) => (Some(zk.children_stat(dir)), None),
                        None => (None, Some(zk.children_stat_watched(dir))),
                    }
                })
                .collect();
            let mut lists = Vec::new();
            let version = version.await;
            let mut failed = version.as_ref().err().cloned();
            for (watch, request) in watches.iter_mut().zip(requests) {
                let answer = match request {
                    (Some(list), _) => list.await,
                    (None, Some(list)) => list.await.map(|(children, stat, watcher)| {
                        *watch = Some(NodeEvent::of(watcher));
                        (children, stat)
                    }),
                    (None, None) => unreachable!("each directory is listed"),
                };
                match answer {
                    Ok(list) => lists.push(Some(list)),
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                None => return Ok((version?, lists)),
                Some(zk::Error::NO_NODE) => {
                    // What has been removed is no longer watched.
                    watches.fill_with(|| None);
                    self.make(dirs).await?;
                    last = zk::Error::NO_NODE;
                }
                Some(error) if outcome(&error) == Outcome::Unknown => last = error,
                Some(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }

    /// Claims the first item that the list shows; makes the list anew if it shows none, unless it is `fresh`.
    async fn take_listed(
        &self,
        place: Option<&Contender>,
        fresh: bool,
    ) -> Result<Option<Held>, Failure> {
        let mut fresh = fresh;
        loop {
            if !fresh && (self.warm.is_stale() || self.warm.is_empty()) {
                self.refill().await?;
                fresh = true;
            }
            let Some(ready) = self.next_ready(&mut fresh).await? else {
                if fresh {
                    return Ok(None);
                }
                // Only what is not due yet is left, or what was read ahead turned out to be gone.
                self.refill().await?;
                fresh = true;
                continue;
            };
            if self.is_given_up(&ready) {
                self.bury(ready).await?;
                continue;
            }
            // What is put after the take began need not be counted in, or many puts could keep it from ever ending.
            let unless_newer = !fresh && self.rule().overtakes;
            match self.claim(ready, place, unless_newer).await? {
                Try::Claimed(held) => return Ok(Some(held)),
                Try::Lost => self.warm.unready(),
                // The item has come back, so the list is made anew.
                Try::Overtaken => {}
            }
        }
    }

    /// The next item with what is in it. The list is no longer `fresh` if something has come back meanwhile that it does not
    /// show.
    async fn next_ready(&self, fresh: &mut bool) -> Result<Option<Ready>, Failure> {
        loop {
            match self.warm.next(self.rule()) {
                Next::Claim(ready) => return Ok(Some(ready)),
                Next::Read(picks) => self.read_ahead(picks).await?,
                Next::Wait(was_read) => {
                    was_read.await;
                    *fresh &= !self.warm.is_stale();
                }
                Next::Nothing => return Ok(None),
            }
        }
    }

    /// Reads items, with the claims there are.
    async fn read_ahead(&self, mut picks: Vec<Pick>) -> Result<(), Failure> {
        let mut reads = loop {
            match self.retry(|| self.read_together(&picks)).await {
                // More than the server answers at once. The rest goes back to its place.
                Err(Failure::Refused(zk::Error::Refused(zk::ErrorCode::MarshallingError)))
                    if picks.len() > 1 =>
                {
                    picks.truncate(picks.len() / 2);
                }
                reads => break reads?,
            }
        };
        let stats: Vec<_> = reads
            .drain((picks.len() + 1).min(reads.len())..)
            .map(|read| match read {
                zk::MultiReadResult::Data(_, stat) => Some(stat),
                _ => None,
            })
            .collect();
        let claims = match reads.pop() {
            Some(zk::MultiReadResult::Children(children)) => children,
            _ => Vec::new(),
        };
        self.warm.note_changes(self.rule(), &Tally::of(&stats));
        self.warm.add_ready(self.rule(), picks, reads, claims);
        Ok(())
    }

    async fn read_together(&self, picks: &[Pick]) -> Result<Vec<zk::MultiReadResult>, zk::Error> {
        let mut reader = self.client().zk().new_multi_read();
        for pick in picks {
            reader.get(&self.item_path(pick.item()));
        }
        reader.children(self.dir("claims").as_str());
        for dir in &self.watched_dirs() {
            reader.get(dir.as_str());
        }
        reader.commit().await
    }

    /// Claims an item, perhaps only if nothing was put since it was listed, and reads on meanwhile if nothing more is read
    /// ahead: one round trip.
    async fn claim(
        &self,
        ready: Ready,
        place: Option<&Contender>,
        unless_newer: bool,
    ) -> Result<Try<Held>, Failure> {
        let picks = self.warm.pick(self.rule());
        let ahead = async {
            // A claim that ends with its session outdates no list, so where that matters each claim looks for such.
            match picks.is_empty() && !self.rule().overtakes {
                true => Ok(()),
                false => self.read_ahead(picks).await,
            }
        };
        let mut attempt = Attempt::new(self, ready, unless_newer);
        // The claim is polled first, so its request goes first: what is read then knows of it.
        let (claimed, read) = join(attempt.run(place), ahead).await;
        let claimed = claimed?;
        if let Err(failure @ Failure::SessionEnded) = read {
            return Err(failure);
        }
        Ok(match claimed {
            Try::Claimed(czxid) => {
                // The claim may have been made long ago, and a hold that began now be over already.
                let client = self.client();
                client.heart().prove().await?;
                Try::Claimed(attempt.into_held(czxid))
            }
            Try::Lost => {
                attempt.lost();
                Try::Lost
            }
            Try::Overtaken => Try::Overtaken,
        })
    }
}

/// A claim that is being made. Dropped before it has become a [`Held`], the claim is taken back if it may be there.
struct Attempt<'a> {
    shelf: &'a Shelf,
    ready: Option<Ready>,
    unless_newer: bool,
    acquisition: String,
    /// Whether the claim is ours, or may be.
    may_be_there: bool,
}

impl<'a> Attempt<'a> {
    fn new(shelf: &'a Shelf, ready: Ready, unless_newer: bool) -> Self {
        Self {
            shelf,
            ready: Some(ready),
            unless_newer,
            acquisition: AcquisitionId::new().to_string(),
            may_be_there: false,
        }
    }

    fn ready(&self) -> &Ready {
        self.ready.as_ref().expect("it is there until the end")
    }

    /// The token, if the item is ours.
    async fn run(&mut self, place: Option<&Contender>) -> Result<Try<i64>, Failure> {
        let shelf = self.shelf;
        let client = shelf.client();
        let data = Claim::new(shelf.who(), &self.acquisition).to_data();
        let (item, claim) = {
            let item = self.ready().pick.item();
            (shelf.item_path(item), shelf.claim_path(item))
        };
        let place = place.and_then(|place| Some(place.dir().child(place.name()?)));
        let ephemerals = client.ephemerals();
        if !ephemerals.has_room(claim.len()) {
            let bytes = ephemerals.bytes();
            return Err(Failure::TooManyEphemerals { bytes });
        }
        let mut last = zk::Error::Unknown;
        for _ in 0..TRIES_MAX {
            if self.may_be_there {
                match self.find(&claim).await {
                    Ok((found, stat)) => {
                        let ours = crate::simple_lock::is_claim(&found, &self.acquisition)
                            && stat.ephemeral_owner == client.session_id();
                        self.may_be_there = ours;
                        return Ok(match ours {
                            true => Try::Claimed(stat.czxid),
                            false => Try::Lost,
                        });
                    }
                    Err(zk::Error::NO_NODE) => self.may_be_there = false,
                    Err(error) if outcome(&error) == Outcome::Unknown => {
                        last = error;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.may_be_there = true;
            let result = self.send(&item, &claim, &data, place.as_deref()).await;
            let (index, error) = match result {
                Ok(token) => return Ok(Try::Claimed(token)),
                Err(zk::MultiError::Refused { index, code }) => {
                    self.may_be_there = false;
                    (index, zk::Error::Refused(code))
                }
                Err(zk::MultiError::Request(source)) => {
                    if outcome(&source) != Outcome::Unknown {
                        self.may_be_there = false;
                        return Err(source.into());
                    }
                    last = source;
                    continue;
                }
            };
            match (index, error) {
                // Claimed by another since it was read, or settled.
                (0, zk::Error::BAD_VERSION | zk::Error::NO_NODE) | (1, zk::Error::NODE_EXISTS) => {
                    return Ok(Try::Lost);
                }
                (2, zk::Error::BAD_VERSION) => return Ok(Try::Overtaken),
                (1, zk::Error::NO_NODE) => {
                    shelf.make(&[shelf.dir("claims")]).await?;
                    last = zk::Error::NO_NODE;
                }
                (2, zk::Error::NO_NODE) => return Err(Failure::Removed),
                (_, error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }

    /// Looks for a claim whose reply was lost. The server that answers now may be behind the one that made it.
    async fn find(&self, claim: &str) -> Result<(Bytes, zk::Stat), zk::Error> {
        let zk = self.shelf.client().zk();
        caught_up(zk, claim, || zk.get(claim)).await
    }

    async fn send(
        &self,
        item: &str,
        claim: &str,
        data: &[u8],
        place: Option<&str>,
    ) -> Result<i64, zk::MultiError> {
        let shelf = self.shelf;
        let Ready {
            pick,
            data: payload,
            stat,
        } = self.ready();
        let mut writer = shelf.client().zk().new_multi();
        writer.set(item, payload, Some(stat.version));
        let options = zk::CreateMode::Ephemeral.with_acl(shelf.access.acl());
        writer.create(claim, data, &options);
        // Never both: whoever has a place has just made the list.
        if let Some(place) = place {
            writer.delete(place, None);
        } else if self.unless_newer {
            writer.check(shelf.dir("items").as_str(), Some(pick.list_version()));
        }
        let results = pin!(writer.commit()).await?;
        match results.first() {
            // All writes of a multi have one zxid, so this is the one that created the claim. Servers before 3.8.2 do not
            // tell it of the creation itself (ZOOKEEPER-4026).
            Some(zk::MultiResult::Set(stat)) => Ok(stat.mzxid),
            _ => Err(zk::Error::Unknown.into()),
        }
    }

    fn into_held(mut self, czxid: i64) -> Held {
        let shelf = self.shelf;
        let Ready { pick, data, stat } = self.ready.take().expect("it is there until the end");
        let version = stat.version + 1;
        let naming = Naming::Pinned {
            path: shelf.item_path(pick.item()),
            version,
        };
        let claim = shelf.claim_path(pick.item());
        let node = OwnNode::new(shelf.client(), claim, czxid, naming);
        let hold = Hold::start(shelf.path(), node, None, None, Previous::Unknown);
        Held::new(shelf.clone(), hold, pick, data, version, stat.ctime)
    }

    fn lost(mut self) {
        if let Some(ready) = self.ready.take() {
            ready.pick.gone();
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(ready) = self.ready.as_ref().filter(|_| self.may_be_there) {
            self.shelf.client().janitor().remove(Litter::Claim {
                path: self.shelf.claim_path(ready.pick.item()),
                acquisition: self.acquisition.clone(),
            });
        }
    }
}
