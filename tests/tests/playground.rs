//! The playground page: a visitor has the model continue a text, stops one, and reads what it wrote as it learned; the
//! organizer switches it off.

use anyhow::{Result, ensure};
use serde_json::json;
use tests::{Browser, Coordinator, LIMIT, Tab, alone, runs::TinyRun, tab::test_id, wait_until};

async fn fill(tab: &Tab, id: &str, text: &str) -> Result<()> {
    let script = "const field = document.querySelector(arguments[0]); field.value = arguments[1]; \
                  field.dispatchEvent(new Event('input', { bubbles: true }))";
    tab.execute(script, json!([test_id(id), text])).await?;
    Ok(())
}

#[tokio::test]
async fn a_visitor_has_texts_written_and_the_organizer_decides() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 20, snapshot_every: 10, ..TinyRun::default() };
    let serving = "\n[serving]\nwhere = \"coordinator\"\nmost_tokens = 16384\n";
    let coordinator = Coordinator::start(&format!("{}{serving}", run.toml()), &[]).await?;
    let browser = Browser::start().await?;
    let (tab, organizer) = (browser.tab().await?, browser.tab().await?);

    // Before there is a snapshot the page says so.
    tab.goto(&format!("{}/playground", coordinator.url)).await?;
    tab.wait_for_text(&test_id("why-not"), |words| words.contains("no snapshot yet")).await?;

    coordinator.start_worker("trains")?;
    coordinator.wait_for_finish().await?;
    tab.wait_for_text(&test_id("about-model"), |words| words.contains("after 20 steps")).await?;
    fill(&tab, "prompt", "The ").await?;
    fill(&tab, "length", "30").await?;
    tab.click(&test_id("write")).await?;
    tab.wait_for_text(&test_id("stage"), |words| words == "Done.").await?;
    let written =
        tab.execute("return document.querySelector(arguments[0]).textContent", json!([test_id("written")]));
    let written = written.await?.as_str().unwrap_or_default().to_owned();
    ensure!(written.starts_with("The ") && written.chars().count() > 20, "{written:?}");
    let ages = test_id("ages");
    tab.wait_for_text(&ages, |words| words.contains("After 10 steps") || words.contains("After 20 steps"))
        .await?;

    fill(&tab, "length", "16384").await?;
    tab.click(&test_id("write")).await?;
    tab.wait_for_text(&test_id("stage"), |words| words == "Writing…").await?;
    tab.click(&test_id("stop-writing")).await?;
    tab.wait_for_text(&test_id("stage"), |words| words == "Stopped.").await?;

    organizer.goto(&coordinator.organizer).await?;
    organizer.click(&test_id("serving-switch")).await?;
    organizer.wait_for_text(&test_id("serving-switch"), |words| words.contains("on")).await?;
    // A page that was open before hears of it when it asks.
    tab.click(&test_id("write")).await?;
    tab.wait_for_text(&test_id("why-not"), |words| words.contains("switched this off")).await?;
    // What came of the first order lies over the button.
    organizer.click(".toast button").await?;
    organizer.click(&test_id("serving-switch")).await?;
    wait_until("that texts are written again", LIMIT, async || {
        let (_, serving) = coordinator.api.text("/v1/serving").await?;
        Ok(serving.contains("\"on\":true").then_some(()))
    })
    .await?;
    organizer.ensure_quiet_console().await
}
