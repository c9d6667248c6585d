//! Compares the data of a server with the model.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Body, Model, MultiResult, RawClient, Request};

/// Zxid of the last write, read without opening a session.
pub(crate) async fn last_zxid(address: SocketAddr) -> Result<i64> {
    let answer = four_letter_word(address, "srvr").await?;
    let zxid = answer
        .lines()
        .find_map(|line| line.strip_prefix("Zxid: 0x"));
    Ok(i64::from_str_radix(zxid.context(answer.clone())?, 16)?)
}

/// Compares every node with the model, and the last zxid.
pub(crate) async fn compare_trees(client: &mut RawClient, model: &mut Model) -> Result<()> {
    let mut paths = vec!["/".to_owned()];
    while !paths.is_empty() {
        let reads = |path: String| {
            let watch = false;
            [
                Request::get_data(&path),
                Request::GetChildren2 { path, watch },
            ]
        };
        let requests: Vec<_> = paths.drain(..).flat_map(reads).collect();
        client.send_all(&requests).await?;
        for request in &requests {
            let expected = model.apply(client.session_id(), 0, request).map(timeless);
            let reply = client.receive_reply().await?;
            let outcome = reply.outcome.map(timeless);
            ensure!(
                outcome == expected,
                "{request:?}: {outcome:?}, not {expected:?}"
            );
            ensure!(reply.zxid == model.zxid(), "zxid {:#x}", reply.zxid);
            if let (Request::GetChildren2 { path, .. }, Ok(Body::ChildrenStat(names, _))) =
                (request, outcome)
            {
                let parent = path.trim_end_matches('/');
                paths.extend(names.iter().map(|name| format!("{parent}/{name}")));
            }
        }
    }
    Ok(())
}

/// A body without times, which the model does not have.
pub(super) fn timeless(mut body: Body) -> Body {
    if let Body::Multi(results) = body {
        return Body::Multi(
            results
                .into_iter()
                .map(|result| match result {
                    MultiResult::Done(op, body) => MultiResult::Done(op, timeless(body)),
                    other => other,
                })
                .collect(),
        );
    }
    if let Body::Stat(stat)
    | Body::PathStat(_, stat)
    | Body::DataStat(_, stat)
    | Body::ChildrenStat(_, stat) = &mut body
    {
        (stat.ctime, stat.mtime) = (0, 0);
    }
    body
}
