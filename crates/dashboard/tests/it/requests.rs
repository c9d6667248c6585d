//! Raw requests: what the dashboard refuses, and the headers of every response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Result;
use bellwether::connect;
use bellwether::zk::{Acl, CreateMode, Id, acl};
use bellwether_dashboard::Dashboard;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::{LONG, Scene, TOKEN, request};

#[tokio::test]
async fn other_hosts_and_other_sites_are_refused() -> Result<()> {
    let scene = Scene::with(|dashboard| dashboard.host_name("dash.example.org")).await?;
    let status = async |headers: &[(&str, &str)]| {
        let answer = request(&scene.address, "GET", "/api/about", headers, "").await;
        answer.map(|answer| answer.status)
    };
    assert_eq!(status(&[]).await?, 200);
    assert_eq!(status(&[("Host", "localhost:1")]).await?, 200);
    assert_eq!(status(&[("Host", "[::1]:8080")]).await?, 200);
    assert_eq!(status(&[("Host", "dash.example.org")]).await?, 200);
    assert_eq!(status(&[("Host", "evil.example.org")]).await?, 421);
    assert_eq!(
        status(&[("Host", "127.0.0.1.evil.example.org:80")]).await?,
        421
    );
    assert_eq!(status(&[("Origin", "http://evil.example.org")]).await?, 403);
    assert_eq!(status(&[("Origin", "null")]).await?, 403);
    let own = format!("http://{}", scene.address);
    assert_eq!(status(&[("Origin", &own)]).await?, 200);
    assert_eq!(status(&[("Sec-Fetch-Site", "cross-site")]).await?, 403);
    assert_eq!(status(&[("Sec-Fetch-Site", "same-origin")]).await?, 200);
    Ok(())
}

