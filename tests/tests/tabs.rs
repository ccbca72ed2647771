//! Two tabs of real Chromium train the default run on their processors, and the pages show it.

use anyhow::{Context, Result, ensure};
use protocol::{message::WorkerKind, view::RunView};
use tests::{Browser, Coordinator, LIMIT, Tab, alone, tab::test_id, wait_until};

/// How far below ln(vocabulary), what a model knows that has learned nothing, the validation loss must come, in nats.
const FALL: f64 = 2.0;

fn knows_enough(run: &RunView) -> bool {
    let knowing_nothing = f64::from(run.run.model.vocabulary).ln();
    run.validation_loss.is_some_and(|loss| loss < knowing_nothing - FALL)
}

/// The number in an element, None while there is none.
async fn number(tab: &Tab, id: &str) -> Result<Option<f64>> {
    Ok(tab
        .text(&test_id(id))
        .await?
        .and_then(|text| text.replace([',', '\u{2009}', '\u{202f}'], "").parse().ok()))
}

#[tokio::test]
async fn two_tabs_learn_until_they_are_stopped() -> Result<()> {
    let _alone = alone().await;
    // The default run, cut in two whatever the tabs measure: on a busy computer one may seem too slow to be of use.
    let coordinator = Coordinator::start("[pipeline]\nstages = 2\n", &[]).await?;
    let browser = Browser::start().await?;
    let (first, second, organizer) = (browser.tab().await?, browser.tab().await?, browser.tab().await?);
    organizer.goto(&coordinator.organizer).await?;

    // One joins by the button, one by the link.
    first.goto(&format!("{}/?backend=cpu&name=first", coordinator.url)).await?;
    first.click(&test_id("join")).await?;
    second.goto(&format!("{}/?join=1&backend=cpu&name=second", coordinator.url)).await?;

    let run = coordinator.wait_for_run("a plan", |run| run.epoch > 0).await?;
    let tabs =
        run.workers.iter().filter(|worker| worker.kind == WorkerKind::Browser && !worker.hops.is_empty());
    ensure!(tabs.count() == 2, "both tabs must hold a part: {run:#?}");
    for tab in [&first, &second] {
        let state = test_id("state");
        wait_until("the page to say that it trains", LIMIT, async || {
            Ok((tab.attribute(&state, "data-state").await?.as_deref() == Some("training")).then_some(()))
        })
        .await?;
        tab.wait_for_text(&test_id("layers-mine"), |text| text.contains("layer")).await?;
    }

    let learned = coordinator.wait_for_run("the validation loss to fall", knows_enough).await?;
    println!("step {}: validation loss {:?}", learned.step, learned.validation_loss);
    let knowing_nothing = f64::from(learned.run.model.vocabulary).ln();
    for tab in [&first, &second, &organizer] {
        wait_until("the page to show the loss", LIMIT, async || {
            let shown = number(tab, "validation-loss").await?;
            Ok(shown.filter(|loss| *loss < knowing_nothing - FALL + 0.1).map(drop))
        })
        .await?;
        wait_until("the page to draw the curve", LIMIT, async || {
            let drawn = tab
                .execute("return document.querySelectorAll('canvas').length", serde_json::json!([]))
                .await?;
            Ok(drawn.as_u64().filter(|canvases| *canvases > 0).map(drop))
        })
        .await?;
        tab.ensure_quiet_console().await?;
    }
    ensure!(
        number(&first, "accepted").await?.is_some_and(|batches| batches > 0.0),
        "nothing of `first` was accepted"
    );

    // The one leaves by its button, the other by closing.
    first.click(&test_id("stop")).await?;
    let state = test_id("state");
    wait_until("the page to say that it has left", LIMIT, async || {
        Ok((first.attribute(&state, "data-state").await?.as_deref() == Some("left")).then_some(()))
    })
    .await?;
    let named = |run: &RunView, name: &str| run.workers.iter().any(|worker| worker.name == name);
    coordinator.wait_for_run("`first` to be gone", |run| !named(run, "first")).await?;
    first.ensure_quiet_console().await?;
    drop(second);
    coordinator.wait_for_run("`second` to be gone", |run| !named(run, "second")).await?;

    organizer.click(&test_id("stop-run")).await?;
    organizer.click(&test_id("confirm-yes")).await?;
    organizer.wait_for_text(&test_id("phase"), |text| text.eq_ignore_ascii_case("stopped")).await?;
    organizer.ensure_quiet_console().await?;
    let curve = coordinator.api.curve().await?;
    let last = curve.last().context("the curve is empty")?;
    ensure!(last.step >= learned.step, "the curve ends at step {}, before {}", last.step, learned.step);
    Ok(())
}

#[tokio::test]
async fn an_organizer_with_an_old_link_is_told_before_anything_is_pressed() -> Result<()> {
    let coordinator = Coordinator::start("", &[]).await?;
    let browser = Browser::start().await?;
    let tab = browser.tab().await?;
    tab.goto(&format!("{}/organizer#token=of-another-run", coordinator.url)).await?;
    tab.wait_for_text(&test_id("read-only"), |words| words.contains("does not accept")).await?;
    Ok(())
}
