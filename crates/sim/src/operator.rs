//! An operator who deletes directories, as people do when a lock seems to be stuck.

use bellwether::Client;
use bellwether_testkit::history::{SERVERS, What};

use crate::recorder::Recorder;

/// Deletes directories, with everything in them. Other clients may make them again at the same time, or the connection may fail: then nodes
/// stay.
pub(crate) async fn wipe(client: &Client, directories: &[String], recorder: &Recorder) {
    for directory in directories {
        // Parents are ahead of their children.
        let mut paths = vec![directory.clone()];
        let mut next = 0;
        while let Some(path) = paths.get(next).cloned() {
            let children = client.raw().children(&path).await.unwrap_or_default();
            paths.extend(children.iter().map(|child| format!("{path}/{child}")));
            next += 1;
        }
        for path in paths.iter().rev() {
            if let Ok(Some(stat)) = client.raw().exists(path).await {
                // The token of the hold that the node stands for, if it stands for one.
                let token = stat.czxid;
                recorder.note(SERVERS, What::Deleting { token });
                // It may be gone already, or not be empty.
                let _ = client.raw().delete(path, None).await;
            }
        }
    }
}
