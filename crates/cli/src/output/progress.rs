//! Shows the progress of a long operation, if stderr is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// It is removed from the screen when dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Counts nodes up to a known number.
    pub(crate) fn bar(what: &'static str, nodes: usize, output: Output) -> Self {
        Self::new(
            ProgressBar::new(nodes as u64),
            "{msg} {wide_bar} {human_pos}/{human_len} nodes, {eta} left",
            what,
            output,
        )
    }

    /// Counts nodes up to an unknown number.
    pub(crate) fn counter(what: &'static str, output: Output) -> Self {
        Self::new(
            ProgressBar::no_length(),
            "{spinner} {msg} {human_pos} nodes",
            what,
            output,
        )
    }

    fn new(bar: ProgressBar, template: &str, what: &'static str, output: Output) -> Self {
        // `indicatif` hides it if stderr is not a terminal.
        let target = if output.is_quiet() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        bar.set_draw_target(target);
        let style = ProgressStyle::with_template(template).expect("the templates are correct");
        let bar = bar.with_style(style).with_message(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    pub(crate) fn advance(&self) {
        self.0.inc(1);
    }

    pub(crate) fn advance_by(&self, nodes: usize) {
        self.0.inc(nodes as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
