//! `bellwether.toml`: defaults of options, for a user or for a host.
//!
//! A value in the file becomes the default value of the option with the name of its key. So flags and variables override it, and
//! it is parsed as what is typed. `connect` and `local` have no default values: which of the two counts depends on where each of
//! them comes from.

use std::any::TypeId;
use std::error::Error as _;
use std::fs;
use std::io::ErrorKind;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, anyhow};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use toml::{Table, Value};

use crate::value::servers;

/// The file of the host, for keys that the user's file does not have.
const OF_HOST: &str = "/etc/bellwether.toml";

/// Keys that name servers. If the user's file has one of them, those of the host do not count.
const SERVERS: [&str; 2] = ["connect", "local"];

/// Keys that are names of options. Each counts for every command with that option.
const KEYS: [&str; 25] = [
    "acl",
    "attempts",
    "auth-file",
    "conflict-exit-code",
    "deadline",
    "depth",
    "grace",
    "idle",
    "jobs",
    "lock-delay",
    "max-directories",
    "max-time",
    "on-crash",
    "order",
    "pause",
    "quiet",
    "sasl",
    "sasl-password-file",
    "session-timeout",
    "tls",
    "tls-ca",
    "tls-cert",
    "tls-key",
    "tls-server-name",
    "wait",
];

/// Options that mean something else for one command, and their keys: command, option, key.
const OWN_KEYS: [(&str, &str, &str); 8] = [
    ("break", "grace", "break-grace"),
    // Candidates wait for as long as another one leads, and `leader` does not wait.
    ("elect", "wait", "elect-wait"),
    ("leader", "wait", "leader-wait"),
    ("dashboard", "allow-actions", "dashboard-allow-actions"),
    ("dashboard", "open", "dashboard-open"),
    ("dashboard", "host", "dashboard-host"),
    ("dashboard", "listen", "dashboard-listen"),
    ("dashboard", "token-file", "dashboard-token-file"),
];

/// Commands without keys: `serve` has a configuration file of its own, and `ensemble` is used once.
const WITHOUT_KEYS: [&str; 2] = ["serve", "ensemble"];

/// A variable that overrides a key, although it is not the variable of an option.
const OVERRIDDEN: (&str, &str) = ("sasl-password-file", "BELLWETHER_SASL_PASSWORD");

/// The user's file, and behind it that of the host; or one of them, or none.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    keys: Table,
    /// The file for keys that this one does not have.
    behind: Option<Box<Self>>,
}

/// The files of this process.
static LOADED: OnceLock<ConfigFile> = OnceLock::new();

/// The servers that a file names, as `--connect` does.
pub(crate) fn connect() -> Option<&'static str> {
    let (_, connect) = LOADED.get()?.find("connect")?;
    connect.as_str()
}

/// The servers that a file names, of this host or of others, and the file. They may be overridden, as by `BELLWETHER_LOCAL`.
pub(crate) fn other_servers() -> Option<(&'static Path, &'static str)> {
    let mut files = iter::successors(LOADED.get(), |file| file.behind.as_deref());
    files.find_map(|file| {
        let servers = file.keys.get("connect")?.as_str()?;
        (servers != servers::LOCAL).then_some((file.path.as_path(), servers))
    })
}

/// The folder of the local server that a file names, as `--local` does.
pub(crate) fn local() -> Option<PathBuf> {
    let (file, local) = LOADED.get()?.find("local")?;
    Some(file.beside(local.as_str()?))
}

/// A file of a user in whose commands no key of the host's file counts: a flag that is off is no default, and the user's file comes first.
/// Servers have to be named by a variable or a flag.
pub(crate) fn neutral() -> String {
    let own = OWN_KEYS.iter().map(|(_, _, key)| key);
    let keys = KEYS.iter().chain(own);
    keys.map(|key| format!("{key} = false\n")).collect()
}

