//! A real browser: Debian's chromium without a window, driven by chromedriver (WebDriver protocol).

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::interval;

use super::{LONG, request};

/// Polling interval of conditions.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A browser with one page. It ends when this is dropped.
pub(crate) struct Browser {
    /// Address of chromedriver.
    address: String,
    session: String,
    /// Ends with its browser when it is dropped.
    _driver: Child,
    _profile: TempDir,
}

impl Browser {
    pub(crate) async fn start() -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .context("chromedriver is missing; ./test installs it")?;
        let stdout = driver.stdout.take().context("it is piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let port = loop {
            let line = lines.next_line().await?.context("chromedriver ended")?;
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        // It may write more, and must not fail because of a closed pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let mut browser = Self {
            address: format!("127.0.0.1:{port}"),
            session: String::new(),
            _driver: driver,
            _profile: profile,
        };
        let profile = browser._profile.path().display();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-first-run",
                "--hide-scrollbars", "--force-color-profile=srgb", "--window-size=1360,900",
                format!("--user-data-dir={profile}"),
            ]},
        }}});
        let opened = browser.command("/session", &wanted).await?;
        let session = opened["sessionId"].as_str().context("no session")?;
        browser.session = session.to_owned();
        Ok(browser)
    }

    pub(crate) async fn go(&self, url: &str) -> Result<()> {
        self.on_session("/url", &json!({"url": url})).await?;
        Ok(())
    }

    /// Returns the value of a script.
    pub(crate) async fn run(&self, script: &str) -> Result<Value> {
        let script = json!({"script": script, "args": []});
        self.on_session("/execute/sync", &script).await
    }

    /// Waits until an expression is true, and returns how long that took.
    pub(crate) async fn until(&self, expression: &str) -> Result<Duration> {
        let begin = Instant::now();
        let mut looks = interval(LOOK_EVERY);
        let script = format!("return Boolean({expression})");
        while self.run(&script).await? != true {
            if begin.elapsed() > LONG {
                let shown = self.run("return document.body.innerText").await?;
                let log = self.log().await?;
                bail!("not within {LONG:?}: {expression}\nlog: {log}\npage: {shown}");
            }
            looks.tick().await;
        }
        Ok(begin.elapsed())
    }

    /// Presses keys, one after the other: letters, or `Tab`, `Enter`, `Escape`, `ArrowRight`.
    pub(crate) async fn press(&self, keys: &[&str]) -> Result<()> {
        let code = |key: &str| match key {
            "Tab" => "\u{e004}".to_owned(),
            "Enter" => "\u{e007}".to_owned(),
            "Escape" => "\u{e00c}".to_owned(),
            "ArrowRight" => "\u{e014}".to_owned(),
            letters => letters.to_owned(),
        };
        let actions: Vec<_> = keys
            .iter()
            .flat_map(|key| {
                let key = code(key);
                ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key}))
            })
            .collect();
        let actions = json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]});
        self.on_session("/actions", &actions).await?;
        Ok(())
    }

    /// Runs a command of the developer tools.
    pub(crate) async fn tool(&self, command: &str, params: Value) -> Result<Value> {
        let command = json!({"cmd": command, "params": params});
        self.on_session("/goog/cdp/execute", &command).await
    }

    /// Sets the size of the page.
    pub(crate) async fn size(&self, width: u32, height: u32) -> Result<()> {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        let command = "Emulation.setDeviceMetricsOverride";
        self.tool(command, metrics).await?;
        Ok(())
    }

    pub(crate) async fn prefer_dark(&self, dark: bool) -> Result<()> {
        let value = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.tool("Emulation.setEmulatedMedia", media).await?;
        Ok(())
    }

    /// Log of the page: errors, and violations of its security policy.
    pub(crate) async fn log(&self) -> Result<Value> {
        self.on_session("/se/log", &json!({"type": "browser"}))
            .await
    }

    pub(crate) async fn screenshot(&self, file: &Path) -> Result<()> {
        let path = format!("/session/{}/screenshot", self.session);
        let answer = request(&self.address, "GET", &path, &[], "").await?;
        let answer: Value = serde_json::from_str(&answer.body)?;
        let image = answer["value"].as_str().context("no image")?;
        std::fs::write(file, BASE64.decode(image).ok().context("no base64")?)?;
        Ok(())
    }

    async fn on_session(&self, path: &str, body: &Value) -> Result<Value> {
        let path = format!("/session/{}{path}", self.session);
        self.command(&path, body).await
    }

    async fn command(&self, path: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let headers = [("Content-Type", "application/json")];
        let answer = request(&self.address, "POST", path, &headers, &body).await?;
        let mut value: Value = serde_json::from_str(&answer.body)
            .with_context(|| format!("{path}: {}", answer.body))?;
        if answer.status != 200 {
            bail!("{path}: {value}");
        }
        Ok(value["value"].take())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // chromedriver ends its browser when its session is deleted; a kill would leave the browser behind.
        let (address, session) = (self.address.clone(), self.session.clone());
        let ended = std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let mut stream = std::net::TcpStream::connect(&address)?;
            let head = "Connection: close\r\nContent-Length: 0\r\n\r\n";
            write!(
                stream,
                "DELETE /session/{session} HTTP/1.1\r\nHost: {address}\r\n{head}"
            )?;
            stream.read(&mut [0; 256])
        });
        let _ = ended.join();
    }
}
