//! The command with a local server of its own.

use std::process::Command;

use tempfile::TempDir;

/// A folder for a local server, which is stopped on drop.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The command, without the variables of the user who runs the tests.
    pub(crate) fn bellwether(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited {
            let text = name.to_string_lossy();
            let matters = ["BELLWETHER_", "OTEL_", "TRACE", "RUST_LOG"];
            // ureq would use a proxy.
            let is_proxy = text.to_ascii_lowercase().ends_with("_proxy");
            if is_proxy || matters.iter().any(|start| text.starts_with(start)) {
                command.env_remove(&name);
            }
        }
        command
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("BELLWETHER_LOCAL", self.0.path().join("local"))
            .args(arguments);
        command
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let stopped = self.bellwether(&["local", "stop"]).output();
        assert!(stopped.is_ok_and(|output| output.status.success()));
    }
}
