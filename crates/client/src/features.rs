//! Which features the servers have: asked, not assumed from a version.

use bellwether_wire::op::Op;
use bellwether_wire::{multi, request};

use crate::client::Client;
use crate::core::features::Feature;
use crate::create::{CreateMode, CreateOptions};
use crate::error::{Error, ErrorCode};
use crate::ops::nothing;
use crate::reply::Reply;

impl Client {
    /// Whether the servers have a feature, by a request that changes nothing. It is asked once a session.
    ///
    /// Apache's servers close the connection of a client that sends an operation they do not know. So once that is known of an
    /// operation, it is refused with [`Error::UNIMPLEMENTED`] and not sent.
    ///
    /// # Cancel safety
    ///
    /// What the request shows is kept when it is answered, whether somebody waits for it or not.
    ///
    /// # Errors
    ///
    /// The request failed in another way than by a refusal.
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
            // No watch has such a mode, so none is armed.
            Feature::PersistentWatches => self.send(Op::AddWatch, nothing, |out| {
                request::put_path_number(out, "/", i32::MAX);
            }),
            Feature::MultiRead => self.send(Op::MultiRead, nothing, multi::put_end),
        }
    }
}
