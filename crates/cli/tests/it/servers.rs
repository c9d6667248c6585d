//! The servers that the commands of a test use.

use std::any::Any;
use std::ffi::OsString;
use std::process::Command;

use crate::bellwether::{LOCAL_FOLDER, apache, bellwether};
use crate::local::Home;

/// Commands are told by their environment where they are. They end with this, if they are the test's own.
pub(crate) struct Servers {
    environment: Vec<(&'static str, OsString)>,
    _kept: Box<dyn Any>,
}

impl Servers {
    /// The local default, of somebody who has never used it.
    pub(crate) fn local() -> Self {
        let home = Home::new();
        Self {
            // Without the notice that it is local.
            environment: vec![
                ("BELLWETHER_CONNECT", "local".into()),
                (LOCAL_FOLDER, home.folder().into()),
            ],
            _kept: Box::new(home),
        }
    }

    /// A chroot on Apache's.
    pub(crate) fn apache() -> Self {
        let (server, address) = apache();
        Self {
            _kept: Box::new(server),
            ..Self::at(&address)
        }
    }

    /// Those that somebody else keeps.
    pub(crate) fn at(address: &str) -> Self {
        Self {
            environment: vec![("BELLWETHER_CONNECT", address.into())],
            _kept: Box::new(()),
        }
    }

    /// The command, which uses them.
    pub(crate) fn bellwether(&self) -> Command {
        let mut command = bellwether();
        command.envs(self.environment.iter().cloned());
        command
    }
}

/// Makes two tests of each function: on the local default, and on Apache's server.
macro_rules! on_local_and_apache {
    ($($name:ident,)*) => {
        mod local {
            $(#[test]
            fn $name() {
                super::$name(&$crate::servers::Servers::local());
            })*
        }

        mod apache {
            $(#[test]
            fn $name() {
                super::$name(&$crate::servers::Servers::apache());
            })*
        }
    };
}
