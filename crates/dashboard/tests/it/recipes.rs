//! Each recipe is shown for what it is, and follows changes without a reload.

use anyhow::Result;
use bellwether::{Config, DoubleBarrier, Lock};
use tokio::task::JoinSet;

use crate::support::{Scene, town};

#[tokio::test]
async fn every_recipe_is_shown_for_what_it_is() -> Result<()> {
    let scene = Scene::new().await?;
    let _town = town(&scene.client).await?;
    let browser = scene.browser("").await?;
    for (page, path, texts) in [
        // Readers before the gate, a writer and the readers behind it after.
        (
            "locks",
            "/shop/catalog",
            &["read/write lock", "reads with"][..],
        ),
        ("locks", "/render/gpu", &["semaphore", "3 of 3 permits"]),
        (
            "elections",
            "/services/billing",
            &["proclaims https://api2:8443"],
        ),
        (
            "queues",
            "/mail/out",
            &["135 waiting", "3 claimed", "2 dead letters"],
        ),
        (
            "queues",
            "/tasks/thumbnails",
            &["13 open", "2 running", "9 done", "0 failed"],
        ),
        (
            "barriers",
            "/deploy/gate",
            &["set by", "until the database is up"],
        ),
        (
            "transactions",
            "/transfers/transfer-81",
            &["in doubt: 3 votes of 3 missing", "ledger-eu"],
        ),
        (
            "state?path=/workers",
            "",
            &["3 members", "worker-2", "idle, 4 cores"],
        ),
    ] {
        browser.go(&scene.url(page)).await?;
        let shown = match path {
            "" => "document.getElementById('main')".to_owned(),
            path => format!(
                "[...document.querySelectorAll('.card')].find((card) => card.querySelector('.path').textContent === '{path}')"
            ),
        };
        for text in texts {
            let shown = format!("({shown})?.innerText.replace(/\\s+/g, ' ')");
            browser
                .until(&format!("{shown}?.includes('{text}')"))
                .await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn holds_of_a_lock_are_drawn_one_after_the_other() -> Result<()> {
    let scene = Scene::new().await?;
    let lock = |name: &str| Lock::new(&scene.client, "/jobs/nightly").owner(name);
    let first = lock("first").acquire().await?;
    let next = lock("next").join().await?;
    let browser = scene.browser("locks").await?;
    let bars = "[...document.querySelectorAll('.card .strip .hold')]";
    browser
        .until(&format!(
            "{bars}.length === 1 && {bars}[0].title.endsWith('still')"
        ))
        .await?;
    first.release().await?;
    let next = next.turn().await?;
    browser
        .until(&format!(
            "{bars}.length === 2 && !{bars}[0].title.endsWith('still') && {bars}[1].title.endsWith('still')"
        ))
        .await?;
    // Positions are rounded to a hundredth of a percent.
    browser
        .until(&format!(
            "{bars}[1].getBoundingClientRect().left >= {bars}[0].getBoundingClientRect().right - 1"
        ))
        .await?;
    next.release().await?;
    Ok(())
}

#[tokio::test]
async fn members_that_a_double_barrier_waits_for_are_shown_as_empty_seats() -> Result<()> {
    let scene = Scene::new().await?;
    let barrier = DoubleBarrier::new(&scene.client, "/batch/start", 3);
    let mut members = JoinSet::new();
    let mut enter = || {
        let barrier = barrier.clone();
        members.spawn(async move { barrier.enter().await });
    };
    enter();
    enter();
    let browser = scene.browser("barriers").await?;
    let seats = |taken: usize, text: &str| {
        format!(
            "document.querySelectorAll('.seat').length === 3 && document.querySelectorAll('.seat.taken').length === {taken} && document.querySelector('.card .holder').innerText.includes('{text}')"
        )
    };
    browser.until(&seats(2, "2 here, 1 missing")).await?;
    enter();
    browser.until(&seats(3, "3 of 3 inside")).await?;
    let inside: Result<Vec<_>, _> = members.join_all().await.into_iter().collect();
    let mut leaving = JoinSet::new();
    for member in inside? {
        leaving.spawn(member.leave());
    }
    for left in leaving.join_all().await {
        left?;
    }
    browser
        .until("document.querySelector('.seat.taken') === null")
        .await?;
    Ok(())
}

#[tokio::test]
async fn values_of_a_configuration_are_shown_with_their_versions() -> Result<()> {
    let scene = Scene::new().await?;
    let currency = Config::<String>::new(&scene.client, "/shop/settings/currency");
    currency.set(&"EUR".to_owned()).await?;
    let browser = scene.browser("state?path=/shop/settings").await?;
    let row = |value: &str, version: u32| {
        format!(
            "[...document.querySelectorAll('tbody tr')].some((row) => row.cells[0].innerText === 'currency' && row.cells[1].innerText === '{value}' && row.cells[2].innerText === '{version}')"
        )
    };
    browser.until(&row("EUR", 0)).await?;
    currency.set(&"CHF".to_owned()).await?;
    browser.until(&row("CHF", 1)).await?;
    Ok(())
}
