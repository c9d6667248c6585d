//! What sessions see of the nodes of a queue.

use bellwether::{Client, zk};

use super::delivery_order::View;
use crate::worker::{Gone, Worker};

/// What this session sees of the claims, with its id.
pub(crate) async fn look(client: &Client, claims: &str) -> Option<(i64, View)> {
    let zk = client.raw();
    // Whatever is listed is at least as new.
    let (session, zxid) = (zk.session_id(), zk.last_zxid());
    let view = match zk.children_stat(claims).await {
        Ok((_, stat)) => View {
            zxid: zxid.max(stat.pzxid),
        },
        Err(zk::Error::NO_NODE) => View { zxid },
        Err(_) => return None,
    };
    (zk.session_id() == session).then_some((session, view))
}

/// Ids of the items that are left, in the order of their ranks and of their puts.
pub(crate) async fn left(zk: &zk::Client, path: &str) -> Result<Vec<String>, zk::Error> {
    let items = format!("{path}/items");
    zk.sync(&items).await?;
    let names = match zk.children(&items).await {
        Err(zk::Error::NO_NODE) => Vec::new(),
        names => names?,
    };
    let mut left: Vec<(u64, u64, String)> = names
        .iter()
        .filter_map(|name| {
            let mut parts = name.splitn(3, '-');
            let rank = parts.next()?.parse().unwrap_or(0);
            let id = parts.next()?.to_owned();
            Some((rank, parts.next()?.parse().ok()?, id))
        })
        .collect();
    left.sort_unstable();
    Ok(left.into_iter().map(|(_, _, id)| id).collect())
}

/// Waits until this session has no claim. A take that was dropped deletes its claim in the background; if it did not, no other consumer
/// could take the item while the session lives, and this worker would make no progress.
pub(crate) async fn until_no_claim(
    worker: &mut Worker,
    client: &Client,
    claims: &str,
) -> Result<(), Gone> {
    let zk = client.raw();
    while !zk.state().is_ended() && !worker.is_stopped() {
        if let Ok(false) = has_claim(&zk, claims).await {
            return Ok(());
        }
        worker.pause().await;
    }
    Err(Gone)
}

async fn has_claim(zk: &zk::Client, claims: &str) -> Result<bool, zk::Error> {
    zk.sync(claims).await?;
    let names = match zk.children(claims).await {
        Err(zk::Error::NO_NODE) => Vec::new(),
        names => names?,
    };
    for name in names {
        let stat = zk.exists(&format!("{claims}/{name}")).await?;
        if stat.is_some_and(|stat| stat.ephemeral_owner == zk.session_id()) {
            return Ok(true);
        }
    }
    Ok(false)
}
