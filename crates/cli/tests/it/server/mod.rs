//! The server and its data files.

mod data_files;
mod durability;
mod ensemble;
mod faulty_disks;
mod for_all_users;
mod http;
mod interchange;
mod migration;
mod older_servers;
mod secure;
mod serve;
mod torture;
mod unit_files;
