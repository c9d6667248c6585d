//! Deliberately broken variants of the recipes, to show that the tests would notice.
//!
//! Compiled in only with the feature `sabotage`, and then asked for by a session's options.

/// A mistake that a recipe could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "sabotage"),
    expect(unreachable_pub, reason = "nobody can ask for one without the feature")
)]
pub enum Sabotage {
    /// Sorts contenders by their whole name instead of the sequence.
    SortByWholeName,
    /// Takes a node that bears the right name for the own one, whoever owns it.
    AdoptAnyOwner,
    /// Believes in a hold whatever happened to the session.
    IgnoreExpiry,
    /// Takes the end of the one before for the own turn, however many stand before that one.
    SkipRelist,
    /// Takes a connection that is not known to be broken for proof of life.
    TrustConnection,
    /// Counts by the session timeout that was granted first, whatever a reattach has changed.
    TimeoutOnce,
    /// Takes an answered read for proof of life in an ensemble.
    TrustReads,
    /// Sends a deletion once and does not look whether it arrived.
    DeleteOnce,
    /// Takes any wake-up at a barrier for the word to pass.
    PassOnAnyWake,
    /// Settles a claim on whatever version the item has come to.
    SettleAnyVersion,
    /// Sends a write again after a lost reply without a look at the receipt.
    RetryBlindly,
    /// Decides about a transaction by the votes that are there, though one is missing.
    DecideEarly,
    /// Takes items whatever time they are due at.
    IgnoreDueTime,
}
