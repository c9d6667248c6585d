//! Content of the pages, and how they follow changes.

use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether::zk::CreateMode;
use bellwether::{Lock, Queue, connect};
use futures_util::future::try_join_all;

use crate::support::{Browser, Scene, TOKEN, town};

/// Owner of the lock as shown on the page, and the number of waiters.
const FIRST: &str =
    "(document.querySelector('.card .person.holds')?.getAttribute('aria-label') ?? '')";

#[tokio::test]
async fn line_of_five_waiters_moves_up_within_a_second_of_a_hand_over() -> Result<()> {
    let scene = Scene::new().await?;
    let lock = |name: &str| {
        Lock::new(&scene.client, "/jobs/nightly")
            .owner(name)
            .message(name)
    };
    let guard = lock("holder").acquire().await?;
    let mut waiting = Vec::new();
    for place in 1..=5 {
        waiting.push(lock(&format!("waiter {place}")).join().await?);
    }
    let browser = scene.browser("locks").await?;
    browser
        .until("document.querySelectorAll('.card .person.waits').length === 5")
        .await?;
    browser
        .until(&format!("{FIRST}.includes('holder')"))
        .await?;
    browser.run("window.neverLoadedAgain = true").await?;

    guard.release().await?;
    let released = Instant::now();
    let next = waiting.remove(0).turn().await?;
    browser
        .until(&format!("{FIRST}.includes('waiter 1') && document.querySelectorAll('.card .person.waits').length === 4"))
        .await?;
    let took = released.elapsed();
    println!("a hand-over is shown after {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(browser.run("return window.neverLoadedAgain").await?, true);

    next.release().await?;
    drop(waiting);
    browser
        .until("document.querySelector('.card') === null")
        .await?;
    Ok(())
}

#[tokio::test]
async fn deadlock_is_a_problem_with_a_link_and_a_circle_in_the_graph() -> Result<()> {
    let scene = Scene::new().await?;
    let lock = |path: &str, owner: &str| Lock::new(&scene.client, path).owner(owner);
    let _a = lock("/a", "anna").acquire().await?;
    let _b = lock("/b", "ben").acquire().await?;
    let _waits = [
        lock("/b", "anna").join().await?,
        lock("/a", "ben").join().await?,
    ];
    let browser = scene.browser("").await?;
    browser
        .until("document.querySelector('.problem.critical .kind')?.textContent === 'deadlock'")
        .await?;
    browser
        .run("document.querySelector('.problem.critical a').click()")
        .await?;
    browser
        .until("document.querySelectorAll('.waits-graph .owner.stuck').length === 2")
        .await?;
    browser
        .until("document.querySelectorAll('.waits-graph .wait.bad').length === 2")
        .await?;
    Ok(())
}

/// The most severe first, each with a link to the page and the path where it can be solved.
#[tokio::test]
async fn problems_are_listed_with_links_to_where_they_can_be_solved() -> Result<()> {
    let scene = Scene::new().await?;
    let _town = town(&scene.client).await?;
    let deep = Queue::<String>::new(&scene.client, "/orders/in");
    let item = "order".to_owned();
    let puts: Vec<_> = (0..1000).map(|_| deep.put(&item)).collect();
    try_join_all(puts).await?;
    let browser = scene.browser("").await?;
    let find = |kind: &str, path: &str| {
        format!(
            "[...document.querySelectorAll('.problem')].find((one) => one.querySelector('.kind').textContent === '{kind}' && one.querySelector('.what').textContent.includes('{path}'))"
        )
    };
    for (kind, path, page) in [
        ("deadlock", "/accounts/alice", "locks"),
        ("crashed holder", "/jobs/billing/invoices", "locks"),
        ("dead letters", "/mail/out", "queues"),
        ("deep queue", "/orders/in", "queues"),
    ] {
        browser.go(&scene.url("")).await?;
        let problem = find(kind, path);
        browser.until(&problem).await?;
        browser
            .run(&format!("{problem}.querySelector('a').click()"))
            .await?;
        browser
            .until(&format!(
                "document.getElementById('main').dataset.page === '{page}' && [...document.querySelectorAll('.card .path')].some((shown) => shown.textContent === '{path}')"
            ))
            .await?;
    }
    browser.go(&scene.url("")).await?;
    browser.until("document.querySelector('.problem')").await?;
    let kinds = "return [...document.querySelectorAll('.problem')].map((one) => one.classList.contains('critical'))";
    let is_critical = browser.run(kinds).await?;
    let is_critical: Vec<bool> = serde_json::from_value(is_critical)?;
    assert!(is_critical[0], "{is_critical:?}");
    assert!(is_critical.is_sorted_by(|one, other| one >= other));
    Ok(())
}

#[tokio::test]
async fn hostile_names_and_payloads_are_shown_as_text() -> Result<()> {
    const EVIL: &str = "<img src=x onerror=window.pwned=1><script>window.pwned=1<\u{2044}script>";
    let scene = Scene::new().await?;
    let zk = scene.client.raw();
    let path = format!("/{EVIL}");
    zk.create(&path, EVIL.as_bytes(), CreateMode::Persistent)
        .await?;
    let lock = Lock::new(&scene.client, format!("{path}/lock"));
    let _guard = lock.message(EVIL).command(EVIL).acquire().await?;
    let browser = scene.browser("locks").await?;
    browser
        .until("document.querySelector('.card .path')?.textContent.includes('<img')")
        .await?;
    browser
        .run("document.querySelector('.card .person').click()")
        .await?;
    browser
        .until("document.querySelector('#dialog[open]')?.textContent.includes('<script>')")
        .await?;
    browser.run("location.hash = '#/tree?path=/'").await?;
    browser.until("[...document.querySelectorAll('.child .name')].some((name) => name.textContent.startsWith('<img'))").await?;
    browser.run("[...document.querySelectorAll('.child')].find((child) => child.textContent.startsWith('<img')).click()").await?;
    browser
        .until("document.querySelector('.data')?.textContent.startsWith('<img')")
        .await?;
    assert_eq!(
        browser.run("return window.pwned ?? null").await?,
        serde_json::Value::Null
    );
    assert_eq!(
        browser
            .run("return document.querySelectorAll('main img, dialog img, main script').length")
            .await?,
        0
    );
    let log = browser.log().await?;
    assert_eq!(log.as_array().map(Vec::len), Some(0), "{log}");
    Ok(())
}

#[tokio::test]
async fn page_recovers_when_the_server_restarts() -> Result<()> {
    let mut scene = Scene::new().await?;
    let lock = Lock::new(&scene.client, "/kept").message("before");
    let _guard = lock.acquire().await?;
    let browser = scene.browser("locks").await?;
    browser
        .until("document.querySelector('.card') !== null")
        .await?;
    scene.server.stop().await;
    browser
        .until("document.getElementById('connection').className.includes('bad')")
        .await?;
    scene.server.restart().await?;
    browser
        .until("document.getElementById('connection').textContent === 'live'")
        .await?;
    let client = connect(scene.server.connect_string()).await?;
    let _second = Lock::new(&client, "/kept").message("after").join().await?;
    browser
        .until("document.querySelector('.card .person.waits')?.title.includes('after')")
        .await?;
    Ok(())
}

#[tokio::test]
async fn tree_is_live_and_shows_data_as_text_json_and_hex() -> Result<()> {
    let scene = Scene::new().await?;
    let zk = scene.client.raw();
    zk.create("/app", br#"{"port":1}"#, CreateMode::Persistent)
        .await?;
    let browser = scene.browser("tree?path=/app").await?;
    browser
        .until("document.querySelector('.data')?.textContent === '{\"port\":1}'")
        .await?;
    browser
        .run("document.querySelectorAll('.tab')[1].click()")
        .await?;
    browser
        .until("document.querySelector('.data').textContent.includes('\\n  \"port\"')")
        .await?;
    browser
        .run("document.querySelectorAll('.tab')[2].click()")
        .await?;
    browser
        .until("document.querySelector('.data').textContent.startsWith('00000000  7b 22')")
        .await?;
    browser
        .until("document.querySelector('.node').textContent.includes('world:anyone:')")
        .await?;
    zk.create("/app/child", b"", CreateMode::Persistent).await?;
    browser
        .until("document.querySelector('.child .name')?.textContent === 'child'")
        .await?;
    zk.set("/app", b"plain", None).await?;
    browser
        .until("document.querySelector('.data').textContent.includes('70 6c 61')")
        .await?;
    Ok(())
}

#[tokio::test]
async fn everything_can_be_reached_by_keyboard() -> Result<()> {
    let scene = Scene::new().await?;
    let lock = |name: &str| Lock::new(&scene.client, "/jobs").owner(name).message(name);
    let _guard = lock("one").acquire().await?;
    let _waiting = lock("two").join().await?;
    let browser = scene.browser("").await?;
    let focus = "document.activeElement";
    // The skip link, the brand, the overview, then the locks.
    browser
        .press(&["Tab", "Tab", "Tab", "Tab", "Enter"])
        .await?;
    browser
        .until("document.querySelectorAll('.person').length === 2")
        .await?;
    for _ in 0..30 {
        browser.press(&["Tab"]).await?;
        if browser
            .run(&format!("return {focus}.className.startsWith('person')"))
            .await?
            == true
        {
            break;
        }
    }
    browser
        .until(&format!(
            "{focus}.getAttribute('aria-label').includes('one')"
        ))
        .await?;
    browser.press(&["ArrowRight"]).await?;
    browser
        .until(&format!(
            "{focus}.getAttribute('aria-label').includes('two')"
        ))
        .await?;
    browser.press(&["Enter"]).await?;
    browser
        .until("document.getElementById('dialog').open")
        .await?;
    browser.press(&["Escape"]).await?;
    browser
        .until("!document.getElementById('dialog').open")
        .await?;
    Ok(())
}

#[tokio::test]
async fn link_with_the_token_logs_in_and_leaves_no_token_in_the_address() -> Result<()> {
    let scene = Scene::new().await?;
    let browser = Browser::start().await?;
    let link = format!("http://{}/#token={TOKEN}", scene.address);
    browser.go(&link).await?;
    browser
        .until("document.getElementById('connection').textContent === 'live'")
        .await?;
    browser
        .until("document.getElementById('login').hidden")
        .await?;
    assert_eq!(browser.run("return location.hash").await?, "");
    Ok(())
}
