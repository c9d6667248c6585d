//! `bellwether config edit`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::bellwether::{Running, assert_code, bellwether, serve, text};
use crate::support::servers::Servers;
use crate::support::shell::open_terminal;

on_local_and_apache! {
    text_is_set_or_kept,
    editor_needs_a_terminal,
    value_that_was_left_alone_is_not_made,
    interrupt_is_for_the_editor,
    text_is_kept_when_the_command_is_told_to_end,
}

fn edit(servers: &Servers, editor: &str) -> Command {
    let mut command = servers.bellwether();
    command.args(["config", "edit", "app/limits"]);
    command.env_remove("VISUAL").env("EDITOR", editor);
    // Without its other end it would be no terminal any more.
    static TERMINAL: LazyLock<(File, File)> = LazyLock::new(open_terminal);
    let (_, terminal) = &*TERMINAL;
    command.stdin(terminal.try_clone().unwrap());
    command
        .stdout(terminal.try_clone().unwrap())
        .stderr(Stdio::piped());
    command
}

fn config(servers: &Servers, arguments: &[&str]) -> Output {
    let mut command = servers.bellwether();
    command.arg("config").args(arguments).output().unwrap()
}

fn value(servers: &Servers) -> String {
    text(&config(servers, &["get", "app/limits"]).stdout)
}

/// The content of the file that stderr names.
#[track_caller]
fn kept(said: &str) -> String {
    let (_, kept) = said.split_once("your text is kept in ").unwrap();
    let kept = Path::new(kept.trim());
    let text = std::fs::read_to_string(kept).unwrap();
    std::fs::remove_file(kept).unwrap();
    text
}

/// An editor that writes a text, and ends when the test says so.
struct Typist {
    folder: TempDir,
    go: File,
}

impl Typist {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let go = folder.path().join("go");
        assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
        let script = format!(
            "echo typed >\"$1\"; echo ready >&2; read x <{}",
            go.display()
        );
        std::fs::write(folder.path().join("editor"), script).unwrap();
        // Open in both directions, so that opening it does not block.
        let go = File::options().read(true).write(true).open(go).unwrap();
        Self { folder, go }
    }

    /// `config edit` with this editor, which has written its text.
    #[track_caller]
    fn at_work(&self, servers: &Servers) -> Running {
        let editor = format!("sh {}", self.folder.path().join("editor").display());
        let mut edit = Running::follow(edit(servers, &editor).stderr(Stdio::piped()));
        assert_eq!(edit.error_line().as_deref(), Some("ready"));
        edit
    }

    fn leave(&mut self) {
        self.go.write_all(b"\n").unwrap();
    }
}

fn text_is_set_or_kept(servers: &Servers) {
    assert_code(&config(servers, &["set", "app/limits", "two"]), 0);
    let output = edit(servers, "sed -i s/two/three/").output().unwrap();
    assert_code(&output, 0);
    assert_eq!(value(servers), "three");
    let output = edit(servers, "false").output().unwrap();
    assert_code(&output, 1);
    assert_eq!(kept(&text(&output.stderr)), "three");
    let mut typist = Typist::new();
    let mut edit = typist.at_work(servers);
    assert_code(&config(servers, &["set", "app/limits", "four"]), 0);
    typist.leave();
    assert_eq!(edit.code(), Some(1));
    let said = edit.errors().join("\n");
    assert!(said.contains("/app/limits was changed meanwhile"), "{said}");
    assert_eq!(kept(&said), "typed\n");
}

fn editor_needs_a_terminal(servers: &Servers) {
    let mut command = edit(servers, "echo started; false");
    let output = command.stdout(Stdio::piped()).output().unwrap();
    assert_code(&output, 2);
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(
        said.contains("an editor needs a terminal\nhint: "),
        "{said}"
    );
}

fn value_that_was_left_alone_is_not_made(servers: &Servers) {
    assert_code(&edit(servers, "true").output().unwrap(), 0);
    assert_code(&config(servers, &["get", "app/limits"]), 1);
}

fn interrupt_is_for_the_editor(servers: &Servers) {
    let mut typist = Typist::new();
    let mut edit = typist.at_work(servers);
    edit.signal(Signal::INT);
    edit.signal(Signal::QUIT);
    typist.leave();
    assert_eq!(edit.code(), Some(0), "{:?}", edit.errors());
    assert_eq!(value(servers), "typed\n");
}

fn text_is_kept_when_the_command_is_told_to_end(servers: &Servers) {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let typist = Typist::new();
        let mut edit = typist.at_work(servers);
        edit.signal(signal);
        // It is closed when the editor has ended too.
        let said = edit.errors().join("\n");
        assert_eq!(edit.code(), Some(code));
        assert_eq!(kept(&said), "typed\n");
    }
    assert_code(&config(servers, &["get", "app/limits"]), 1);
}

#[test]
fn text_is_kept_when_the_server_is_gone() {
    let mut serving = bellwether();
    let (server, addresses) = serve(serving.args(["serve", "--listen", "127.0.0.1:0"]));
    let mut typist = Typist::new();
    let mut edit = typist.at_work(&Servers::at(&addresses[0]));
    drop(server);
    typist.leave();
    assert_eq!(edit.code(), Some(125));
    let said = edit.errors();
    let hint = said
        .iter()
        .find(|line| line.contains("your text is kept in"));
    assert_eq!(kept(hint.unwrap()), "typed\n");
}
