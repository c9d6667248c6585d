//! The connect string of a load.

use std::str::FromStr;

use anyhow::{Result, ensure};

/// Servers and a chroot: `10.0.0.1:2181,10.0.0.2:2181/app`.
#[derive(Debug, Clone)]
pub struct ConnectString {
    servers: Vec<String>,
    chroot: String,
}

impl ConnectString {
    /// The server of connection `number`: each server gets the same share.
    pub fn server(&self, number: usize) -> &str {
        &self.servers[number % self.servers.len()]
    }

    /// The path of `path` on the server.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.chroot)
    }
}

impl FromStr for ConnectString {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (servers, chroot) = match text.find('/') {
            Some(slash) => text.split_at(slash),
            None => (text, ""),
        };
        let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
        ensure!(
            servers.iter().all(|server| server.contains(':')),
            "a server is named by address and port, as in 127.0.0.1:2181"
        );
        Ok(Self {
            servers,
            chroot: chroot.trim_end_matches('/').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_taken_in_turn_and_paths_go_below_the_chroot() {
        let connect: ConnectString = "a:1,b:2/app/".parse().unwrap();
        assert_eq!(
            [0, 1, 2].map(|number| connect.server(number)),
            ["a:1", "b:2", "a:1"]
        );
        assert_eq!(connect.path("/load"), "/app/load");
        let plain: ConnectString = "a:1".parse().unwrap();
        assert_eq!(plain.path("/load"), "/load");
        assert!("a".parse::<ConnectString>().is_err());
    }
}
