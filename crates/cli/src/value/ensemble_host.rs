//! A host of an ensemble: `HOST`, `HOST:CLIENT` or `HOST:CLIENT:PEER:ELECTION`.

use std::net::IpAddr;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnsembleHost {
    /// With brackets if it is an IPv6 address.
    pub(crate) host: String,
    pub(crate) client_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) election_port: u16,
}

impl EnsembleHost {
    /// Whether it is a loopback address, for trying out.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.host.trim_matches(['[', ']']).parse::<IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
    }

    /// Whether both use the same port of the same host.
    pub(crate) fn clashes_with(&self, other: &Self) -> bool {
        let ports = |of: &Self| [of.client_port, of.peer_port, of.election_port];
        let wanted = ports(other);
        self.host.eq_ignore_ascii_case(&other.host)
            && ports(self).iter().any(|port| wanted.contains(port))
    }
}

impl FromStr for EnsembleHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, ports) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, ports)) => (format!("[{host}]"), ports),
            None => {
                let end = text.find(':').unwrap_or(text.len());
                (text[..end].to_owned(), &text[end..])
            }
        };
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == ';' || c == '|';
        if host.is_empty() || host == "[]" || host.contains(is_odd) {
            return Err("expected a host, such as zk1 or 10.0.0.1".to_owned());
        }
        let ports = ports.split(':').skip(1).map(str::parse::<u16>);
        let ports: Vec<_> = ports
            .collect::<Result<_, _>>()
            .map_err(|_| "a port is a number up to 65535".to_owned())?;
        let (client_port, peer_port, election_port) = match ports[..] {
            [] => (2181, 2888, 3888),
            [client] => (client, 2888, 3888),
            [client, peer, election] => (client, peer, election),
            _ => return Err("expected HOST, HOST:CLIENT or HOST:CLIENT:PEER:ELECTION".to_owned()),
        };
        Ok(Self {
            host,
            client_port,
            peer_port,
            election_port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_defaults() {
        let parsed = |text: &str| {
            let host: EnsembleHost = text.parse()?;
            let ports = (host.client_port, host.peer_port, host.election_port);
            Ok::<_, String>((host.host, ports))
        };
        let expected = |host: &str, ports| Ok((host.to_owned(), ports));
        assert_eq!(parsed("zk1"), expected("zk1", (2181, 2888, 3888)));
        assert_eq!(parsed("zk1:99"), expected("zk1", (99, 2888, 3888)));
        assert_eq!(parsed("[::1]:1:2:3"), expected("[::1]", (1, 2, 3)));
        for wrong in [
            "",
            ":1",
            "zk1:x",
            "zk1:1:2",
            "zk1:70000",
            "zk 1",
            "zk1\nadmin.x=1",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
