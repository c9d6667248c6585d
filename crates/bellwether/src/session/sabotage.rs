//! Deliberately broken variants of the recipes, to show that the tests would notice.
//!
//! Compiled in only with the feature `sabotage`, and then switched on by a session's options.

/// A mistake that a recipe could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "sabotage"),
    expect(unreachable_pub, reason = "only usable with the feature")
)]
pub enum Sabotage {
    /// Sorts contenders by their whole name instead of the sequence.
    SortByWholeName,
    /// Takes any node in the line for the own node after a create without an answer, although another session owns it.
    AdoptAnyOwner,
    /// Leaves nodes in the line that an earlier create of the same contender has made.
    LeaveStragglers,
    /// Takes a create without an answer for a refused one, and creates another node.
    UnknownIsRefusal,
    /// Reads at once where a decision depends on what went through another server: the own node or claim after a lost reply, and
    /// a barrier.
    SkipSync,
    /// Reads behind a sync there, which a leader that lags behind its own commits answers at once.
    TrustSync,
    /// Leaves the claim of a take that was dropped before it had an answer.
    LeaveClaim,
    /// Treats a hold as held although its session has ended.
    IgnoreExpiry,
    /// Takes the end of the contender before it for its turn, although other contenders are still before it.
    SkipRelist,
    /// Takes a connection that is not known to be broken for proof of life.
    TrustConnection,
    /// Uses the session timeout that was granted first, although a reconnect has changed it.
    TimeoutOnce,
    /// Leaves no time for delays and clocks between the deadline of a hold and the end of the session.
    NoMargin,
    /// Dates proof of life at the reply instead of the request.
    DateAtReply,
    /// Takes an answered read for proof of life in an ensemble.
    TrustReads,
    /// Takes one answered write for proof that the leader of an ensemble has heard of the session.
    OneWrite,
    /// Sends a deletion once and does not look whether it arrived.
    DeleteOnce,
    /// Takes any wake-up at a barrier for its end.
    PassOnAnyWake,
    /// Settles a claim at any version of the item.
    SettleAnyVersion,
    /// Sends a write again after a lost reply without a look at the receipt.
    RetryBlindly,
    /// Writes a receipt at any version of it, after a look that has not found the earlier try.
    LookBeforeRetry,
    /// Deletes a receipt at once although a try to create it may be on its way.
    ForgetReceipt,
    /// Looks only once for a node whose create may be on its way.
    LookOnce,
    /// Deletes the node of a simple lock by its path, which the next holder uses too.
    DeleteByPath,
    /// Takes a missing node for the success of an earlier try whose reply was lost, although another client may have deleted the node.
    GoneIsOurs,
    /// Leaves the line of a double barrier when a round begins without this member, and enters the next one anew.
    GiveUpPlace,
    /// Creates members of a double barrier without a receipt, so that one may have two nodes.
    CountTwice,
    /// Takes nodes before an earlier hold of the same session for gone, although the directory may have been made again.
    TrustLostHold,
    /// Leaves it to the task that watches a hold to notice that its time is over.
    LostByTask,
    /// Decides about a transaction by the votes that are there, although one is missing.
    DecideEarly,
    /// Takes items before they are due.
    IgnoreDueTime,
    /// Upgrades a reader although others read.
    UpgradeAmongReaders,
    /// Waits for permits without a look at changes of the limit.
    IgnoreLimit,
    /// Makes fenced writes without a check of the hold.
    WriteUnfenced,
}
