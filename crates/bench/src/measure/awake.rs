//! Cores that do not sleep.
//!
//! A core without work halts, and in a virtual machine it takes some tens of microseconds to wake it: more than a server
//! needs for a read. Which of two servers finds a sleeping core depends on what else its process does meanwhile,
//! so latency is measured with sleeping cores and without.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Keeps all cores busy with idle-priority work, until it is dropped.
#[derive(Debug)]
pub struct Awake(Vec<Child>);

impl Awake {
    /// One process for each core, of the idle scheduling class.
    pub fn keep() -> Result<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let mut awake = Self(Vec::new());
        for _ in 0..cores {
            let mut command = Command::new("chrt");
            command.args(["--idle", "0", "sh", "-c", "while :; do :; done"]);
            let child = command.stdin(Stdio::null()).spawn();
            awake
                .0
                .push(child.context("chrt (of util-linux) is missing")?);
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // The processes do not end by themselves.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
