//! Tests of the dashboard in a real browser, and with raw requests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accessibility;
mod actions;
mod cost;
mod engines;
mod large;
mod looks;
mod pages;
mod recipes;
mod requests;
mod support;
