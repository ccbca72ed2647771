//! The harness itself: what it reports of a browser must be what is there.

use anyhow::{Result, ensure};
use serde_json::json;
use tests::Browser;

#[tokio::test]
async fn a_tab_is_read_and_steered() -> Result<()> {
    let browser = Browser::start().await?;
    let tab = browser.tab().await?;
    tab.before_load("window.before = 'yes'").await?;
    tab.set_device(360, 640, true).await?;
    let page = "data:text/html,<p id=p data-a=b>first</p><button onclick=\"p.innerText='second '+innerWidth\">go</button>";
    tab.goto(page).await?;
    ensure!(tab.text("#p").await?.as_deref() == Some("first"));
    ensure!(tab.attribute("#p", "data-a").await?.as_deref() == Some("b"));
    ensure!(tab.text("#missing").await?.is_none());
    tab.click("button").await?;
    tab.wait_for_text("#p", |text| text.starts_with("second")).await?;

    ensure!(tab.execute("return window.before", json!([])).await? == "yes");
    let dark = tab.execute("return matchMedia('(prefers-color-scheme: dark)').matches", json!([])).await?;
    ensure!(dark == true, "the page is not dark");
    let later = tab.execute_async("setTimeout(arguments[1], 1, arguments[0] + 1)", json!([41])).await?;
    ensure!(later == 42, "{later}");

    tab.ensure_quiet_console().await?;
    tab.execute("console.error('loud')", json!([])).await?;
    let complaint = tab.ensure_quiet_console().await.err().map(|error| error.to_string());
    ensure!(complaint.is_some_and(|words| words.contains("loud")), "an error on the console went unseen");

    let folder = tempfile::tempdir()?;
    let picture = folder.path().join("page.png");
    tab.screenshot(&picture).await?;
    ensure!(std::fs::read(&picture)?.starts_with(b"\x89PNG"), "the picture is no PNG");
    tab.screenshot_of_all(&picture).await?;
    ensure!(std::fs::read(&picture)?.starts_with(b"\x89PNG"), "the picture of all is no PNG");
    tab.set_offline(true).await?;
    ensure!(tab.execute("return navigator.onLine", json!([])).await? == false, "the tab is still online");
    Ok(())
}
