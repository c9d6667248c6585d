//! Login: exchanges the token for a cookie.

use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::caller::Caller;
use super::{Shared, answer, refusal};

/// Takes the token as the body, and responds with a cookie.
pub(super) async fn login(
    State(app): Shared,
    ConnectInfo(peer): ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let claimed = Caller::forwarded_for(&headers);
    let token = str::from_utf8(&body).map(str::trim).unwrap_or_default();
    if !app.guard.is_token(token) {
        tracing::warn!(%peer, claimed, "a login to the dashboard was refused");
        return refusal(StatusCode::UNAUTHORIZED, "this is not the token");
    }
    match app.guard.login_cookie(token) {
        Some(cookie) => {
            let done = answer(&serde_json::json!({}));
            ([(header::SET_COOKIE, cookie)], done).into_response()
        }
        None => refusal(StatusCode::BAD_REQUEST, "the token cannot be a cookie"),
    }
}
