//! Addresses to listen at.

use std::net::{SocketAddr, ToSocketAddrs};

/// Parses an address with a port, such as `127.0.0.1:2181` or `localhost:2181`. Of the addresses of a host name, the first of IPv4 is
/// meant: servers listen at one.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    const EXPECTED: &str =
        "expected an address with a port, such as 127.0.0.1:2181 or localhost:2181";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
    port.parse::<u16>().map_err(|_| EXPECTED)?;
    if host.is_empty() || host.contains([':', '/']) {
        return Err(EXPECTED.to_owned());
    }
    let found = text.to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| format!("{host}: {error}"))?.collect();
    let address = found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first());
    address
        .copied()
        .ok_or_else(|| format!("{host} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_numbers_or_names_with_a_port() {
        for (text, address) in [
            ("127.0.0.1:2181", "127.0.0.1:2181"),
            ("[::1]:0", "[::1]:0"),
            ("localhost:2181", "127.0.0.1:2181"),
        ] {
            assert_eq!(parse(text), Ok(address.parse().unwrap()));
        }
        for text in [
            "localhost",
            ":2181",
            "127.0.0.1",
            "localhost:x",
            "::1:2181",
            "localhost:99999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