impl ConfigFile {
    /// Reads the user's file and the host's. Without either, nothing is set.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let of_user = base_folder("XDG_CONFIG_HOME", ".config");
        let of_user = of_user.map(|folder| folder.join("bellwether.toml"));
        let of_user = of_user.map_or(Ok(None), |path| Self::at(&path))?;
        let of_host = Self::at(Path::new(OF_HOST))?;
        Ok(match (of_user, of_host) {
            (Some(of_user), of_host) => of_user.before(of_host),
            (None, of_host) => of_host.unwrap_or_default(),
        })
    }

    /// This file, with another one for the keys that it does not have.
    fn before(self, behind: Option<Self>) -> Self {
        Self {
            behind: behind.map(Box::new),
            ..self
        }
    }

    fn at(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let keys = toml::from_str(&text).map_err(anyhow::Error::from);
        let checked = keys.and_then(|keys: Table| {
            keys.iter().try_for_each(|(key, value)| check(key, value))?;
            Ok(keys)
        });
        Ok(Some(Self {
            keys: checked.with_context(|| misunderstood(path))?,
            path: path.to_owned(),
            behind: None,
        }))
    }

    /// The value of a key, and the file that has it.
    fn find(&self, key: &str) -> Option<(&Self, &Value)> {
        if let Some(value) = self.keys.get(key) {
            return Some((self, value));
        }
        let names_servers = SERVERS.iter().any(|key| self.keys.contains_key(*key));
        if names_servers && SERVERS.contains(&key) {
            return None;
        }
        self.behind.as_ref()?.find(key)
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.behind.as_ref().is_none_or(|file| file.is_empty())
    }

    /// Keeps the file for [`connect`] and [`local`].
    pub(crate) fn keep(self) {
        // It is read once; only tests get here again.
        let _ = LOADED.set(self);
    }

    /// Sets the default values of all options that have a key in the file.
    pub(crate) fn apply(&self, command: Command) -> Command {
        if self.is_empty() || WITHOUT_KEYS.contains(&command.get_name()) {
            return command;
        }
        let name = command.get_name().to_owned();
        command
            .mut_args(|arg| {
                let values = self.values(&name, &arg);
                match values.is_empty() {
                    true => arg,
                    false => arg.default_values(values),
                }
            })
            .mut_subcommands(|command| self.apply(command))
    }

    /// The error of a command line in which a value of the file is wrong.
    pub(crate) fn error(&self, error: &clap::Error) -> anyhow::Error {
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.clone(),
            _ => String::new(),
        };
        let (option, value) = (
            context(ContextKind::InvalidArg),
            context(ContextKind::InvalidValue),
        );
        let reason = error.source().map(|reason| format!(": {reason}"));
        anyhow!(
            "{value:?} is not a value of {option}{}",
            reason.unwrap_or_default()
        )
        .context(misunderstood(&self.source(&option).path))
    }

    /// The file that sets an option, such as `--wait <TIME>`.
    fn source(&self, option: &str) -> &Self {
        let option = option.trim_start_matches('-').split(' ').next();
        let option = option.unwrap_or_default();
        let own = OWN_KEYS.iter().filter(|(_, name, _)| *name == option);
        let mut keys = own.map(|(_, _, key)| *key).chain([option]);
        keys.find_map(|key| self.find(key))
            .map_or(self, |(file, _)| file)
    }

    /// The values that the file has for an option, as they would be typed.
    fn values(&self, command: &str, arg: &Arg) -> Vec<String> {
        let key = arg.get_long().and_then(|option| key_of(command, option));
        let found = key.and_then(|key| Some((key, self.find(key)?)));
        let Some((key, (file, value))) = found else {
            return Vec::new();
        };
        let (overridden, variable) = OVERRIDDEN;
        if key == overridden && std::env::var_os(variable).is_some() {
            return Vec::new();
        }
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let texts = texts(value).into_iter();
        let texts = texts.map(|text| match is_path {
            true => file.beside(text).display().to_string(),
            false => text,
        });
        texts.collect()
    }

    /// Paths are relative to the folder of the file, wherever a command is run.
    fn beside(&self, path: impl AsRef<Path>) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        folder.join(path)
    }
}

/// The key of an option; `None` if it has none.
fn key_of(command: &str, option: &str) -> Option<&'static str> {
    let mut own = OWN_KEYS.iter();
    match own.find(|(of, name, _)| (*of, *name) == (command, option)) {
        Some((_, _, key)) => Some(*key),
        None => KEYS.into_iter().find(|key| *key == option),
    }
}

