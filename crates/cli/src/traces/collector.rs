//! HTTP to the collector, on the thread that sends the spans.

use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::export::{Unsent, variable};

/// How long one request may take by default, as the specification says.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An answer has a few bytes. More is not from a collector.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Collector {
    agent: Agent,
    unsent: Arc<Mutex<Unsent>>,
}

impl Collector {
    pub(super) fn new(unsent: Arc<Mutex<Unsent>>) -> anyhow::Result<Self> {
        let agent = Agent::config_builder()
            .timeout_global(Some(timeout()?))
            .http_status_as_error(false)
            // A collector that moved is to be named in the settings. Its headers may carry a password.
            .max_redirects(0)
            .user_agent(concat!("bellwether/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls()?)
            .build();
        Ok(Self {
            agent: agent.into(),
            unsent,
        })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = self.agent.run(request.map(Vec::from))?.into_parts();
        let body = body
            .into_with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()?;
        Ok(Response::from_parts(parts, body.into()))
    }
}

impl HttpClient for Collector {
    /// Blocks, on the thread of the SDK, which does nothing else.
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let sent = self.send(request);
        let reason = match &sent {
            Ok(answer) if answer.status().is_success() => String::new(),
            Ok(answer) => format!("the collector answered {}", answer.status()),
            Err(error) => error.to_string(),
        };
        if !reason.is_empty() {
            tracing::warn!(%reason, "traces were not sent");
        }
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        unsent.reason = reason;
        Box::pin(ready(sent.map_err(Into::into)))
    }
}

/// The SDK leaves the time limit of a request to its client.
fn timeout() -> anyhow::Result<Duration> {
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
    ];
    let milliseconds = variable(names).map(|value| value.parse()).transpose();
    let milliseconds = milliseconds.context("OTEL_EXPORTER_OTLP_TIMEOUT is in milliseconds")?;
    Ok(milliseconds.map_or(TIMEOUT, Duration::from_millis))
}

/// Trusts the certificates of the system, or those of the standard variable.
fn tls() -> anyhow::Result<TlsConfig> {
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
    ];
    let roots: Vec<Certificate<'static>> = match variable(names) {
        Some(file) => {
            let pem = std::fs::read(&file).with_context(|| format!("cannot read {file}"))?;
            let items = parse_pem(&pem).filter_map(Result::ok);
            let certificates = items.filter_map(|item| match item {
                PemItem::Certificate(certificate) => Some(certificate),
                _ => None,
            });
            certificates.collect()
        }
        None => {
            let certificates = rustls_native_certs::load_native_certs().certs;
            let owned = certificates
                .iter()
                .map(|one| Certificate::from_der(one).to_owned());
            owned.collect()
        }
    };
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
