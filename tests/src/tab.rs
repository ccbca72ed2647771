//! One tab, as a person uses and sees it.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    wait::{LIMIT, wait_until},
    webdriver::Session,
};

pub struct Tab {
    // Closed before its profile is removed.
    session: Session,
    _profile: TempDir,
}

/// What the console printed.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct ConsoleLine {
    /// `SEVERE` for errors.
    pub level: String,
    pub message: String,
}

/// Where a page marks the elements that tests look at.
pub fn test_id(id: &str) -> String {
    format!("[data-testid='{id}']")
}

impl Tab {
    pub(crate) fn new(session: Session, profile: TempDir) -> Self {
        Self { session, _profile: profile }
    }

    pub async fn goto(&self, url: &str) -> Result<()> {
        self.session.post("/url", json!({ "url": url })).await?;
        Ok(())
    }

    /// What the script returns.
    pub async fn execute(&self, script: &str, arguments: Value) -> Result<Value> {
        self.session.post("/execute/sync", json!({ "script": script, "args": arguments })).await
    }

    /// What the script gives to its last argument, a function.
    pub async fn execute_async(&self, script: &str, arguments: Value) -> Result<Value> {
        self.session.post("/execute/async", json!({ "script": script, "args": arguments })).await
    }

    /// The visible text of the first such element; None while there is none.
    pub async fn text(&self, css: &str) -> Result<Option<String>> {
        let script = "return document.querySelector(arguments[0])?.innerText ?? null";
        Ok(self.execute(script, json!([css])).await?.as_str().map(|text| text.trim().to_owned()))
    }

    pub async fn attribute(&self, css: &str, name: &str) -> Result<Option<String>> {
        let script = "return document.querySelector(arguments[0])?.getAttribute(arguments[1]) ?? null";
        Ok(self.execute(script, json!([css, name])).await?.as_str().map(str::to_owned))
    }

    /// Waits until the element's text is as asked, and gives it.
    pub async fn wait_for_text(&self, css: &str, asked: impl Fn(&str) -> bool) -> Result<String> {
        let what = format!("the text of {css}");
        let waited =
            wait_until(&what, LIMIT, async || Ok(self.text(css).await?.filter(|text| asked(text)))).await;
        match waited {
            Ok(text) => Ok(text),
            Err(error) => Err(error.context(self.what_is_seen().await)),
        }
    }

    /// Waits for the element, scrolls to it and clicks it as a mouse would.
    pub async fn click(&self, css: &str) -> Result<()> {
        let element = wait_until(css, Duration::from_mins(1), async || {
            let found =
                self.session.post("/elements", json!({ "using": "css selector", "value": css })).await?;
            let reference = found[0].as_object().and_then(|element| element.values().next().cloned());
            Ok(reference.and_then(|id| id.as_str().map(str::to_owned)))
        })
        .await?;
        self.session.post(&format!("/element/{element}/click"), json!({})).await?;
        Ok(())
    }

    /// What the console printed since the last call.
    pub async fn console(&self) -> Result<Vec<ConsoleLine>> {
        let lines = self.session.post("/se/log", json!({ "type": "browser" })).await?;
        serde_json::from_value(lines).context("ChromeDriver's log is not a list of lines")
    }

    /// # Errors
    /// When the console printed an error since the last look.
    pub async fn ensure_quiet_console(&self) -> Result<()> {
        let errors: Vec<_> =
            self.console().await?.into_iter().filter(|line| line.level == "SEVERE").collect();
        ensure!(errors.is_empty(), "the console shows errors: {errors:#?}");
        Ok(())
    }

    pub async fn screenshot(&self, file: &Path) -> Result<()> {
        let picture = self.session.get("/screenshot").await?;
        fs::write(file, base64(picture.as_str().context("no picture")?)?)?;
        Ok(())
    }

    /// The whole page, also what lies below the fold.
    pub async fn screenshot_of_all(&self, file: &Path) -> Result<()> {
        let picture =
            self.devtools("Page.captureScreenshot", json!({ "captureBeyondViewport": true })).await?;
        fs::write(file, base64(picture["data"].as_str().context("no picture")?)?)?;
        Ok(())
    }

    /// Size of the page in CSS pixels, as on a device of that size; also the colours.
    pub async fn set_device(&self, width: u32, height: u32, dark: bool) -> Result<()> {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await?;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await?;
        Ok(())
    }

    /// Cuts the tab off the network, or lets it back.
    pub async fn set_offline(&self, offline: bool) -> Result<()> {
        self.devtools("Network.enable", json!({})).await?;
        let conditions =
            json!({ "offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
        self.devtools("Network.emulateNetworkConditions", conditions).await?;
        Ok(())
    }

    /// Runs a script in every page from now on, before the page's own.
    pub async fn before_load(&self, script: &str) -> Result<()> {
        self.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script })).await?;
        Ok(())
    }

    /// A command of Chromium's DevTools protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        self.session.post("/goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    /// For the message of a failed test.
    async fn what_is_seen(&self) -> String {
        let page = self.execute("return document.body?.innerText ?? ''", json!([])).await;
        let page = page.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default();
        format!("the page says:\n{page}\nthe console says: {:#?}", self.console().await.unwrap_or_default())
    }
}

/// Pictures come in base64; the one place that needs it.
fn base64(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => anyhow::bail!("the picture is not base64"),
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn pictures_are_base64() {
        assert_eq!(base64("aGVsbG8=").unwrap(), b"hello");
        assert_eq!(base64("+/8A").unwrap(), [0xfb, 0xff, 0x00]);
        assert!(base64("a b").is_err());
    }
}
