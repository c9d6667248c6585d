//! The servers of a run: those of the user, or servers that the run starts and disturbs itself.

mod embedded;
mod members;

use std::time::Duration;

use anyhow::Result;
use bellwether_testkit::Ensemble;
use rand::rngs::StdRng;

pub use self::embedded::Embedded;

/// The servers of a run.
#[derive(Debug)]
pub enum Servers {
    /// Servers that already run. Faults of these are up to the operator.
    Given {
        /// Their addresses, if connections to them can pass through a proxy.
        addresses: Option<Vec<String>>,
        /// The rest of the connect string, from its slash.
        chroot: String,
    },
    /// An embedded server in a process of its own, which is killed and restarted.
    Embedded(Embedded),
    /// Real members of an ensemble, which are killed, stopped and partitioned.
    Ensemble(Ensemble),
}

impl Servers {
    /// The addresses that can be reached through proxies.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        match self {
            Self::Given { addresses, .. } => addresses.clone(),
            Self::Embedded(server) => Some(vec![server.address()]),
            Self::Ensemble(ensemble) => {
                let all = 0..ensemble.size();
                Some(
                    all.map(|index| ensemble.address(index).to_string())
                        .collect(),
                )
            }
        }
    }

    /// What follows the addresses in a connect string.
    pub(crate) fn chroot(&self) -> &str {
        match self {
            Self::Given { chroot, .. } => chroot,
            Self::Embedded(_) | Self::Ensemble(_) => "",
        }
    }

    /// Connect string of servers that the run started itself.
    pub(crate) fn own(&self) -> Option<String> {
        match self {
            Self::Given { .. } => None,
            Self::Embedded(server) => Some(server.address()),
            Self::Ensemble(ensemble) => Some(ensemble.connect_string()),
        }
    }

    /// Whether a run may disturb them.
    pub(crate) fn are_own(&self) -> bool {
        !matches!(self, Self::Given { .. })
    }

    /// Injects a fault into a server, and ends it. `note` receives what happens.
    pub(crate) async fn disturb(
        &mut self,
        random: &mut StdRng,
        session_timeout: Duration,
        note: impl Fn(String),
    ) -> Result<()> {
        match self {
            Self::Given { .. } => Ok(()),
            Self::Embedded(server) => {
                note("server killed".into());
                server.kill().await?;
                server.start().await?;
                note("server is back".into());
                Ok(())
            }
            Self::Ensemble(ensemble) => {
                members::disturb(ensemble, random, session_timeout, note).await
            }
        }
    }
}
