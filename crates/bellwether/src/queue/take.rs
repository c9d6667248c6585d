//! Claims an item, over lost replies, or waits in line until there is one.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::future::{join, select_all};

use crate::error::{ErrorKind, Failure};
use crate::hold::Hold;
use crate::hold::crash_mark::Previous;
use crate::hold::ephemeral_node::{EphemeralNode, Naming};
use crate::line::contender::{Contender, JoinRequest, LINE_MAX, Mode};
use crate::line::name::{Kind, Layout};
use crate::node::{ClaimData, NodePath, OperationId};
use crate::queue::claimed_item::{ClaimedItem, RETURNED};
use crate::queue::core::{Counts, QueueCore};
use crate::queue::item_cache::{Next, Pick, Ready};
use crate::session::cleaner::{Is, Leftover};
use crate::session::retry::{Happened, NodeEvent, Retry, read_linearizable, until_answered};

/// The longest sleep of a consumer that waits for a due time: clocks may be set, and timers stand still while the machine is suspended.
const CLOCK_LOOK: Duration = Duration::from_secs(1);

/// The behaviour of a waiting consumer when no item is left, claimed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    Waits,
    Ends,
}

impl QueueCore {
    /// Claims the next item; `None` if there is none.
    pub(crate) async fn try_take(&self) -> Result<Option<ClaimedItem>, Failure> {
        let core = self.clone();
        let taken = async move { core.take_listed(None, false).await };
        self.run_in_session(taken).await
    }

    /// Claims the next item, and waits in line until there is one; `None` if none is left and that is the end.
    ///
    /// It continues while the caller does something else: otherwise the first consumer in line would block all others.
    pub(crate) async fn take(&self, empty: Empty) -> Result<Option<ClaimedItem>, Failure> {
        let core = self.clone();
        let taken = async move {
            match core.take_listed(None, false).await? {
                Some(held) => Ok(Some(held)),
                None => core.take_in_line(empty).await,
            }
        };
        self.run_in_session(taken).await
    }

