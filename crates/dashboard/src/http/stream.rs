//! Server-sent events: streams changes while a page is open.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Shared, refusal};
use crate::live::{Document, Page, parent};

/// Maximum number of open pages.
const PAGES_MAX: usize = 64;

/// Interval at which something is sent to an unchanged page, to detect closed pages.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How long changes of a node are gathered before its page reads it again.
const TOUCH_GATHER: Duration = Duration::from_millis(100);

/// Streams the document: first all of it, then the changes.
pub(super) async fn live(State(app): Shared) -> Response {
    let Some(page) = app.live.open_page(PAGES_MAX) else {
        return too_many();
    };
    let history = json!({"history": page.live().samples()}).to_string();
    let first = stream::iter([Ok::<_, Infallible>(Event::default().data(history))]);
    let changes = Changes {
        document: page.live().document.subscribe(),
        shown: Document::default(),
        is_first: true,
        _page: page,
    };
    let events = stream::unfold(changes, async |mut changes| {
        let patch = changes.next().await?;
        Some((Ok(Event::default().data(patch)), changes))
    });
    sse(futures_util::StreamExt::chain(first, events))
}

struct Changes {
    document: watch::Receiver<Document>,
    /// The document as sent to the page so far.
    shown: Document,
    is_first: bool,
    _page: Page,
}

impl Changes {
    async fn next(&mut self) -> Option<String> {
        loop {
            if !std::mem::take(&mut self.is_first) {
                self.document.changed().await.ok()?;
            }
            let now = self.document.borrow_and_update().clone();
            let patch = now.changes_since(&self.shown);
            self.shown = now;
            if patch.is_some() {
                return patch;
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct At {
    path: String,
}

/// Sends an event when a node or one of its children has changed. The event has no content: the page reads the node again. So the
/// event waits until the budget allows that, and stands for all changes by then.
pub(super) async fn touched(State(app): Shared, Query(at): Query<At>) -> Response {
    let Some(page) = app.live.open_page(PAGES_MAX) else {
        return too_many();
    };
    let touched = page.live().touched.subscribe();
    let events = stream::unfold(
        (page, touched, at.path),
        async |(page, mut touched, path)| {
            loop {
                let is_here = match touched.recv().await {
                    Ok(Some(changed)) => *changed == *path || parent(&changed) == path,
                    Ok(None) | Err(broadcast::error::RecvError::Lagged(_)) => true,
                    Err(broadcast::error::RecvError::Closed) => return None,
                };
                if is_here {
                    let mut next = Instant::now() + TOUCH_GATHER;
                    while next > Instant::now() {
                        sleep_until(next).await;
                        // By now the page has read what it was told of last.
                        next = page.live().next_look().into();
                    }
                    // Skips the events that arrived meanwhile: one read covers them all.
                    touched = touched.resubscribe();
                    let event = Event::default().data(Value::Null.to_string());
                    return Some((Ok::<_, Infallible>(event), (page, touched, path)));
                }
            }
        },
    );
    sse(events)
}

fn sse(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(events).keep_alive(keep_alive).into_response()
}

fn too_many() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open")
}
