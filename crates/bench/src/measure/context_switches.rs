//! Counts context switches.

use std::fs;

use anyhow::{Context, Result};

/// Voluntary context switches of all threads of this process, as `getrusage` counts them, without those of threads that have
/// ended. (The call itself needs `unsafe` code; the kernel's files have the same numbers, thread by thread.)
///
/// Involuntary switches are left out: they depend on the load of the machine.
pub fn of_this_process() -> Result<u64> {
    let mut switches = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        // A thread may end while its file is read.
        if let Ok(status) = fs::read_to_string(thread?.path().join("status")) {
            switches += of_status(&status)?;
        }
    }
    Ok(switches)
}

fn of_status(status: &str) -> Result<u64> {
    let mut lines = status.lines();
    let number = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let number = number.context("no voluntary_ctxt_switches")?;
    Ok(number.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn waits_of_every_thread_are_counted() {
        const WAITS: u64 = 100;
        let (ask, asked) = mpsc::sync_channel(0);
        let (answer, answers) = mpsc::sync_channel(0);
        let thread = std::thread::spawn(move || {
            while asked.recv().is_ok() {
                answer.send(()).unwrap();
            }
        });
        let before = of_this_process().unwrap();
        for _ in 0..WAITS {
            ask.send(()).unwrap();
            answers.recv().unwrap();
        }
        // The channels have no capacity, so each round trip makes at least one of the two threads wait.
        let waits = of_this_process().unwrap() - before;
        assert!(waits >= WAITS, "{waits}");
        drop(ask);
        thread.join().unwrap();
    }
}
