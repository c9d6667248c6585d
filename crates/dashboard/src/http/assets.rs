//! Static files of the pages, embedded in the binary.

use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::refusal;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! assets {
    ($($path:literal $file:literal $kind:expr;)*) => {
        const ASSETS: &[(&str, &str, &[u8])] =
            &[$(($path, $kind, include_bytes!(concat!("../../assets/", $file)))),*];
    };
}

assets! {
    "/" "index.html" HTML;
    "/style.css" "style.css" CSS;
    "/icon.svg" "icon.svg" "image/svg+xml";
    "/app.js" "app.js" SCRIPT;
    "/dom.js" "dom.js" SCRIPT;
    "/store.js" "store.js" SCRIPT;
    "/people.js" "people.js" SCRIPT;
    "/charts.js" "charts.js" SCRIPT;
    "/actions.js" "actions.js" SCRIPT;
    "/pages/overview.js" "pages/overview.js" SCRIPT;
    "/pages/locks.js" "pages/locks.js" SCRIPT;
    "/pages/timeline.js" "pages/timeline.js" SCRIPT;
    "/pages/waits.js" "pages/waits.js" SCRIPT;
    "/pages/recipes.js" "pages/recipes.js" SCRIPT;
    "/pages/tree.js" "pages/tree.js" SCRIPT;
    "/pages/sessions.js" "pages/sessions.js" SCRIPT;
}

pub(super) async fn asset(request: Request) -> Response {
    let path = request.uri().path();
    let found = ASSETS.iter().find(|(name, _, _)| *name == path);
    match found {
        Some((_, kind, bytes)) if request.method() == Method::GET => {
            ([(header::CONTENT_TYPE, *kind)], *bytes).into_response()
        }
        _ => refusal(StatusCode::NOT_FOUND, "there is no such page"),
    }
}
