//! The whole tree of a server, as a client sees it.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use bellwether_wire::acl::Acl;
use bellwether_wire::stat::Stat;

use crate::raw::RawClient;
use crate::raw::reply::Body;
use crate::raw::request::Request;

/// All nodes of a tree, by path. Two servers with equal contents cannot be told apart by reading.
pub type Contents = BTreeMap<String, Content>;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Null and empty are different.
    pub data: Option<Vec<u8>>,
    /// The metadata.
    pub stat: Stat,
    /// The access list.
    pub acl: Vec<Acl>,
}

/// Reads the whole tree; `client` needs the rights to do so.
pub async fn read_contents(client: &mut RawClient) -> Result<Contents> {
    let mut contents = Contents::new();
    let mut waiting = vec![String::from("/")];
    while let Some(path) = waiting.pop() {
        let Body::DataStat(data, stat) = client.call(Request::get_data(&path)).await?.ok()? else {
            bail!("the answer for {path} is not data");
        };
        let Body::AclStat(acl, _) = client
            .call(Request::GetAcl { path: path.clone() })
            .await?
            .ok()?
        else {
            bail!("the answer for {path} is not an access list");
        };
        let Body::Children(names) = client.call(Request::get_children(&path)).await?.ok()? else {
            bail!("the answer for {path} is not a list of names");
        };
        let parent = path.trim_end_matches('/');
        waiting.extend(names.iter().map(|name| format!("{parent}/{name}")));
        contents.insert(path, Content { data, stat, acl });
    }
    Ok(contents)
}
