//! A group whose members come, change their data, and go.

use bellwether::state::MembershipState;
use bellwether::{Client, Group, Membership};
use bellwether_testkit::history::members::MemberStep;
use rand::Rng as _;

use super::{Worker, catch_up};
use crate::record::Did;

/// Joins and leaves until the run ends.
pub(super) async fn run(mut worker: Worker, client: &Client) {
    let group = Group::new(client, &worker.path);
    for number in 0.. {
        if worker.is_stopped() {
            return;
        }
        let entry = worker.value(number);
        note_joining(&worker, &entry);
        match worker.unless_stopped(group.join(entry.clone())).await {
            None => return,
            Some(Err(error)) => worker.failed(&error).await,
            Some(Ok(membership)) => {
                let member = GroupMember {
                    worker: &mut worker,
                    client,
                    group: &group,
                    entry,
                };
                member.stay(membership).await;
            }
        }
        worker.pause().await;
    }
}

struct GroupMember<'a> {
    worker: &'a mut Worker,
    client: &'a Client,
    group: &'a Group,
    /// The data of its node.
    entry: String,
}

impl GroupMember<'_> {
    async fn stay(mut self, membership: Membership) {
        self.look().await;
        if self.worker.random.random_ratio(1, 2) {
            let next = format!("{}+", self.entry);
            note_joining(self.worker, &next);
            let updating = membership.update(next.clone());
            match self.worker.unless_stopped(updating).await {
                Some(Ok(())) => {
                    self.note_left();
                    self.entry = next;
                }
                Some(Err(error)) => self.worker.failed(&error).await,
                None => return,
            }
            self.look().await;
        }
        self.worker.pause().await;
        if self.worker.random.random_ratio(1, 4) {
            // It leaves in the background.
            return drop(membership);
        }
        let session = self.client.session_id();
        let is_present = membership.state() == MembershipState::Present(session);
        let has_left = self.worker.unless_stopped(membership.leave()).await;
        // The end of a session also ends the call, and its nodes stay until the servers expire it.
        if has_left.is_some() && is_present && self.is_in(session) {
            self.note_left();
        }
    }

    /// Lists the members.
    async fn look(&self) {
        let session = self.client.session_id();
        self.worker.note(Did::Member(MemberStep::Looking));
        if !catch_up(self.client).await {
            return;
        }
        let listed = self.worker.unless_stopped(self.group.members()).await;
        if let Some(Ok(members)) = listed
            && self.is_in(session)
        {
            let text = |data: Vec<u8>| String::from_utf8_lossy(&data).into_owned();
            let entries: Vec<String> = members.into_values().map(text).collect();
            let is_found = entries.contains(&self.entry);
            self.worker
                .note(Did::Member(MemberStep::Looked { entries }));
            if is_found {
                self.worker.note(Did::Member(MemberStep::Found));
            }
        }
    }

    /// Whether the client is still in that session.
    fn is_in(&self, session: bellwether::SessionId) -> bool {
        self.client.session_id() == session && !self.client.raw().state().is_ended()
    }

    fn note_left(&self) {
        let entry = self.entry.clone();
        self.worker.note(Did::Member(MemberStep::Left { entry }));
    }
}

fn note_joining(worker: &Worker, entry: &str) {
    let entry = entry.to_owned();
    worker.note(Did::Member(MemberStep::Joining { entry }));
}
