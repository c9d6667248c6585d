//! Finds nodes that are near a limit of the protocol.

use bellwether::zk;

use super::finding::Finding;
use crate::output::Output;
use crate::output::progress::Progress;
use crate::output::rendering::counted;
use crate::tree::walk::{Visited, walk};

/// The default size of a frame that servers and clients accept (`jute.maxbuffer`).
const FRAME_BYTES: usize = 1 << 20;

/// From here on, sequence numbers are nearly used up. Recipes refuse a million before the end.
const SEQUENCE_NEAR: i64 = i32::MAX as i64 - 10_000_000;

pub(super) async fn look(
    zk: &zk::Client,
    top: &str,
    output: Output,
) -> anyhow::Result<Vec<Finding>> {
    let progress = Progress::counter("reading", output);
    let visited = match walk(zk, top, None, &progress).await {
        Err(refusal) if refusal.exit() == crate::exit::Exit::No => Vec::new(),
        visited => visited?,
    };
    drop(progress);
    let mut findings: Vec<_> = visited.iter().filter_map(judged).collect();
    if findings.is_empty() {
        let nodes = counted(visited.len(), "node");
        let what = format!("{nodes} below {top}, none of them too large");
        findings.push(Finding::fine("nodes", what));
    }
    let unreadable = visited.iter().filter(|node| node.read.is_none()).count();
    if unreadable > 0 {
        let what = format!("{} may not be read", counted(unreadable, "node"));
        let advice = "authenticate with --auth; nodes below them were not looked at";
        findings.push(Finding::warning("nodes", what).advice(advice));
    }
    Ok(findings)
}

fn judged(node: &Visited) -> Option<Finding> {
    let path = &node.path;
    let (stat, names) = node.read.as_ref()?;
    // On the wire, each name has a length before it.
    let list_bytes: usize = names.iter().map(|name| name.len() + 4).sum();
    let data_bytes = usize::try_from(stat.data_length).unwrap_or(0);
    let sequence = sequence(stat.cversion, stat.num_children);
    if list_bytes > FRAME_BYTES / 2 {
        let children = counted(names.len(), "child node");
        let what = format!("{path} has {children}, with {list_bytes} bytes of names");
        let advice = "by default, clients cannot list more than 1 MiB of names: delete nodes that are not needed, or \
                      spread them over several directories";
        let finding = match list_bytes > FRAME_BYTES - FRAME_BYTES / 16 {
            true => Finding::critical("nodes", what),
            false => Finding::warning("nodes", what),
        };
        return Some(finding.advice(advice));
    }
    if data_bytes > FRAME_BYTES / 2 {
        let what = format!("{path} has {data_bytes} bytes of data");
        let advice =
            "by default, servers accept about 1 MiB in one request: store large data elsewhere";
        return Some(Finding::warning("nodes", what).advice(advice));
    }
    if sequence > SEQUENCE_NEAR {
        let what = format!("the sequence numbers of {path} have reached {sequence}");
        let advice = "sequence numbers end at 2147483647: use another path, or delete this one while it is not in use";
        return Some(Finding::critical("nodes", what).advice(advice));
    }
    None
}

/// The next sequence number, which is the number of children ever created. `cversion` is twice that number, less the present children, in
/// 32 bits, so it is negative from 2^30 on.
fn sequence(cversion: i32, children: i32) -> i64 {
    i64::from(cversion.wrapping_add(children).cast_unsigned() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_known_up_to_the_last() {
        for made in [0, 1, 7, 1 << 30, (1 << 30) + 1, i64::from(i32::MAX)] {
            for children in 0..3 {
                let bits = (2 * made - i64::from(children)) & i64::from(u32::MAX);
                let cversion = u32::try_from(bits).unwrap().cast_signed();
                assert_eq!(sequence(cversion, children), made, "{children} are there");
            }
        }
    }
}
