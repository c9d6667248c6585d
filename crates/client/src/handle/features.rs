//! Detects which features the servers have: by a request, not by a version.

use bellwether_wire::op::Op;
use bellwether_wire::{multi, request};

use crate::core::features::Feature;
use crate::error::{Error, ErrorCode};
use crate::handle::client::Client;
use crate::handle::create::{CreateMode, CreateOptions};
use crate::handle::ops::nothing;
use crate::handle::reply::Reply;

impl Client {
    /// Whether the servers have a feature, detected by a request that changes nothing, once per session.
    ///
    /// Apache's servers close the connection of a client that sends an unknown operation. So once an operation is known to be
    /// missing, it is refused with [`Error::UNIMPLEMENTED`] and not sent.
    ///
    /// # Cancel safety
    ///
    /// The answer is remembered even if the future was dropped.
    ///
    /// # Errors
    ///
    /// The request failed, but not by a refusal.
    pub async fn supports(&self, feature: Feature) -> Result<bool, Error> {
        if let Some(known) = self.shared().look(|session| session.feature(feature)) {
            return Ok(known);
        }
        match self.probe(feature).await {
            Ok(()) => Ok(true),
            Err(Error::Refused(code)) => Ok(code != ErrorCode::Unimplemented),
            Err(error) => Err(error),
        }
    }

    fn probe(&self, feature: Feature) -> Reply<()> {
        // Every server has this node, so it cannot be created.
        let create = |mode: CreateMode| {
            let options = CreateOptions::from(mode);
            self.send(options.op(), nothing, |out| {
                let ttl_ms = (feature == Feature::Ttl).then_some(1);
                options.put(out, "/zookeeper", b"", ttl_ms);
            })
        };
        match feature {
            Feature::Create2 => create(CreateMode::Persistent),
            Feature::Containers => create(CreateMode::Container),
            Feature::Ttl => create(CreateMode::PersistentWithTtl),
            // There is no such mode, so no watch is armed.
            Feature::PersistentWatches => self.send(Op::AddWatch, nothing, |out| {
                request::put_path_number(out, "/", i32::MAX);
            }),
            Feature::MultiRead => self.send(Op::MultiRead, nothing, multi::put_end),
            // There is no such type, so no watch is removed.
            Feature::RemoveWatches => self.send(Op::RemoveWatches, nothing, |out| {
                request::put_path_number(out, "/", i32::MAX);
            }),
        }
    }
}
