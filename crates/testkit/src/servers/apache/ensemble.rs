//! An ensemble of real servers.

mod links;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tempfile::TempDir;
use tokio::time::Instant;

use self::links::Links;
use super::{Apache, ApacheBuilder, Process, START_MAX, copy_folder, polling};
use crate::proxy::Direction;
use crate::servers::port::Port;

impl ApacheBuilder {
    /// Starts an ensemble of `size` voting members and the configured number of [observers](Self::observers), and waits until all of them
    /// serve. Each starts with a copy of `version-2` in the configured folder, if there is one.
    pub async fn ensemble(self, size: usize) -> Result<Ensemble> {
        let folder = tempfile::tempdir()?;
        let all = size + self.observers;
        let ports = Port::reserve_all(3 * all)?;
        let numbers: Vec<_> = ports.iter().map(Port::number).collect();
        let (client_ports, peer_ports) = numbers.split_at(all);
        let peer_ports: Vec<_> = peer_ports
            .chunks(2)
            .map(|pair| (pair[0], pair[1]))
            .collect();
        let links = Links::between(&peer_ports).await?;
        let mut members = Vec::new();
        for (index, client) in client_ports.iter().enumerate() {
            let id = (index + 1).to_string();
            let home = folder.path().join(&id);
            fs::create_dir(&home)?;
            fs::write(home.join("myid"), id)?;
            if let Some(data_dir) = &self.data_dir {
                copy_folder(&data_dir.join("version-2"), &home.join("version-2"))?;
            }
            let more = links.settings(index, size)?;
            let mut member = self.process(home.clone(), home, *client, &more)?;
            member.spawn()?;
            members.push(member);
        }
        let mut ensemble = Ensemble {
            members,
            links,
            _ports: ports,
            _folder: Some(folder),
        };
        ensemble.ready().await?;
        Ok(ensemble)
    }
}

/// A real ensemble, with a proxy on each connection between two members. Dropping it kills its members, and removes the folders that were
/// created for it.
///
/// ```no_run
/// # async fn example() -> anyhow::Result<()> {
/// use bellwether_testkit::Ensemble;
///
/// let mut ensemble = Ensemble::start(3).await?;
/// let leader = ensemble.leader().await?;
/// ensemble.partition(&[leader]); // The others elect another one.
/// ensemble.heal();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<Process>,
    /// Empty if the caller wrote the members' configuration.
    links: Links,
    _ports: Vec<Port>,
    /// `None` if the caller owns the folders. Removed on drop, after the processes.
    _folder: Option<TempDir>,
}

impl Ensemble {
    /// Starts `size` members with empty trees and waits until all of them serve.
    pub async fn start(size: usize) -> Result<Self> {
        Apache::builder().ensemble(size).await
    }

    /// Starts a member on each of these folders, with the `zoo.cfg` in it, which must name this address, and waits until all of
    /// them serve. The folders are not deleted.
    pub async fn in_folders(folders: &[(PathBuf, SocketAddr)]) -> Result<Self> {
        let mut members = Vec::new();
        for (folder, address) in folders {
            let mut member = Process {
                child: None,
                address: *address,
                folder: folder.clone(),
                data_dir: folder.clone(),
                properties: Vec::new(),
            };
            member.spawn()?;
            members.push(member);
        }
        let mut ensemble = Self {
            members,
            links: Links::default(),
            _ports: Vec::new(),
            _folder: None,
        };
        ensemble.ready().await?;
        Ok(ensemble)
    }

    /// Waits until all running members serve. A member that elects a leader does not serve.
    pub async fn ready(&mut self) -> Result<()> {
        for member in self.members.iter_mut().filter(|one| one.child.is_some()) {
            member.ready().await?;
        }
        Ok(())
    }

    /// The address of member `index`, from 0.
    pub fn address(&self, index: usize) -> SocketAddr {
        self.members[index].address
    }

    /// The connect string of all members.
    pub fn connect_string(&self) -> String {
        let addresses: Vec<_> = self.members.iter().map(|m| m.address.to_string()).collect();
        addresses.join(",")
    }

