//! State of the servers, followed while a page is open.

mod document;
mod members;
mod observer;
mod pace;
mod picture;
mod problems;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bellwether::Client;
use serde_json::Value;
use tokio::sync::{broadcast, watch};

pub(crate) use document::Document;
pub use members::Member;
pub(crate) use observer::observe;
use pace::Pace;
pub(crate) use picture::parent;

/// Number of server samples kept: five minutes.
const SAMPLES_MAX: usize = 150;

/// Number of changed paths a page may lag behind. A page that lags further reloads everything it shows.
const TOUCHED_MAX: usize = 1024;

/// State that all pages share.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) client: Client,
    pub(crate) members: Vec<Member>,
    pub(crate) document: watch::Sender<Document>,
    /// Number of open pages.
    pages: watch::Sender<usize>,
    /// Paths of nodes that were created, deleted or changed; `None` if some events were missed.
    pub(crate) touched: broadcast::Sender<Option<Arc<str>>>,
    samples: Mutex<VecDeque<Value>>,
    pace: Mutex<Pace>,
}

impl Live {
    pub(crate) fn new(client: Client, members: Vec<Member>) -> Arc<Self> {
        Arc::new(Self {
            client,
            members,
            document: watch::Sender::default(),
            pages: watch::Sender::default(),
            touched: broadcast::Sender::new(TOUCHED_MAX),
            samples: Mutex::default(),
            pace: Mutex::new(Pace::new(Instant::now())),
        })
    }

    /// Counts a page as open until the result is dropped; `None` if `pages_max` pages are open.
    pub(crate) fn open_page(self: &Arc<Self>, pages_max: usize) -> Option<Page> {
        let opened = self.pages.send_if_modified(|pages| {
            let has_room = *pages < pages_max;
            *pages += usize::from(has_room);
            has_room
        });
        opened.then(|| Page(self.clone()))
    }

    /// When the next requests may be sent that no user has asked for. All requests so far count, also those of users.
    pub(crate) fn next_look(&self) -> Instant {
        let now = Instant::now();
        self.charged(now).next(now)
    }

    /// The budget, from which all requests so far are taken.
    fn charged(&self, now: Instant) -> MutexGuard<'_, Pace> {
        let mut pace = self.pace();
        pace.charge_users(self.client.raw().requests(), now);
        pace
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Samples of the last minutes, oldest first.
    pub(crate) fn samples(&self) -> Vec<Value> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().cloned().collect()
    }

    fn keep_sample(&self, sample: Value) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}

/// An open page.
#[derive(Debug)]
pub(crate) struct Page(Arc<Live>);

impl Page {
    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.0
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.0.pages.send_modify(|pages| *pages -= 1);
    }
}
