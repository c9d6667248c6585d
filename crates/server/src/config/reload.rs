//! Which settings can change while a server runs.

use crate::config::{Config, TlsConfig};

/// What a reload has changed. Settings are named by their keys in `zoo.cfg`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Settings that are in force now. Files with certificates and users are read again even if no setting has changed.
    pub applied: Vec<&'static str>,
    /// Settings that differ from those at the start, and that only a restart applies.
    pub needs_restart: Vec<&'static str>,
}

impl Reloaded {
    /// Notes a setting that only a restart applies, if it differs.
    fn keep<T: PartialEq>(&mut self, key: &'static str, started: &T, new: &T) {
        if started != new {
            self.needs_restart.push(key);
        }
    }

    /// Applies a setting, if it differs.
    fn apply<T: PartialEq>(&mut self, key: &'static str, current: &mut T, new: T) {
        if *current != new {
            *current = new;
            self.applied.push(key);
        }
    }
}

impl Config {
    /// Takes from `new` what can change while the server runs. `started` are the settings as they were given at the start: those in force
    /// have the ports that the system chose.
    pub(crate) fn adopt(&mut self, started: &Self, new: Self) -> Reloaded {
        let mut reloaded = Reloaded::default();
        // Names every setting, so that a new one has to be put into one of both lists.
        macro_rules! adopt {
            (apply { $($live:ident: $live_key:literal,)* } keep { $($fixed:ident: $fixed_key:literal,)* }) => {
                let Self {
                    $($live,)*
                    $($fixed,)*
                    tls,
                    sasl_users,
                    unsupported: _,
                    ignore_unsupported: _,
                    members: _,
                    standalone: _,
                } = new;
                $(reloaded.apply($live_key, &mut self.$live, $live);)*
                $(reloaded.keep($fixed_key, &started.$fixed, &$fixed);)*
                self.adopt_tls(&mut reloaded, started.tls.as_ref(), tls);
                match (&mut self.sasl_users, sasl_users) {
                    (Some(current), Some(new)) => reloaded.apply("bellwether.saslUsers", current, new),
                    // Access lists may name SASL ids only if there are users at the start.
                    (current, new) => reloaded.keep("bellwether.saslUsers", current, &new),
                }
            };
        }
        adopt! {
            apply {
                session_timeout_min: "minSessionTimeout",
                session_timeout_max: "maxSessionTimeout",
                frame_bytes_max: "jute.maxbuffer",
                connections_max: "maxCnxns",
                connections_per_address_max: "maxClientCnxns",
                connections_per_user_max: "bellwether.connectionsPerUserMax",
                handshakes_max: "netty.server.outstandingHandshake.limit",
                handshakes_per_second_max: "bellwether.handshakesPerSecondMax",
                handshake_timeout: "the time for a handshake",
                outstanding_max: "globalOutstandingLimit",
                outstanding_bytes_max: "bellwether.outstandingBytesMax",
                input_bytes_max: "bellwether.inputBytesMax",
                outbox_bytes_max: "bellwether.outboxBytesMax",
                outboxes_bytes_max: "bellwether.outboxesBytesMax",
                watches_per_session_max: "bellwether.watchesPerSessionMax",
                watch_bytes_per_session_max: "bellwether.watchBytesPerSessionMax",
                watches_max: "bellwether.watchesMax",
                watch_bytes_max: "bellwether.watchBytesMax",
                sessions_max: "bellwether.sessionsMax",
                ephemerals_per_session_max: "bellwether.ephemeralsPerSessionMax",
                tree_bytes_max: "bellwether.treeBytesMax",
                tree_nodes_max: "bellwether.treeNodesMax",
                slow_request: "bellwether.slowRequestMs",
                words: "4lw.commands.whitelist",
                extended_types: "extendedTypesEnabled",
                enforce_quota: "enforceQuota",
                reconfig_enabled: "reconfigEnabled",
                super_digest: "DigestAuthenticationProvider.superDigest",
                sasl_super_user: "superUser",
                enforce_auth_schemes: "enforce.auth.schemes",
                container_check_interval: "znode.container.checkIntervalMs",
                container_deletions_per_minute_max: "znode.container.maxPerMinute",
                container_never_used_max: "znode.container.maxNeverUsedIntervalMs",
            }
            keep {
                listen: "clientPort",
                listen_unix: "--listen unix:",
                unix_peers: "--unix-users",
                session_passwords: "bellwether.sessionPasswords",
                audit_log: "bellwether.auditLog",
                tick: "tickTime",
                session_openings_max: "bellwether.sessionOpeningsMax",
                skip_acl: "skipACL",
                data_dir: "dataDir",
                data_log_dir: "dataLogDir",
                disk_free_bytes_min: "bellwether.diskFreeBytesMin",
                new_epoch: "--new-epoch",
                snap_count: "snapCount",
                log_preallocation_bytes: "preAllocSize",
                fsync_warning: "fsync.warningthresholdms",
                snapshots_kept: "autopurge",
            }
        }
        reloaded
    }

