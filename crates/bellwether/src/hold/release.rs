//! How a hold ends: it is released, dropped, or undone before its caller received it.

use std::ops::Deref;
use std::pin::pin;
use std::task::Poll;

use futures_util::poll;

use crate::error::ReleaseError;
use crate::hold::Hold;
use crate::hold::ephemeral_node::Removal;
use crate::hold::hold_watch::{HoldState, HoldWatch};
use crate::hold::parting::Parting;
use crate::session::Moment;
use crate::session::cleaner::Leftover;
use crate::session::telemetry::{self, call};

impl Hold {
    /// Releases it and waits for the server's acknowledgement, over any number of reconnects.
    ///
    /// Dropping a guard also deletes the node, but does not wait, and leaves the crash mark: the next holder sees a crash. If the request is
    /// lost with the connection, it is sent again in the background; if the process exits first, the next holder waits until the session
    /// expires.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// See [`ReleaseError`]: the hold has ended all the same, but perhaps before this call.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let parting = self.clean_end();
        self.release_by(parting).await
    }

    /// As [`release`](Self::release), but keeps the crash mark that [`previous`](Self::previous) reported, so that the next holder sees it
    /// again. For a holder that saw the crash and did not repair it.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub async fn release_unrepaired(self) -> Result<(), ReleaseError> {
        let parting = match &self.mark {
            Some(mark) => mark.unrepaired_end(),
            None => Parting::Plain,
        };
        self.release_by(parting).await
    }

    async fn release_by(self, parting: Parting) -> Result<(), ReleaseError> {
        let call = call!("hold.release", self.path()).of(&self);
        call.run(self.end(parting)).await
    }

    pub(super) fn clean_end(&self) -> Parting {
        match &self.mark {
            Some(mark) => mark.clean_end(),
            None => Parting::Plain,
        }
    }

    /// Deletes the node of a lost hold in the background, while its guard still exists.
    pub(crate) fn abandon(&self) {
        let leftover = Leftover::Node(self.node.path().to_owned());
        self.node.session().cleaner().remove(leftover);
    }

    /// Ends the hold in this process, before a request that deletes its node.
    pub(crate) fn end_here(&self) {
        self.state.note(HoldState::Released);
    }

    /// Ends the hold without a request: the node is known to be gone.
    pub(crate) fn forget(self) {
        self.node.forget();
    }

    /// Ends, in the background, a hold that its caller never received: deletes the node and restores the mark.
    pub(crate) fn undo(self) {
        let Self {
            state, node, mark, ..
        } = self;
        drop(state);
        if let Some(mark) = mark {
            node.undo(mark.into_marking());
        }
    }

    async fn end(self, parting: Parting) -> Result<(), ReleaseError> {
        let Self {
            state,
            node,
            // Kept until the end: the deletion triggers its watch, which would otherwise have to be removed.
            _watch,
            slot,
            ..
        } = self;
        let path = state.path().to_owned();
        drop(state);
        let mut removed = pin!(node.remove(&parting));
        // The first poll sends the deletion, and the next task of the session joins the line behind it.
        let sent = poll!(&mut removed);
        drop(slot);
        let removal = match sent {
            Poll::Ready(removal) => removal,
            Poll::Pending => removed.await,
        };
        match removal {
            Removal::Done => Ok(()),
            Removal::WasGone => Err(ReleaseError::NotHeld { path }),
            Removal::SessionEnded => Err(ReleaseError::SessionEnded { path }),
            Removal::Refused(source) => Err(ReleaseError::Refused { path, source }),
        }
    }
}

/// The state of a hold. When it is dropped, the hold ends in this process, before the servers receive a request.
#[derive(Debug)]
pub(super) struct EndOnDrop(pub(super) HoldWatch, pub(super) Moment);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if self.0.is_forked() {
            return;
        }
        self.0.note(HoldState::Released);
        telemetry::hold_ended(Moment::now() - self.1);
    }
}

impl Deref for EndOnDrop {
    type Target = HoldWatch;

    fn deref(&self) -> &HoldWatch {
        &self.0
    }
}
