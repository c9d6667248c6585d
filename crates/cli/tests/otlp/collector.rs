//! A collector that receives OTLP over HTTP.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use tokio::runtime::Runtime;

use crate::protobuf::{Fields, Value};

pub(crate) struct Collector {
    address: SocketAddr,
    requests: Receiver<(HeaderMap, Bytes)>,
    /// Ends the server on drop.
    runtime: Runtime,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let (sender, requests) = channel();
        let runtime = Runtime::new().unwrap();
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = runtime.block_on(listener).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/v1/traces", post(receive));
        runtime.spawn(axum::serve(listener, router.with_state(sender)).into_future());
        Self {
            address,
            requests,
            runtime,
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address for traces alone.
    pub(crate) fn traces(&self) -> String {
        format!("http://{}/v1/traces", self.address)
    }

    /// Everything that has arrived, after the command has ended.
    pub(crate) fn received(self) -> Received {
        let mut received = Received::default();
        for (headers, body) in self.requests.try_iter() {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            if let Some(tenant) = headers.get("x-tenant") {
                received.tenant = Some(tenant.to_str().unwrap().to_owned());
            }
            received.read(&body);
        }
        self.runtime.shutdown_background();
        received
    }
}

/// The empty message is the answer to a request that was accepted.
async fn receive(
    State(sender): State<Sender<(HeaderMap, Bytes)>>,
    headers: HeaderMap,
    body: Bytes,
) {
    sender.send((headers, body)).unwrap();
}

#[derive(Debug, Default)]
pub(crate) struct Received {
    /// A header that the test has set.
    pub(crate) tenant: Option<String>,
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) spans: Vec<Span>,
}

#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) is_error: bool,
}

impl Received {
    /// The names of all spans, in order.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.spans.iter().map(|span| &*span.name).collect();
        names.sort_unstable();
        names
    }

    /// The only span of this name.
    #[track_caller]
    pub(crate) fn span(&self, name: &str) -> &Span {
        let mut spans = self.spans.iter().filter(|span| span.name == name);
        let first = spans.next();
        assert!(
            first.is_some() && spans.next().is_none(),
            "{name}: {self:#?}"
        );
        first.unwrap()
    }

    /// Reads an `ExportTraceServiceRequest`. The numbers are those of opentelemetry-proto, `trace.proto` and `common.proto`.
    fn read(&mut self, body: &[u8]) {
        for resource_spans in Fields::of(body).messages(1) {
            for resource in resource_spans.messages(1) {
                self.resource.extend(attributes(&resource, 1));
            }
            for scope_spans in resource_spans.messages(2) {
                self.spans.extend(scope_spans.messages(2).map(|span| Span {
                    trace: hex(span.bytes(1)),
                    id: hex(span.bytes(2)),
                    parent: hex(span.bytes(4)),
                    name: text(span.bytes(5)),
                    start: span.number(7),
                    end: span.number(8),
                    attributes: attributes(&span, 9).collect(),
                    // STATUS_CODE_ERROR
                    is_error: span.messages(15).any(|status| status.number(3) == 2),
                }));
            }
        }
    }
}

/// Attributes, with their values as text.
fn attributes<'a>(of: &Fields<'a>, field: u64) -> impl Iterator<Item = (String, String)> {
    of.messages(field).map(|attribute| {
        let value = attribute.messages(2).next().unwrap();
        let value = match value.first() {
            Some((1, Value::Bytes(string))) => text(string),
            Some((3, Value::Number(integer))) => integer.cast_signed().to_string(),
            other => format!("{other:?}"),
        };
        (text(attribute.bytes(1)), value)
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