    /// The port stays, and so does whether clients have certificates, because access lists may name these only since the start.
    fn adopt_tls(
        &mut self,
        reloaded: &mut Reloaded,
        started: Option<&TlsConfig>,
        new: Option<TlsConfig>,
    ) {
        match (&mut self.tls, started, new) {
            (Some(current), Some(started), Some(new)) => {
                reloaded.keep("secureClientPort", &started.listen, &new.listen);
                let knows_clients = (current.knows_clients(), new.knows_clients());
                if knows_clients.0 != knows_clients.1 {
                    reloaded.needs_restart.push("ssl.clientAuth");
                    return;
                }
                let listen = current.listen.clone();
                reloaded.apply("ssl", current, TlsConfig { listen, ..new });
            }
            (None, _, None) => {}
            _ => reloaded.needs_restart.push("secureClientPort"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn what_can_change_is_taken_and_what_cannot_is_named() {
        let started = Config {
            tls: Some(TlsConfig::new("a.pem", "a.key")),
            ..Config::default()
        };
        let mut current = started.clone();
        // As the system chose it.
        current.listen = vec![SocketAddr::from(([127, 0, 0, 1], 4711))];
        assert_eq!(
            current.adopt(&started, started.clone()),
            Reloaded::default()
        );
        let new = Config {
            connections_per_address_max: 3,
            snap_count: 17,
            sasl_users: Some("users".into()),
            tls: Some(TlsConfig::new("b.pem", "b.key")),
            ..started.clone()
        };
        let reloaded = current.adopt(&started, new);
        assert_eq!(reloaded.applied, ["maxClientCnxns", "ssl"]);
        assert_eq!(
            reloaded.needs_restart,
            ["snapCount", "bellwether.saslUsers"]
        );
        assert_eq!(current.connections_per_address_max, 3);
        assert_eq!(current.snap_count, started.snap_count);
        assert_eq!(current.tls, Some(TlsConfig::new("b.pem", "b.key")));
        assert_eq!(current.sasl_users, None);
    }

    #[test]
    fn tls_is_neither_added_nor_removed() {
        let with = Config {
            tls: Some(TlsConfig::new("a.pem", "a.key")),
            ..Config::default()
        };
        let without = Config::default();
        for (started, new) in [(&with, &without), (&without, &with)] {
            let mut current = started.clone();
            let reloaded = current.adopt(started, new.clone());
            assert_eq!(reloaded.needs_restart, ["secureClientPort"]);
            assert_eq!(current.tls, started.tls);
        }
        let mut clients = with.clone();
        clients.tls.as_mut().unwrap().client_authorities = Some("ca.pem".into());
        let mut current = with.clone();
        let reloaded = current.adopt(&with, clients);
        assert_eq!(reloaded.needs_restart, ["ssl.clientAuth"]);
        assert_eq!(current.tls, with.tls);
    }
}
