//! `/healthz` and `/readyz`, for load balancers and service managers: without a token, and by any host name, because they say nothing else.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{Shared, listener};
use crate::TlsAccept;

pub(super) const ALIVE: &str = "/healthz";
pub(super) const READY: &str = "/readyz";

/// Time that the servers have to answer. Less than load balancers usually wait.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Answers only the probes, before a dashboard starts or after it has ended: this process is alive, and not ready because of `why`. Runs
/// until it is dropped. By TLS, if `tls` is given.
pub async fn probes(
    listener: TcpListener,
    tls: Option<TlsAccept>,
    why: &'static str,
) -> io::Result<()> {
    let router = Router::new()
        .route(ALIVE, get(alive))
        .fallback(move || async move { not_ready(why) });
    axum::serve(listener::Patient::new(listener, tls), router).await
}

pub(super) async fn alive() -> &'static str {
    "alive\n"
}

pub(super) async fn ready(State(app): Shared) -> Response {
    let ready = async {
        match &app.dashboard.ready {
            Some(ready) => ready().await,
            None => app
                .live
                .client
                .ready()
                .await
                .map_err(|error| error.to_string()),
        }
    };
    match timeout(ANSWER_MAX, ready).await {
        Ok(Ok(())) => "ready\n".into_response(),
        Ok(Err(why)) => not_ready(&why),
        Err(_) => not_ready("no write was carried out within 2 seconds"),
    }
}

fn not_ready(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
