//! HTTP routes of the dashboard.

mod actions;
mod assets;
mod caller;
mod guard;
mod listener;
mod login;
mod probes;
mod sessions;
mod stream;
mod tree;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bellwether::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::Dashboard;
use crate::live::Live;
use caller::Caller;
use guard::Guard;
pub use probes::probes;

/// Maximum time of a request to the servers before the page gets an error.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Maximum length of a request body.
const BODY_BYTES_MAX: usize = 16 << 10;

/// State that requests share.
#[derive(Debug)]
struct App {
    dashboard: Dashboard,
    guard: Guard,
    live: Arc<Live>,
}

type Shared = State<Arc<App>>;

pub(crate) async fn serve(
    listener: TcpListener,
    dashboard: Dashboard,
    live: Arc<Live>,
) -> io::Result<()> {
    let guard = Guard::new(&dashboard, listener.local_addr()?);
    let listener = listener::Patient::new(listener, dashboard.tls.clone());
    let app = Arc::new(App {
        dashboard,
        guard,
        live,
    });
    let router = Router::new()
        .route("/api/about", get(about))
        .route("/api/live", get(stream::live))
        .route("/api/touched", get(stream::touched))
        .route("/api/children", get(tree::children))
        .route("/api/node", get(tree::node))
        .route("/api/search", get(tree::search))
        .route("/api/sessions", get(sessions::sessions))
        .route("/api/dead-letters", get(actions::dead_letters))
        .route("/api/action", post(actions::act))
        .route("/api/backup", post(actions::backup))
        .route("/api/login", post(login::login))
        .route("/metrics", get(metrics))
        .route(probes::ALIVE, get(probes::alive))
        .route(probes::READY, get(probes::ready))
        .fallback(assets::asset)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), guard::check))
        .with_state(app);
    let service = router.into_make_service_with_connect_info::<Caller>();
    axum::serve(listener, service).await
}

/// What a page needs to know first.
async fn about(
    State(app): Shared,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
) -> Response {
    answer(&json!({
        "title": app.dashboard.title,
        "version": env!("CARGO_PKG_VERSION"),
        "actions": app.dashboard.allows_actions,
        "logged_in": app.guard.has_token(&headers),
        "needs_login": app.guard.needs_login(caller, &headers),
        "metrics": app.dashboard.metrics.is_some(),
    }))
}

async fn metrics(State(app): Shared) -> Response {
    match &app.dashboard.metrics {
        Some(metrics) => (
            [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )],
            metrics(),
        )
            .into_response(),
        None => refusal(
            StatusCode::NOT_FOUND,
            "this process has no metrics; `bellwether serve --http` has those of its server",
        ),
    }
}

fn answer(value: &Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        value.to_string(),
    )
        .into_response()
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "application/json")],
        json!({"error": why}).to_string(),
    )
        .into_response()
}

/// The current session. Returns an error response if there is none within [`ANSWER_MAX`].
async fn session(app: &App) -> Result<Client, Response> {
    within(app.live.client.ready()).await?;
    Ok(app.live.client.clone())
}

/// Waits for a reply of the servers, at most [`ANSWER_MAX`].
async fn within<T, E: std::fmt::Display>(
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, Response> {
    match timeout(ANSWER_MAX, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(refusal(StatusCode::BAD_GATEWAY, &error.to_string())),
        Err(_) => Err(refusal(StatusCode::GATEWAY_TIMEOUT, "no server answers")),
    }
}
