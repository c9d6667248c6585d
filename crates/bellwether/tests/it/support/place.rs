//! A separate chroot for each test, and a view of it from outside.

use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bellwether::{Client, SessionId, connect, zk};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Apache, Cut, FaultProxy, Op, TestServer};
use tokio::task::JoinHandle;

/// Short enough to wait for the end of a session, long enough for a busy machine.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// No wait in a test is longer.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Place {
    server: String,
    chroot: String,
    outside: zk::Client,
    /// Ends with the test.
    engine: Box<dyn Any>,
}

/// Makes two tests of each function: on the embedded server, and on Apache's.
macro_rules! on_both_engines {
    ($($name:ident,)*) => {
        bellwether_testkit::on_both_engines! { $crate::support::place::Place: $($name,)* }
    };
}

impl Place {
    pub(crate) async fn embedded() -> Self {
        let server = TestServer::start().await.unwrap();
        Self::on(server.connect_string(), Box::new(server)).await
    }

    pub(crate) async fn apache() -> Self {
        let server = Apache::shared().await.unwrap();
        Self::on(server.connect_string().to_owned(), Box::new(server)).await
    }

    /// The same server as if it were a release before 3.6, without persistent watches.
    pub(crate) async fn before_persistent_watches(self) -> Self {
        let proxy = FaultProxy::start(&self.server).await.unwrap();
        proxy.hide(Op::AddWatch);
        Self::on(proxy.connect_string(), Box::new((proxy, self.engine))).await
    }

    async fn on(server: String, engine: Box<dyn Any>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_nanos();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let chroot = format!("/it/{}-{now:x}-{count}", std::process::id());
        let outside = zk::Client::connect(format!("{server}{chroot}"))
            .session_timeout(Duration::from_secs(30))
            .await
            .unwrap();
        Self {
            server,
            chroot,
            outside,
            engine,
        }
    }

    /// A new session.
    pub(crate) async fn client(&self) -> Client {
        connect(format!("{}{}", self.server, self.chroot))
            .session_timeout(Duration::from_secs(5))
            .await
            .unwrap()
    }

    /// A new session whose requests and events are counted. Its timeout is so long that no heartbeat is due.
    pub(crate) async fn counted(&self) -> (FaultProxy, Client) {
        self.proxied(Duration::from_secs(60)).await
    }

    /// A new session whose connection goes through a proxy of its own.
    pub(crate) async fn proxied(&self, session_timeout: Duration) -> (FaultProxy, Client) {
        let proxy = FaultProxy::start(&self.server).await.unwrap();
        let client = self.client_through(&proxy, session_timeout).await;
        (proxy, client)
    }

    /// Like [`proxied`](Self::proxied), but its client gives up the next session as soon as the proxy refuses it.
    pub(crate) async fn impatient(&self) -> (FaultProxy, Client) {
        let proxy = FaultProxy::start(&self.server).await.unwrap();
        let client = connect(format!("{}{}", proxy.address(), self.chroot))
            .session_timeout(SESSION_TIMEOUT)
            .fail_fast()
            .await
            .unwrap();
        (proxy, client)
    }

    /// One more session through a proxy.
    pub(crate) async fn client_through(
        &self,
        proxy: &FaultProxy,
        session_timeout: Duration,
    ) -> Client {
        connect(format!("{}{}", proxy.address(), self.chroot))
            .session_timeout(session_timeout)
            .await
            .unwrap()
    }

    /// Number of watches in the chroot, as the server reports it.
    pub(crate) async fn watches(&self) -> usize {
        let answer = self.word("wchp").await;
        let mut watches = 0;
        let mut counted = false;
        for line in answer.lines() {
            match line.strip_prefix(['\t', ' ']) {
                Some(_) if counted => watches += 1,
                Some(_) => {}
                None => counted = line.starts_with(&self.chroot),
            }
        }
        watches
    }

    /// Whether a session watches the node at `path`. Servers do not report watches on its list of children.
    async fn is_watched(&self, path: &str, session: SessionId) -> bool {
        let (path, session) = (format!("{}{path}", self.chroot), format!("0x{session:x}"));
        let answer = self.word("wchc").await;
        let mut is_own = false;
        answer.lines().any(|line| match line.strip_prefix('\t') {
            Some(watched) => is_own && watched == path,
            None => {
                is_own = line == session;
                false
            }
        })
    }

