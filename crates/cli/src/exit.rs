//! How a command can end.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use nix::sys::signal::Signal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// The answer is no.
    No,
    /// Wrong usage.
    Usage,
    /// Something is wrong that cannot wait.
    Critical,
    /// There is none of that name, where no is an answer about one that there is.
    Missing,
    /// Not run, because the one before crashed.
    Refused,
    /// The hold was lost.
    Lost,
    /// The hold was not had within the wait limit, or at once: 124, or what `-E` says.
    NotHad(u8),
    /// Bellwether itself failed.
    Failed,
    /// The command cannot be run.
    NotRunnable,
    /// The command is not found.
    NotFound,
    /// The command ended with this code.
    Command(u8),
    /// A signal ended the command, or us.
    Signal(i32),
}

impl Exit {
    pub(crate) fn of_command(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Command(low_byte(code)),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => unreachable!("a process that was waited for has exited or was killed"),
        }
    }

    /// How a command has ended, in words.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Signal(signal) => format!("the command was ended by signal {signal}"),
            exit => format!("the command ended with {}", exit.code()),
        }
    }

    /// How a signal has ended a command, as the next holder is told.
    pub(crate) fn ending(self) -> Option<String> {
        let Self::Signal(number) = self else {
            return None;
        };
        Some(match Signal::try_from(number) {
            Ok(signal @ Signal::SIGINT) => format!("interrupted ({signal})"),
            Ok(signal @ Signal::SIGKILL) => format!("killed ({signal})"),
            Ok(signal @ Signal::SIGTERM) => format!("terminated ({signal})"),
            Ok(signal) => format!("ended by {signal}"),
            Err(_) => format!("ended by signal {number}"),
        })
    }

    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Critical | Self::Missing => 3,
            Self::Refused => 122,
            Self::Lost => 123,
            Self::NotHad(code) | Self::Command(code) => code,
            Self::Failed => 125,
            Self::NotRunnable => 126,
            Self::NotFound => 127,
            Self::Signal(signal) => low_byte(128 + signal),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Exit codes have one byte, whatever the call says.
fn low_byte(code: i32) -> u8 {
    code.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_manual() {
        let codes = [
            Exit::Refused,
            Exit::Lost,
            Exit::NotHad(124),
            Exit::Failed,
            Exit::NotRunnable,
            Exit::NotFound,
        ]
        .map(Exit::code);
        assert_eq!(codes, [122, 123, 124, 125, 126, 127]);
        assert_eq!(Exit::Signal(15).code(), 143);
    }
}
