//! Command line and answers: help, habits, usage errors, examples and output formats.

mod answers;
mod completion;
mod demo;
mod examples;
mod habits;
mod habits_of_others;
mod help;
mod manners;
mod messages;
mod one_word;
mod refused;
mod tables;
mod tour;
mod transcripts;
