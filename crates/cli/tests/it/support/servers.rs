//! The servers that the commands of a test use.

use std::any::Any;
use std::ffi::OsString;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::bellwether::{LOCAL_FOLDER, Running, apache, assert_code, bellwether, text};
use crate::support::home::Home;

/// Commands find them by their environment. Servers that the test started end with this.
pub(crate) struct Servers {
    environment: Vec<(&'static str, OsString)>,
    _kept: Box<dyn Any>,
}

impl Servers {
    /// A new local server.
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

    /// Servers that the test runs.
    pub(crate) fn at(address: &str) -> Self {
        Self {
            environment: vec![("BELLWETHER_CONNECT", address.into())],
            _kept: Box::new(()),
        }
    }

    /// The command, configured for these servers.
    pub(crate) fn bellwether(&self) -> Command {
        let mut command = bellwether();
        command.envs(self.environment.iter().cloned());
        command
    }

    /// The command with arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bellwether();
        command.args(arguments);
        command
    }

    /// Runs a command to its end, with nothing to read.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command that must succeed, and returns what it printed.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_code(&output, 0);
        text(&output.stdout)
    }

    /// The object that a command prints with `--json`, whatever its exit code.
    #[track_caller]
    pub(crate) fn object(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// A command that stays, with an input that can be closed.
    pub(crate) fn staying(&self, arguments: &[&str]) -> Running {
        Running::start_with(self.command(arguments).stdin(Stdio::piped()))
    }
}

/// The object that a command printed.
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Generates two tests from each function: on the local default, and on Apache's server.
macro_rules! on_local_and_apache {
    ($($name:ident,)*) => {
        mod local {
            $(#[test]
            fn $name() {
                super::$name(&$crate::support::servers::Servers::local());
            })*
        }

        mod apache {
            $(#[test]
            fn $name() {
                super::$name(&$crate::support::servers::Servers::apache());
            })*
        }
    };
}
