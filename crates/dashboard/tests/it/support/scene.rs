//! Servers, a dashboard on them, and a browser that shows it.

use std::ops::Deref;
use std::path::PathBuf;

use anyhow::Result;
use bellwether::zk::{Address, Dial as _, Sockets, four_letter_word};
use bellwether::{Client, connect};
use bellwether_dashboard::{Dashboard, Member};
use bellwether_testkit::TestServer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::Browser;

/// Login token.
pub(crate) const TOKEN: &str = "0123456789abcdef-of-a-test";

/// A server of its own, with a dashboard on it.
pub(crate) struct Scene {
    pub(crate) server: TestServer,
    stage: Stage,
}

impl Scene {
    /// A dashboard that allows actions.
    pub(crate) async fn new() -> Result<Self> {
        Self::with(|dashboard| dashboard.token(TOKEN).allow_actions()).await
    }

    pub(crate) async fn with(change: impl FnOnce(Dashboard) -> Dashboard) -> Result<Self> {
        let server = TestServer::start().await?;
        let stage = Stage::with(&server.connect_string(), change).await?;
        Ok(Self { server, stage })
    }
}

impl Deref for Scene {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

/// A dashboard on any servers.
pub(crate) struct Stage {
    pub(crate) client: Client,
    /// Where the dashboard listens.
    pub(crate) address: String,
    dashboard: JoinHandle<()>,
}

impl Stage {
    /// A dashboard that allows actions.
    pub(crate) async fn on(connect_string: &str) -> Result<Self> {
        Self::with(connect_string, |dashboard| {
            dashboard.token(TOKEN).allow_actions()
        })
        .await
    }

    async fn with(
        connect_string: &str,
        change: impl FnOnce(Dashboard) -> Dashboard,
    ) -> Result<Self> {
        let client = connect(connect_string).await?;
        let own = connect(connect_string).await?;
        let mut dashboard = Dashboard::new(&own)
            .title(connect_string)
            .open_to_this_host();
        for endpoint in Address::parse(connect_string)?.endpoints {
            dashboard = dashboard.member(Member::new(endpoint.to_string(), move |word| {
                four_letter_word(Sockets.dial(&endpoint), word)
            }));
        }
        let dashboard = change(dashboard);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let dashboard = tokio::spawn(async move {
            dashboard.serve(listener).await.unwrap();
        });
        Ok(Self {
            client,
            address,
            dashboard,
        })
    }

    pub(crate) fn url(&self, page: &str) -> String {
        format!("http://{}/#/{page}", self.address)
    }

    /// A browser with a page that is live.
    pub(crate) async fn browser(&self, page: &str) -> Result<Browser> {
        let browser = Browser::start().await?;
        browser.go(&self.url(page)).await?;
        browser
            .until("document.getElementById('connection').textContent === 'live'")
            .await?;
        Ok(browser)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.dashboard.abort();
    }
}

/// Folder for screenshots.
pub(crate) fn gallery() -> Result<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/dashboard");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