    /// Waits until there is a leader and returns its index.
    pub async fn leader(&mut self) -> Result<usize> {
        let deadline = Instant::now() + START_MAX;
        let mut turn = polling();
        while Instant::now() < deadline {
            for (index, member) in self.members.iter().enumerate() {
                if member.child.is_some() && member.mode().await.as_deref() == Some("leader") {
                    return Ok(index);
                }
            }
            turn.tick().await;
        }
        bail!("no leader within {START_MAX:?}")
    }

    /// The role of member `index`: `leader`, `follower` or `observer`; `None` while it does not serve.
    pub async fn role(&self, index: usize) -> Option<String> {
        self.members[index].mode().await
    }

    /// The number of members, with observers.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Makes the first member lag, or stops doing so: it receives nothing from the leader and serves old state, until it notices after 25
    /// ticks (`syncLimit`), five seconds by default. It must not be the leader.
    pub fn hold_back(&self, hold: bool) {
        self.links.hold_peer(0, Direction::ToClient, hold);
    }

    /// Disconnects the first member from the leader, in both directions, or reconnects it. Its clients still reach it, and it answers reads
    /// until it notices after 25 ticks. It must not be the leader.
    pub fn cut_off(&self, cut: bool) {
        self.links.hold_peer(0, Direction::Both, cut);
    }

    /// Separates these members from the others until [`Self::heal`]. Clients can reach all of them.
    pub fn partition(&self, some: &[usize]) {
        for from in 0..self.size() {
            for to in 0..self.size() {
                if some.contains(&from) != some.contains(&to) {
                    self.links.block(from, to);
                }
            }
        }
    }

    /// Blocks everything from one member to another until [`Self::heal`]. The other direction stays open.
    pub fn block(&self, from: usize, to: usize) {
        self.links.block(from, to);
    }

    /// Delays everything between this member and the others until [`Self::heal`].
    pub fn slow(&self, index: usize, delay: Duration) {
        self.links.slow(index, delay);
    }

    /// Ends all faults between members. Held bytes arrive late, as after a network failure.
    pub fn heal(&self) {
        self.links.heal();
    }

    /// From now on every write to a file of member `index` fails, as on a full disk. A restart ends it.
    pub fn fill_disk(&self, index: usize) -> Result<()> {
        let child = self.members[index].child.as_ref().context("not started")?;
        let none = Rlimit {
            current: Some(0),
            maximum: None,
        };
        prlimit(Some(Pid::from_child(child)), Resource::Fsize, none)?;
        Ok(())
    }

    /// Restarts one member after the other, the leader last, each once the previous one serves again.
    pub async fn rolling_restart(&mut self) -> Result<()> {
        let leader = self.leader().await?;
        let others = (0..self.size()).filter(|index| *index != leader);
        for index in others.chain([leader]) {
            self.restart(index).await?;
        }
        self.ready().await
    }

    /// The process id of member `index`, while it runs.
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.members[index].child.as_ref().map(Child::id)
    }

    /// Stops the process of member `index` (SIGSTOP) until [`Self::resume`]. Its connections stay open.
    pub fn pause(&self, index: usize) -> Result<()> {
        self.members[index].signal(Signal::STOP)
    }

    /// Continues a paused member (SIGCONT).
    pub fn resume(&self, index: usize) -> Result<()> {
        self.members[index].signal(Signal::CONT)
    }

    /// The folder of member `index` with `version-2` in it.
    pub fn data_dir(&self, index: usize) -> &Path {
        &self.members[index].data_dir
    }

    /// Stops all members by SIGTERM and waits until they are gone. Their data stays until the drop.
    pub async fn stop(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.terminate().await?;
        }
        Ok(())
    }

    /// Kills member `index` and waits until it is gone.
    pub fn kill(&mut self, index: usize) {
        self.members[index].kill();
    }

    /// Kills member `index` if it runs, starts it with the same address and data, and waits until it serves, which takes a running
    /// majority.
    pub async fn restart(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index];
        member.kill();
        member.spawn()?;
        member.ready().await
    }
}
