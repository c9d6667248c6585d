//! Apache's configuration file, `zoo.cfg`.

mod properties;
mod protection;
mod secure;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use self::secure::Secure;
use crate::config::{Config, SessionPasswords, TlsConfig, WordList, known_word};

/// The content of a `zoo.cfg`.
#[derive(Debug, Clone)]
pub struct ZooCfg {
    /// The settings, with Apache's defaults for what the file leaves out. Settings for protection that this server does not offer are in
    /// [`Config::unsupported`], and those of an ensemble's members in [`Config::members`]; both prevent the start.
    pub config: Config,
    /// One sentence for each line that has no effect, or another effect than written.
    pub warnings: Vec<String>,
    /// What the program that runs the server logs: a level, or a list of targets with levels (`bellwether.log`).
    pub log: Option<String>,
}

/// Why a `zoo.cfg` cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum ZooCfgError {
    /// The file is not there, not readable or not UTF-8; the source says which.
    #[error("cannot read {path}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// Correct the value, or remove the line to use the default.
    #[error("line {line}: {key} is {value:?}, expected {expected}")]
    BadValue {
        line: usize,
        key: String,
        value: String,
        expected: String,
    },
    /// Write a backslash as two.
    #[error("line {line}: \\u without four hexadecimal digits of a character")]
    BadEscape { line: usize },
    /// Add the key, which has no default.
    #[error("{key} is not set")]
    NotSet { key: &'static str },
    /// Raise the maximum or lower the minimum. Defaults depend on tickTime.
    #[error("minSessionTimeout {min:?} is longer than maxSessionTimeout {max:?}")]
    TimeoutsCrossed { min: Duration, max: Duration },
}

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<ZooCfg, ZooCfgError> {
    let text = fs::read_to_string(path).map_err(|source| ZooCfgError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    parse(&text)
}

/// Parses the text of such a file. Resolves a host name in `clientPortAddress`.
pub fn parse(text: &str) -> Result<ZooCfg, ZooCfgError> {
    let mut draft = Draft::new();
    for property in properties::properties(text) {
        let property = property.map_err(|bad| ZooCfgError::BadEscape { line: bad.line })?;
        draft.set(&Setting {
            line: property.line,
            // Apache turns each unknown key into a system property with this prefix, unless the key already has it. Most keys work in both
            // forms there; here all do.
            key: property
                .key
                .strip_prefix("zookeeper.")
                .unwrap_or(&property.key),
            value: property.value.trim(),
        })?;
    }
    draft.finish()
}

/// Settings of an ensemble: keys and prefixes of keys.
const ENSEMBLE_KEYS: &[&str] = &[
    "cnxTimeout",
    "connectToLearnerMasterLimit",
    "electionAlg",
    "electionPortBindRetry",
    "follower.nodelay",
    "initLimit",
    "leaderServes",
    "learner.asyncSending",
    "learner.closeSocketAsync",
    "localSessionsEnabled",
    "localSessionsUpgradingEnabled",
    "multiAddress.enabled",
    "observer.reconnectDelayMs",
    "observerMasterPort",
    "peerType",
    "quorumListenOnAllIPs",
    "standaloneEnabled",
    "syncEnabled",
    "syncLimit",
];
const ENSEMBLE_PREFIXES: &[&str] = &["group.", "quorum.", "weight."];

/// The key of the file that names the members, where they can be reconfigured.
const DYNAMIC: &str = "dynamicConfigFile";

/// Largest value of a Java `int`.
const INT_MAX: u32 = i32::MAX as u32;

/// Settings collected from the lines so far.
struct Draft {
    config: Config,
    log: Option<String>,
    warnings: Vec<String>,
    port: Option<u16>,
    address: IpAddr,
    auth_enforced: bool,
    /// Schemes by which connections must authenticate, with their line numbers.
    enforced_schemes: Vec<(String, usize)>,
    /// Authentication providers by key: class and line number.
    providers: BTreeMap<String, (String, usize)>,
    secure: Secure,
    super_user_line: Option<usize>,
    /// Keys of settings that this server does not support, with their line numbers.
    unsupported: BTreeMap<String, usize>,
    /// Keys that name members of an ensemble, with their line numbers.
    members: BTreeMap<String, usize>,
    snapshots_kept: usize,
    purges: bool,
    warned: BTreeSet<String>,
}

impl Draft {
    fn new() -> Self {
        Self {
            config: Config {
                // ZooKeeperServer.DEFAULT_TICK_TIME; the sample file sets 2000.
                tick: Duration::from_secs(3),
                ..Config::default()
            },
            log: None,
            warnings: Vec::new(),
            port: None,
            address: Ipv4Addr::UNSPECIFIED.into(),
            auth_enforced: false,
            enforced_schemes: Vec::new(),
            providers: BTreeMap::new(),
            secure: Secure::default(),
            super_user_line: None,
            unsupported: BTreeMap::new(),
            members: BTreeMap::new(),
            snapshots_kept: 3,
            purges: false,
            warned: BTreeSet::new(),
        }
    }

    fn set(&mut self, setting: &Setting<'_>) -> Result<(), ZooCfgError> {
        // The last line of a key wins, here too.
        self.unsupported.remove(setting.key);
        if self.secure.take(setting) {
            return Ok(());
        }
        if setting.key.starts_with("authProvider.") && !setting.value.is_empty() {
            let line = (setting.value.to_owned(), setting.line);
            self.providers.insert(setting.key.to_owned(), line);
            return Ok(());
        }
        if protection::is_promised(setting.key, setting.value) {
            self.unsupported
                .insert(setting.key.to_owned(), setting.line);
            return Ok(());
        }
        let config = &mut self.config;
        match setting.key {
            "clientPort" => {
                // Apache takes 0 as not set.
                let port = setting.number(1..=u16::MAX.into())?;
                self.port = u16::try_from(port).ok();
            }
            "clientPortAddress" => self.address = setting.address()?,
            "dataDir" => config.data_dir = Some(setting.path()?),
            "dataLogDir" => config.data_log_dir = Some(setting.path()?),
            "tickTime" => config.tick = setting.millis(1..=INT_MAX)?,
            "minSessionTimeout" => config.session_timeout_min = setting.session_timeout()?,
            "maxSessionTimeout" => config.session_timeout_max = setting.session_timeout()?,
            "maxClientCnxns" => config.connections_per_address_max = setting.count(0)?,
            "maxCnxns" => config.connections_max = setting.count(0)?,
            "bellwether.connectionsPerUserMax" => {
                config.connections_per_user_max = setting.count(0)?;
            }
            "netty.server.outstandingHandshake.limit" => {
                config.handshakes_max = setting.count(0)?;
            }
            "bellwether.handshakesPerSecondMax" => {
                config.handshakes_per_second_max = setting.count(0)?;
            }
            "globalOutstandingLimit" => config.outstanding_max = setting.count(1)?,
            "bellwether.outstandingBytesMax" => config.outstanding_bytes_max = setting.count(1)?,
            "bellwether.inputBytesMax" => config.input_bytes_max = setting.count(1)?,
            "bellwether.outboxBytesMax" => config.outbox_bytes_max = setting.count(1)?,
            "bellwether.outboxesBytesMax" => config.outboxes_bytes_max = setting.count(1)?,
            "bellwether.watchesPerSessionMax" => {
                config.watches_per_session_max = setting.count(1)?;
            }
            "bellwether.watchBytesPerSessionMax" => {
                config.watch_bytes_per_session_max = setting.count(1)?;
            }
            "bellwether.sessionsMax" => config.sessions_max = setting.count(1)?,
            "bellwether.sessionOpeningsMax" => config.session_openings_max = setting.count(0)?,
            "bellwether.ephemeralsPerSessionMax" => {
                config.ephemerals_per_session_max = setting.count(1)?;
            }
            "bellwether.treeBytesMax" => config.tree_bytes_max = Some(setting.large(1)?),
            "bellwether.treeNodesMax" => config.tree_nodes_max = setting.count(0)?,
            "bellwether.diskFreeBytesMin" => {
                config.disk_free_bytes_min = Some(setting.large(0)? as u64);
            }
            "bellwether.watchesMax" => config.watches_max = setting.count(1)?,
            "bellwether.watchBytesMax" => config.watch_bytes_max = setting.count(1)?,
            "jute.maxbuffer" => config.frame_bytes_max = setting.count(1)?,
            "4lw.commands.whitelist" => self.set_words(setting),
            "extendedTypesEnabled" => config.extended_types = setting.truth()?,
            "enforceQuota" => config.enforce_quota = setting.truth()?,
            "reconfigEnabled" => config.reconfig_enabled = setting.truth()?,
            // The only switch that Apache spells yes/no; `true` would leave it off there.
            "skipACL" => config.skip_acl = setting.either("yes", "no")?,
            "DigestAuthenticationProvider.superDigest" => {
                config.super_digest = Some(setting.super_digest()?);
            }
            "enforce.auth.enabled" => self.auth_enforced = setting.truth()?,
            "enforce.auth.schemes" => {
                let schemes = setting
                    .list()
                    .map(|scheme| (scheme.to_owned(), setting.line));
                self.enforced_schemes = schemes.collect();
                if self.enforced_schemes.is_empty() {
                    return Err(setting.bad("a list of schemes, such as digest and sasl"));
                }
            }
            "bellwether.saslUsers" => config.sasl_users = Some(setting.path()?),
            "bellwether.log" => self.log = Some(setting.value.to_owned()),
            "bellwether.auditLog" => config.audit_log = Some(setting.path()?),
            "bellwether.sessionPasswords" => {
                let is_secret = setting.either("secret", "apache")?;
                config.session_passwords = match is_secret {
                    true => SessionPasswords::Secret,
                    false => SessionPasswords::Apache,
                };
            }
            "superUser" => {
                config.sasl_super_user = Some(setting.value.to_owned());
                self.super_user_line = Some(setting.line);
            }
            "znode.container.checkIntervalMs" => {
                config.container_check_interval = setting.millis(1..=INT_MAX)?;
            }
            "znode.container.maxPerMinute" => {
                config.container_deletions_per_minute_max = setting.count(1)?;
            }
            "znode.container.maxNeverUsedIntervalMs" => {
                config.container_never_used_max = setting.millis(0..=INT_MAX)?;
            }
            "fsync.warningthresholdms" => config.fsync_warning = setting.millis(0..=INT_MAX)?,
            "bellwether.slowRequestMs" => config.slow_request = setting.millis(0..=INT_MAX)?,
            "snapCount" => config.snap_count = setting.count(2)?,
            "preAllocSize" => {
                config.log_preallocation_bytes = u64::from(setting.number(1..=INT_MAX)?) * 1024;
            }
            "autopurge.snapRetainCount" => {
                let retain = setting.count(0)?;
                if retain < 3 {
                    self.warn(setting, "is raised to 3, the least that are kept");
                }
                self.snapshots_kept = retain.max(3);
            }
            "autopurge.purgeInterval" => {
                // Each snapshot deletes the files it makes obsolete, so no periodic purge is needed.
                self.purges = setting.number(0..=INT_MAX)? > 0;
            }
            key if names_members(key) => {
                self.members.insert(key.to_owned(), setting.line);
            }
            key if is_of_ensembles(key) => {
                self.warn(setting, "is ignored: it only matters in an ensemble");
            }
            _ => self.warn(setting, "is ignored: this server has no such setting"),
        }
        Ok(())
    }

    /// A word that this server lacks may be one of Apache's, so it is no error.
    fn set_words(&mut self, setting: &Setting<'_>) {
        let words: Vec<_> = setting.list().collect();
        if words.contains(&"*") {
            self.config.words = WordList::all();
            return;
        }
        // FourLetterCommands adds it to any list, because zkServer.sh sends it.
        let mut known = vec!["srvr"];
        for word in words {
            match known_word(word) {
                Some(word) => known.push(word),
                None => self.warnings.push(format!(
                    "line {}: the word {word:?} is ignored: this server has no such word",
                    setting.line
                )),
            }
        }
        self.config.words = WordList::parse(&known.join(",")).expect("all of them are known");
    }

    fn warn(&mut self, setting: &Setting<'_>, what: &str) {
        if self.warned.insert(setting.key.to_owned()) {
            self.warnings
                .push(format!("line {}: {} {what}", setting.line, setting.key));
        }
    }

    fn finish(mut self) -> Result<ZooCfg, ZooCfgError> {
        let not_set = |key| ZooCfgError::NotSet { key };
        let config = &mut self.config;
        config.tls = self.secure.finish(&mut self.unsupported)?;
        config.listen = match (self.port, &config.tls) {
            (Some(port), _) => vec![SocketAddr::new(self.address, port)],
            (None, Some(_)) => Vec::new(),
            (None, None) => return Err(not_set("clientPort")),
        };
        config.snapshots_kept = self.purges.then_some(self.snapshots_kept);
        if config.data_dir.is_none() {
            return Err(not_set("dataDir"));
        }
        let (min, max) = config.session_timeouts();
        if min > max {
            return Err(ZooCfgError::TimeoutsCrossed { min, max });
        }
        let has_x509 = config.tls.as_ref().is_some_and(TlsConfig::knows_clients);
        let has = |scheme: &str| match scheme {
            "digest" | "ip" => true,
            "x509" => has_x509,
            "sasl" => config.sasl_users.is_some(),
            _ => false,
        };
        if config.audit_log.is_some() {
            self.unsupported.remove("audit.enable");
        }
        if let (Some(line), None) = (self.super_user_line, &config.sasl_users) {
            self.unsupported.insert("superUser".into(), line);
        }
        for (key, (class, line)) in &self.providers {
            let class = class.rsplit('.').next().unwrap_or_default();
            let scheme = class
                .strip_suffix("AuthenticationProvider")
                .unwrap_or_default();
            if !has(&scheme.to_ascii_lowercase()) {
                self.unsupported.insert(key.clone(), *line);
            }
        }
        if self.auth_enforced {
            if self.enforced_schemes.is_empty() {
                return Err(not_set("enforce.auth.schemes"));
            }
            let (enforced, foreign): (Vec<_>, Vec<_>) = self
                .enforced_schemes
                .into_iter()
                .partition(|(scheme, _)| has(scheme));
            // No client could ever authenticate by these schemes.
            let lines = foreign
                .into_iter()
                .map(|(_, line)| ("enforce.auth.schemes".to_owned(), line));
            self.unsupported.extend(lines);
            config.enforce_auth_schemes = enforced.into_iter().map(|(scheme, _)| scheme).collect();
        }
        config.unsupported = with_lines(self.unsupported);
        // Apache starts a standalone server too if only one member is named (`QuorumPeerConfig.parseDynamicConfig`).
        match self.members.pop_first() {
            Some((key, line)) if self.members.is_empty() && key != DYNAMIC => {
                self.warnings.push(format!(
                    "line {line}: {key} is ignored: it only matters in an ensemble"
                ));
            }
            first => {
                self.members.extend(first);
                config.members = with_lines(self.members);
            }
        }
        Ok(ZooCfg {
            config: self.config,
            warnings: self.warnings,
            log: self.log,
        })
    }
}

/// Keys with their lines, in the order of the lines.
fn with_lines(keys: BTreeMap<String, usize>) -> Vec<String> {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_by_key(|(_, line)| *line);
    let keys = keys.into_iter();
    keys.map(|(key, line)| format!("{key} (line {line})"))
        .collect()
}

/// Whether a key names members of an ensemble, or the file that does.
fn names_members(key: &str) -> bool {
    key == DYNAMIC || key.starts_with("server.")
}

fn is_of_ensembles(key: &str) -> bool {
    ENSEMBLE_KEYS.contains(&key)
        || ENSEMBLE_PREFIXES
            .iter()
            .any(|prefix| key.starts_with(prefix))
}

/// One line; the key is without the prefix.
struct Setting<'a> {
    line: usize,
    key: &'a str,
    value: &'a str,
}

