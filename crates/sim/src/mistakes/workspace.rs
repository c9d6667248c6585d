//! The patched copy of the workspace, in which every mistake can be made.
//!
//! It is below `target`, with a target folder of its own. Only files that differ are written, so that a second build is quick.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::patch::Patch;

/// The crates whose code can be wrong, and where each has the switch from.
const SWITCHES: &[(&str, &str)] = &[
    ("wire", "#[allow(missing_docs)] pub mod mistake;"),
    ("client", "#[doc(hidden)] pub use bellwether_wire::mistake;"),
    ("bellwether", "use bellwether_client::mistake;"),
    ("server", "use bellwether_wire::mistake;"),
];

/// The module that the copy has in place of `switch.rs`.
const SWITCH_OF_SIMULATION: &str = "#![allow(missing_docs)]\n\
    pub const ARE_HERE: bool = true;\n\
    pub(crate) use bellwether_wire::mistake::make;\n";

/// The workspace that this program is from, and its patched copy.
#[derive(Debug)]
pub struct Workspace {
    source: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

/// Programs of the patched copy.
#[derive(Debug)]
pub struct Programs {
    /// The simulation.
    pub simulate: PathBuf,
    /// The integration tests of the library.
    pub tests: PathBuf,
}

impl Default for Workspace {
    fn default() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let source = source.canonicalize().unwrap_or(source);
        Self {
            copy: source.join("target/mistakes/workspace"),
            target: source.join("target/mistakes/target"),
            source,
        }
    }
}

impl Workspace {
    /// The patches.
    ///
    /// # Errors
    ///
    /// If a page cannot be read.
    pub fn patches(&self) -> Result<Vec<Patch>> {
        Patch::read_all(&self.source.join("crates/sim/mistakes"))
    }

    /// All files that differ in the copy, by their paths.
    ///
    /// # Errors
    ///
    /// If a patch does not fit the sources.
    pub fn changes(&self) -> Result<BTreeMap<String, String>> {
        let mut changes = Patch::apply_all(&self.patches()?, &self.source)?;
        for (name, switch) in SWITCHES {
            let path = format!("crates/{name}/src/lib.rs");
            let text = match changes.remove(&path) {
                Some(patched) => patched,
                None => fs::read_to_string(self.source.join(&path))?,
            };
            changes.insert(path, format!("{text}\n{switch}\n"));
        }
        let switch = fs::read_to_string(self.source.join("crates/sim/mistakes/switch.rs"))?;
        changes.insert("crates/wire/src/mistake.rs".to_owned(), switch);
        let of_simulation = "crates/sim/src/switch.rs".to_owned();
        changes.insert(of_simulation, SWITCH_OF_SIMULATION.to_owned());
        Ok(changes)
    }

    /// Writes the copy.
    ///
    /// # Errors
    ///
    /// If a patch does not fit the sources, or a file cannot be read or written.
    pub fn write(&self) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for name in ["Cargo.toml", "Cargo.lock", "crates"] {
            self.find(Path::new(name), &mut wanted)?;
        }
        let mut changes = self.changes()?;
        wanted.extend(changes.keys().map(PathBuf::from));
        for path in &wanted {
            let text = match changes.remove(&*path.to_string_lossy()) {
                Some(changed) => changed.into_bytes(),
                None => fs::read(self.source.join(path))?,
            };
            write_if_changed(&self.copy.join(path), &text)?;
        }
        remove_others(&self.copy, &self.copy, &wanted)
    }

    /// Adds a file, or all files of a folder.
    fn find(&self, path: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
        let there = self.source.join(path);
        if !there.is_dir() {
            found.insert(path.to_owned());
            return Ok(());
        }
        for entry in fs::read_dir(there)? {
            let name = entry?.file_name();
            if name != "target" {
                self.find(&path.join(name), found)?;
            }
        }
        Ok(())
    }

    /// Writes and builds the copy.
    ///
    /// # Errors
    ///
    /// If a patch does not fit the sources, or the copy does not compile.
    pub fn build(&self) -> Result<Programs> {
        self.write()?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // One call, so that both programs share what they depend on.
        let output = Command::new(cargo)
            .current_dir(&self.copy)
            .args(["build", "--profile", "sim", "--locked", "--target-dir"])
            .arg(&self.target)
            .args(["--package", "bellwether-sim", "--example", "simulate"])
            .args(["--package", "bellwether", "--test", "it"])
            .arg("--message-format=json-render-diagnostics")
            // Built in half the time without it, and a table takes seconds.
            .env("CARGO_PROFILE_SIM_LTO", "off")
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(
            output.status.success(),
            "{} does not compile",
            self.copy.display()
        );
        let messages = String::from_utf8_lossy(&output.stdout);
        let program = |folder: &str| {
            let of_package = format!("crates/{folder}/");
            let mut lines = messages.lines().filter(|line| line.contains(&of_package));
            let path = lines.find_map(|line| line.split("\"executable\":\"").nth(1));
            let path = path.and_then(|path| path.split('"').next());
            path.map(PathBuf::from)
                .with_context(|| format!("cargo built no program of {folder}"))
        };
        Ok(Programs {
            simulate: program("sim/examples")?,
            tests: program("bellwether/tests")?,
        })
    }
}

fn write_if_changed(path: &Path, text: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Removes files of an earlier copy that are gone.
fn remove_others(root: &Path, folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(root, &path, wanted)?;
        } else if !wanted.contains(path.strip_prefix(root)?) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
