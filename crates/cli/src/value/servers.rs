//! Connect strings.

use bellwether::error::ConnectError;
use bellwether::zk::{Address, Endpoint};

/// The variable that names the servers.
pub(crate) const VARIABLE: &str = "BELLWETHER_CONNECT";

/// The name of the local server.
pub(crate) const LOCAL: &str = "local";

/// Checks a connect string. An empty one is refused: an unset variable in a script must not mean the local server, whose locks exclude
/// no command on other hosts.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let (host, chroot) = match text.split_once('/') {
        Some((host, chroot)) => (host, Some(chroot)),
        None => (text, None),
    };
    match (host.trim(), chroot) {
        ("", _) => {
            Err("it names no server; `local` means the local server of this user".to_owned())
        }
        (LOCAL, Some(_)) => Err(
            "the local server has no chroot; write local:PORT/… for a host with the name `local`"
                .to_owned(),
        ),
        _ => check(text).map(|()| text.to_owned()),
    }
}

/// Refuses what no server can have as its address, before anything is asked.
fn check(text: &str) -> Result<(), String> {
    let address = Address::parse(text).map_err(|error| match error {
        ConnectError::BadAddress { reason, .. } => reason.to_owned(),
        error => error.to_string(),
    })?;
    let has_blank = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(host, _) => host.contains(char::is_whitespace),
        _ => false,
    };
    match address.endpoints.iter().any(has_blank) {
        true => Err("a host has a blank; servers are separated by commas".to_owned()),
        false => Ok(()),
    }
}