#[tokio::test]
async fn every_answer_has_a_strict_policy() -> Result<()> {
    let scene = Scene::new().await?;
    for path in [
        "/",
        "/app.js",
        "/api/about",
        "/nothing",
        "/api/node?path=nopath",
    ] {
        let answer = request(&scene.address, "GET", path, &[], "").await?;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        assert_eq!(
            answer.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn login_takes_the_token_and_nothing_else() -> Result<()> {
    let scene = Scene::new().await?;
    let login = async |body: &str| request(&scene.address, "POST", "/api/login", &[], body).await;
    let wrong = format!("{TOKEN}x");
    for body in ["", "x", &wrong, &TOKEN[1..], "\u{0}"] {
        let answer = login(body).await?;
        assert_eq!(
            (answer.status, answer.header("set-cookie")),
            (401, None),
            "{body:?}"
        );
    }
    let answer = login(TOKEN).await?;
    let cookie = answer.header("set-cookie").unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    Ok(())
}

#[tokio::test]
async fn long_requests_are_refused() -> Result<()> {
    let scene = Scene::new().await?;
    let long = "x".repeat(17 << 10);
    let answer = request(&scene.address, "POST", "/api/login", &[], &long).await?;
    assert_eq!(answer.status, 413);
    Ok(())
}

#[tokio::test]
async fn dashboard_does_not_start_where_it_would_be_open_to_all() -> Result<()> {
    let scene = Scene::new().await?;
    let refused = async |dashboard: Dashboard, address: &str| {
        let listener = TcpListener::bind(address).await?;
        let served = dashboard.serve(listener).await;
        Ok::<_, anyhow::Error>(served.unwrap_err().to_string())
    };
    let plain = Dashboard::new(&scene.client);
    let why = refused(plain.clone(), "0.0.0.0:0").await?;
    assert!(why.contains("needs a token"), "{why}");
    let why = refused(plain.clone().allow_actions(), "127.0.0.1:0").await?;
    assert!(why.contains("actions need a token"), "{why}");
    let why = refused(plain.token("short"), "127.0.0.1:0").await?;
    assert!(why.contains("16 characters"), "{why}");
    Ok(())
}

#[tokio::test]
async fn proxies_on_this_host_need_the_token() -> Result<()> {
    let scene = Scene::new().await?;
    let status = async |path: &str, headers: &[(&str, &str)]| {
        let answer = request(&scene.address, "GET", path, headers, "").await;
        answer.map(|answer| answer.status)
    };
    let bearer = format!("Bearer {TOKEN}");
    for header in ["Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"] {
        let through = (header, "203.0.113.7");
        for path in ["/api/node?path=/", "/metrics"] {
            assert_eq!(status(path, &[through]).await?, 401, "{header} {path}");
        }
        let with = [through, ("Authorization", &bearer)];
        assert_eq!(status("/api/node?path=/", &with).await?, 200, "{header}");
    }
    assert_eq!(status("/api/node?path=/", &[]).await?, 200);
    Ok(())
}

#[tokio::test]
async fn everybody_needs_the_token_unless_this_host_is_let_in() -> Result<()> {
    let scene = Scene::new().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let dashboard = Dashboard::new(&scene.client)
        .token(TOKEN)
        .metrics(|| "up 1\n".to_owned());
    let dashboard = tokio::spawn(dashboard.serve(listener));
    let status = async |path: &str| {
        let answer = request(&address, "GET", path, &[], "").await;
        answer.map(|answer| answer.status)
    };
    assert_eq!(status("/api/node?path=/").await?, 401);
    assert_eq!(status("/api/live").await?, 401);
    // Prometheus on this host.
    assert_eq!(status("/metrics").await?, 200);
    dashboard.abort();
    Ok(())
}

#[tokio::test]
async fn probes_need_no_token_and_no_known_host() -> Result<()> {
    let scene = Scene::new().await?;
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    let address = format!("127.0.0.1:{}", listener.local_addr()?.port());
    let is_ready = Arc::new(AtomicBool::new(true));
    let ready = is_ready.clone();
    let dashboard = Dashboard::new(&scene.client).token(TOKEN).ready(move || {
        let is_ready = ready.load(Relaxed);
        async move {
            if is_ready {
                Ok(())
            } else {
                Err("the disk is full".to_owned())
            }
        }
    });
    let dashboard = tokio::spawn(dashboard.serve(listener));
    let probe = async |path: &str| {
        let by = [("Host", "balancer.example.org")];
        let answer = request(&address, "GET", path, &by, "").await?;
        Ok::<_, anyhow::Error>((answer.status, answer.body))
    };
    assert_eq!(probe("/healthz").await?.0, 200);
    assert_eq!(probe("/readyz").await?.0, 200);
    is_ready.store(false, Relaxed);
    assert_eq!(probe("/healthz").await?.0, 200);
    assert_eq!(
        probe("/readyz").await?,
        (503, "the disk is full\n".to_owned())
    );
    dashboard.abort();
    Ok(())
}

#[tokio::test]
async fn other_hosts_need_the_token_for_everything_but_the_page_itself() -> Result<()> {
    let scene = Scene::new().await?;
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    let address = format!("127.0.0.1:{}", listener.local_addr()?.port());
    let dashboard = Dashboard::new(&scene.client)
        .token(TOKEN)
        .metrics(|| "up 1\n".to_owned());
    let dashboard = tokio::spawn(dashboard.serve(listener));
    let bearer = format!("Bearer {TOKEN}");
    let with = [("Authorization", bearer.as_str())];
    let wrong = [("Authorization", "Bearer 0123456789abcdef")];
    for path in [
        "/metrics",
        "/api/node?path=/",
        "/api/children?path=/",
        "/api/search?name=x",
        "/api/sessions",
        "/api/live",
        "/api/touched?path=/",
        "/api/dead-letters?path=/",
    ] {
        for headers in [&[][..], &wrong] {
            let refused = request(&address, "GET", path, headers, "").await?;
            assert_eq!(refused.status, 401, "{path}");
            assert!(refused.body.contains("log in"), "{path}: {}", refused.body);
        }
    }
    let allowed = request(&address, "GET", "/metrics", &with, "").await?;
    assert_eq!((allowed.status, allowed.body.as_str()), (200, "up 1\n"));
    // The page, which asks for the token.
    assert_eq!(request(&address, "GET", "/", &[], "").await?.status, 200);
    let about = request(&address, "GET", "/api/about", &[], "").await?;
    assert!(about.body.contains(r#""needs_login":true"#), "{about:?}");
    dashboard.abort();
    Ok(())
}

#[tokio::test]
async fn node_that_the_session_may_not_read_is_not_shown() -> Result<()> {
    let scene = Scene::new().await?;
    let owner = connect(scene.server.connect_string()).await?;
    let zk = owner.raw();
    zk.auth("digest", b"owner:secret").await?;
    let private = CreateMode::Persistent.with_acl([Acl::new(acl::ALL, Id::new("auth", ""))]);
    zk.create("/private", b"hidden text", private).await?;
    let read = async |path: &str| request(&scene.address, "GET", path, &[], "").await;
    let refused = read("/api/node?path=/private").await?;
    assert_eq!(refused.status, 502, "{refused:?}");
    assert!(!refused.body.contains("hidden"), "{refused:?}");
    let refused = read("/api/children?path=/private").await?;
    assert_eq!(refused.status, 502, "{refused:?}");
    // Its name is one of its parent's.
    assert!(read("/api/children?path=/").await?.body.contains("private"));
    Ok(())
}

#[tokio::test]
async fn answers_are_limited() -> Result<()> {
    let scene = Scene::new().await?;
    let zk = scene.client.raw();
    let large = vec![b'x'; 200 << 10];
    zk.create("/large", &large, CreateMode::Persistent).await?;
    for number in 0..250 {
        let path = format!("/large/n{number:03}");
        zk.create(&path, b"", CreateMode::Persistent).await?;
    }
    let read = async |path: &str| {
        let answer = request(&scene.address, "GET", path, &[], "").await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        Ok::<Value, anyhow::Error>(serde_json::from_str(&answer.body)?)
    };
    let node = read("/api/node?path=/large").await?;
    assert_eq!(node["cut"], true);
    assert!(
        node.to_string().len() < 100 << 10,
        "{}",
        node.to_string().len()
    );
    let children = read("/api/children?path=/large").await?;
    assert_eq!(
        children["children"].as_array().map(Vec::len),
        Some(100),
        "{children}"
    );
    let found = read("/api/search?name=n").await?;
    assert_eq!(found["found"].as_array().map(Vec::len), Some(200));
    assert_eq!(found["cut"], true);
    Ok(())
}

#[tokio::test]
async fn pages_beyond_the_limit_are_refused_until_one_is_closed() -> Result<()> {
    const PAGES_MAX: usize = 64;
    let scene = Scene::new().await?;
    let open = async || {
        let mut stream = TcpStream::connect(&scene.address).await?;
        let head = format!("GET /api/live HTTP/1.1\r\nHost: {}\r\n\r\n", scene.address);
        stream.write_all(head.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        Ok::<_, anyhow::Error>((stream, String::from_utf8(status.to_vec())?))
    };
    let mut pages = Vec::new();
    for _ in 0..PAGES_MAX {
        let (page, status) = open().await?;
        assert_eq!(status, "HTTP/1.1 200");
        pages.push(page);
    }
    assert_eq!(open().await?.1, "HTTP/1.1 503");
    drop(pages.pop());
    let opened = async {
        while open()
            .await
            .is_ok_and(|(_, status)| status != "HTTP/1.1 200")
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, opened).await?;
    Ok(())
}

#[tokio::test]
async fn sessions_come_with_the_addresses_of_clients_and_what_these_use() -> Result<()> {
    let scene = Scene::new().await?;
    let zk = scene.client.raw();
    zk.create("/a", &vec![b'x'; 5000], CreateMode::Persistent)
        .await?;
    let answer = request(&scene.address, "GET", "/api/sessions", &[], "").await?;
    let answer: Value = serde_json::from_str(&answer.body)?;
    let [address] = &answer["addresses"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    assert_eq!(address["address"], "127.0.0.1");
    assert_eq!(address["server"], scene.server.connect_string());
    let used = |figure: &str| address["used"][figure].as_u64().unwrap();
    assert!(
        used("requests") >= 1 && used("received_bytes") > 5000,
        "{answer}"
    );
    assert!(
        used("connections") >= 2 && used("sent_bytes") > 0,
        "{answer}"
    );

    let browser = scene.browser("sessions").await?;
    browser
        .until("[...document.querySelectorAll('#main h2')].some((head) => head.textContent === 'Client addresses') && document.getElementById('main').innerText.includes('127.0.0.1')")
        .await?;
    Ok(())
}
