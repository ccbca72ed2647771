//! Tabs that lack what training needs say so in words.

use anyhow::{Result, ensure};
use tests::{Browser, Coordinator, alone, runs::TinyRun, tab::test_id};

#[tokio::test]
async fn a_tab_without_webgpu_says_so_and_trains_on_its_processor() -> Result<()> {
    let _alone = alone().await;
    // The coordinator answers only to addresses, localhost, and names it was given.
    let run = TinyRun { steps: 100_000, ..TinyRun::default() }.toml();
    let coordinator = Coordinator::start(&run, &["--host", "volunteer.test"]).await?;
    let browser = Browser::start().await?;
    // As a phone on the LAN sees it: plain http under another name than localhost, where browsers keep WebGPU off,
    // for the page and for its workers.
    let tab = browser.tab_with(&["--host-resolver-rules=MAP volunteer.test 127.0.0.1"]).await?;
    tab.goto(&format!("{}/?join=1", coordinator.url.replace("127.0.0.1", "volunteer.test"))).await?;
    tab.wait_for_text(&test_id("webgpu"), |text| text.starts_with("No") && text.contains("WebGPU")).await?;
    coordinator.wait_for_run("a step on the processor", |run| run.step > 0).await?;

    let forced = browser.tab_with(&["--host-resolver-rules=MAP volunteer.test 127.0.0.1"]).await?;
    forced
        .goto(&format!("{}/?join=1&backend=webgpu", coordinator.url.replace("127.0.0.1", "volunteer.test")))
        .await?;
    forced.wait_for_text("body", |text| text.contains("Open the link without `backend=`")).await?;

    // Chromium complains that a header for secure pages reached a page that is not. All else must be quiet.
    let mut console = tab.console().await?;
    console.retain(|line| line.level == "SEVERE" && !line.message.contains("Cross-Origin-Opener-Policy"));
    ensure!(console.is_empty(), "the console shows errors: {console:#?}");
    Ok(())
}

/// Only here can a browser be told to do without: other processors always have SIMD.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn a_tab_without_wasm_simd_says_so() -> Result<()> {
    let _alone = alone().await;
    let coordinator = Coordinator::start(&TinyRun::default().toml(), &[]).await?;
    let browser = Browser::start().await?;
    // As on a processor from before 2008: modules with SIMD are invalid.
    let tab = browser.tab_with(&["--js-flags=--no-enable-sse4-1"]).await?;
    tab.goto(&format!("{}/?join=1", coordinator.url)).await?;
    tab.wait_for_text("body", |text| text.contains("SIMD") && text.contains("Update the browser")).await?;
    Ok(())
}
