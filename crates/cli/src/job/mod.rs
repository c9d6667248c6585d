//! The processes of a job: the front that the user started, its link to the keeper, and the job itself.

pub(crate) mod birth;
pub(crate) mod descendants;
pub(crate) mod front;
pub(crate) mod link;
pub(crate) mod notes;
pub(crate) mod process;
pub(crate) mod terminal;
pub(crate) mod workers;
