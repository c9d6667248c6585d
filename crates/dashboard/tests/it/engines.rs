//! The same pages on Apache's servers: one of them, and an ensemble with members that come and go.

use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether::{Lock, Queue};
use bellwether_testkit::{Apache, Ensemble};
use serde_json::json;
use tokio::time::timeout;

use crate::support::{Browser, LONG, Stage, TOKEN, gallery, request};

/// How soon a hand-over is shown.
const SOON: Duration = Duration::from_secs(1);

/// The person before the gate, as the page names it.
const FIRST: &str =
    "(document.querySelector('.card .person.holds')?.getAttribute('aria-label') ?? '')";

/// The row of a server: its cells as text.
fn row(name: &str) -> String {
    format!(
        "([...document.querySelectorAll('tbody tr')].find((row) => row.querySelector('th')?.textContent === '{name}')?.innerText ?? '')"
    )
}

/// Hands a lock over, and waits until the page shows it.
async fn hand_over(stage: &Stage, browser: &Browser, path: &str) -> Result<()> {
    let lock = |name: &str| Lock::new(&stage.client, path).owner(name).message(name);
    let guard = lock("first").acquire().await?;
    let waiting = lock("second").join().await?;
    browser
        .until(&format!(
            "{FIRST}.includes('first') && document.querySelectorAll('.card .person.waits').length === 1"
        ))
        .await?;
    guard.release().await?;
    let released = Instant::now();
    let next = waiting.turn().await?;
    browser
        .until(&format!("{FIRST}.includes('second')"))
        .await?;
    let took = released.elapsed();
    assert!(took < SOON, "{took:?}");
    next.release().await?;
    browser
        .until("document.querySelector('.card') === null")
        .await?;
    Ok(())
}

async fn to_page(browser: &Browser, page: &str) -> Result<()> {
    browser.run(&format!("location.hash = '#/{page}'")).await?;
    let id = if page.is_empty() { "overview" } else { page };
    browser
        .until(&format!(
            "document.getElementById('main').dataset.page === '{id}'"
        ))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_an_apache_server_and_act_on_it() -> Result<()> {
    let server = Apache::start().await?;
    let stage = Stage::on(&server.connect_string()).await?;
    let browser = stage.browser("locks").await?;
    hand_over(&stage, &browser, "/jobs/nightly").await?;

    // Its numbers are those of `srvr` and `mntr`.
    to_page(&browser, "").await?;
    let shown = row(&server.address().to_string());
    browser
        .until(&format!(
            "{shown}.includes('standalone') && {shown}.includes('3.8')"
        ))
        .await?;
    browser
        .until("document.querySelectorAll('.tile .course').length > 3")
        .await?;
    browser.screenshot(&gallery()?.join("apache.png")).await?;

    // Dead letters, the tree and sessions.
    let queue = Queue::<String>::new(&stage.client, "/mail");
    queue.put(&"letter".to_owned()).await?;
    queue.take().await?.reject("no such user").await?;
    browser
        .until("document.querySelector('.problem .kind')?.textContent === 'dead letters'")
        .await?;
    browser.run("location.hash = '#/tree?path=/mail'").await?;
    browser
        .until("[...document.querySelectorAll('.child .name')].some((name) => name.textContent === 'dead')")
        .await?;
    to_page(&browser, "sessions").await?;
    let session = format!("{:#x}", stage.client.session_id().number());
    browser
        .until(&format!(
            "document.getElementById('main').innerText.includes('{session}')"
        ))
        .await?;

    // A hold is broken by a user who has logged in.
    let lock = Lock::new(&stage.client, "/stuck").message("stuck");
    let guard = lock.acquire().await?;
    let body = json!({
        "action": "break", "path": format!("/stuck/{}", guard.node()), "token": guard.token(),
    });
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Authorization", bearer.as_str())];
    let body = body.to_string();
    let answer = request(&stage.address, "POST", "/api/action", &headers, &body).await?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    timeout(LONG, guard.lost()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_an_ensemble_are_shown_with_role_and_lag_and_missed_when_they_are_gone()
-> Result<()> {
    let mut ensemble = Ensemble::start(3).await?;
    let stage = Stage::on(&ensemble.connect_string()).await?;
    let browser = stage.browser("").await?;
    let leader = ensemble.leader().await?;
    for index in 0..3 {
        let role = if index == leader {
            "leader"
        } else {
            "follower"
        };
        let shown = row(&ensemble.address(index).to_string());
        browser
            .until(&format!(
                "{shown}.includes('{role}') && {shown}.includes('up to date')"
            ))
            .await?;
    }
    assert_eq!(
        browser
            .run("return document.querySelectorAll('.problem').length")
            .await?,
        0
    );
    browser.screenshot(&gallery()?.join("ensemble.png")).await?;

    // One that hangs is missed, and slows nothing down.
    let follower = (leader + 1) % 3;
    let name = ensemble.address(follower).to_string();
    ensemble.pause(follower)?;
    missed(&browser, &name).await?;
    browser
        .screenshot(&gallery()?.join("ensemble-missing.png"))
        .await?;
    to_page(&browser, "locks").await?;
    hand_over(&stage, &browser, "/jobs/nightly").await?;
    to_page(&browser, "").await?;
    ensemble.resume(follower)?;
    back(&browser, &name).await?;

    // So is one that was killed.
    ensemble.kill(follower);
    missed(&browser, &name).await?;
    ensemble.restart(follower).await?;
    back(&browser, &name).await?;

    // One without a quorum answers, and serves nobody.
    ensemble.kill(leader);
    ensemble.kill(follower);
    let left = ensemble.address(3 - leader - follower).to_string();
    missed(&browser, &left).await?;
    browser
        .until(&format!("{}.includes('no quorum')", row(&left)))
        .await?;
    ensemble.restart(leader).await?;
    ensemble.restart(follower).await?;
    back(&browser, &left).await?;
    Ok(())
}

/// Waits until a server is a problem, and its row says so.
async fn missed(browser: &Browser, name: &str) -> Result<()> {
    browser
        .until(&format!(
            "[...document.querySelectorAll('.problem.critical')].some((problem) => problem.textContent.includes('server missing') && problem.textContent.includes('{name}'))"
        ))
        .await?;
    browser
        .until(&format!("{}.includes('missing')", row(name)))
        .await?;
    Ok(())
}

/// Waits until a server is one of the ensemble again.
async fn back(browser: &Browser, name: &str) -> Result<()> {
    let shown = row(name);
    browser
        .until(&format!(
            "{shown}.includes('follower') || {shown}.includes('leader')"
        ))
        .await?;
    browser
        .until(&format!(
            "![...document.querySelectorAll('.problem')].some((problem) => problem.textContent.includes('{name}'))"
        ))
        .await?;
    Ok(())
}
