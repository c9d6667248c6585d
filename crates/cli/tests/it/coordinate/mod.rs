//! Recipes for scripts.

mod barrier;
mod config;
mod config_edit;
mod counter;
mod presence;
mod queue;
mod tasks;
mod tx;
mod workers;