    /// Runs a take as a task of the session. The session ends with its runtime.
    async fn run_in_session<T: Send + 'static>(
        &self,
        take: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let taken = self.session().runtime().spawn(take).await;
        taken.unwrap_or_else(|| Err(ErrorKind::SessionEnded.into()))
    }

    async fn take_in_line(&self, empty: Empty) -> Result<Option<ClaimedItem>, Failure> {
        loop {
            if empty == Empty::Ends && self.cache().depth() == 0 {
                let taken = self.take_caught_up().await?;
                if taken.is_some() || self.cache().depth() == 0 {
                    return Ok(taken);
                }
            }
            let (line, who) = (self.dir("line"), self.who());
            let slot = self.session().slot(&line, &who, LINE_MAX).await?;
            let entry = JoinRequest {
                mode: Mode::EXCLUSIVE,
                kind: Kind::Consumer,
                who,
                access: self.access.clone(),
                is_inner: true,
                line_max: LINE_MAX,
                layout: Layout::Bellwether,
                first_limit: None,
                once: None,
            };
            let place = async {
                let mut place = Contender::enter(self.session(), line, entry).await?;
                place.keep_slot(slot);
                place.turn().await?;
                Ok(place)
            };
            match place.await {
                Ok(place) => match self.take_as_first(place, empty).await {
                    Err(Failure {
                        kind: ErrorKind::Removed,
                        ..
                    }) => {}
                    taken => return taken,
                },
                // Another client has deleted the line.
                Err(Failure {
                    kind: ErrorKind::Removed,
                    ..
                }) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Claims the next item, if any is left after a sync: a lagging server may not show it yet.
    async fn take_caught_up(&self) -> Result<Option<ClaimedItem>, Failure> {
        let items = self.dir("items");
        until_answered(|| self.session().zk().sync(items.as_str())).await?;
        self.refill().await?;
        self.take_listed(None, true).await
    }

    /// Waits for something to claim. Only the first in line watches, so one consumer wakes for one item.
    async fn take_as_first(
        &self,
        place: Contender,
        empty: Empty,
    ) -> Result<Option<ClaimedItem>, Failure> {
        let dirs = self.watched_dirs();
        let mut watches: Vec<Option<NodeEvent>> = dirs.iter().map(|_| None).collect();
        loop {
            let came_back = self.cache().came_back();
            self.cache().begin_refill();
            let (version, lists) = self.list_and_watch(&dirs, &mut watches).await?;
            self.stock(version, lists)?;
            if let Some(held) = self.take_listed(Some(&place), true).await? {
                place.forget();
                return Ok(Some(held));
            }
            if empty == Empty::Ends && self.cache().depth() == 0 {
                return Ok(None);
            }
            let changed = select_all(watches.iter_mut().map(|watch| match watch {
                Some(event) => event,
                None => unreachable!("each directory is watched"),
            }));
            tokio::select! {
                biased;
                (event, index, _) = changed => {
                    if event == Happened::SessionEnded {
                        return Err(ErrorKind::SessionEnded.into());
                    }
                    watches[index] = None;
                }
                () = came_back => {}
                () = self.first_due() => {}
            }
        }
    }

    /// Resolves when the first item is due; at once if it became due since the last look.
    async fn first_due(&self) {
        loop {
            match self.cache().first_due(self.rule()) {
                Some(Duration::ZERO) => return,
                Some(wait) => self.session().runtime().sleep(wait.min(CLOCK_LOOK)).await,
                None => pending().await,
            }
        }
    }

    /// Lists the directories in one round trip, and sets missing watches. The number is the version of the lists.
    async fn list_and_watch(
        &self,
        dirs: &[NodePath],
        watches: &mut [Option<NodeEvent>],
    ) -> Result<(i32, Vec<Option<(Vec<String>, zk::Stat)>>), Failure> {
        let zk = self.session().zk();
        let mut retry = Retry::limited();
        loop {
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
                    retry.again_after(Ok(()))?;
                }
                Some(error) => retry.again(error)?,
            }
        }
    }

    /// Claims the first item of the list; reads the list again if it shows none, unless it is `fresh`.
    async fn take_listed(
        &self,
        place: Option<&Contender>,
        fresh: bool,
    ) -> Result<Option<ClaimedItem>, Failure> {
        let mut fresh = fresh;
        // A lagging server may show a list that is older than this take, unless the session has written something since the take began.
        let mut has_written = place.is_some();
        loop {
            if !fresh && (self.cache().is_stale() || self.cache().is_empty()) {
                self.refill().await?;
                fresh = true;
            }
            let Some((ready, is_just_read)) = self.next_ready(&mut fresh).await? else {
                if fresh {
                    return Ok(None);
                }
                // Only items that are not due yet are left, or the items that were read ahead are gone.
                self.refill().await?;
                fresh = true;
                continue;
            };
            if self.is_given_up(&ready) {
                self.bury(ready).await?;
                continue;
            }
            // Items that are put after the take began are not considered, because otherwise many puts could keep it from ending.
            let unless_newer = self.rule().overtakes && !(fresh && has_written);
            match self.claim(ready, place, unless_newer).await? {
                ClaimOutcome::Claimed(held) => return Ok(Some(held)),
                ClaimOutcome::Lost => {
                    // What was read at an earlier take may have been claimed long ago.
                    if is_just_read {
                        self.cache().lost_race();
                    }
                    self.cache().unready();
                }
                // The item was given back, so the list is read again, behind the write that was refused.
                ClaimOutcome::Overtaken => (fresh, has_written) = (false, true),
            }
        }
    }

    /// The next item with its payload, and whether that was read just now. The list is no longer `fresh` if an item was given back
    /// meanwhile that it does not show.
    async fn next_ready(&self, fresh: &mut bool) -> Result<Option<(Ready, bool)>, Failure> {
        let mut is_just_read = false;
        loop {
            match self.cache().next(self.rule()) {
                Next::Claim(ready) => return Ok(Some((ready, is_just_read))),
                Next::Read(picks) => {
                    self.read_ahead(picks).await?;
                    is_just_read = true;
                }
                Next::Wait(was_read) => {
                    was_read.await;
                    is_just_read = true;
                    *fresh &= !self.cache().is_stale();
                }
                Next::Nothing => return Ok(None),
            }
        }
    }

    /// Reads items, with the claims there are.
    async fn read_ahead(&self, mut picks: Vec<Pick>) -> Result<(), Failure> {
        let mut reads = loop {
            match until_answered(|| self.read_together(&picks)).await {
                // More than the server answers at once. The remaining items can be picked again.
                Err(zk::Error::Refused(zk::ErrorCode::MarshallingError)) if picks.len() > 1 => {
                    picks.truncate(picks.len() / 2);
                }
                reads => break reads?,
            }
        };
        let stats: Vec<_> = reads
            .drain((picks.len() + 2).min(reads.len())..)
            .map(|read| match read {
                zk::MultiReadResult::Data(_, stat) => Some(stat),
                _ => None,
            })
            .collect();
        let mut children = || match reads.pop() {
            Some(zk::MultiReadResult::Children(children)) => children,
            _ => Vec::new(),
        };
        let (returned, claims) = (children(), children());
        self.cache().note_changes(self.rule(), &Counts::of(&stats));
        self.cache()
            .add_ready(self.rule(), picks, reads, claims, &returned);
        Ok(())
    }

    async fn read_together(&self, picks: &[Pick]) -> Result<Vec<zk::MultiReadResult>, zk::Error> {
        let mut reader = self.session().zk().new_multi_read();
        for pick in picks {
            reader.get(&self.item_path(pick.item()));
        }
        reader.children(self.dir("claims").as_str());
        reader.children(self.dir(RETURNED).as_str());
        for dir in &self.watched_dirs() {
            reader.get(dir.as_str());
        }
        reader.commit().await
    }

    /// Claims an item, where required only if nothing was put since it was listed, and reads ahead at the same time if nothing is left: one
    /// round trip.
    async fn claim(
        &self,
        ready: Ready,
        place: Option<&Contender>,
        unless_newer: bool,
    ) -> Result<ClaimOutcome<ClaimedItem>, Failure> {
        let picks = self.cache().pick(self.rule());
        let ahead = async {
            // A claim that ends with its session outdates no list, so where that matters each claim looks for such.
            match picks.is_empty() && !self.rule().overtakes {
                true => Ok(()),
                false => self.read_ahead(picks).await,
            }
        };
        let mut attempt = ClaimAttempt::new(self, ready, unless_newer);
        // The claim is polled first, so its request is sent first, and the reads see it.
        let (claimed, read) = join(attempt.run(place), ahead).await;
        let claimed = claimed?;
        if let Err(Failure {
            kind: ended @ ErrorKind::SessionEnded,
            ..
        }) = read
        {
            return Err(ended.into());
        }
        Ok(match claimed {
            ClaimOutcome::Claimed(czxid) => {
                // The claim may have been made long ago, so that a hold that begins now would be over already.
                let session = self.session();
                session.liveness().prove().await?;
                ClaimOutcome::Claimed(attempt.into_held(czxid))
            }
            ClaimOutcome::Lost => {
                attempt.lost();
                ClaimOutcome::Lost
            }
            ClaimOutcome::Overtaken => ClaimOutcome::Overtaken,
        })
    }
}

