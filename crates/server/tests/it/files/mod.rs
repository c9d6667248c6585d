//! Log and snapshots: what a crash, a damaged disk, or Apache's server leaves behind.

mod backup;
mod damage;
mod data_folder;
pub(crate) mod durability;
mod interchange;
mod set_back;
