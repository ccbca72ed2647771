//! Chromium, through ChromeDriver.

use std::{env, time::Duration};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{process::Process, tab::Tab, webdriver::Session};

const START: Duration = Duration::from_mins(1);

pub struct Browser {
    _driver: Process,
    port: u16,
}

impl Browser {
    pub async fn start() -> Result<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let driver = xtask::chromium::find_driver(&path)
            .context("no chromedriver: run `cargo xtask setup`, or set CHROMEDRIVER")?;
        let mut driver = Process::start("chromedriver", &driver, |command| {
            command.arg("--port=0");
        })?;
        let port = driver.wait_for_line("its port", START, port).await?;
        Ok(Self { _driver: driver, port })
    }

    /// A tab in a browser of its own, with an empty profile.
    pub async fn tab(&self) -> Result<Tab> {
        self.tab_with(&[]).await
    }

    /// The same with further flags for Chromium.
    pub async fn tab_with(&self, flags: &[&str]) -> Result<Tab> {
        let path = env::var_os("PATH").unwrap_or_default();
        let chromium =
            xtask::chromium::find(&path).context("no Chromium: run `cargo xtask setup`, or set CHROME")?;
        let profile = tempfile::Builder::new().prefix("cohort-test-tab-").tempdir()?;
        let mut arguments = xtask::chromium::flags(profile.path(), xtask::system::is_root());
        arguments.extend(flags.iter().map(|flag| flag.to_string()));
        let capabilities = json!({
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
            // Scripts that train take their time.
            "timeouts": { "script": 900_000, "pageLoad": 300_000 },
        });
        let session = Session::new(self.port, capabilities).await.context("Chromium does not start")?;
        Ok(Tab::new(session, profile))
    }
}

/// The port of "ChromeDriver was started successfully on port 1234."
fn port(line: &str) -> Option<u16> {
    line.split_once("started successfully on port ")?.1.trim().trim_end_matches('.').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_in_the_greeting() {
        assert_eq!(port("ChromeDriver was started successfully on port 41237."), Some(41237));
        assert_eq!(port("Only local connections are allowed."), None);
    }
}
