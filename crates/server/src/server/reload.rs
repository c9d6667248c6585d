//! Changes settings of a running server.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use super::server::Server;
use super::start::{self, StartError};
use crate::client::sasl::Users;
use crate::config::{Config, Reloaded};
use crate::publish::WatchLimits;
use crate::tls::LoadedCertificates;
use crate::writer::Submission;

impl Server {
    /// Replaces the settings by `config`, where they can change while the server runs, and reads the files with certificates and SASL users
    /// again. The audit log is opened again, so that it can be moved away. Says what has changed, and what only a restart changes.
    ///
    /// Limits apply to new connections and requests; what is open stays open. Reads files, and so blocks.
    ///
    /// # Errors
    ///
    /// As at the start: settings that contradict each other, or files that cannot be used. Then everything stays as it was.
    pub fn reload(&self, mut config: Config) -> Result<Reloaded, StartError> {
        start::check(&config)?;
        start::set_tree_bytes(&mut config);
        let mut next = Config::clone(&self.engine.config());
        let reloaded = next.adopt(&self.started, config);
        // Everything that can fail comes first.
        let certificates = match (&self.acceptor, &next.tls) {
            (Some(acceptor), Some(tls)) => {
                let loaded = LoadedCertificates::from(tls.clone()).map_err(StartError::Tls)?;
                Some((acceptor, loaded))
            }
            _ => None,
        };
        let users = next.sasl_users.as_deref().map(start::read_users);
        let users: Option<Users> = users.transpose()?;
        if let (Some(audit), Some(path)) = (&self.engine.audit, &next.audit_log) {
            let opened = audit.reopen(path);
            opened.map_err(|source| start::audit_error(path, source))?;
        }
        if let Some((acceptor, loaded)) = certificates {
            acceptor.replace(loaded);
        }
        if let Some(users) = users {
            let current = self.engine.sasl_users.lock();
            *current.unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(users));
        }
        self.apply(next);
        Ok(reloaded)
    }

    fn apply(&self, config: Config) {
        let engine = &self.engine;
        engine.connections.set_limits(&config);
        engine.published.set_watch_limits(WatchLimits::of(&config));
        engine.published.slow.set_threshold(config.slow_request);
        // Unless it has changed, one that a test has set stays.
        if engine.config().frame_bytes_max != config.frame_bytes_max {
            let bytes = config.frame_bytes_max;
            engine.frame_bytes_max.store(bytes, Relaxed);
        }
        let rules = start::rules(&config);
        engine.submit.submit(Submission::SetRules(rules));
        engine.settings.send_replace(Arc::new(config));
    }
}
