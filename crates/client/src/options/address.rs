//! Connect strings: `host:port,host:port/chroot`.

use std::path::PathBuf;

use bellwether_wire::path;

use crate::error::ConnectError;

/// The default port.
const PORT: u16 = 2181;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A host name or address and a port.
    Tcp(String, u16),
    /// A Unix socket, written `unix:/path`.
    Unix(PathBuf),
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A parsed connect string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The servers, at least one.
    pub endpoints: Vec<Endpoint>,
    /// The path that all paths are below: empty for the root, otherwise absolute.
    pub chroot: String,
}

impl Address {
    /// Reads `host:port,[::1]:port,host/chroot`, or `unix:/path/of/socket`, whose chroot follows a second colon:
    /// `unix:/path/of/socket:/chroot`.
    ///
    /// # Errors
    ///
    /// [`ConnectError::BadAddress`] says what is wrong.
    pub fn parse(address: &str) -> Result<Self, ConnectError> {
        let bad = |reason| ConnectError::BadAddress {
            address: address.to_owned(),
            reason,
        };
        let (servers, chroot) = split_chroot(address);
        let chroot = chroot.trim_end_matches('/');
        if !chroot.is_empty() {
            path::check(chroot).map_err(|_| bad("the chroot is not a valid path"))?;
        }
        let endpoints = servers
            .split(',')
            .map(|server| endpoint(server.trim()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(bad)?;
        Ok(Self {
            endpoints,
            chroot: chroot.to_owned(),
        })
    }
}

fn split_chroot(address: &str) -> (&str, &str) {
    if let Some(path) = address.strip_prefix("unix:") {
        return match path.find(":/") {
            Some(colon) => (&address[.."unix:".len() + colon], &path[colon + 1..]),
            None => (address, ""),
        };
    }
    match address.find('/') {
        Some(slash) => address.split_at(slash),
        None => (address, ""),
    }
}

fn endpoint(server: &str) -> Result<Endpoint, &'static str> {
    if let Some(path) = server.strip_prefix("unix:") {
        return match path.starts_with('/') {
            true => Ok(Endpoint::Unix(path.into())),
            false => Err("the path of a socket is absolute"),
        };
    }
    if server.is_empty() {
        return Err("a host is missing");
    }
    if let Some(rest) = server.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("a bracket is not closed")?;
        let port = match rest.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if rest.is_empty() => PORT,
            None => return Err("a colon belongs between an address and its port"),
        };
        return Ok(Endpoint::Tcp(host.to_owned(), port));
    }
    match server.rsplit_once(':') {
        // More than one colon: an IPv6 address without brackets and without a port.
        Some((host, _)) if host.contains(':') => Ok(Endpoint::Tcp(server.to_owned(), PORT)),
        Some(("", _)) => Err("a host is missing"),
        Some((host, port)) => Ok(Endpoint::Tcp(host.to_owned(), parse_port(port)?)),
        None => Ok(Endpoint::Tcp(server.to_owned(), PORT)),
    }
}

fn parse_port(port: &str) -> Result<u16, &'static str> {
    match port.parse() {
        Ok(0) | Err(_) => Err("a port is a number from 1 to 65535"),
        Ok(port) => Ok(port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.to_owned(), port)
    }

    #[test]
    fn hosts_ports_and_chroot_are_read() {
        for (text, endpoints, chroot) in [
            ("zk1", vec![tcp("zk1", 2181)], ""),
            (
                "zk1:1,zk2:2/a/b",
                vec![tcp("zk1", 1), tcp("zk2", 2)],
                "/a/b",
            ),
            ("zk1/", vec![tcp("zk1", 2181)], ""),
            (
                "[::1]:7,[fe80::1]",
                vec![tcp("::1", 7), tcp("fe80::1", 2181)],
                "",
            ),
            ("::1", vec![tcp("::1", 2181)], ""),
            (
                "unix:/run/x/socket",
                vec![Endpoint::Unix("/run/x/socket".into())],
                "",
            ),
            (
                "unix:/run/socket:/team",
                vec![Endpoint::Unix("/run/socket".into())],
                "/team",
            ),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.endpoints, endpoints, "{text}");
            assert_eq!(address.chroot, chroot, "{text}");
        }
    }

    #[test]
    fn bad_connect_strings_are_refused() {
        for text in [
            "", ",", "a,,b", "a:0", "a:x", "a:70000", ":1", "[::1", "[::1]7", "a/b//c", "unix:run",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn endpoints_are_shown_as_they_are_typed() {
        assert_eq!(tcp("::1", 7).to_string(), "[::1]:7");
        assert_eq!(tcp("zk1", 7).to_string(), "zk1:7");
    }
}
