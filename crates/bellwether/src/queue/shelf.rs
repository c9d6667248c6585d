//! The engine under queues and tasks: items on the servers, and what of them can be claimed.
//!
//! | directory | children |
//! |---|---|
//! | `items` | the items, persistent; the version of a node counts its claims |
//! | `claims` | one ephemeral node for each item that is claimed, of the same name |
//! | `line` | the consumers that wait because there is nothing to take |
//! | `dead` | items that were given up |
//! | `done` | tasks that were done |
//! | `receipts` | see `receipt.rs` |
//!
//! A claim writes the item at the version that was read and creates its node in `claims`, in one multi. So of two that
//! claim at once one fails, and whoever still has an older claim finds another version when he settles it.
//!
//! Where a later item may have to be taken earlier, whoever puts or gives back writes `items` itself too, and whoever
//! claims from a list that he did not just make checks that its version is that of the list. A counter in the stat of
//! the directory would not do, since a multi can check none; and the directory is not made anew, with versions from the
//! beginning, while anything is left of the list.

use std::sync::Arc;

use zookeeper_client as zk;

use crate::access::Access;
use crate::client::Client;
use crate::clock::Moment;
use crate::contender::{Failure, TRIES_MAX};
use crate::error::{Outcome, outcome};
use crate::heart::Answered;
use crate::path::{NodePath, PathError};
use crate::queue::order::{Item, Rule};
use crate::queue::put::Credit;
use crate::queue::warm::Warm;
use crate::receipt::Receipts;
use crate::recipe_mark::RecipeMark;
use crate::sabotage::Sabotage;
use crate::who::Who;

/// How often an item is delivered before it becomes a dead letter, unless set.
const ATTEMPTS_MAX: u32 = 5;

/// One place of items. Clones share what they know about it.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    client: Client,
    /// As the user wrote it.
    path: String,
    root: Result<NodePath, PathError>,
    rule: Rule,
    pub(crate) access: Access,
    pub(crate) command: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) attempts_max: u32,
    pub(crate) shards: usize,
    pub(crate) depth_max: usize,
    pub(crate) item_bytes_max: usize,
    pub(crate) warm: Arc<Warm>,
    pub(crate) credit: Arc<Credit>,
    receipts: Option<Receipts>,
}

/// What the directories of items and claims look like, by their stats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many items were ever put.
    pub(crate) puts: i64,
    /// How many claims ended without the end of their item.
    pub(crate) returns: i64,
    pub(crate) depth: usize,
    pub(crate) claimed: usize,
}

impl Shelf {
    pub(crate) fn new(client: &Client, path: String, mut rule: Rule) -> Self {
        rule.delays &= !client.is_sabotaged(Sabotage::IgnoreDueTime);
        let root = NodePath::parse(&path).map(|path| client.resolve(&path));
        Self {
            client: client.clone(),
            path,
            root,
            rule,
            access: Access::default(),
            command: None,
            message: None,
            attempts_max: ATTEMPTS_MAX,
            shards: 1,
            depth_max: super::put::DEPTH_MAX,
            item_bytes_max: super::put::ITEM_BYTES_MAX,
            warm: Arc::default(),
            credit: Arc::default(),
            receipts: None,
        }
        .with_receipts()
    }

    /// The same place through another session.
    pub(crate) fn through(&self, client: &Client) -> Self {
        Self {
            client: client.clone(),
            warm: Arc::default(),
            ..self.clone()
        }
        .with_receipts()
    }

    /// After a change of the client or the access.
    pub(crate) fn with_receipts(self) -> Self {
        let receipts = self.root.as_ref().ok().map(|_| {
            let dir = self.dir("receipts");
            Receipts::new(&self.client, dir, self.access.clone())
        });
        Self { receipts, ..self }
    }

