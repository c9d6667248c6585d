//! Examples for scripts do what the text around them says.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::bellwether::{Running, assert_code, bellwether, serve, text};

/// A server, and a shell that finds it and bellwether.
struct Shell {
    _server: Running,
    address: String,
}

impl Shell {
    fn new() -> Self {
        let mut serving = bellwether();
        let (server, addresses) = serve(serving.args(["serve", "--listen", "127.0.0.1:0"]));
        Self {
            _server: server,
            address: addresses[0].clone(),
        }
    }

    fn run(&self, script: &str) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_bellwether"));
        let mut path = program.parent().unwrap().as_os_str().to_owned();
        path.push(":/usr/bin:/bin");
        let mut bash = Command::new("bash");
        bash.args(["-e", "-u", "-c", script]).env("PATH", path);
        bash.env("BELLWETHER_CONNECT", &self.address);
        bash.output().unwrap()
    }

    #[track_caller]
    fn done(&self, script: &str) -> String {
        let output = self.run(script);
        assert_code(&output, 0);
        assert_eq!(text(&output.stderr), "", "{script}");
        text(&output.stdout)
    }
}

/// The block of docs/commands.md that begins with `beginning`.
#[track_caller]
fn block(beginning: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut blocks = page.split("```sh\n").skip(1);
    let found = blocks.find(|block| block.starts_with(beginning)).unwrap();
    found.split_once("```").unwrap().0.to_owned()
}

#[test]
fn script_holds_a_lock() {
    let shell = Shell::new();
    let script = block("coproc bellwether lock");
    let held = "bellwether lock jobs/nightly --try -q -- true || echo \"$? $((token > 0))\"";
    assert_eq!(shell.done(&script.replace('…', held)), "124 1\n");
    shell.done("bellwether lock jobs/nightly --wait 30s -q -- true");
}

#[test]
fn script_takes_an_item() {
    let shell = Shell::new();
    let script = block("coproc bellwether queue take");
    shell.done("bellwether queue put /hosts/to-drain db7");
    // It is given back if the command fails, and acknowledged if it succeeds.
    let failed = shell.run(&format!("drain() {{ return 1; }}; {script}"));
    assert_code(&failed, 0);
    let drained = shell.done(&format!("drain() {{ echo \"drained $1\"; }}; {script}"));
    assert_eq!(drained, "drained db7\n");
    assert_eq!(shell.done("bellwether queue ls /hosts/to-drain"), "");
}

#[test]
fn name_stands_for_an_address() {
    let shell = Shell::new();
    shell.done("bellwether name register --lasting /names db-primary 10.0.0.7:5432");
    let help = shell.done("bellwether name resolve --help");
    let (_, example) = help.split_once("Example:\n").unwrap();
    let said = shell.done(&format!("psql() {{ echo \"$@\"; }}; {example}"));
    assert_eq!(said, "postgresql://10.0.0.7:5432/app\n");
}
