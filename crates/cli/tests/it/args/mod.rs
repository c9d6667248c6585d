//! Command line and answers: help, habits, usage errors, examples and output formats.

mod answers;
mod completion;
mod examples;
mod habits;
mod manners;
mod refused;
mod tables;
mod tour;
