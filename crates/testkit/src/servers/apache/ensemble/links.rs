//! Connections between members, each through a proxy.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;

use crate::proxy::{Direction, FaultProxy};

/// Proxies from one member to another.
#[derive(Debug)]
struct Way {
    /// A follower connects to its leader here.
    peer: FaultProxy,
    /// Votes are exchanged here.
    election: FaultProxy,
}

impl Way {
    fn both(&self) -> [&FaultProxy; 2] {
        [&self.peer, &self.election]
    }
}

/// Proxies between all members, by the member that connects and the one that it connects to.
#[derive(Debug, Default)]
pub(super) struct Links {
    ports: Vec<(u16, u16)>,
    ways: HashMap<(usize, usize), Way>,
}

impl Links {
    /// Starts proxies between members that listen on these ports, for peers and for elections.
    pub(super) async fn between(ports: &[(u16, u16)]) -> Result<Self> {
        let mut ways = HashMap::new();
        for from in 0..ports.len() {
            for (to, (peer, election)) in ports.iter().enumerate() {
                if from != to {
                    let way = Way {
                        peer: FaultProxy::of_bytes((Ipv4Addr::LOCALHOST, *peer)).await?,
                        election: FaultProxy::of_bytes((Ipv4Addr::LOCALHOST, *election)).await?,
                    };
                    ways.insert((from, to), way);
                }
            }
        }
        // A member with a higher number closes a connection for votes, and connects back to the address in its first message:
        // QuorumCnxManager.handleConnection.
        for ((from, to), way) in &ways {
            let back = ways[&(*to, *from)].election.address().port();
            let (_, told) = ports[*from];
            way.election
                .rewrite_opening(format!(":{told}"), format!(":{back}"));
        }
        Ok(Self {
            ports: ports.to_vec(),
            ways,
        })
    }

    /// Lines of a member's configuration that name all members; those after `voters` are observers.
    pub(super) fn settings(&self, own: usize, voters: usize) -> Result<String> {
        let mut text = String::from("initLimit=50\nsyncLimit=25\n");
        if own >= voters {
            text.push_str("peerType=observer\n");
        }
        for (index, ports) in self.ports.iter().enumerate() {
            // It binds its own ports.
            let (peer, election) = match self.ways.get(&(own, index)) {
                None => *ports,
                Some(way) => {
                    let [peer, election] = way.both().map(|proxy| proxy.address().port());
                    (peer, election)
                }
            };
            let role = if index < voters { "" } else { ":observer" };
            let id = index + 1;
            writeln!(text, "server.{id}=127.0.0.1:{peer}:{election}{role}")?;
        }
        Ok(text)
    }

    /// Holds back what passes in this direction between a follower and its leader, or stops doing so.
    pub(super) fn hold_peer(&self, follower: usize, direction: Direction, hold: bool) {
        for (_, way) in self.ways.iter().filter(|((from, _), _)| *from == follower) {
            match hold {
                true => way.peer.hold(direction),
                false => way.peer.resume(direction),
            }
        }
    }

    /// Blocks everything from one member to another.
    pub(super) fn block(&self, from: usize, to: usize) {
        for ((one, other), way) in &self.ways {
            for proxy in way.both() {
                if (*one, *other) == (from, to) {
                    proxy.hold(Direction::ToServer);
                } else if (*one, *other) == (to, from) {
                    proxy.hold(Direction::ToClient);
                }
            }
        }
    }

    /// Delays everything from and to a member.
    pub(super) fn slow(&self, member: usize, delay: Duration) {
        for ((from, to), way) in &self.ways {
            if [*from, *to].contains(&member) {
                for proxy in way.both() {
                    proxy.delay(Direction::Both, delay);
                }
            }
        }
    }

    /// Ends all of these faults.
    pub(super) fn heal(&self) {
        for way in self.ways.values() {
            way.both().iter().for_each(|proxy| proxy.calm());
        }
    }
}
