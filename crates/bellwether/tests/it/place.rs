//! A chroot of its own for a test, and a look at it from outside.

use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bellwether::{Client, connect, zk};
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
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::embedded().await).await;
            })*
        }

        mod apache {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::apache().await).await;
            })*
        }
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

    /// The same server as if it were of a release before 3.6, which has no persistent watches.
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
        let outside = zk::Client::connector()
            .with_session_timeout(Duration::from_secs(30))
            .connect(&format!("{server}{chroot}"))
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

    /// A new session whose requests and events are counted on their way. It is so patient that no heartbeat comes in between.
    pub(crate) async fn counted(&self) -> (FaultProxy, Client) {
        self.proxied(Duration::from_secs(60)).await
    }

    /// A new session whose connection goes through a proxy of its own.
    pub(crate) async fn proxied(&self, session_timeout: Duration) -> (FaultProxy, Client) {
        let proxy = FaultProxy::start(&self.server).await.unwrap();
        let client = self.client_through(&proxy, session_timeout).await;
        (proxy, client)
    }

    /// As [`proxied`](Self::proxied), but whose successor is given up as soon as the proxy refuses it.
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

    /// How many watches there are in the chroot, by the server's own word for it.
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

    /// Whether a session watches the node at `path`. Servers do not tell who watches its list of children.
    async fn is_watched(&self, path: &str, session: i64) -> bool {
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

    /// Waits until `call`, made through `session`, waits for a change of one of the nodes at `paths`, and returns which. Panics if
    /// the call returns.
    ///
    /// The watch on the server is the proof: the call has looked, has found something in its way, and looks again only when that
    /// has changed. `!call.is_finished()` alone is also true of a call that is about to return.
    pub(crate) async fn until_waits_for<'p, T>(
        &self,
        paths: &[&'p str],
        session: i64,
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
        // A call that sets its watch and returns all the same has had the time for that when these are answered.
        for _ in 0..3 {
            self.outside.sync("/").await.unwrap();
        }
        waits();
        watched
    }

    /// Waits until there are no watches in the chroot. A removal may be on its way when its caller has gone on.
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

    /// A client that knows no recipes.
    pub(crate) fn outside(&self) -> &zk::Client {
        &self.outside
    }

    pub(crate) async fn children(&self, path: &str) -> Vec<String> {
        match self.outside.list_children(path).await {
            Ok(names) => names,
            Err(zk::Error::NoNode) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until a directory has so many children.
    pub(crate) async fn until_children(&self, path: &str, count: usize) {
        soon(async {
            loop {
                let (found, watch) = match self.outside.list_and_watch_children(path).await {
                    Ok((names, watch)) => (names.len(), watch),
                    Err(zk::Error::NoNode) => {
                        let (stat, watch) = self.outside.check_and_watch_stat(path).await.unwrap();
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
                watch.changed().await;
            }
        })
        .await;
    }
}

/// Ends the session behind a proxy, before its client can take it back.
pub(crate) async fn expire(proxy: &FaultProxy) {
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    proxy.refuse(false);
}

/// Kills the client behind a proxy, as a power failure does: nothing of it reaches the server any more, and the server expires
/// its session when the timeout has passed.
pub(crate) async fn kill(proxy: &FaultProxy) {
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
}

/// Notes the operations of requests on such paths, as they go to the server.
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

/// Waits until a session has ended and whoever wants the next one was refused it: the second attempt comes behind theirs.
pub(crate) async fn until_no_successor(client: &Client) {
    soon(client.ended()).await;
    for _ in 0..2 {
        assert!(soon(client.successor()).await.is_err());
    }
}

/// Lets a server remove its empty containers until one of them is gone.
pub(crate) async fn until_reaped(server: &TestServer, client: &Client, path: &str) {
    soon(async {
        while let (Some(_), reaped) = client.raw().check_and_watch_stat(path).await.unwrap() {
            server.reap_now().unwrap();
            reaped.changed().await;
        }
    })
    .await;
}

/// Awaits what must happen, and fails when it does not.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it should have happened by now")
}
