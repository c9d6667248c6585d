//! Changes of a holder to the data of its own node.

use bellwether_client as zk;
use bellwether_client::log;
use tracing::debug;

use crate::error::{ReleaseError, WriteError};
use crate::hold::Hold;
use crate::hold::ephemeral_node::{KnownData, update};
use crate::hold::parting::Parting;
use crate::node::data::{NodeData, Who};

impl Hold {
    /// Changes the data of the node, in the background.
    pub(crate) fn update_in_background(
        &mut self,
        who: Who,
        word: impl Fn(&mut NodeData) + Send + Sync + 'static,
    ) {
        let session = self.node.session().clone();
        let node = self.node.path().to_owned();
        let runtime = session.runtime().clone();
        self.errand = Some(runtime.spawn_guarded(async move {
            let said = update(
                session.zk(),
                &node,
                KnownData::created_by(&who),
                &Parting::Plain,
                word,
            )
            .await;
            if let Err(error) = said {
                log::emit(move || {
                    debug!(node, %error, "the hold ended before its word was said");
                });
            }
        }));
    }

    /// Makes an exclusive hold a shared one: marks the node as downgraded, and clears the crash mark in the same multi.
    pub(crate) async fn downgrade(mut self, who: &Who) -> Result<Self, ReleaseError> {
        let parting = self.clean_end();
        match self
            .node
            .update(KnownData::created_by(who), &parting, |data| {
                data.downgraded = true;
            })
            .await
        {
            Ok(_) => {
                self.mark = None;
                self.slot.free();
                Ok(self)
            }
            Err(error) => {
                let path = self.path().to_owned();
                Err(match error {
                    zk::Error::SessionEnded(_) => ReleaseError::SessionEnded { path },
                    zk::Error::NO_NODE => ReleaseError::NotHeld { path },
                    _ => ReleaseError::Refused {
                        path,
                        source: error,
                    },
                })
            }
        }
    }

    /// Changes the data of the node, and waits for the acknowledgement.
    pub(crate) async fn update(
        &self,
        known: KnownData,
        word: impl Fn(&mut NodeData),
    ) -> Result<KnownData, WriteError> {
        if !self.is_held() {
            return Err(WriteError::NotHeld);
        }
        let amended = self.node.update(known, &Parting::Plain, word).await;
        amended.map_err(|source| match source {
            zk::Error::SessionEnded(_) => WriteError::SessionEnded,
            zk::Error::NO_NODE => WriteError::NotHeld,
            _ => WriteError::Refused { index: 0, source },
        })
    }
}
