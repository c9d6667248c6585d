//! Reserved ports, for servers that cannot bind port 0.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, Result};

/// Below the ephemeral ports of the system.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// A reserved port of the loopback. No other `Port`, in this process or another, gets it until this one is dropped. So a server can restart
/// on it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// An abstract socket name, which the system releases with the process.
    _claim: UnixListener,
}

impl Port {
    /// Finds a free port and reserves it.
    pub fn reserve() -> Result<Self> {
        // Starts at a random port, so that processes do not all try the same ports.
        let start = usize::try_from(RandomState::new().hash_one(()) % u64::from(u16::MAX))?;
        let ports = PORTS.cycle().skip(start).take(PORTS.len());
        let mut reserved = ports.filter_map(Self::claim);
        reserved.next().context("all ports are in use")
    }

    /// Reserves `count` ports.
    pub fn reserve_all(count: usize) -> Result<Vec<Self>> {
        (0..count).map(|_| Self::reserve()).collect()
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("bellwether-port-{number}")).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        // Another program may use it.
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self {
            number,
            _claim: claim,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_nobody_elses_until_it_is_dropped() {
        let port = Port::reserve().unwrap();
        assert!(Port::claim(port.number()).is_none());
        let number = port.number();
        drop(port);
        assert!(Port::claim(number).is_some());
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        assert!(Port::claim(number).is_none());
        drop(taken);
    }
}
