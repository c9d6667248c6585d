//! A page of the manual, from the definition of a command.

use clap::{Arg, Command};
use roff::{Inline, Roff, bold, italic, roman};

use crate::args::help;

/// The options that every command has, in order.
const OF_ALL: [&str; 4] = ["json", "quiet", "help", "version"];

/// What the paragraph about exit codes begins with.
const EXIT_CODE: &str = "Exit code: ";

/// The page of a command, which has been built: with its full name and the options of those above.
pub(super) fn render(command: &Command) -> String {
    let mut page = Roff::new();
    let name = file_name(command);
    let version = format!("bellwether {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", [&*name, "1", "", &*version, "bellwether manual"]);
    let about = command.get_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    page.control("SH", ["NAME"]);
    // Programs read this line, so it has no markup.
    page.text([roman(format!("{name} - {}", about.replace('`', "")))]);
    page.control("SH", ["SYNOPSIS"]);
    synopsis(&mut page, command);

    let long = command.get_long_about().map(ToString::to_string);
    let long = long.unwrap_or_else(|| format!("{about}."));
    let (exit_codes, description): (Vec<_>, Vec<_>) = long
        .split("\n\n")
        .partition(|text| text.starts_with(EXIT_CODE));
    page.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut page, &description);
    commands(&mut page, command);

    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    section(
        &mut page,
        "ARGUMENTS",
        shown().filter(|arg| arg.is_positional()),
    );
    let options = || shown().filter(|arg| !arg.is_positional());
    let mut own: Vec<_> = options()
        .filter(|arg| arg.get_help_heading().is_none())
        .collect();
    // As in `--help`: those that every command has stand behind its own.
    own.sort_by_key(|arg| OF_ALL.iter().position(|of_all| arg.get_id() == of_all));
    section(&mut page, "OPTIONS", own.into_iter());
    let mut headings: Vec<_> = options().filter_map(Arg::get_help_heading).collect();
    headings.dedup();
    for heading in headings {
        let of_it = options().filter(|arg| arg.get_help_heading() == Some(heading));
        section(&mut page, &heading.to_uppercase(), of_it);
    }

    if !exit_codes.is_empty() {
        page.control("SH", ["EXIT STATUS"]);
        for codes in exit_codes {
            list_codes(&mut page, &codes[EXIT_CODE.len()..]);
        }
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    for part in after.split("\n\n") {
        let (heading, lines) = part.split_once('\n').unwrap_or((part, ""));
        verbatim(
            &mut page,
            &heading.trim_end_matches(':').to_uppercase(),
            lines,
        );
    }
    see_also(&mut page, command);
    page.render()
}

/// `bellwether-queue-take`.
pub(super) fn file_name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

/// The commands below that have pages.
pub(super) fn below(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

fn synopsis(page: &mut Roff, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    for (index, line) in usage.lines().enumerate() {
        if index > 0 {
            page.control("br", []);
        }
        page.text([roman(line.trim())]);
    }
}

fn paragraphs(page: &mut Roff, texts: &[&str]) {
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            page.control("PP", []);
        }
        page.text(marked(text));
    }
}

/// Text in which backticks mean what is typed.
fn marked(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts
        .filter(|(_, part)| !part.is_empty())
        .map(|(index, part)| match index % 2 {
            0 => roman(part),
            _ => bold(part),
        })
        .collect()
}

/// The commands below, the program's in their groups.
fn commands(page: &mut Roff, command: &Command) {
    if below(command).next().is_none() {
        return;
    }
    page.control("SH", ["COMMANDS"]);
    let list = |page: &mut Roff, one: &Command| {
        page.control("TP", []);
        page.text([bold(one.get_name())]);
        let about = one.get_about().map(ToString::to_string);
        page.text(marked(&about.unwrap_or_default()));
    };
    if command.get_name() != "bellwether" {
        below(command).for_each(|one| list(page, one));
        return;
    }
    for (heading, names) in help::GROUPS {
        page.control("SS", [heading]);
        for name in names {
            if let Some(one) = command.find_subcommand(name) {
                list(page, one);
            }
        }
    }
}

