//! Compares recipes with those of other libraries, in turn, in one run: see `compare/recipes`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

mod cache;
mod locks;
mod queues;
mod request;
mod shared;
mod together;

use anyhow::Result;
use bellwether_bench::contest::{Args, Servers};
use clap::{Parser, ValueEnum};

/// Compares recipes with those of other libraries.
#[derive(Debug, Parser)]
struct Program {
    /// The recipes to compare.
    page: Page,
    #[command(flatten)]
    args: Args,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Page {
    /// The lock.
    Locks,
    /// The read/write lock and the semaphore.
    Shared,
    /// The election and the double barrier.
    Together,
    /// The queue.
    Queues,
    /// The cache and the watched value.
    Cache,
    /// One request, without a recipe.
    Request,
}

fn main() -> Result<()> {
    let Program { page, args } = Program::parse();
    let servers = Servers::start(&args)?;
    match page {
        Page::Locks => locks::compare(&args, &servers),
        Page::Shared => shared::compare(&args, &servers),
        Page::Together => together::compare(&args, &servers),
        Page::Queues => queues::compare(&args, &servers),
        Page::Cache => cache::compare(&args, &servers),
        Page::Request => request::compare(&args, &servers),
    }
}
