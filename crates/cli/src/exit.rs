//! The exit codes of the command.

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
    /// `doctor` found something that does not work.
    Critical,
    /// No such transaction (exit code 1 would mean that it was aborted).
    Missing,
    /// The command ran longer than `--max-time`.
    TooLong,
    /// The command was not run because the previous holder crashed.
    Refused,
    /// The hold was lost.
    Lost,
    /// Not acquired within the wait limit: 124, or the code of `-E`.
    NotHad(u8),
    /// Bellwether itself failed.
    Failed,
    /// The command cannot be run.
    NotRunnable,
    /// The command is not found.
    NotFound,
    /// The command ended with this code.
    Command(u8),
    /// A signal ended the command, or this process.
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

    /// How the command ended, for people.
    pub(crate) fn reason(self) -> String {
        let by_signal = self.ending();
        by_signal.unwrap_or_else(|| format!("exited with {}", self.code()))
    }

    /// How a signal ended the command, for people; `None` if no signal did.
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

    /// Whether a signal of the keyboard ended the command, such as that of Ctrl-C. The terminal sends it to the command alone, but the
    /// user means bellwether too.
    pub(crate) fn is_by_keyboard(self) -> bool {
        let keyboard = [Signal::SIGINT, Signal::SIGQUIT].map(|signal| Self::Signal(signal as i32));
        keyboard.contains(&self)
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Critical | Self::Missing => 3,
            Self::TooLong => 121,
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

/// Exit codes have one byte.
fn low_byte(code: i32) -> u8 {
    code.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_manual() {
        let codes = [
            Exit::TooLong,
            Exit::Refused,
            Exit::Lost,
            Exit::NotHad(124),
            Exit::Failed,
            Exit::NotRunnable,
            Exit::NotFound,
        ]
        .map(Exit::code);
        assert_eq!(codes, [121, 122, 123, 124, 125, 126, 127]);
        assert_eq!(Exit::Signal(15).code(), 143);
    }

    #[test]
    fn endings_are_told_in_words() {
        let reasons = [
            Exit::Command(3),
            Exit::Signal(2),
            Exit::Signal(9),
            Exit::Signal(6),
        ];
        assert_eq!(
            reasons.map(Exit::reason),
            [
                "exited with 3",
                "interrupted (SIGINT)",
                "killed (SIGKILL)",
                "ended by SIGABRT"
            ]
        );
        assert_eq!(Exit::Signal(64).reason(), "ended by signal 64");
    }
}
