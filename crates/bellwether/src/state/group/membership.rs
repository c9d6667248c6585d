//! The handle of one member of a group. A [task](super::keeper) keeps the member present.

use bellwether_client as zk;
use futures_core::Stream;
use futures_util::stream::unfold;
use tokio::sync::watch;

use crate::error::StateError;
use crate::node::data::Payload;
use crate::request::PersistentNode;
use crate::session::client::SessionId;
use crate::session::telemetry::call;
use crate::state::group::keeper::{MemberKeeper, Report, Wish};

/// Membership in a [`Group`](crate::Group), or a name in [`Names`](crate::Names). When it is lost, it is restored by itself.
///
/// End it with [`leave`](Self::leave), which waits for the servers. A dropped membership ends in the background.
#[derive(Debug)]
#[must_use = "the membership ends when this is dropped"]
pub struct Membership {
    name: String,
    path: String,
    /// How much data one request carries.
    bytes_max: usize,
    wishes: watch::Sender<Wish>,
    report: watch::Receiver<Report>,
}

/// Whether other clients see a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipState {
    /// It is listed, in the session with this id.
    Present(SessionId),
    /// Its session has ended, or its node was deleted. It will be restored.
    Away,
    /// Another member has taken the name meanwhile. This member will be restored when the other has left.
    Displaced,
}

impl Membership {
    pub(crate) async fn begin(
        node: PersistentNode,
        name: String,
        data: Vec<u8>,
    ) -> Result<Self, StateError> {
        let opened = node.open().await?;
        let path = format!("{}/{name}", node.path());
        let bytes_max = node.bytes_max(&opened, 1).saturating_sub(name.len());
        check_size(&path, &data, bytes_max)?;
        let runtime = opened.session.runtime().clone();
        let (wishes, wish) = watch::channel(Wish {
            data,
            number: 0,
            leave: false,
        });
        let (reports, report) = watch::channel(Report {
            state: MembershipState::Away,
            fulfilled: 0,
        });
        let closed = node.refused(zk::Error::SessionEnded(zk::SessionEnd::Closed));
        let has_joined = MemberKeeper::start(&runtime, node, name.clone(), wish, reports);
        // Dropped while it waits, this leaves again.
        let membership = Self {
            name,
            path,
            bytes_max,
            wishes,
            report,
        };
        match has_joined.await {
            Ok(joined) => joined.map(|()| membership),
            // The task is gone only with its runtime.
            Err(_) => Err(closed),
        }
    }

    /// The name of the member.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether other clients see it now, as far as this process knows.
    #[must_use]
    pub fn state(&self) -> MembershipState {
        self.report.borrow().state
    }

    /// A stream of the states, the current one first. Quick changes may be skipped, but never the last one.
    pub fn states(&self) -> impl Stream<Item = MembershipState> + Send + Unpin + use<> {
        let mut report = self.report.clone();
        report.mark_changed();
        Box::pin(unfold((report, None), |(mut report, last)| async move {
            loop {
                report.changed().await.ok()?;
                let state = report.borrow_and_update().state;
                if last != Some(state) {
                    return Some((state, (report, Some(state))));
                }
            }
        }))
    }

    /// Changes the data, and waits until other clients can see it: one round trip while it is present.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only ends the wait: the data will be changed.
    ///
    /// # Errors
    ///
    /// [`StateError::TooLarge`] if it does not fit into one request, [`StateError::Refused`] if the client is closed, or the runtime of its
    /// session has ended.
    pub async fn update(&self, data: impl Into<Vec<u8>>) -> Result<(), StateError> {
        call!("group.update", self.path)
            .run(self.update_untraced(data))
            .await
    }

    async fn update_untraced(&self, data: impl Into<Vec<u8>>) -> Result<(), StateError> {
        let data = data.into();
        check_size(&self.path, &data, self.bytes_max)?;
        let mut number = 0;
        self.wishes.send_modify(|wish| {
            wish.data = data;
            wish.number += 1;
            number = wish.number;
        });
        let mut report = self.report.clone();
        let fulfilled = report.wait_for(|report| report.fulfilled >= number).await;
        match fulfilled {
            Ok(_) => Ok(()),
            Err(_) => Err(StateError::Refused {
                path: self.path.clone(),
                source: zk::Error::SessionEnded(zk::SessionEnd::Closed),
            }),
        }
    }

    /// As [`update`](Self::update), with a value: a [`String`], an [`Instance`](crate::state::Instance), or [`Json`](crate::Json) of a type of your
    /// own.
    ///
    /// # Cancel safety
    ///
    /// As [`update`](Self::update).
    ///
    /// # Errors
    ///
    /// [`StateError::Unreadable`] if the value cannot be encoded; else as [`update`](Self::update).
    pub async fn update_with<T: Payload>(&self, value: &T) -> Result<(), StateError> {
        let data = value.to_bytes().map_err(|source| StateError::Unreadable {
            path: self.path.clone(),
            source,
        })?;
        self.update(data).await
    }

    /// Leaves, and waits until the servers have acknowledged it, or the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background.
    pub async fn leave(self) {
        call!("group.leave", self.path)
            .wait(async move {
                self.wishes.send_modify(|wish| wish.leave = true);
                // The task has ended when it has nothing more to tell.
                let mut report = self.report.clone();
                while report.changed().await.is_ok() {}
            })
            .await;
    }
}

/// Servers close the connection on a request that is too large, and would do so at each retry.
fn check_size(path: &str, data: &[u8], bytes_max: usize) -> Result<(), StateError> {
    match data.len() <= bytes_max {
        true => Ok(()),
        false => Err(StateError::TooLarge {
            path: path.to_owned(),
            bytes: data.len(),
            bytes_max,
        }),
    }
}
