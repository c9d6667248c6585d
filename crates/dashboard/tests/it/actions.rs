//! Actions of users on the page, allowed and refused.

use std::time::Duration;

use anyhow::Result;
use bellwether::{Lock, Queue};
use serde_json::json;
use tokio::time::timeout;

use crate::support::{Browser, LONG, Scene, TOKEN, request};

/// Presses a button by its text.
async fn press(browser: &Browser, text: &str) -> Result<()> {
    let button = format!(
        "[...document.querySelectorAll('#dialog button, main button')].find((one) => one.textContent === '{text}')"
    );
    browser.until(&button).await?;
    browser.run(&format!("{button}.click()")).await?;
    Ok(())
}

async fn log_in(browser: &Browser) -> Result<()> {
    browser
        .run("document.getElementById('login').click()")
        .await?;
    browser
        .until("document.activeElement.id === 'token'")
        .await?;
    browser
        .press(
            &TOKEN
                .chars()
                .map(|letter| letter.to_string())
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        )
        .await?;
    browser.press(&["Enter"]).await?;
    browser
        .until("!document.getElementById('dialog').open && document.getElementById('login').hidden")
        .await?;
    Ok(())
}

#[tokio::test]
async fn hold_is_revoked_and_broken_after_a_login_and_not_before() -> Result<()> {
    let scene = Scene::new().await?;
    let guard = Lock::new(&scene.client, "/jobs/nightly").acquire().await?;
    let browser = scene.browser("locks").await?;
    browser.until("document.querySelector('.person')").await?;
    browser
        .run("document.querySelector('.person').click()")
        .await?;
    browser
        .until("document.getElementById('dialog').open")
        .await?;
    let buttons = "return [...document.querySelectorAll('#dialog button')].map((one) => one.textContent).join()";
    assert_eq!(browser.run(buttons).await?, "Close");
    let action = json!({"action": "break", "path": format!("/jobs/nightly/{}", guard.node()), "token": guard.token()});
    let refused = request(
        &scene.address,
        "POST",
        "/api/action",
        &[],
        &action.to_string(),
    )
    .await?;
    assert_eq!(refused.status, 401, "{refused:?}");
    browser.press(&["Escape"]).await?;

    log_in(&browser).await?;
    browser.until("document.querySelector('.person')").await?;
    browser
        .run("document.querySelector('.person').click()")
        .await?;
    press(&browser, "Ask to release…").await?;
    browser.until("document.getElementById('dialog').textContent.includes('is asked to release /jobs/nightly')").await?;
    press(&browser, "Ask to release").await?;
    let asked = timeout(LONG, guard.revoked()).await?;
    assert_eq!(asked.message.as_deref(), Some("asked on the dashboard"));
    browser.press(&["Escape"]).await?;

    browser
        .run("document.querySelector('.person').click()")
        .await?;
    press(&browser, "Break the hold…").await?;
    press(&browser, "Break the hold").await?;
    timeout(LONG, guard.lost()).await?;
    browser
        .until("document.querySelector('.dialog-note').textContent === 'The hold was broken.'")
        .await?;
    Ok(())
}

#[tokio::test]
async fn dead_letter_is_read_and_retried() -> Result<()> {
    let scene = Scene::new().await?;
    let queue = Queue::<Vec<u8>>::new(&scene.client, "/mail");
    queue.put(&b"hello".to_vec()).await?;
    queue.take().await?.reject("no such user").await?;
    let browser = scene.browser("queues").await?;
    log_in(&browser).await?;
    press(&browser, "Read 1 dead letter…").await?;
    browser
        .until("document.querySelector('.letter')?.textContent.includes('no such user')")
        .await?;
    press(&browser, "Retry…").await?;
    press(&browser, "Retry").await?;
    let claim = queue.take_timeout(LONG).await?;
    assert_eq!(claim.payload(), b"hello");
    claim.ack().await?;
    Ok(())
}

#[tokio::test]
async fn crash_mark_is_shown_and_cleared() -> Result<()> {
    let scene = Scene::new().await?;
    let lock = Lock::new(&scene.client, "/jobs/nightly").crash_mark();
    let guard = lock.acquire().await?;
    guard.note(b"half of it").await?;
    // Dropped without a release, as by a crash.
    drop(guard);
    let browser = scene.browser("locks").await?;
    browser
        .until("document.querySelector('.crash-note')?.textContent.includes('half of it')")
        .await?;
    log_in(&browser).await?;
    press(&browser, "Clear the mark…").await?;
    press(&browser, "Clear the mark").await?;
    browser
        .until("document.querySelector('.card') === null")
        .await?;
    assert!(!lock.clear_crash_mark().await?);
    Ok(())
}

#[tokio::test]
async fn without_permission_nobody_acts_not_even_with_the_token() -> Result<()> {
    let scene = Scene::with(|dashboard| dashboard.token(TOKEN)).await?;
    let action = json!({"action": "clear_crash", "path": "/jobs"}).to_string();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Authorization", bearer.as_str())];
    let refused = timeout(
        Duration::from_secs(10),
        request(&scene.address, "POST", "/api/action", &headers, &action),
    );
    assert_eq!(refused.await??.status, 403);
    Ok(())
}
