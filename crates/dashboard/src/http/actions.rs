//! Actions of users: revoke and break holds, retry dead letters, clear crash marks.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bellwether::inspect::{Contention, Ending};
use bellwether::queue::{DeadLetter, Fifo, OrderedQueue};
use bellwether::{Client, FencingToken, Lock, Tasks};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::Caller;
use super::{Shared, answer, guard, refusal, session, within};
use crate::json::{self, ms};

/// Time a holder has to release before its hold is broken: less than a page waits for the reply.
const GRACE: Duration = Duration::from_secs(5);

/// Maximum number of dead letters shown.
const LETTERS_MAX: usize = 200;

/// Maximum bytes of a payload shown.
const PAYLOAD_BYTES_SHOWN: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
enum Action {
    /// Asks a holder to release.
    Revoke(Holder),
    /// Asks a holder to release, and breaks the hold after [`GRACE`].
    Break(Holder),
    /// Puts a dead letter back into its queue.
    Retry {
        path: String,
        item: String,
        #[serde(default)]
        tasks: bool,
    },
    /// Clears the mark of a crashed holder.
    ClearCrash { path: String },
}

#[derive(Debug, Deserialize)]
struct Holder {
    /// Path of the holder's node.
    path: String,
    token: FencingToken,
    #[serde(default)]
    message: Option<String>,
}

/// Performs an action, and returns its result.
pub(super) async fn act(
    State(app): Shared,
    ConnectInfo(peer): ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(refused) = guard::may_act(&app, &headers) {
        return refused;
    }
    let Ok(action) = serde_json::from_slice::<Action>(&body) else {
        return refusal(StatusCode::BAD_REQUEST, "unknown action");
    };
    let client = match session(&app).await {
        Ok(client) => client,
        Err(refused) => return refused,
    };
    let done = within(perform(&client, &action)).await;
    // What a proxy, or anybody else, claims about the real peer.
    let claimed = Caller::forwarded_for(&headers);
    match &done {
        Ok(end) => tracing::info!(%peer, claimed, ?action, end, "action through the dashboard"),
        Err(_) => tracing::warn!(%peer, claimed, ?action, "action through the dashboard failed"),
    }
    match done {
        Ok(end) => answer(&json!({"end": end})),
        Err(refused) => refused,
    }
}

/// Writes a backup of the server in this process, and answers what was written.
pub(super) async fn backup(
    State(app): Shared,
    ConnectInfo(peer): ConnectInfo<Caller>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = guard::may_act(&app, &headers) {
        return refused;
    }
    let Some(write) = &app.dashboard.backup else {
        let why = "there is no folder for backups; `bellwether serve --backups FOLDER` names it";
        return refusal(StatusCode::NOT_FOUND, why);
    };
    let claimed = Caller::forwarded_for(&headers);
    match write().await {
        Ok(written) => {
            tracing::info!(%peer, claimed, written, "backup through the dashboard");
            answer(&json!({"written": written}))
        }
        Err(why) => {
            tracing::warn!(%peer, claimed, why, "backup through the dashboard failed");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, &why)
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn perform(client: &Client, action: &Action) -> Result<&'static str, Failure> {
    match action {
        Action::Revoke(holder) => {
            let (contention, node) = contention(client, holder);
            let asked = contention.revoke(node, holder.token).await?;
            Ok(if asked { "asked" } else { "gone" })
        }
        Action::Break(holder) => {
            let (contention, node) = contention(client, holder);
            match contention.break_hold(node, holder.token, GRACE).await? {
                Ending::Broken => Ok("broken"),
                _ => Ok("gone"),
            }
        }
        Action::Retry { path, item, tasks } => {
            let letters = letters(client, path, *tasks).await?;
            let Some(letter) = letters.iter().find(|letter| letter.id.to_string() == *item) else {
                return Ok("gone");
            };
            let is_back = match tasks {
                true => Tasks::<Vec<u8>>::new(client, path).retry(letter).await?,
                false => queue(client, path).revive(letter).await?,
            };
            Ok(if is_back { "retried" } else { "gone" })
        }
        Action::ClearCrash { path } => {
            let cleared = Lock::new(client, path).clear_crash_mark().await?;
            Ok(if cleared { "cleared" } else { "gone" })
        }
    }
}

/// The line that contains a holder's node, and the name of that node.
fn contention<'a>(client: &Client, holder: &'a Holder) -> (Contention, &'a str) {
    let (dir, node) = holder.path.rsplit_once('/').unwrap_or_default();
    let contention = Contention::new(client, if dir.is_empty() { "/" } else { dir });
    match &holder.message {
        Some(message) => (contention.message(message), node),
        None => (contention, node),
    }
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    path: String,
    #[serde(default)]
    tasks: bool,
}

/// Dead letters of a queue or of tasks.
pub(super) async fn dead_letters(State(app): Shared, Query(wanted): Query<Wanted>) -> Response {
    let read = async {
        let client = session(&app).await?;
        let letters = within(letters(&client, &wanted.path, wanted.tasks)).await?;
        let shown: Value = letters
            .iter()
            .take(LETTERS_MAX)
            .map(|letter| {
                let payload = &letter.payload[..letter.payload.len().min(PAYLOAD_BYTES_SHOWN)];
                json!({
                    "item": letter.id.to_string(),
                    "attempts": letter.attempts,
                    "reason": letter.reason,
                    "died_ms": ms(letter.died),
                    "payload": json::data(Some(payload)),
                })
            })
            .collect();
        Ok(answer(&json!({"letters": shown, "total": letters.len()})))
    };
    read.await.unwrap_or_else(|refused: Response| refused)
}

async fn letters(client: &Client, path: &str, tasks: bool) -> Result<Vec<DeadLetter>, Failure> {
    Ok(match tasks {
        true => Tasks::<Vec<u8>>::new(client, path).failed().await?,
        false => queue(client, path).dead_letters().await?,
    })
}

fn queue(client: &Client, path: &str) -> OrderedQueue<Fifo, Vec<u8>> {
    OrderedQueue::new(client, path)
}