    async fn word(&self, word: &str) -> String {
        four_letter_word(&self.server, word).await.unwrap()
    }

    /// Waits until `call`, made through `session`, waits for a change of one of the nodes at `paths`, and returns which one. Panics if the
    /// call returns.
    ///
    /// The watch on the server is the proof: the call has read, has found that it must wait, and reads again only after a change.
    /// `!call.is_finished()` alone is also true of a call that is about to return.
    pub(crate) async fn until_waits_for<'p, T>(
        &self,
        paths: &[&'p str],
        session: SessionId,
        call: &JoinHandle<T>,
    ) -> &'p str {
        let waits = || assert!(!call.is_finished(), "it did not wait for {paths:?}");
        let watched = soon(async {
            loop {
                for path in paths {
                    if self.is_watched(path, session).await {
                        return path;
                    }
                }
                waits();
            }
        })
        .await;
        // A call that sets its watch and returns anyway has had the time for that when these are answered.
        for _ in 0..3 {
            self.outside.sync("/").await.unwrap();
        }
        waits();
        watched
    }

    /// Waits until there are no watches in the chroot. A removal may be in flight after its caller has continued.
    pub(crate) async fn until_no_watches(&self) {
        soon(async {
            while self.watches().await > 0 {
                self.outside.sync("/").await.unwrap();
            }
        })
        .await;
    }

    /// The address of the server, without a chroot.
    pub(crate) fn server(&self) -> String {
        self.server.clone()
    }

    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }

    /// A client without recipes.
    pub(crate) fn outside(&self) -> &zk::Client {
        &self.outside
    }

    pub(crate) async fn children(&self, path: &str) -> Vec<String> {
        match self.outside.children(path).await {
            Ok(names) => names,
            Err(zk::Error::NO_NODE) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until a directory has `count` children.
    pub(crate) async fn until_children(&self, path: &str, count: usize) {
        soon(async {
            loop {
                let (found, watch) = match self.outside.children_watched(path).await {
                    Ok((names, watch)) => (names.len(), watch),
                    Err(zk::Error::NO_NODE) => {
                        let (stat, watch) = self.outside.exists_watched(path).await.unwrap();
                        if stat.is_some() {
                            continue;
                        }
                        (0, watch)
                    }
                    Err(error) => panic!("{error}"),
                };
                if found == count {
                    return;
                }
                watch.await.unwrap();
            }
        })
        .await;
    }
}

/// Ends the session behind a proxy, before its client can resume it.
pub(crate) async fn expire(proxy: &FaultProxy) {
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    proxy.refuse(false);
}

/// Kills the client behind a proxy, like a power failure: nothing from it reaches the server any more, and the server expires its session
/// after the timeout.
pub(crate) async fn kill(proxy: &FaultProxy) {
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
}

/// Records the operations of requests on such paths, as they pass to the server.
pub(crate) fn note_requests(
    proxy: &FaultProxy,
    is_noted: impl Fn(&str) -> bool + Send + 'static,
) -> Arc<Mutex<Vec<Op>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    // A fault that never happens.
    drop(proxy.drop_request_where(move |request| {
        if request.path().is_some_and(|path| is_noted(&path)) {
            noted.lock().unwrap().push(request.op);
        }
        false
    }));
    seen
}

/// Waits until a session has ended and the next one was refused: the second attempt here follows that of the client itself.
pub(crate) async fn until_no_successor(client: &Client) {
    soon(client.raw().ended()).await;
    for _ in 0..2 {
        assert!(soon(client.ready()).await.is_err());
    }
}

/// Lets a server delete its empty containers until one of them is gone.
pub(crate) async fn until_reaped(server: &TestServer, client: &Client, path: &str) {
    soon(async {
        while let (Some(_), reaped) = client.raw().exists_watched(path).await.unwrap() {
            server.reap_now().unwrap();
            reaped.await.unwrap();
        }
    })
    .await;
}

/// Awaits a future that must resolve, and fails after a time limit.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it should have happened by now")
}