/// The outcome of a try to claim.
pub(super) enum ClaimOutcome<T> {
    Claimed(T),
    /// Another consumer has it, or had it.
    Lost,
    /// An item that may have to be taken first was put since the list was read.
    Overtaken,
}

/// A claim that is being made. If it is dropped before it has become a [`ClaimedItem`], the claim is deleted, if it may exist.
pub(super) struct ClaimAttempt<'a> {
    core: &'a QueueCore,
    ready: Option<Ready>,
    unless_newer: bool,
    acquisition: String,
    /// True if the claim is ours, or may be.
    may_be_there: bool,
    /// The number of the connection that sent the first try.
    connection: u64,
    /// True if a try got no answer: it may still make the claim.
    may_be_late: bool,
}

impl<'a> ClaimAttempt<'a> {
    pub(super) fn new(core: &'a QueueCore, ready: Ready, unless_newer: bool) -> Self {
        Self {
            core,
            ready: Some(ready),
            unless_newer,
            acquisition: OperationId::new().to_string(),
            may_be_there: false,
            connection: core.session().zk().connections(),
            may_be_late: false,
        }
    }

    fn ready(&self) -> &Ready {
        self.ready.as_ref().expect("it is there until the end")
    }

    /// The token, if the item is ours.
    pub(super) async fn run(
        &mut self,
        place: Option<&Contender>,
    ) -> Result<ClaimOutcome<i64>, Failure> {
        let core = self.core;
        let session = core.session();
        let data = ClaimData::new(core.who(), &self.acquisition).to_data();
        let (item, claim) = {
            let item = self.ready().pick.item();
            (core.item_path(item), core.claim_path(item))
        };
        let place = place.and_then(|place| Some(place.dir().child(place.name()?)));
        let ephemerals = session.ephemeral_quota();
        if !ephemerals.has_room(claim.len()) {
            // The receipt of a claim that has ended may have taken its room.
            core.receipts().sweep();
        }
        if !ephemerals.has_room(claim.len()) {
            let bytes = ephemerals.bytes();
            return Err(ErrorKind::TooManyEphemerals { bytes }.into());
        }
        let mut retry = Retry::limited();
        loop {
            if self.may_be_there {
                match self.find(&claim).await {
                    Ok((found, stat)) => {
                        let ours = ClaimData::is_of(&found, &self.acquisition)
                            && stat.ephemeral_owner == session.session_id();
                        self.may_be_there = ours;
                        return Ok(match ours {
                            true => ClaimOutcome::Claimed(stat.czxid),
                            false => ClaimOutcome::Lost,
                        });
                    }
                    Err(zk::Error::NO_NODE) => self.may_be_there = false,
                    Err(error) => return Err(error.into()),
                }
            }
            self.may_be_there = true;
            let result = self.send(&item, &claim, &data, place.as_deref()).await;
            let (index, error) = match result {
                Ok(token) => return Ok(ClaimOutcome::Claimed(token)),
                Err(zk::MultiError::Refused { index, code }) => {
                    self.may_be_there = false;
                    (index, zk::Error::Refused(code))
                }
                Err(zk::MultiError::Request(source)) => {
                    self.may_be_there = source == zk::Error::Unknown;
                    self.may_be_late |= self.may_be_there;
                    retry.again(source)?;
                    continue;
                }
            };
            match (index, error) {
                // Claimed by another consumer since it was read, or acknowledged.
                (0, zk::Error::BAD_VERSION | zk::Error::NO_NODE) | (1, zk::Error::NODE_EXISTS) => {
                    return Ok(ClaimOutcome::Lost);
                }
                (2, zk::Error::BAD_VERSION) => return Ok(ClaimOutcome::Overtaken),
                (1, zk::Error::NO_NODE) => {
                    core.make(&[core.dir("claims")]).await?;
                    retry.again_after(Ok(()))?;
                }
                (2, zk::Error::NO_NODE) => return Err(ErrorKind::Removed.into()),
                (_, error) => return Err(error.into()),
            }
        }
    }

