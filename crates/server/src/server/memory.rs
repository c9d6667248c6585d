//! How much memory this process may use.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// Where control groups are mounted.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// The memory that the tree may take by default: half of what this process may use. The rest is for versions that a snapshot or a reader still
/// has, for requests and replies, and for what the allocator cannot use. `None` if nothing is known.
pub(super) fn share_of_tree() -> Option<usize> {
    Some(usize::try_from(usable_bytes()? / 2).unwrap_or(usize::MAX))
}

/// Bytes that this process may use: the least of the machine's memory, the limits of the process (`ulimit`) and those of its control groups.
fn usable_bytes() -> Option<u64> {
    let addresses = getrlimit(Resource::As).current;
    let limits = [
        addresses.map(|limit| usable_addresses(limit, thread_count())),
        getrlimit(Resource::Data).current,
    ];
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let known = limits.into_iter().flatten();
    let known = known.chain(of_groups(Path::new(CONTROL_GROUPS), &groups));
    known.chain(kilobytes(&machine, "MemTotal:")).min()
}

/// The bytes in a line of a file in `/proc`, such as `MemTotal: 16 kB`.
fn kilobytes(file: &str, key: &str) -> Option<u64> {
    let line = file.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Of a limit of addresses, what is left when the allocator has reserved some for each thread, used or not.
fn usable_addresses(limit: u64, threads: u64) -> u64 {
    /// Measured: 9 threads of a server without data have 710 MB of addresses and 26 MB of memory.
    const THREAD_BYTES: u64 = 80 << 20;
    limit.saturating_sub(threads * THREAD_BYTES).max(limit / 8)
}

/// The threads of a server: those of the runtime, and those with names.
fn thread_count() -> u64 {
    const NAMED: u64 = 7;
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64) + NAMED
}

/// The least limit of the groups in `/proc/self/cgroup`, and of the groups above them. In a container, the groups of the host are not
/// mounted, but the own group is at the root.
fn of_groups(mounted: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, files): (PathBuf, &[&str]) = match controllers {
            "" => (mounted.to_owned(), &["memory.max", "memory.high"]),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (mounted.join("memory"), &["memory.limit_in_bytes"])
            }
            _ => return None,
        };
        let group = Path::new(path.trim_start_matches('/'));
        let limits = group.ancestors().flat_map(|group| {
            let folder = root.join(group);
            files
                .iter()
                .filter_map(move |file| read(&folder.join(file)))
        });
        limits.min()
    });
    limits.min()
}

/// The limit in a file; `None` for no limit.
fn read(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(folder: &Path, file: &str, limit: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(file), limit).unwrap();
    }

    #[test]
    fn least_limit_of_a_group_and_those_above_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let groups = "0::/system/service\n";
        assert_eq!(of_groups(root, groups), None);
        group(&root.join("system/service"), "memory.max", "max\n");
        assert_eq!(of_groups(root, groups), None);
        group(&root.join("system"), "memory.max", "3000\n");
        assert_eq!(of_groups(root, groups), Some(3000));
        group(&root.join("system/service"), "memory.high", "2000\n");
        assert_eq!(of_groups(root, groups), Some(2000));
    }

    #[test]
    fn groups_of_the_first_version_and_of_a_container_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        group(&root.join("memory"), "memory.limit_in_bytes", "5000\n");
        let groups = "12:cpu,cpuacct:/docker/1\n4:hugetlb,memory:/docker/1\n";
        assert_eq!(of_groups(root, groups), Some(5000));
    }

    #[test]
    fn addresses_that_threads_reserve_are_not_usable() {
        const GIB: u64 = 1 << 30;
        assert_eq!(usable_addresses(4 * GIB, 10), 4 * GIB - (800 << 20));
        assert_eq!(usable_addresses(GIB / 2, 10), GIB / 16);
    }

    #[test]
    fn memory_of_the_machine_is_read() {
        assert_eq!(
            kilobytes("MemFree: 1 kB\nMemTotal:       2048 kB\n", "MemTotal:"),
            Some(2 << 20)
        );
        let usable = usable_bytes().expect("the machine has memory");
        println!("{usable} bytes are usable");
        assert!(usable > 0);
    }
}