/// Refuses keys that do not exist, and values that no option could have.
fn check(key: &str, value: &Value) -> anyhow::Result<()> {
    let own = OWN_KEYS.map(|(_, _, key)| key);
    if !SERVERS
        .iter()
        .chain(&KEYS)
        .chain(&own)
        .any(|known| *known == key)
    {
        return Err(anyhow!("there is no key {key}"));
    }
    match value {
        Value::String(text) if key == "connect" => {
            let parsed = servers::parse(text).map_err(anyhow::Error::msg);
            parsed.map(drop).context("connect")
        }
        Value::String(_) => Ok(()),
        _ if SERVERS.contains(&key) => Err(anyhow!("{key} must be a text")),
        Value::Table(_) | Value::Datetime(_) => Err(anyhow!(
            "{key} must be a text, a number, true, false, or a list of these"
        )),
        _ => Ok(()),
    }
}

/// A value as it would be typed; none for a flag that is off.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Integer(number) => vec![number.to_string()],
        Value::Float(number) => vec![number.to_string()],
        Value::Boolean(true) => vec!["true".to_owned()],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Boolean(false) | Value::Table(_) | Value::Datetime(_) => Vec::new(),
    }
}

fn misunderstood(path: &Path) -> String {
    format!("cannot understand {}", path.display())
}

