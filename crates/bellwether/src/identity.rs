//! Who stands in the queue: the data of a contender's node, in JSON.

use std::sync::OnceLock;
use std::time::SystemTime;

use serde_json::json;

/// The payload of a node that is created now.
pub(crate) fn payload(message: Option<&str>) -> Vec<u8> {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let mut who = json!({
        "version": 1,
        "host": host(),
        "pid": std::process::id(),
        "user": user(),
        "since_ms": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(message) = message {
        who["message"] = message.into();
    }
    who.to_string().into_bytes()
}

fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    })
}

/// The name in the environment: it tells people whom to ask and proves nothing.
fn user() -> Option<String> {
    std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .ok()
}
