//! The pages for users of a keyboard, of a screen reader, and of reduced motion.

use anyhow::{Context as _, Result};
use bellwether::Lock;
use serde_json::{Value, json};

use crate::looks::PAGES;
use crate::support::{Scene, town};

/// What a screen reader announces by its name.
const NAMED: [&str; 9] = [
    "button",
    "dialog",
    "heading",
    "image",
    "link",
    "navigation",
    "searchbox",
    "tab",
    "textbox",
];

/// All that a screen reader needs to find its way: one heading of the first level, landmarks, and a name for everything that can be
/// used. And text that stands out from its ground.
#[tokio::test]
async fn everything_on_a_page_has_a_name_and_can_be_read() -> Result<()> {
    let scene = Scene::new().await?;
    let _town = town(&scene.client).await?;
    let browser = scene.browser("").await?;
    for dark in [false, true] {
        browser.prefer_dark(dark).await?;
        for page in PAGES {
            browser.go(&scene.url(page)).await?;
            browser
                .until("document.querySelector('.card, .problem, .fact, tbody tr, .child, .node')")
                .await?;
            let tree = browser
                .tool("Accessibility.getFullAXTree", json!({}))
                .await?;
            let nodes = tree["nodes"].as_array().context("no tree")?;
            let seen = nodes.iter().filter(|node| node["ignored"] != true);
            let mut roles = Vec::new();
            for node in seen {
                let role = node["role"]["value"].as_str().unwrap_or_default();
                let name = node["name"]["value"].as_str().unwrap_or_default();
                assert!(
                    !NAMED.contains(&role) || !name.trim().is_empty(),
                    "{page}: a {role} without a name: {node}"
                );
                roles.push(role);
            }
            for landmark in ["main", "navigation", "banner"] {
                assert!(roles.contains(&landmark), "{page}: no {landmark}");
            }
            let headings = "return document.querySelectorAll('h1').length";
            assert_eq!(browser.run(headings).await?, 1, "{page}");
            let pale = browser.run(PALE).await?;
            assert_eq!(pale, json!([]), "{page}, dark: {dark}");
        }
    }
    browser
        .run("const text = document.createElement('p'); text.textContent = 'pale'; text.style.color = '#777'; main.append(text)")
        .await?;
    let pale = browser.run(PALE).await?;
    assert_eq!(pale.as_array().map(Vec::len), Some(1), "{pale}");
    Ok(())
}

/// Texts whose contrast is below 4.5, which WCAG asks for (level AA); 3 for large text.
const PALE: &str = r#"
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const numbers = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
        return { parts: [red, green, blue], alpha: alpha / 255 };
    };
    const over = (upper, lower) => upper.parts.map((part, at) => part * upper.alpha + lower[at] * (1 - upper.alpha));
    const ground = (element) => {
        const layers = [];
        for (let one = element; one; one = one.parentElement) layers.push(numbers(getComputedStyle(one).backgroundColor));
        return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
    };
    const light = (parts) => {
        const [red, green, blue] = parts.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const pale = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        const text = texts.currentNode.data.trim();
        if (!text || element.closest("noscript, svg, :disabled") || !element.checkVisibility({ contentVisibilityAuto: true })) continue;
        const style = getComputedStyle(element);
        const below = ground(element);
        const [one, other] = [light(over(numbers(style.color), below)), light(below)];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        const size = parseFloat(style.fontSize);
        const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        if (contrast < (isLarge ? 3 : 4.5)) pale.push(`${element.className}: ${text}: ${contrast.toFixed(2)}`);
    }
    return [...new Set(pale)];
"#;

#[tokio::test]
async fn skip_link_leads_into_the_page_that_is_open() -> Result<()> {
    let scene = Scene::new().await?;
    let browser = scene.browser("tree").await?;
    browser.until("document.querySelector('.child')").await?;
    browser.press(&["Tab", "Enter"]).await?;
    browser
        .until("document.activeElement.id === 'main'")
        .await?;
    let page = browser.run("return document.getElementById('main').dataset.page");
    assert_eq!(page.await?, "tree");
    Ok(())
}

/// The list of sessions is drawn anew every three seconds.
#[tokio::test]
async fn focus_stays_where_it_is_while_a_page_updates() -> Result<()> {
    let scene = Scene::new().await?;
    let _guard = Lock::new(&scene.client, "/jobs").acquire().await?;
    let browser = scene.browser("sessions").await?;
    browser.until("document.querySelector('a.held')").await?;
    browser
        .run("window.old = document.querySelector('a.held'); window.old.focus()")
        .await?;
    browser.until("!window.old.isConnected").await?;
    let focused = browser.run("return document.activeElement.textContent");
    assert_eq!(focused.await?, "/jobs");
    Ok(())
}

#[tokio::test]
async fn nothing_moves_for_users_who_prefer_that() -> Result<()> {
    for (prefers, moves) in [("no-preference", true), ("reduce", false)] {
        let scene = Scene::new().await?;
        let lock = |owner: &str| Lock::new(&scene.client, "/jobs").owner(owner);
        let first = lock("one").acquire().await?;
        let _second = lock("two").join().await?;
        let browser = scene.browser("locks").await?;
        let feature = json!({"name": "prefers-reduced-motion", "value": prefers});
        browser
            .tool("Emulation.setEmulatedMedia", json!({"features": [feature]}))
            .await?;
        browser
            .until("document.querySelectorAll('.person').length === 2")
            .await?;
        // Counts every animation, also one that has ended.
        browser
            .run(
                "window.moves = 0; const animate = Element.prototype.animate;
                Element.prototype.animate = function (...all) { window.moves += 1; return animate.apply(this, all) }",
            )
            .await?;
        first.release().await?;
        browser
            .until("document.querySelectorAll('.person').length === 1")
            .await?;
        let counted: Value = browser.run("return window.moves > 0").await?;
        assert_eq!(counted, moves, "{prefers}");
    }
    Ok(())
}
