//! `bellwether completions`: completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Args, CompletionsArgs};
use crate::exit::Exit;
use crate::output;

/// For bash: completes paths of nodes for every word that is not a flag. The generated function completes the rest.
const BASH_PATHS: &str = r#"
_bellwether_with_paths() {
    _bellwether "$@"
    local word="${COMP_WORDS[COMP_CWORD]}" path
    if [[ ${COMP_CWORD} -ge 2 && "${word}" != -* ]]; then
        while IFS= read -r path; do
            COMPREPLY+=("${path}")
            compopt -o nospace
        done < <(bellwether complete-paths -- "${word}" 2>/dev/null)
    fi
}
complete -F _bellwether_with_paths -o bashdefault -o default bellwether
"#;

/// For zsh: completes an argument that is the path of a node.
const ZSH_PATHS: &str = r#"
_bellwether_paths() {
    local -a paths
    paths=("${(@f)$(bellwether complete-paths -- "${PREFIX}" 2>/dev/null)}")
    compadd -S '' -a paths
}
"#;

const FISH_PATHS: &str = r#"
complete -c bellwether -n "not __fish_bellwether_needs_command" -f -a "(bellwether complete-paths -- (commandline -ct) 2>/dev/null)"
"#;

pub(crate) fn run(args: CompletionsArgs) -> anyhow::Result<Exit> {
    // Not directly to stdout: the generator panics when stdout is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "bellwether", &mut script);
    let script = with_paths(args.shell, String::from_utf8(script)?);
    Ok(output::answer(|out| {
        out.write_all(script.as_bytes())?;
        Ok(Exit::Done)
    })?)
}

/// Adds the completion of paths to a script.
fn with_paths(shell: Shell, script: String) -> String {
    match shell {
        Shell::Bash => script + BASH_PATHS,
        Shell::Fish => script + FISH_PATHS,
        Shell::Zsh => {
            let lines = script.lines().map(|line| match line.contains(":path -- ") {
                true => line.replace(":_default'", ":_bellwether_paths'"),
                false => line.to_owned(),
            });
            // The first line names the command, and has to stay first.
            let lines: Vec<_> = lines.collect();
            let (first, rest) = lines
                .split_first()
                .map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
            format!("{first}\n{ZSH_PATHS}\n{}\n", rest.join("\n"))
        }
        _ => script,
    }
}
