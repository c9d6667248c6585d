//! Where a request comes from.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::extract::connect_info::Connected;
use axum::http::{HeaderMap, header};
use axum::serve::IncomingStream;

use super::listener::Patient;

/// Headers by which a proxy says that it passes on the request of another host. Those that begin with `x-forwarded-` as well.
const PROXY_HEADERS: [&str; 6] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
];

/// How much of such a header is logged: it is text of strangers.
const FORWARDED_CHARS_LOGGED: usize = 100;

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller(SocketAddr);

impl Connected<IncomingStream<'_, Patient>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Patient>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Caller {
    /// Whether a request seems to come from a program on this host: a loopback connection, a host name of loopback, and no header of a
    /// proxy. A proxy on this host that adds no header and rewrites `Host` cannot be told apart.
    pub(super) fn is_on_this_host(self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST);
        let host = host.and_then(|host| host.to_str().ok());
        self.0.ip().to_canonical().is_loopback()
            && host.is_some_and(is_loopback)
            && proxy_headers(headers).next().is_none()
    }

    /// What a proxy says about the real peer. Anybody can send such headers, so this is a claim.
    pub(super) fn forwarded_for(headers: &HeaderMap) -> Option<String> {
        let mut named = proxy_headers(headers);
        let (name, value) = named.find(|(name, _)| *name != "via")?;
        let text = format!("{name}: {}", String::from_utf8_lossy(value));
        Some(text.chars().take(FORWARDED_CHARS_LOGGED).collect())
    }
}

fn proxy_headers(headers: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    let named = headers.iter();
    let named = named.map(|(name, value)| (name.as_str(), value.as_bytes()));
    named.filter(|(name, _)| PROXY_HEADERS.contains(name) || name.starts_with("x-forwarded-"))
}

/// Whether a `Host` header names loopback.
fn is_loopback(host: &str) -> bool {
    let name = super::guard::without_port(host);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_without_a_trace_of_a_proxy_come_from_this_host() {
        let loopback = Caller(([127, 0, 0, 1], 4711).into());
        let ask = |caller: Caller, headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| {
                let value = value.parse().unwrap();
                (name.parse::<header::HeaderName>().unwrap(), value)
            });
            caller.is_on_this_host(&headers.collect())
        };
        for host in ["127.0.0.1:8080", "localhost", "[::1]:8080", "127.9.9.9"] {
            assert!(ask(loopback, &[("host", host)]), "{host}");
        }
        for host in ["dash.example.org", "10.0.0.7:8080", "localhost.example.org"] {
            assert!(!ask(loopback, &[("host", host)]), "{host}");
        }
        assert!(!ask(loopback, &[]));
        for name in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-real-ip",
        ] {
            assert!(
                !ask(loopback, &[("host", "localhost"), (name, "x")]),
                "{name}"
            );
        }
        let other = Caller(([10, 0, 0, 7], 4711).into());
        assert!(!ask(other, &[("host", "localhost")]));
        let mapped = Caller("[::ffff:127.0.0.1]:4711".parse().unwrap());
        assert!(ask(mapped, &[("host", "localhost")]));
    }
}