fn section<'a>(page: &mut Roff, heading: &str, args: impl Iterator<Item = &'a Arg>) {
    let mut args = args.peekable();
    if args.peek().is_none() {
        return;
    }
    page.control("SH", [heading]);
    for arg in args {
        page.control("TP", []);
        page.text(tag(arg));
        // The same text as `--help` has.
        let text = arg.get_long_help().or(arg.get_help());
        let text = match arg.get_id() == "help" {
            true => "Print the help; a summary with `-h`.".to_owned(),
            false => text.map(ToString::to_string).unwrap_or_default(),
        };
        paragraphs_below(page, &text);
        details(page, arg);
    }
}

/// `-w, --wait TIME`.
fn tag(arg: &Arg) -> Vec<Inline> {
    let names = arg.get_value_names().unwrap_or_default();
    let value = match names.is_empty() {
        true => arg.get_id().to_string().to_uppercase(),
        false => names.join(" "),
    };
    if arg.is_positional() {
        return vec![italic(value)];
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let spelled: Vec<_> = short.into_iter().chain(long).collect();
    let mut tag = vec![bold(spelled.join(", "))];
    if arg.get_action().takes_values() {
        tag.extend([roman(" "), italic(value)]);
    }
    tag
}

/// Paragraphs of an item in a list.
fn paragraphs_below(page: &mut Roff, text: &str) {
    let text = text.trim_end();
    for (index, paragraph) in text.split("\n\n").enumerate() {
        if index > 0 {
            page.control("IP", []);
        }
        // A first line has no full stop if more follow.
        let end = if paragraph.ends_with(['.', ':', '>']) {
            ""
        } else {
            "."
        };
        page.text(marked(&format!("{paragraph}{end}")));
    }
}

/// Values, default and variable of an option.
fn details(page: &mut Roff, arg: &Arg) {
    let values = arg.get_possible_values();
    if arg.get_action().takes_values() && values.iter().any(|value| !value.is_hide_set()) {
        page.control("RS", []);
        for value in values.iter().filter(|value| !value.is_hide_set()) {
            page.control("TP", []);
            page.text([bold(value.get_name())]);
            let about = value.get_help().map(ToString::to_string);
            page.text(marked(&about.unwrap_or_default()));
        }
        page.control("RE", []);
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|one| one.to_string_lossy())
        .collect();
    let has_default = arg.get_action().takes_values() && !arg.is_hide_default_value_set();
    if has_default && defaults.iter().any(|one| !one.is_empty()) {
        page.control("IP", []);
        page.text([roman("Default: "), roman(defaults.join(" ")), roman(".")]);
    }
    if let Some(variable) = arg.get_env() {
        page.control("IP", []);
        let variable = variable.to_string_lossy();
        page.text([roman("Environment: "), bold(variable), roman(".")]);
    }
}

/// One line per code; the text separates them by semicolons.
fn list_codes(page: &mut Roff, codes: &str) {
    let codes = codes.trim_end_matches('.');
    let mut texts = codes.split(". ");
    for (index, code) in texts.next().unwrap_or_default().split("; ").enumerate() {
        if index > 0 {
            page.control("br", []);
        }
        page.text(marked(code));
    }
    for text in texts {
        page.control("PP", []);
        page.text(marked(&format!("{text}.")));
    }
}

/// Lines as they are, under a heading.
fn verbatim(page: &mut Roff, heading: &str, lines: &str) {
    if lines.is_empty() {
        return;
    }
    let heading = match heading {
        "EXAMPLE" => "EXAMPLES",
        "EXIT CODES" => "EXIT STATUS",
        heading => heading,
    };
    page.control("SH", [heading]);
    page.control("nf", []);
    for line in lines.lines() {
        page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    page.control("fi", []);
}

fn see_also(page: &mut Roff, command: &Command) {
    let name = file_name(command);
    let mut pages: Vec<String> = Vec::new();
    if let Some((above, _)) = name.rsplit_once('-') {
        pages.push(above.to_owned());
        if above != "bellwether" {
            pages.push("bellwether".to_owned());
        }
    }
    pages.extend(below(command).map(file_name));
    page.control("SH", ["SEE ALSO"]);
    let mut inlines = Vec::new();
    for (index, name) in pages.iter().enumerate() {
        if index > 0 {
            inlines.push(roman(", "));
        }
        inlines.extend([bold(name.as_str()), roman("(1)")]);
    }
    page.text(inlines);
}
