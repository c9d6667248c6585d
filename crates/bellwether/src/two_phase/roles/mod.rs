//! The roles in a transaction: coordinators that count votes, and sites that vote.

pub(super) mod coordinator;
pub(super) mod invitations;
pub(super) mod participant;
pub(super) mod participation;
pub(super) mod presence;
pub(super) mod serving;
