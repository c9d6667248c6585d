//! Appearance of the pages: on a phone, in dark mode, and as screenshots for people to look at.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether::Lock;
use tokio::time::interval;

use crate::support::{Scene, gallery, town};

pub(crate) const PAGES: [&str; 9] = [
    "",
    "locks",
    "elections",
    "queues",
    "barriers",
    "transactions",
    "state?path=/workers",
    "tree?path=/jobs/backup/nightly",
    "sessions",
];

/// Every page in light mode, in dark mode and on a phone. Screenshots are written to `target/dashboard`.
#[tokio::test]
async fn pages_fit_a_phone_and_follow_the_colours_of_the_system() -> Result<()> {
    let scene = Scene::new().await?;
    let _town = town(&scene.client).await?;
    let folder = gallery()?;
    let browser = scene.browser("").await?;
    let background = "return getComputedStyle(document.body).backgroundColor";
    let mut backgrounds = Vec::new();
    for (name, width, height, dark) in [
        ("light", 1360, 900, false),
        ("dark", 1360, 900, true),
        ("phone", 390, 844, false),
    ] {
        browser.size(width, height).await?;
        browser.prefer_dark(dark).await?;
        for page in PAGES {
            browser.go(&scene.url(page)).await?;
            let id = page.split('?').next().unwrap_or_default();
            let id = if id.is_empty() { "overview" } else { id };
            browser.until(&format!("document.getElementById('main').dataset.page === '{id}' && document.querySelector('.card, .problem, .fact, tbody tr, .child, .node')")).await?;
            if id == "overview" {
                // A rate needs two samples.
                browser
                    .until("document.querySelectorAll('.tile .course').length > 3")
                    .await?;
            }
            let (wide, shown) = (
                browser
                    .run("return document.documentElement.scrollWidth")
                    .await?,
                browser.run("return innerWidth").await?,
            );
            assert!(
                wide.as_f64() <= shown.as_f64(),
                "{name} {page}: {wide} wide on {shown}"
            );
            browser
                .screenshot(&folder.join(format!("{id}-{name}.png")))
                .await?;
        }
        backgrounds.push(browser.run(background).await?);
    }
    assert_eq!(backgrounds[0], backgrounds[2]);
    assert_ne!(backgrounds[0], backgrounds[1]);
    let log = browser.log().await?;
    assert_eq!(log.as_array().map(Vec::len), Some(0), "{log}");
    Ok(())
}

/// Screenshots for the docs, after a minute of traffic.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes docs/images; takes a minute"]
async fn pictures_of_the_documents() -> Result<()> {
    const TRAFFIC: Duration = Duration::from_secs(75);
    let scene = Scene::new().await?;
    let _town = town(&scene.client).await?;
    let client = scene.client.clone();
    let traffic = tokio::spawn(async move {
        let begin = Instant::now();
        let mut beat = interval(Duration::from_millis(4));
        for round in 0u32.. {
            beat.tick().await;
            // Varies the load, as on any day.
            if (begin.elapsed().as_secs_f64() / 9.0).sin() > -0.3 || round % 3 == 0 {
                let lock = Lock::new(&client, format!("/cron/job-{}", round % 3));
                if let Ok(guard) = lock.acquire().await {
                    let _ = guard.release().await;
                }
            }
        }
    });
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    std::fs::create_dir_all(&folder)?;
    let browser = scene.browser("").await?;
    browser.size(1360, 860).await?;
    let begin = Instant::now();
    let mut looks = interval(Duration::from_secs(1));
    while begin.elapsed() < TRAFFIC {
        looks.tick().await;
    }
    browser
        .screenshot(&folder.join("dashboard-overview.png"))
        .await?;
    traffic.abort();
    browser.size(1360, 1240).await?;
    browser.run("location.hash = '#/locks'").await?;
    browser
        .until("document.querySelectorAll('.person').length > 12")
        .await?;
    browser
        .screenshot(&folder.join("dashboard-locks.png"))
        .await?;
    browser.size(390, 780).await?;
    browser.prefer_dark(true).await?;
    browser
        .run("location.hash = '#/locks?path=/jobs/backup'")
        .await?;
    browser
        .until("document.querySelectorAll('.person').length === 6")
        .await?;
    // The people, below the header that stays.
    browser
        .run("document.querySelector('.bar').scrollIntoView(); scrollBy(0, -84)")
        .await?;
    browser
        .screenshot(&folder.join("dashboard-phone.png"))
        .await?;
    Ok(())
}
