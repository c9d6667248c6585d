//! The server and its data files.

mod data_files;
mod descriptors;
mod durability;
mod ensemble;
mod faulty_disks;
mod filtered;
mod for_all_users;
mod http;
mod interchange;
mod migration;
mod nearly_full;
mod older_servers;
mod reload;
mod secure;
mod serve;
mod set_back;
mod torture;
mod unit_files;
