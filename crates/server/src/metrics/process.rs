//! Metrics of this process and its disks, from `/proc` and the file system.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::exposition::Exposition;

pub(crate) fn add_process(to: &mut Exposition) {
    if let Some(open) = open_files() {
        to.gauge("process_open_fds", "Open file descriptors.", open);
    }
    if let Some(max) = open_files_max() {
        to.gauge(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            max,
        );
    }
    if let Some(bytes) = resident_bytes() {
        to.gauge(
            "process_resident_memory_bytes",
            "Memory that this process has in RAM.",
            bytes,
        );
    }
    if let Some(time) = cpu_time() {
        let help = "Processor time that this process has used, in seconds.";
        to.counter("process_cpu_seconds_total", help, time.as_secs_f64());
    }
}

pub(crate) fn open_files() -> Option<u64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

pub(crate) fn open_files_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

fn cpu_time() -> Option<Duration> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(
        used.tv_sec.try_into().ok()?,
        used.tv_nsec.try_into().ok()?,
    ))
}

/// Size of the file system of a folder, and how much of it is used, in bytes.
pub(crate) fn disk(folder: &Path) -> Option<(u64, u64)> {
    let figures = rustix::fs::statvfs(folder).ok()?;
    let size = figures.f_blocks * figures.f_frsize;
    Some((
        size,
        size.saturating_sub(figures.f_bavail * figures.f_frsize),
    ))
}

/// Number, total bytes and newest modification time of data files of one kind.
#[derive(Debug, Default)]
pub(crate) struct DataFiles {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) newest: Option<SystemTime>,
}

impl DataFiles {
    /// Files in a data folder whose names begin with `prefix`.
    pub(crate) fn of(folder: Option<&PathBuf>, prefix: &str) -> Self {
        let mut files = Self::default();
        let entries = folder.and_then(|folder| fs::read_dir(folder.join("version-2")).ok());
        for entry in entries.into_iter().flatten().filter_map(Result::ok) {
            let is_wanted = entry.file_name().to_string_lossy().starts_with(prefix);
            if let Some(metadata) = is_wanted.then(|| entry.metadata().ok()).flatten() {
                files.count += 1;
                files.bytes += metadata.len();
                files.newest = files.newest.max(metadata.modified().ok());
            }
        }
        files
    }
}
