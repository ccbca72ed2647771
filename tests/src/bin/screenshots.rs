//! Pictures of the pages in every size and colour, and their words, while two tabs and a native worker train:
//! `cargo run --bin screenshots -- FOLDER [pipeline|block]`. `page.png` among them is the picture in the README, kept
//! in docs, and `page-blocks.png` the organizer's page in block mode.

use std::{env, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use protocol::view::RunView;
use tests::{Browser, Coordinator, tab::test_id};

/// Name, width, height; the first is a laptop, the second a small phone.
const SIZES: [(&str, u32, u32); 2] = [("1280", 1280, 900), ("360", 360, 740)];
/// Steps after which the curve is worth a look.
const STEPS: u64 = 100;
/// Rounds of block mode after which it is.
const ROUNDS: u64 = 60;

const BLOCKS: &str = r#"
name = "blocks"
mode = "block"
[model]
layers = 3
width = 48
heads = 3
context = 64
[training]
steps = 4000
sequences = 8
context = 64
warmup_steps = 20
validate_every = 40
validation_batches = 2
[blocks]
count = 3
[rounds]
local_steps = 10
"#;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = PathBuf::from(env::args().nth(1).context("name a folder for the pictures")?);
    let blocks = match env::args().nth(2).as_deref() {
        None | Some("pipeline") => false,
        Some("block") => true,
        Some(other) => bail!("there is no mode {other}: say pipeline or block"),
    };
    fs::create_dir_all(&folder)?;
    let coordinator = if blocks {
        Coordinator::start(BLOCKS, &[]).await?
    } else {
        Coordinator::start("", &["--start-with", "2"]).await?
    };
    let browser = Browser::start().await?;
    let idle = browser.tab().await?;
    idle.goto(&coordinator.url).await?;
    let organizer = browser.tab().await?;
    organizer.goto(&coordinator.organizer).await?;
    let watch = browser.tab().await?;
    watch.goto(&format!("{}/watch", coordinator.url)).await?;
    let mut tabs = Vec::new();
    for name in ["Ada", "Blaise"] {
        let tab = browser.tab().await?;
        tab.goto(&format!("{}/?join=1&backend=cpu&name={name}", coordinator.url)).await?;
        tabs.push(tab);
    }
    if blocks {
        coordinator.start_worker("Charles")?;
    }
    let enough = |run: &RunView| match &run.rounds {
        Some(rounds) => rounds.round >= ROUNDS && rounds.evaluation.is_some(),
        None => run.step >= STEPS,
    };
    coordinator.wait_for_run("a curve", enough).await?;

    let pages = [("volunteer", &tabs[0]), ("invited", &idle), ("organizer", &organizer), ("watch", &watch)];
    for (page, tab) in pages {
        let words = tab.text("body").await?.unwrap_or_default();
        fs::write(folder.join(format!("{page}.txt")), words)?;
        for (size, width, height) in SIZES {
            for (colours, dark) in [("light", false), ("dark", true)] {
                tab.set_device(width, height, dark).await?;
                // Charts follow a new size a frame later.
                tokio::time::sleep(Duration::from_millis(300)).await;
                let file = folder.join(format!("{page}-{size}-{colours}.png"));
                tab.screenshot_of_all(&file).await?;
                println!("{}", file.display());
            }
        }
    }
    if blocks {
        organizer.set_device(1280, 1850, false).await?;
        for line in ["many-draws", "local"] {
            organizer.click(&test_id(&format!("line-{line}"))).await?;
        }
        organizer.execute("scrollTo(0, 0)", serde_json::json!([])).await?;
        return organizer.screenshot(&folder.join("page-blocks.png")).await;
    }
    // The one of the README: the upper part of a volunteer's page.
    let [volunteer, _] = &tabs[..] else { bail!("there are two tabs") };
    volunteer.set_device(1280, 1400, false).await?;
    volunteer.screenshot(&folder.join("page.png")).await
}
