//! A finding of the doctor.

use std::fmt;

use serde_json::{Value, json};

use crate::exit::Exit;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Fine,
    /// Worth a look.
    Warning,
    /// Something does not work, or is about to stop working.
    Critical,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Fine => Exit::Done,
            Self::Warning => Exit::No,
            Self::Critical => Exit::Critical,
        }
    }
}

#[derive(Debug)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// The check, in a word.
    check: &'static str,
    what: String,
    advice: Option<String>,
}

impl Finding {
    pub(super) fn fine(check: &'static str, what: impl Into<String>) -> Self {
        Self {
            severity: Severity::Fine,
            check,
            what: what.into(),
            advice: None,
        }
    }

    pub(super) fn warning(check: &'static str, what: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::fine(check, what)
        }
    }

    pub(super) fn critical(check: &'static str, what: impl Into<String>) -> Self {
        Self {
            severity: Severity::Critical,
            ..Self::fine(check, what)
        }
    }

    /// Adds advice.
    pub(super) fn advice(self, advice: impl Into<String>) -> Self {
        Self {
            advice: Some(advice.into()),
            ..self
        }
    }

    pub(super) fn object(&self) -> Value {
        json!({
            "check": self.check,
            "severity": self.severity.word(),
            "what": self.what,
            "advice": self.advice,
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, check) = (self.severity.word(), self.check);
        write!(f, "{severity:<8} {check:<8} {}", self.what)?;
        match &self.advice {
            Some(advice) => write!(f, "\n{:18}-> {advice}", ""),
            None => Ok(()),
        }
    }
}
