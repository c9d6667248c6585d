//! Sends the spans of this process to an OpenTelemetry collector, where the standard variables name one.
//!
//! A thread of the SDK sends them in batches. Spans are handed to it through a bounded channel without waiting, so a collector that is
//! slow or absent delays neither a job nor a heartbeat: spans are dropped instead.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Status, TracerProvider};
use opentelemetry_otlp::{RetryPolicy, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::field::Empty;
use tracing::span::EnteredSpan;
use tracing::{Metadata, Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::collector::Collector;
use crate::args::{Args, Command, QueueArgs, QueueCommand, TasksArgs, TasksCommand};
use crate::exit::Exit;
use crate::output::Output;

/// How long the end of a process waits for the collector. Its locks are released and its session is closed by then.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// The variables of the trace context, as the propagator names the headers of HTTP.
const CONTEXT: [(&str, &str); 2] = [("TRACEPARENT", "traceparent"), ("TRACESTATE", "tracestate")];

/// An export under way.
pub(super) struct Export {
    provider: SdkTracerProvider,
    unsent: Arc<Mutex<Unsent>>,
    /// The span of the command.
    span: Option<EnteredSpan>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").finish_non_exhaustive()
    }
}

impl Export {
    /// Installs the subscriber that exports. `None`, and nothing is installed, if no variable names a collector, or if its settings
    /// cannot be used: a job does not fail for its traces.
    pub(super) fn start(args: &Args, log: EnvFilter, output: Output) -> Option<Self> {
        if !has_spans(args) || !is_wanted() {
            return None;
        }
        let unsent = Arc::default();
        let provider = match provider(&unsent) {
            Ok(provider) => provider,
            Err(error) => {
                output.notice(format_args!("traces are not exported: {error:#}"));
                return None;
            }
        };
        let spans = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("bellwether"))
            // Of these, only the spans of this process would know anything that their names do not.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(super::is_colored());
        tracing_subscriber::registry()
            .with(spans.with_filter(filter_fn(is_exported)))
            .with(lines.with_filter(log))
            .init();
        Some(Self {
            provider,
            unsent,
            span: is_one_trace(&args.command).then(|| command_span(&args.name).entered()),
        })
    }

    /// Ends the span of the command, and sends all spans that are left, within [`FLUSH_LIMIT`].
    pub(super) fn end(self, exit: Exit, output: Output) {
        if let Some(span) = self.span {
            span.record("process.exit.code", exit.code());
            if exit.code() != 0 {
                span.record("otel.status_code", "error");
            }
        }
        let flushed = self.provider.shutdown_with_timeout(FLUSH_LIMIT);
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if flushed.is_err() && unsent.reason.is_empty() {
            unsent.reason = format!("no answer within {FLUSH_LIMIT:?}");
        }
        if !unsent.reason.is_empty() {
            output.notice(format_args!("traces were not sent: {}", unsent.reason));
        }
    }
}

/// The variables by which a job continues the trace of the current span.
pub(super) fn variables() -> Vec<(&'static str, Option<OsString>)> {
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
    // Without a span, those of this process are inherited.
    CONTEXT
        .into_iter()
        .filter_map(|(variable, header)| {
            let value = headers.remove(header).filter(|value| !value.is_empty())?;
            Some((variable, Some(value.into())))
        })
        .collect()
}

/// The span of a whole command, in the trace of the process that started it.
fn command_span(name: &str) -> Span {
    let span = info_span!(
        "command",
        otel.name = format!("bellwether {name}"),
        otel.status_code = Empty,
        process.pid = std::process::id(),
        process.exit.code = Empty,
    );
    let variables = CONTEXT.into_iter().filter_map(|(variable, header)| {
        let value = std::env::var(variable).ok()?;
        Some((header.to_owned(), value))
    });
    let variables: HashMap<_, _> = variables.collect();
    // Fails only for spans that have started, or that nobody exports.
    let _ = span.set_parent(TraceContextPropagator::new().extract(&variables));
    span
}

/// Whether this process makes spans. The front of a job and the parent of workers leave them to the process that they start.
fn has_spans(args: &Args) -> bool {
    let makes_none = matches!(
        args.command,
        Command::Complete(_)
            | Command::Completions(_)
            | Command::Demo(_)
            | Command::Local(_)
            | Command::Log(_)
            | Command::Man(_)
            | Command::Note(_)
            | Command::Serve(_)
            | Command::Snapshot(_)
    );
    !makes_none && !args.needs_keeper() && args.workers_to_start().is_none()
}

/// Whether all of a command is one trace. A process that serves for days would end its trace on its last day.
fn is_one_trace(command: &Command) -> bool {
    !matches!(
        command,
        Command::Dashboard(_)
            | Command::Top(_)
            | Command::Torture(_)
            | Command::Queue(QueueArgs {
                command: QueueCommand::Work(_)
            })
            | Command::Tasks(TasksArgs {
                command: TasksCommand::Run(_)
            })
    )
}

/// Whether the standard variables name a collector.
fn is_wanted() -> bool {
    let is_off = variable(["OTEL_SDK_DISABLED"]).is_some_and(|is| is.eq_ignore_ascii_case("true"))
        || variable(["OTEL_TRACES_EXPORTER"]).is_some_and(|exporter| exporter == "none");
    let endpoint = variable([
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ]);
    endpoint.is_some() && !is_off
}

/// The first of these variables that has a value.
pub(super) fn variable<const N: usize>(names: [&str; N]) -> Option<String> {
    let mut values = names
        .into_iter()
        .filter_map(|name| std::env::var(name).ok());
    values.find(|value| !value.is_empty())
}

/// Recipe calls and what this command does around them. Not the libraries below it, whose spans belong to connections.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_ours = target == "bellwether" || target.starts_with("bellwether::");
    is_ours && *metadata.level() <= tracing::Level::INFO
}

fn provider(unsent: &Arc<Mutex<Unsent>>) -> anyhow::Result<SdkTracerProvider> {
    let protocol = variable([
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ]);
    if let Some(other) = protocol.filter(|protocol| protocol != "http/protobuf") {
        anyhow::bail!("the protocol is http/protobuf, not {other} (OTEL_EXPORTER_OTLP_PROTOCOL)");
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Collector::new(Arc::clone(unsent))?)
        // A retry would only delay the exit of a short command.
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .context("OTEL_EXPORTER_OTLP_* cannot be used")?;
    Ok(SdkTracerProvider::builder()
        .with_resource(resource())
        .with_batch_exporter(Marking(exporter))
        .build())
}

/// What all spans of this process have in common. The variables of the user come last, because they win.
fn resource() -> Resource {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let resource = Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", "bellwether"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("host.name", host),
        ])
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match variable(["OTEL_SERVICE_NAME"]) {
        Some(name) => resource.with_service_name(name),
        None => resource,
    }
    .build()
}

/// Why spans were not sent, at the last time; empty if they were.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    pub(super) reason: String,
}

/// Marks the spans of failed calls as errors, by the outcome that the library records.
#[derive(Debug)]
struct Marking<E>(E);

impl<E: SpanExporter> SpanExporter for Marking<E> {
    async fn export(&self, mut spans: Vec<SpanData>) -> OTelSdkResult {
        spans.iter_mut().for_each(mark);
        self.0.export(spans).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn mark(span: &mut SpanData) {
    let value = |name: &str| {
        let attribute = span.attributes.iter().find(|one| one.key.as_str() == name);
        attribute.map(|attribute| attribute.value.as_str().into_owned())
    };
    if value("outcome").as_deref() == Some("failed") {
        span.status = Status::error(value("error").unwrap_or_default());
    }
}
