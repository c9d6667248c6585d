//! A server and a chroot of its own for each test.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use bellwether_client::{Client, Connect, CreateMode, SessionState};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Apache, FaultProxy, TestServer};

/// Short enough to wait for the end of a session, long enough for a busy machine.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// No wait in a test is longer.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Place {
    server: String,
    chroot: String,
    /// Ends with the test.
    engine: Arc<dyn Any + Send + Sync>,
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
        Self::on(server.connect_string(), Arc::new(server)).await
    }

    pub(crate) async fn apache() -> Self {
        let server = Apache::shared().await.unwrap();
        Self::on(server.connect_string().to_owned(), Arc::new(server)).await
    }

    async fn on(server: String, engine: Arc<dyn Any + Send + Sync>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let chroot = format!("/it-{process}-{:x}-{count}", now.unwrap().as_nanos());
        let maker = Client::connect(&server).await.unwrap();
        let made = maker.create(&chroot, b"", CreateMode::Persistent).await;
        made.unwrap();
        maker.close().await;
        Self {
            server,
            chroot,
            engine,
        }
    }

    /// Another chroot on the same server.
    pub(crate) async fn fresh(&self) -> Self {
        Self::on(self.server.clone(), Arc::clone(&self.engine)).await
    }

    /// The address of the server with the chroot.
    pub(crate) fn connect_string(&self) -> String {
        format!("{}{}", self.server, self.chroot)
    }

    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }

    /// A session to be opened in the chroot.
    pub(crate) fn connect(&self) -> Connect {
        Client::connect(self.connect_string())
    }

    /// A new session.
    pub(crate) async fn client(&self) -> Client {
        self.connect().await.unwrap()
    }

    /// A proxy in front of the server.
    pub(crate) async fn proxy(&self) -> FaultProxy {
        FaultProxy::start(&self.server).await.unwrap()
    }

    /// A session to be opened through a proxy.
    pub(crate) fn connect_through(&self, proxy: &FaultProxy) -> Connect {
        Client::connect(format!("{}{}", proxy.address(), self.chroot))
    }

    /// A new session whose connection goes through a proxy of its own.
    pub(crate) async fn proxied(&self, session_timeout: Duration) -> (FaultProxy, Client) {
        let proxy = self.proxy().await;
        let connect = self.connect_through(&proxy);
        let client = connect.session_timeout(session_timeout).await.unwrap();
        (proxy, client)
    }

    /// The watched paths below the chroot, as the server reports them.
    pub(crate) async fn watched_paths(&self) -> Vec<String> {
        let answer = four_letter_word(&self.server, "wchp").await.unwrap();
        let paths = answer.lines().filter_map(|line| {
            let path = line.strip_prefix(self.chroot.as_str())?;
            Some(path.to_owned())
        });
        let mut paths: Vec<_> = paths.collect();
        paths.sort();
        paths
    }
}

/// Awaits a future that must resolve, and fails after a time limit.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it should have happened by now")
}

/// Waits until a session has had `count` connections.
pub(crate) async fn until_connections(client: &Client, count: u64) {
    let mut states = client.states();
    soon(async {
        while client.connections() < count {
            states.changed().await.unwrap();
        }
    })
    .await;
}

/// Waits until a session has no connection.
pub(crate) async fn until_down(client: &Client) {
    let mut states = client.states();
    let down = states.wait_for(|state| *state != SessionState::Connected);
    soon(down).await.unwrap();
}

/// Makes an empty node.
pub(crate) async fn create(client: &Client, path: &str) {
    let created = client.create(path, b"", CreateMode::Persistent).await;
    created.unwrap();
}