/// A base folder of the XDG specification, which says that a relative one is to be ignored.
fn base_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |variable| {
        let path = std::env::var_os(variable).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::args::{Args, Command as Subcommand, LockArgs};

    /// Options without a key. They are about one call, a path or a secret, and would be dangerous or misleading as defaults.
    const PER_CALL: &str = "abort auth clear clients container count create dashboard data delay dry-run embedded ensemble ephemeral every-site expect explain \
        file folder for force forget hold id in-doubt json lasting layout lines long merge message name no-faults node null of output pace parents path \
        permits priority read reason recipes recursive replace report retry seed sequential size token try ttl value watch \
        within without write yes";

    fn file(text: &str) -> anyhow::Result<ConfigFile> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bellwether.toml");
        assert!(ConfigFile::at(&path).unwrap().is_none());
        fs::write(&path, text).unwrap();
        ConfigFile::at(&path).map(Option::unwrap)
    }

    fn lock(file: &ConfigFile, flags: &str) -> LockArgs {
        let words = format!("bellwether lock {flags} x true");
        let matches = file
            .apply(Args::command())
            .try_get_matches_from(words.split_whitespace());
        let args = Args::from_arg_matches(&matches.unwrap()).unwrap();
        match args.command {
            Subcommand::Lock(lock) => lock,
            _ => unreachable!("it is typed"),
        }
    }

    #[test]
    fn every_option_has_a_key_or_is_about_one_call() {
        fn check(command: &Command, used: &mut Vec<String>) {
            let name = command.get_name();
            if WITHOUT_KEYS.contains(&name) {
                return;
            }
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let Some(option) = arg.get_long() else {
                    continue;
                };
                let is_per_call = PER_CALL.split_whitespace().any(|other| other == option);
                let is_servers = SERVERS.contains(&option);
                let key = key_of(name, option);
                let ways = [key.is_some(), is_per_call, is_servers];
                let ways = ways.into_iter().filter(|way| *way).count();
                assert_eq!(
                    ways, 1,
                    "{name} --{option} needs a key, or a reason to have none"
                );
                used.push(key.unwrap_or(option).to_owned());
            }
            command
                .get_subcommands()
                .for_each(|command| check(command, used));
        }
        let mut used = Vec::new();
        check(&Args::command(), &mut used);
        let own = OWN_KEYS.map(|(_, _, key)| key);
        for name in KEYS
            .into_iter()
            .chain(own)
            .chain(PER_CALL.split_whitespace())
        {
            assert!(used.iter().any(|used| used == name), "no option for {name}");
        }
    }

    #[test]
    fn values_are_defaults_and_flags_win() {
        let settings = "quiet = true\nwait = 5\ngrace = \"10s\"\nmax-time = \"1h30m\"\nconflict-exit-code = 75\non-crash = \"fail\"";
        let file = file(settings).unwrap();
        let args = lock(&file, "");
        assert_eq!(args.wait.limit.wait.unwrap().as_secs(), 5);
        assert_eq!(args.wait.limit.conflict_exit_code, 75);
        assert_eq!(args.job.grace.unwrap().as_secs(), 10);
        assert_eq!(args.job.max_time.unwrap().as_secs(), 5400);
        assert_eq!(lock(&file, "-w 7").wait.limit.wait.unwrap().as_secs(), 7);
        // No conflict: only flags can be in conflict.
        assert!(lock(&file, "--try").wait.at_once);
        assert!(lock(&file, "--of 3").of.is_some());
    }

    #[test]
    fn keys_that_the_file_of_the_user_lacks_are_those_of_the_host() {
        let before = |of_user: &str, of_host: &str| {
            let of_host = file(of_host).unwrap();
            file(of_user).unwrap().before(Some(of_host))
        };
        let connect = |file: &ConfigFile| {
            let (_, connect) = file.find("connect")?;
            connect.as_str().map(str::to_owned)
        };
        let of_host = "connect = \"zk1\"\nwait = 5\ntls-ca = \"ca.pem\"";
        let both = before("quiet = true\nwait = 7", of_host);
        assert_eq!(connect(&both).as_deref(), Some("zk1"));
        let args = lock(&both, "");
        assert_eq!(args.wait.limit.wait.unwrap().as_secs(), 7);
        let host = both.behind.as_ref().unwrap();
        let ca = host.path.parent().unwrap().join("ca.pem");
        assert_eq!(args.job.connect.security.tls_ca, Some(ca));
        // A user with a local server does not use the servers of the host.
        assert_eq!(connect(&before("local = \"here\"", of_host)), None);
        let wrong = before("quiet = true", "wait = \"soon\"");
        let error =
            wrong
                .apply(Args::command())
                .try_get_matches_from(["bellwether", "lock", "x", "true"]);
        let error = format!("{:#}", wrong.error(&error.unwrap_err()));
        let host = wrong.behind.as_ref().unwrap().path.display().to_string();
        assert!(error.contains(&host), "{error}");
    }

    #[test]
    fn neutral_file_hides_that_of_the_host() {
        let of_host = file("wait = 5\ntls = true\non-crash = \"fail\"\nquiet = true").unwrap();
        assert!(lock(&of_host, "").job.connect.security.tls);
        let neutral = file(&neutral()).unwrap().before(Some(of_host));
        let args = lock(&neutral, "");
        assert_eq!(args.wait.limit.wait, None);
        assert!(args.on_crash.is_none() && !args.job.connect.security.tls);
    }

    #[test]
    fn paths_are_beside_the_file() {
        let file =
            file("tls-ca = \"ca.pem\"\ntls-cert = \"/etc/cert.pem\"\nlocal = \"here\"").unwrap();
        let folder = file.path.parent().unwrap().to_owned();
        let security = lock(&file, "").job.connect.security;
        assert_eq!(security.tls_ca, Some(folder.join("ca.pem")));
        assert_eq!(security.tls_cert, Some("/etc/cert.pem".into()));
    }

    #[test]
    fn anything_else_is_refused_with_the_name_of_the_file() {
        for text in [
            "conect = \"zk1\"",
            "connect = 1",
            "connect",
            "connect = ''",
            "yes = true",
            // Secrets have no place in a file that every user may read.
            "sasl-password = \"swordfish\"",
            "[wait]\nseconds = 1",
        ] {
            let error = file(text).unwrap_err();
            assert!(error.to_string().contains("bellwether.toml"), "{error}");
        }
        let file = file("wait = \"soon\"").unwrap();
        let error =
            file.apply(Args::command())
                .try_get_matches_from(["bellwether", "lock", "x", "true"]);
        let error = format!("{:#}", file.error(&error.unwrap_err()));
        assert!(
            error.contains("bellwether.toml") && error.contains("soon") && error.contains("--wait"),
            "{error}"
        );
    }
}
