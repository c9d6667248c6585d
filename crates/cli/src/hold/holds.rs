//! The holds of one job, all in one session. The job is stopped when the first of them is lost.

use std::time::Duration;

use bellwether::Hold;
use bellwether::hold::Previous;
use bellwether::hold::Revocation;
use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::future::select_all;
use futures_util::stream;

use crate::hold::nested;
use crate::hold::previous;
use crate::job::process::Variable;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Holds<'a>(&'a [&'a Hold]);

impl<'a> Holds<'a> {
    /// `holds` has at least one.
    pub(crate) fn new(holds: &'a [&'a Hold]) -> Self {
        assert!(!holds.is_empty(), "a job has at least one hold");
        Self(holds)
    }

    /// The first hold, for what is about one hold or about the session.
    pub(crate) fn first(self) -> &'a Hold {
        self.0[0]
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'a Hold> {
        self.0.iter().copied()
    }

    /// The paths, for messages.
    pub(crate) fn paths(self) -> String {
        let paths: Vec<_> = self.iter().map(Hold::path).collect();
        paths.join(", ")
    }

    /// Resolves with the first hold that is about to end, `ahead` of its end. Cancel safe.
    pub(crate) async fn expiring(self, ahead: Duration) -> &'a Hold {
        let ends = self.iter().map(|hold| {
            Box::pin(async move {
                hold.expiring(ahead).await;
                hold
            })
        });
        select_all(ends).await.0
    }

    /// Resolves with the first hold that is lost. Cancel safe.
    pub(crate) async fn lost(self) -> &'a Hold {
        let ends = self.iter().map(|hold| {
            Box::pin(async move {
                hold.lost().await;
                hold
            })
        });
        select_all(ends).await.0
    }

    /// Requests to release, each with its hold.
    pub(crate) fn revocations(self) -> impl Stream<Item = (&'a Hold, Revocation)> + Unpin {
        let each = self.iter().map(|hold| {
            let requests = hold.revocations();
            requests.map(move |request| (hold, request))
        });
        stream::select_all(each)
    }

    /// The environment variables that describe the holds to the job.
    pub(crate) fn variables(self) -> Vec<Variable> {
        let (first, held) = (
            self.first(),
            nested::tokens_with(self.iter().map(Hold::token)),
        );
        let tokens: Vec<_> = self.iter().map(|hold| hold.token().to_string()).collect();
        let paths: Vec<_> = self.iter().map(Hold::path).collect();
        let mut all = vec![
            ("BELLWETHER_TOKEN", Some(first.token().to_string().into())),
            ("BELLWETHER_PATH", Some(first.path().into())),
            ("BELLWETHER_TOKENS", Some(tokens.join(" ").into())),
            ("BELLWETHER_PATHS", Some(paths.join("\n").into())),
            (nested::VARIABLE, Some(held.into())),
        ];
        let mut ends = self.iter().map(Hold::previous);
        let crash = ends.find(|previous| matches!(previous, Previous::Crashed(_)));
        all.extend(previous::variables(crash.unwrap_or(first.previous())));
        all
    }
}