impl<'a> Setting<'a> {
    fn bad(&self, expected: impl Into<String>) -> ZooCfgError {
        ZooCfgError::BadValue {
            line: self.line,
            key: self.key.to_owned(),
            value: self.value.to_owned(),
            expected: expected.into(),
        }
    }

    fn number(&self, range: RangeInclusive<u32>) -> Result<u32, ZooCfgError> {
        // Apache reads system properties with Integer.decode, which accepts hexadecimal.
        let number = match self.value.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => self.value.parse(),
        };
        number
            .ok()
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (least, most) = range.into_inner();
                self.bad(format!("a whole number from {least} to {most}"))
            })
    }

    fn count(&self, least: u32) -> Result<usize, ZooCfgError> {
        Ok(self.number(least..=INT_MAX)? as usize)
    }

    /// A number of bytes that may be larger than Apache's numbers.
    fn large(&self, least: usize) -> Result<usize, ZooCfgError> {
        let number = self.value.parse().ok();
        number
            .filter(|number| *number >= least)
            .ok_or_else(|| self.bad(format!("a whole number from {least}")))
    }

    fn millis(&self, range: RangeInclusive<u32>) -> Result<Duration, ZooCfgError> {
        Ok(Duration::from_millis(self.number(range)?.into()))
    }

    /// `None` for -1, by which Apache derives the timeout from the tick.
    fn session_timeout(&self) -> Result<Option<Duration>, ZooCfgError> {
        if self.value == "-1" {
            return Ok(None);
        }
        self.millis(1..=INT_MAX).map(Some)
    }

    fn truth(&self) -> Result<bool, ZooCfgError> {
        self.either("true", "false")
    }

    fn either(&self, yes: &str, no: &str) -> Result<bool, ZooCfgError> {
        if self.value.eq_ignore_ascii_case(yes) {
            Ok(true)
        } else if self.value.eq_ignore_ascii_case(no) {
            Ok(false)
        } else {
            Err(self.bad(format!("{yes} or {no}")))
        }
    }

    fn path(&self) -> Result<PathBuf, ZooCfgError> {
        if self.value.is_empty() {
            return Err(self.bad("a path"));
        }
        Ok(PathBuf::from(self.value))
    }

    fn address(&self) -> Result<IpAddr, ZooCfgError> {
        let host = self.value.trim_start_matches('[').trim_end_matches(']');
        // Like InetAddress.getByName: the first address of a host name. Literals are not resolved.
        let first = (host, 0)
            .to_socket_addrs()
            .ok()
            .and_then(|mut all| all.next());
        first
            .filter(|_| !host.is_empty())
            .map(|address| address.ip())
            .ok_or_else(|| self.bad("an address or name of this host"))
    }

    fn super_digest(&self) -> Result<String, ZooCfgError> {
        match self.value.split_once(':') {
            Some((user, digest)) if !user.is_empty() && !digest.is_empty() => {
                Ok(self.value.to_owned())
            }
            // A misplaced value may be the password itself, so it is not shown.
            _ => Err(Setting {
                value: "(hidden)",
                ..*self
            }
            .bad("super:<base64 of the digest>")),
        }
    }

    fn list(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.value
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
    }
}

#[cfg(test)]
mod tests;
