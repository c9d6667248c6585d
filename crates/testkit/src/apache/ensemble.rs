//! Several real servers that follow one leader.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::Instant;

use super::{Apache, ApacheBuilder, Process, START_MAX, copy_folder, polling};
use crate::port::Port;
use crate::proxy::{Direction, FaultProxy};

impl ApacheBuilder {
    /// Starts an ensemble of `size` members and waits until all of them serve. Each begins with a copy
    /// of the `version-2` in the chosen folder, if one was chosen.
    pub async fn ensemble(self, size: usize) -> Result<Ensemble> {
        let folder = tempfile::tempdir()?;
        let ports = Port::reserve_all(3 * size)?;
        let numbers: Vec<_> = ports.iter().map(Port::number).collect();
        let (client_ports, peer_ports) = numbers.split_at(size);
        let mut gates = Vec::new();
        let limits = String::from("initLimit=50\nsyncLimit=25\n");
        let (mut more, mut gated) = (limits.clone(), limits);
        for (index, pair) in peer_ports.chunks(2).enumerate() {
            let id = index + 1;
            writeln!(more, "server.{id}=127.0.0.1:{}:{}", pair[0], pair[1])?;
            // Its own port is the one it binds.
            let port = match index {
                0 => pair[0],
                _ => {
                    let gate = FaultProxy::of_bytes((Ipv4Addr::LOCALHOST, pair[0])).await?;
                    gates.push(gate);
                    gates[index - 1].address().port()
                }
            };
            writeln!(gated, "server.{id}=127.0.0.1:{port}:{}", pair[1])?;
        }
        let mut members = Vec::new();
        for (index, client) in client_ports.iter().enumerate() {
            let id = (index + 1).to_string();
            let home = folder.path().join(&id);
            fs::create_dir(&home)?;
            fs::write(home.join("myid"), id)?;
            if let Some(data_dir) = &self.data_dir {
                copy_folder(&data_dir.join("version-2"), &home.join("version-2"))?;
            }
            let more = if index == 0 { &gated } else { &more };
            let mut member = self.process(home.clone(), home, *client, more)?;
            member.spawn()?;
            members.push(member);
        }
        let mut ensemble = Ensemble {
            members,
            gates,
            _ports: ports,
            _folder: Some(folder),
        };
        ensemble.ready().await?;
        Ok(ensemble)
    }
}

/// A real ensemble. Dropping it kills its members, and removes the folders that were made for it.
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<Process>,
    /// Through which the first member reaches the others when they lead.
    gates: Vec<FaultProxy>,
    /// Unless the caller has them.
    _ports: Vec<Port>,
    /// Removed when dropped, after the processes.
    _folder: Option<TempDir>,
}

impl Ensemble {
    /// Starts `size` members with empty trees and waits until all of them serve.
    pub async fn start(size: usize) -> Result<Self> {
        Apache::builder().ensemble(size).await
    }

    /// Starts a member on each of these folders, by the `zoo.cfg` in it, which says that it listens at this address, and waits until all of
    /// them serve. The folders are left behind.
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
            gates: Vec::new(),
            _ports: Vec::new(),
            _folder: None,
        };
        ensemble.ready().await?;
        Ok(ensemble)
    }

    /// Waits until all members serve that run. One that elects a leader does not.
    pub async fn ready(&mut self) -> Result<()> {
        for member in self.members.iter_mut().filter(|one| one.child.is_some()) {
            member.ready().await?;
        }
        Ok(())
    }

    /// Where member `index` listens, from 0.
    pub fn address(&self, index: usize) -> SocketAddr {
        self.members[index].address
    }

    /// All addresses as clients want them.
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

    /// From now on the first member learns nothing new, and goes on serving what it knows, until it is let go or, five
    /// seconds later, notices; or lets it go. It must not lead.
    pub fn hold_back(&self, hold: bool) {
        for gate in &self.gates {
            match hold {
                true => gate.hold(Direction::ToClient),
                false => gate.resume(Direction::ToClient),
            }
        }
    }

    /// Cuts the first member off from the others when they lead, in both directions, while its clients reach it as before; or
    /// reconnects it. It answers reads until, five seconds later, it notices. It must not lead.
    pub fn cut_off(&self, cut: bool) {
        for gate in &self.gates {
            match cut {
                true => gate.hold(Direction::Both),
                false => gate.resume(Direction::Both),
            }
        }
    }

    /// The id of the process of member `index`, while there is one.
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.members[index].child.as_ref().map(Child::id)
    }

    /// Stops the process of member `index` (SIGSTOP) until [`Self::resume`]. Its connections stay open.
    pub fn pause(&self, index: usize) -> Result<()> {
        self.members[index].signal(Signal::STOP)
    }

    /// Lets a paused member go on (SIGCONT).
    pub fn resume(&self, index: usize) -> Result<()> {
        self.members[index].signal(Signal::CONT)
    }

    /// The folder of member `index` with `version-2` in it.
    pub fn data_dir(&self, index: usize) -> &Path {
        &self.members[index].data_dir
    }

    /// Ends all members by SIGTERM and waits until they are gone. Their data stays until the drop.
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

    /// Kills member `index` if it runs, starts it with the same address and data, and waits until
    /// it serves; for that a majority must run.
    pub async fn restart(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index];
        member.kill();
        member.spawn()?;
        member.ready().await
    }
}
