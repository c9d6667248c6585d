//! A plan: what is done to both servers.

use std::fmt;

use bellwether_testkit::Request;

/// One sequence, over several sessions.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Number of sessions at the start.
    pub(super) sessions: usize,
    pub(super) steps: Vec<Step>,
}

/// A step of one session; the next step waits for its end.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Sends requests in one segment. The zxids of setWatches count from the start of the plan.
    Send { who: usize, requests: Vec<Request> },
    /// Continues over a new connection.
    Reattach { who: usize },
    /// Closes the session, and opens a new one in its place.
    Reopen { who: usize },
}

impl Plan {
    /// Smaller plans, the much smaller ones first.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        for steps in without_chunks(&self.steps) {
            plans.push(self.with_steps(steps));
        }
        for (index, step) in self.steps.iter().enumerate() {
            let Step::Send { who, requests } = step else {
                continue;
            };
            let mut alternatives = without_chunks(requests);
            for (place, request) in requests.iter().enumerate() {
                for request in smaller_request(request) {
                    let mut requests = requests.clone();
                    requests[place] = request;
                    alternatives.push(requests);
                }
            }
            for requests in alternatives {
                let mut steps = self.steps.clone();
                steps[index] = Step::Send {
                    who: *who,
                    requests,
                };
                plans.push(self.with_steps(steps));
            }
        }
        plans
    }

    fn with_steps(&self, steps: Vec<Step>) -> Self {
        Self {
            sessions: self.sessions,
            steps,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} sessions", self.sessions)?;
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                Step::Send { who, requests } => {
                    writeln!(f, "{index:3}. session {who} sends")?;
                    for request in requests {
                        writeln!(f, "       {request:?}")?;
                    }
                }
                Step::Reattach { who } => writeln!(f, "{index:3}. session {who} reattaches")?,
                Step::Reopen { who } => writeln!(f, "{index:3}. session {who} is replaced")?,
            }
        }
        Ok(())
    }
}

/// The list without its first half, its second half, each quarter … each element; never empty.
fn without_chunks<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    let mut lists = Vec::new();
    let mut size = list.len() / 2;
    while size > 0 {
        for start in (0..list.len()).step_by(size) {
            let end = (start + size).min(list.len());
            lists.push([&list[..start], &list[end..]].concat());
        }
        size /= 2;
    }
    lists
}

fn smaller_request(request: &Request) -> Vec<Request> {
    let lists = |ops: &[Request], wrap: fn(Vec<Request>) -> Request| {
        without_chunks(ops).into_iter().map(wrap).collect()
    };
    match request {
        Request::Multi(ops) => lists(ops, Request::Multi),
        Request::MultiRead(ops) => lists(ops, Request::MultiRead),
        _ => Vec::new(),
    }
}
