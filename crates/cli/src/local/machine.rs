//! The machine, as the name of a folder in a home that hosts may share.

use std::fs;
use std::path::Path;

use bellwether::Who;

/// Identifies an installation: it survives a change of the host name, and differs between machines (`machine-id(5)`).
const MACHINE_ID: &str = "/etc/machine-id";

/// Files that container managers create. The id in a container is often that of its image, so it is the same in many.
const CONTAINER_MARKS: [&str; 3] = [
    "/.dockerenv",
    "/run/.containerenv",
    "/run/host/container-manager",
];

/// Digits of the id in a name: enough to tell machines apart, and less than the id, which is not to leave its machine.
const ID_DIGITS: usize = 12;

/// The name of the folder of this machine: by its id, or, if it has none of its own, by its host name.
pub(super) fn folder_name() -> String {
    match machine_id() {
        Some(id) => format!("machine-{}", &id[..ID_DIGITS]),
        None => host_name(),
    }
}

/// The host name, as the name of a folder.
pub(super) fn host_name() -> String {
    let host = Who::host_of_process().replace('/', "_");
    if host.is_empty() || host.starts_with('.') {
        "localhost".to_owned()
    } else {
        host
    }
}

fn machine_id() -> Option<String> {
    if CONTAINER_MARKS.iter().any(|mark| Path::new(mark).exists()) {
        return None;
    }
    let text = fs::read_to_string(MACHINE_ID).ok()?;
    valid(text.trim_end()).map(str::to_owned)
}

/// An id: 32 hexadecimal digits, and not all zeros. Images have an empty file, or the word `uninitialized`, until their first boot.
fn valid(id: &str) -> Option<&str> {
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && id.bytes().any(|byte| byte != b'0')).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_id_is_not_taken_for_one() {
        let id = "3d1219c7c4c5404aaa1f6d2a48adfda4";
        assert_eq!(valid(id), Some(id));
        for other in [
            "",
            "uninitialized",
            &id[1..],
            "00000000000000000000000000000000",
            "xd1219c7c4c5404aaa1f6d2a48adfda4",
        ] {
            assert_eq!(valid(other), None, "{other}");
        }
    }
}
