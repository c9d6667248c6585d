//! Many locks and many children: how long pages take to draw.

use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether::zk::CreateMode;
use bellwether::{Lock, SimpleLock};

use crate::support::Scene;

/// A longer wait would look stuck to a user.
const PAINT_MAX: Duration = Duration::from_secs(5);
const UPDATE_MAX: Duration = Duration::from_secs(2);

#[tokio::test]
async fn thousand_locks_and_ten_thousand_children_stay_usable() -> Result<()> {
    let scene = Scene::new().await?;
    let zk = scene.client.raw();
    let mut guards = Vec::new();
    for number in 0..1000 {
        let lock = Lock::new(&scene.client, format!("/locks/l{number:04}"));
        guards.push(lock.acquire().await?);
    }
    let _waiting = Lock::new(&scene.client, "/locks/l0000")
        .message("waits")
        .join()
        .await?;
    zk.create("/many", b"", CreateMode::Persistent).await?;
    for some in (0..10_000).collect::<Vec<_>>().chunks(500) {
        let mut multi = zk.new_multi();
        for number in some {
            multi.create(&format!("/many/n{number:05}"), b"", CreateMode::Persistent);
        }
        multi.commit().await?;
    }

    let browser = scene.browser("").await?;
    let begin = Instant::now();
    browser.go(&scene.url("locks")).await?;
    browser
        .until("document.querySelectorAll('.card').length === 100")
        .await?;
    let painted = begin.elapsed();
    let begin = Instant::now();
    guards.remove(0).release().await?;
    browser
        .until("document.querySelector('.card .person.holds')?.title.includes('waits')")
        .await?;
    let updated = begin.elapsed();
    println!("1000 locks: first rows after {painted:?}, an update after {updated:?}");
    assert!(painted < PAINT_MAX && updated < UPDATE_MAX);

    // New ones in the same directory, beside a node that is no lock.
    let begin = Instant::now();
    zk.create("/locks/a", b"", CreateMode::Persistent).await?;
    let _simple = SimpleLock::new(&scene.client, "/locks/b").acquire().await?;
    let _lock = Lock::new(&scene.client, "/locks/c").acquire().await?;
    for path in ["/locks/b", "/locks/c"] {
        browser
            .until(&format!(
                "[...document.querySelectorAll('.card .path')].some((shown) => shown.textContent === '{path}')"
            ))
            .await?;
    }
    let updated = begin.elapsed();
    println!("1000 locks: new ones after {updated:?}");
    assert!(updated < UPDATE_MAX);

    let begin = Instant::now();
    browser.run("location.hash = '#/tree?path=/many'").await?;
    browser
        .until("document.querySelectorAll('.child').length === 100")
        .await?;
    let painted = begin.elapsed();
    let begin = Instant::now();
    browser
        .run("document.querySelectorAll('.pager button')[1].click()")
        .await?;
    browser
        .until("document.querySelector('.child .name').textContent === 'n00100'")
        .await?;
    let paged = begin.elapsed();
    println!("10000 children: first page after {painted:?}, the next after {paged:?}");
    assert!(painted < PAINT_MAX && paged < UPDATE_MAX);
    Ok(())
}
