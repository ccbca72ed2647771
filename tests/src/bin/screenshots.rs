//! Pictures of the pages in every size and colour, while two tabs train: `cargo run --bin screenshots -- FOLDER`.
//! `page.png` among them is the picture in the README, kept in docs.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use tests::{Browser, Coordinator};

/// Name, width, height; the first is a laptop, the second a small phone.
const SIZES: [(&str, u32, u32); 2] = [("1280", 1280, 900), ("360", 360, 740)];
/// Steps after which the curve is worth a look.
const STEPS: u64 = 100;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = PathBuf::from(env::args().nth(1).context("name a folder for the pictures")?);
    fs::create_dir_all(&folder)?;
    let coordinator = Coordinator::start("", &["--start-with", "2"]).await?;
    let browser = Browser::start().await?;
    let mut tabs = Vec::new();
    for name in ["Ada", "Blaise"] {
        let tab = browser.tab().await?;
        tab.goto(&format!("{}/?join=1&name={name}", coordinator.url)).await?;
        tabs.push(tab);
    }
    let idle = browser.tab().await?;
    idle.goto(&coordinator.url).await?;
    let organizer = browser.tab().await?;
    organizer.goto(&coordinator.organizer).await?;
    coordinator.wait_for_run("a curve", |run| run.step >= STEPS).await?;

    for (page, tab) in [("volunteer", &tabs[0]), ("invited", &idle), ("organizer", &organizer)] {
        for (size, width, height) in SIZES {
            for (colours, dark) in [("light", false), ("dark", true)] {
                tab.set_device(width, height, dark).await?;
                let file = folder.join(format!("{page}-{size}-{colours}.png"));
                tab.screenshot_of_all(&file).await?;
                println!("{}", file.display());
            }
        }
    }
    // The one of the README: the upper part of a volunteer's page.
    let [volunteer, _] = &tabs[..] else { bail!("there are two tabs") };
    volunteer.set_device(1280, 1400, false).await?;
    volunteer.screenshot(&folder.join("page.png")).await
}
