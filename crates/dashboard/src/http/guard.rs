//! Access control: checks before every request, and security headers of every response.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::caller::Caller;
use super::{App, Shared, probes, refusal};
use crate::Dashboard;

/// All content comes from this server, no inline HTML is injected, and no other page may embed this one.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Header by which browsers mark a request from a page of another site.
const FETCH_SITE: &str = "sec-fetch-site";

#[derive(Debug)]
pub(super) struct Guard {
    token: Option<String>,
    /// Whether only this host can connect, if no proxy does.
    listens_here: bool,
    /// Whether callers on this host may read without the token.
    is_open_here: bool,
    host_names: Vec<String>,
    cookie: String,
    /// Whether browsers send that cookie by TLS only.
    is_secure: bool,
}

impl Guard {
    pub(super) fn new(dashboard: &Dashboard, address: SocketAddr) -> Self {
        Self {
            token: dashboard.token.clone(),
            listens_here: address.ip().is_loopback(),
            is_open_here: dashboard.is_open_here && address.ip().is_loopback(),
            host_names: dashboard.host_names.clone(),
            // Cookies are scoped by host, not port: this keeps two dashboards on one host apart.
            cookie: format!("bellwether-{}", address.port()),
            is_secure: dashboard.tls.is_some(),
        }
    }

    /// Whether this caller needs the token to read, not only for actions.
    pub(super) fn needs_login(&self, caller: Caller, headers: &HeaderMap) -> bool {
        !(self.is_open_here && caller.is_on_this_host(headers))
    }

    /// Whether a request carries the token, as a cookie or as a bearer token.
    pub(super) fn has_token(&self, headers: &HeaderMap) -> bool {
        let bearer =
            text(headers, &header::AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
        let cookies = text(headers, &header::COOKIE).unwrap_or_default();
        let cookie = cookies
            .split(';')
            .filter_map(|cookie| cookie.trim().split_once('='))
            .find(|(name, _)| *name == self.cookie)
            .map(|(_, value)| value);
        bearer
            .into_iter()
            .chain(cookie)
            .any(|token| self.is_token(token))
    }

    /// Compares in constant time.
    pub(super) fn is_token(&self, given: &str) -> bool {
        let Some(token) = &self.token else {
            return false;
        };
        let pairs = token.bytes().zip(given.bytes());
        let differs = pairs.fold(0, |differs, (one, other)| differs | (one ^ other));
        token.len() == given.len() && differs == 0
    }

    /// The cookie that logs a browser in until it is closed.
    pub(super) fn login_cookie(&self, token: &str) -> Option<HeaderValue> {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let cookie = format!(
            "{}={token}; HttpOnly; SameSite=Strict; Path=/{secure}",
            self.cookie
        );
        HeaderValue::from_str(&cookie).ok()
    }

    /// DNS rebinding: a page of another site can point its own host name here, but cannot make a browser send another name.
    fn knows_host(&self, host: &str) -> bool {
        let name = without_port(host);
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self
                .host_names
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
    }

    fn refuses(&self, caller: Caller, request: &Request) -> Option<(StatusCode, &'static str)> {
        if [probes::ALIVE, probes::READY].contains(&request.uri().path()) {
            return None;
        }
        let headers = request.headers();
        let Some(host) = text(headers, &header::HOST).filter(|host| self.knows_host(host)) else {
            return Some((
                StatusCode::MISDIRECTED_REQUEST,
                "this host name is not known; --host NAME allows it",
            ));
        };
        let is_foreign_fetch = headers
            .get(FETCH_SITE)
            .is_some_and(|site| site != "same-origin" && site != "none");
        let is_foreign_origin = text(headers, &header::ORIGIN).is_some_and(|origin| {
            let origin = origin
                .strip_prefix("http://")
                .or(origin.strip_prefix("https://"));
            origin != Some(host)
        });
        let is_api = request.uri().path().starts_with("/api/");
        if is_foreign_origin || is_foreign_fetch && (is_api || request.method() != Method::GET) {
            return Some((StatusCode::FORBIDDEN, "the request comes from another site"));
        }
        let needs_login = match request.uri().path() {
            "/api/about" | "/api/login" => false,
            // Numbers and addresses of clients: no names or data of nodes.
            "/metrics" => !(self.listens_here && caller.is_on_this_host(headers)),
            _ => is_api && self.needs_login(caller, headers),
        };
        if needs_login && !self.has_token(headers) {
            return Some((StatusCode::UNAUTHORIZED, "log in with the token"));
        }
        None
    }
}

pub(super) async fn check(
    State(app): Shared,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = match app.guard.refuses(caller, &request) {
        Some((status, why)) => refusal(status, why),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let cache = if is_api { "no-store" } else { "no-cache" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

/// Refuses an action unless actions are allowed and the user has logged in.
#[expect(
    clippy::result_large_err,
    reason = "the error is the answer, which goes out as it is"
)]
pub(super) fn may_act(app: &Arc<App>, headers: &HeaderMap) -> Result<(), Response> {
    if !app.dashboard.allows_actions {
        let why = "actions are not allowed here; --allow-actions allows them";
        return Err(refusal(StatusCode::FORBIDDEN, why));
    }
    if !app.guard.has_token(headers) {
        return Err(refusal(StatusCode::UNAUTHORIZED, "log in with the token"));
    }
    Ok(())
}

/// The name in a `Host` header.
pub(super) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