    /// Looks for a claim whose reply was lost. The server that answers now may lag behind the server that made the claim.
    async fn find(&self, claim: &str) -> Result<(Bytes, zk::Stat), zk::Error> {
        let session = self.core.session();
        until_answered(|| read_linearizable(session.zk(), claim, || session.zk().get(claim))).await
    }

    async fn send(
        &self,
        item: &str,
        claim: &str,
        data: &[u8],
        place: Option<&str>,
    ) -> Result<i64, zk::MultiError> {
        let core = self.core;
        let Ready {
            pick,
            data: payload,
            stat,
            ..
        } = self.ready();
        let mut writer = core.session().zk().new_multi();
        writer.set(item, payload, Some(stat.version));
        let options = zk::CreateMode::Ephemeral.with_acl(core.access.acl());
        writer.create(claim, data, &options);
        // Never both: a consumer with a place in line has just read the list.
        if let Some(place) = place {
            writer.delete(place, None);
        } else if self.unless_newer {
            writer.check(core.dir("items").as_str(), Some(pick.list_version()));
        }
        let results = pin!(writer.commit()).await?;
        match results.first() {
            // All writes of a multi have one zxid, so this zxid created the claim. Servers before 3.8.2 do not return it for the create
            // itself (ZOOKEEPER-4026).
            Some(zk::MultiResult::Set(stat)) => Ok(stat.mzxid),
            _ => Err(zk::Error::Unknown.into()),
        }
    }

    pub(super) fn into_held(mut self, czxid: i64) -> ClaimedItem {
        let core = self.core;
        let ready = self.ready.take().expect("it is there until the end");
        let Ready { pick, stat, .. } = &ready;
        let version = stat.version + 1;
        let naming = Naming::Pinned {
            path: core.item_path(pick.item()),
            version,
        };
        let claim = core.claim_path(pick.item());
        let node = EphemeralNode::new(core.session(), claim, czxid, naming);
        let hold = Hold::start(core.path(), node, None, None, Previous::Unknown, None)
            .with_receipts(core.receipts().clone());
        ClaimedItem::new(core.clone(), hold, ready)
    }

    pub(super) fn lost(mut self) {
        self.remove_late();
        if let Some(ready) = self.ready.take() {
            ready.pick.gone();
        }
    }

    /// Deletes the claim that a try without an answer may have made, or may still make.
    fn remove_late(&self) {
        let session = self.core.session();
        let Some(ready) = &self.ready else {
            return;
        };
        let is_possible = self.may_be_there || self.may_be_late;
        if !is_possible {
            return;
        }
        let item = ready.pick.item();
        let leftover = Leftover::Claim {
            path: self.core.claim_path(item),
            acquisition: Is::Of(self.acquisition.clone()),
            item: self.core.item_path(item),
            version: ready.stat.version + 1,
        };
        session.cleaner().remove_late(leftover, self.connection);
    }
}

impl Drop for ClaimAttempt<'_> {
    fn drop(&mut self) {
        self.remove_late();
    }
}
