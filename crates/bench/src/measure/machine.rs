//! The machine and the commit of a measurement.

use std::fs;
use std::process::Command;

use anyhow::Result;

/// The machine and the commit, in one line.
pub fn machine() -> Result<String> {
    let output = |program: &str, arguments: &[&str]| -> Result<String> {
        let output = Command::new(program).args(arguments).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let field = |path: &str, name: &str| -> Result<String> {
        let text = fs::read_to_string(path)?;
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        Ok(value.map_or_else(String::new, |(_, value)| value.trim().to_owned()))
    };
    Ok(format!(
        "commit {}; {} cores of {}, {} of memory, {}; load before the end {}",
        output("git", &["describe", "--always", "--dirty"])?,
        std::thread::available_parallelism()?,
        field("/proc/cpuinfo", "model name")?,
        field("/proc/meminfo", "MemTotal")?,
        output("uname", &["-sr"])?,
        fs::read_to_string("/proc/loadavg")?.trim(),
    ))
}
