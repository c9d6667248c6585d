//! Exponential backoff of workers, so that work which cannot succeed now does not keep all workers busy.

use std::time::Duration;

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A pause that doubles with each failure, up to a minute, and is reset by a success.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration) -> Self {
        Self { first, next: first }
    }

    pub(crate) fn succeeded(&mut self) {
        self.next = self.first;
    }

    /// The pause after one more failure.
    pub(crate) fn failed(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX).max(self.first);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(20));
        let pauses = [0; 4].map(|_| backoff.failed().as_secs());
        assert_eq!(pauses, [20, 40, 60, 60]);
        backoff.succeeded();
        assert_eq!(backoff.failed(), Duration::from_secs(20));
        let mut long = Backoff::new(Duration::from_secs(90));
        assert_eq!([long.failed(), long.failed()], [Duration::from_secs(90); 2]);
    }
}
