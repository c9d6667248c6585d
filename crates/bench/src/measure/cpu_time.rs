//! CPU time of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Time of one unit in the kernel's files, the same on all of Linux's platforms (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// CPU time that all threads of a process have used, in user code and in the kernel.
pub fn of_process(id: u32) -> Result<Duration> {
    of_stat(&fs::read_to_string(format!("/proc/{id}/stat"))?)
}

/// The name of the process is in parentheses and may hold anything; the times are fields 14 and 15.
fn of_stat(stat: &str) -> Result<Duration> {
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let mut times = fields.split_whitespace().skip(11);
    let mut time = || -> Result<u32> { Ok(times.next().context("no time")?.parse()?) };
    Ok(TICK * (time()? + time()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "1208 (a) S (b) S 1 2 3 4 5 6 7 8 9 10 250 50 99 99 20 0 1";
        assert_eq!(of_stat(stat).unwrap(), Duration::from_secs(3));
    }

    #[test]
    fn work_of_this_process_takes_time() {
        let start = of_process(std::process::id()).unwrap();
        while of_process(std::process::id()).unwrap() == start {
            std::hint::spin_loop();
        }
    }
}
