//! What commands say about the local server, in a terminal.

use crate::support::home::Home;
use crate::support::shell::Shell;

#[test]
fn user_is_told_once_a_day_and_how_to_silence_it() {
    let home = Home::new();
    let folder = home.folder();
    let mut shell = Shell::start();
    let (name, folder) = ("BELLWETHER_LOCAL", folder.display());
    shell.type_line(&format!("unset BELLWETHER_CONNECT; export {name}={folder}"));
    shell.run("bellwether ls");
    shell.until_shown("bellwether: using the local server of ");
    shell.until_shown("(BELLWETHER_CONNECT=local silences this)");
    shell.until_shown("code=0");
    shell.run("bellwether lock x -- echo ra\"\"n");
    shell.until_shown("ran\r\n");
    shell.until_shown("code=0");
    shell.run(&format!(
        "touch -d 'now - 25 hours' {folder}/announced; bellwether --quiet ls; bellwether lock x -- true"
    ));
    shell.until_shown("using the local server of ");
    shell.until_shown("code=0");
    let rest = shell.rest();
    assert!(!rest.contains("local server"), "{rest}");
}