    /// Who takes.
    pub(crate) fn who(&self) -> Who {
        let mut who = self.client.who();
        who.command.clone_from(&self.command);
        who.message.clone_from(&self.message);
        who
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn rule(&self) -> Rule {
        self.rule
    }

    /// Whether the path can be used at all; to be asked first by every verb.
    pub(crate) fn check_path(&self) -> Result<(), PathError> {
        self.root.as_ref().map(drop).map_err(|error| *error)
    }

    pub(crate) fn receipts(&self) -> &Receipts {
        self.receipts.as_ref().expect("the path was checked")
    }

    /// A directory of this place.
    pub(crate) fn dir(&self, name: &str) -> NodePath {
        let root = self.root.as_ref().expect("the path was checked");
        root.below(name)
    }

    pub(crate) fn items_dir(&self, shard: usize) -> NodePath {
        match self.shards {
            1 => self.dir("items"),
            _ => self.dir("items").below(&shard.to_string()),
        }
    }

    pub(crate) fn item_path(&self, item: &Item) -> String {
        self.items_dir(item.shard).child(item.name())
    }

    pub(crate) fn claim_path(&self, item: &Item) -> String {
        self.dir("claims").child(item.name())
    }

    /// Makes what is missing of these directories; containers, so that they go when they are empty.
    pub(crate) async fn make(&self, dirs: &[NodePath]) -> Result<(), Failure> {
        self.mark().await?;
        // What stands above a directory would be made without the access of this place.
        let above_shards = (self.shards > 1).then(|| self.dir("items"));
        for dir in above_shards.iter().chain(dirs) {
            let mut reaped = 0;
            // Harmless twice. A connection that is lost again and again ends with its session.
            while let Err(error) = self.client.make_directory(dir, &self.access).await {
                match outcome(&error) {
                    Outcome::Unknown => {}
                    // What stands above it was removed while it was made.
                    _ if error == zk::Error::NoNode && reaped < TRIES_MAX => reaped += 1,
                    _ => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Makes the directory of the whole with its mark, or marks one that was made without.
    async fn mark(&self) -> Result<(), Failure> {
        let root = self.root.as_ref().expect("the path was checked");
        let mark = match self.rule.named {
            true => RecipeMark::Tasks,
            false => RecipeMark::Queue,
        };
        let (zk, data) = (self.client.zk(), mark.to_data());
        let marked = async {
            self.client.make_marked_directory(root, &data).await?;
            let (found, stat) = zk.get_data(root.as_str()).await?;
            if found.is_empty() {
                zk.set_data(root.as_str(), &data, Some(stat.version))
                    .await?;
            }
            Ok(())
        };
        match marked.await {
            Err(zk::Error::SessionExpired) => Err(Failure::SessionEnded),
            // It only tells inspectors what is there, and others may have marked it, or not allow it.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The directories that hold claimable things.
    pub(crate) fn watched_dirs(&self) -> Vec<NodePath> {
        let mut dirs: Vec<_> = (0..self.shards)
            .map(|shard| self.items_dir(shard))
            .collect();
        dirs.push(self.dir("claims"));
        dirs
    }

    /// Looks at the stats of the directories, in one round trip.
    pub(crate) async fn look(&self) -> Result<Tally, Failure> {
        self.retry(|| async {
            let dirs = self.watched_dirs();
            let zk = self.client.zk();
            // Made before the first await: they travel together.
            let stats: Vec<_> = dirs.iter().map(|dir| zk.check_stat(dir.as_str())).collect();
            let mut found = Vec::new();
            for stat in stats {
                found.push(stat.await?);
            }
            Ok(Tally::of(&found))
        })
        .await
    }

    /// Adds to a write that puts items or gives them back: lists that do not show them are too old to claim from.
    pub(crate) fn outdate_lists(&self, writer: &mut zk::MultiWriter<'_>) -> Result<(), zk::Error> {
        match self.rule.overtakes {
            true => writer.add_set_data(self.dir("items").as_str(), b"", None),
            false => Ok(()),
        }
    }

    /// The version of all lists that are asked for behind it, where that matters.
    pub(crate) fn list_version(&self) -> impl Future<Output = Result<i32, zk::Error>> + use<'_> {
        let items = self.dir("items");
        let stat = self
            .rule
            .overtakes
            .then(|| self.client.zk().check_stat(items.as_str()));
        async {
            match stat {
                // Whoever puts something makes it more than zero.
                Some(stat) => Ok(stat.await?.map_or(0, |stat| stat.version)),
                None => Ok(0),
            }
        }
    }

    /// Lists items and claims, in one round trip, for [`Warm`].
    pub(crate) async fn refill(&self) -> Result<(), Failure> {
        self.warm.begin_refill();
        let (version, lists) = self
            .retry(|| async {
                let dirs = self.watched_dirs();
                let zk = self.client.zk();
                let version = self.list_version();
                let lists: Vec<_> = dirs
                    .iter()
                    .map(|dir| zk.get_children(dir.as_str()))
                    .collect();
                let version = version.await?;
                let mut found = Vec::new();
                for list in lists {
                    found.push(match list.await {
                        Ok((children, stat)) => Some((children, stat)),
                        Err(zk::Error::NoNode) => None,
                        Err(error) => return Err(error),
                    });
                }
                Ok((version, found))
            })
            .await?;
        self.warm.stock(self.rule, version, lists);
        Ok(())
    }

    /// Tries a read again over broken connections, which is harmless.
    pub(crate) async fn retry<T, F>(&self, read: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, zk::Error>>,
    {
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            let sent = Moment::now();
            match read().await {
                Ok(value) => {
                    self.client.heart().answered(sent, Answered::Read);
                    return Ok(value);
                }
                Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }
}

impl Tally {
    /// The last one is of the claims. A directory that is missing was never used, or has been emptied and removed.
    pub(crate) fn of(stats: &[Option<zk::Stat>]) -> Self {
        let Some((claims, items)) = stats.split_last() else {
            return Self::default();
        };
        let mut tally = Self::default();
        let mut ends = 0;
        for stat in items.iter().flatten() {
            let (creates, deletes) = child_changes(stat);
            tally.puts += creates;
            ends += deletes;
            tally.depth += usize::try_from(stat.num_children).unwrap_or(0);
        }
        if let Some(stat) = claims {
            let (_, deletes) = child_changes(stat);
            tally.returns = deletes - ends;
            tally.claimed = usize::try_from(stat.num_children).unwrap_or(0);
        }
        tally
    }
}

/// How many children were ever created and deleted: `cversion` is the sum (Apache's `DataNode.copyStat`). It wraps in 32 bits,
/// so this is right up to 2^31 creations, which are all that the servers can number.
fn child_changes(stat: &zk::Stat) -> (i64, i64) {
    let created_twice = stat.cversion.wrapping_add(stat.num_children);
    let created = i64::from(created_twice.cast_unsigned() / 2);
    (created, created - i64::from(stat.num_children))
}

/// The options of whoever takes from a shelf.
macro_rules! taker_options {
    () => {
        /// A word for people who look at who has what, kept in the node of each claim.
        #[must_use]
        pub fn message(mut self, message: impl Into<String>) -> Self {
            self.shelf.message = Some(message.into());
            self
        }

        /// The command that works on what is taken, for people who look at who has what.
        #[must_use]
        pub fn command(mut self, command: impl Into<String>) -> Self {
            self.shelf.command = Some(command.into());
            self
        }
    };
}

pub(crate) use taker_options;

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(cversion: i32, num_children: i32) -> Option<zk::Stat> {
        Some(zk::Stat {
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children,
        })
    }

    #[test]
    fn tally_counts_puts_and_returns() {
        // Five items were put and two deleted; four claims were made, three have ended, one of them without its item.
        let tally = Tally::of(&[stat(7, 3), stat(7, 1)]);
        let expected = Tally {
            puts: 5,
            returns: 1,
            depth: 3,
            claimed: 1,
        };
        assert_eq!(tally, expected);
    }

    #[test]
    fn puts_are_counted_up_to_the_end_of_the_sequence() {
        for puts in [(1 << 30) - 1, 1 << 30, i32::MAX] {
            let cversion = puts.wrapping_mul(2).wrapping_sub(3);
            let tally = Tally::of(&[stat(cversion, 3), None]);
            assert_eq!((tally.puts, tally.depth), (i64::from(puts), 3));
        }
    }

    #[test]
    fn missing_directories_are_empty() {
        assert_eq!(Tally::of(&[None, None]), Tally::default());
    }
}
