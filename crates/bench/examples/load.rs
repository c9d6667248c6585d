//! A closed-loop load on any server of the protocol.
//!
//! `cargo run --release -p bellwether-bench --example load -- --connect 127.0.0.1:2181 get -c 8 -d 32`
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::time::Duration;

use anyhow::Result;
use bellwether_bench::load::connect_string::ConnectString;
use bellwether_bench::load::{Load, Work};
use clap::Parser;

/// Puts a load on a server and reports throughput and latency.
#[derive(Debug, Parser)]
struct Args {
    /// The operation that every connection repeats.
    work: Work,
    /// The servers and a chroot: 10.0.0.1:2181,10.0.0.2:2181/app
    #[arg(long, default_value = "127.0.0.1:2181")]
    connect: ConnectString,
    /// Number of connections.
    #[arg(short, long, default_value_t = 8)]
    connections: usize,
    /// Requests in flight on each connection.
    #[arg(short, long, default_value_t = 32)]
    depth: usize,
    /// Seconds to run.
    #[arg(short, long, default_value_t = 5.0)]
    seconds: f64,
    /// An existing node below which nodes are created, instead of one for each connection.
    #[arg(long)]
    parent: Option<String>,
    /// Also print a histogram.
    #[arg(long)]
    histogram: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let load = Load {
        parent: args.parent.map(|parent| args.connect.path(&parent)),
        connect: args.connect,
        work: args.work,
        connections: args.connections,
        depth: args.depth,
        duration: Duration::from_secs_f64(args.seconds),
        population: None,
    };
    let outcome = load.run()?;
    println!(
        "{:?} {} x {}: {:.0}/s, {}",
        load.work, load.connections, load.depth, outcome.per_second, outcome.latencies
    );
    if args.histogram {
        print!("{}", outcome.latencies.histogram());
    }
    Ok(())
}
