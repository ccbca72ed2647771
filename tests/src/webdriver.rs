//! One session of the WebDriver protocol: JSON over HTTP, with ChromeDriver's own commands beside the standard ones.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde_json::{Value, json};

/// How long closing may take when a test is over.
const CLOSING: Duration = Duration::from_secs(10);

/// Closed, with its browser, when dropped.
pub struct Session {
    http: reqwest::Client,
    port: u16,
    id: String,
    pub capabilities: Value,
}

impl Session {
    pub async fn new(port: u16, capabilities: Value) -> Result<Self> {
        let http = reqwest::Client::new();
        let url = format!("http://127.0.0.1:{port}/session");
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let mut answer = value(http.post(url).json(&body).send().await?).await?;
        let id = answer["sessionId"].as_str().context("ChromeDriver gave no session")?.to_owned();
        Ok(Self { http, port, id, capabilities: answer["capabilities"].take() })
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        value(self.request(Method::GET, path).send().await?).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<Value> {
        value(self.request(Method::POST, path).json(&body).send().await?).await
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("http://127.0.0.1:{}/session/{}{path}", self.port, self.id))
    }

    /// The browser's process, for ending it where ChromeDriver cannot.
    pub fn browser_process(&self) -> Option<u32> {
        self.capabilities["goog:processID"].as_u64().and_then(|id| id.try_into().ok())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without async, which a drop cannot wait for. The answer comes when the browser has closed.
        let close = || -> std::io::Result<()> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(CLOSING))?;
            write!(
                stream,
                "DELETE /session/{} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
                self.id, self.port
            )?;
            stream.read(&mut [0; 1024]).map(drop)
        };
        if close().is_err()
            && let Some(process) = self.browser_process()
        {
            xtask::process::kill(process);
        }
    }
}

/// The value of an answer, or its error in words.
async fn value(response: reqwest::Response) -> Result<Value> {
    let mut answer: Value = response.json().await.context("ChromeDriver's answer is no JSON")?;
    let value = answer["value"].take();
    match value["error"].as_str() {
        Some(error) => bail!("{error}: {}", value["message"].as_str().unwrap_or_default()),
        None => Ok(value),
    }
}
