//! Documents of the repository: what they say about the source tree is true.

mod failure_modes;
mod links;
mod map;
mod threat_model;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).unwrap().to_owned()
}

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// All files below a folder, relative to the root of the repository.
fn files_below(folder: &str) -> Vec<PathBuf> {
    let root = root();
    let mut folders = vec![root.join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path().strip_prefix(&root).unwrap().to_owned()),
            }
        }
    }
    files
}
