//! The coordinator's JSON, as the pages use it.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use protocol::view::{CurvePoint, Phase, RunView};
use serde::de::DeserializeOwned;

pub struct Api {
    http: reqwest::Client,
    origin: String,
    /// Of the organizer's link.
    token: String,
}

impl Api {
    pub fn new(origin: &str, token: &str) -> Self {
        Self::with_client(reqwest::Client::new(), origin, token)
    }

    /// The same through a client that trusts other certificates.
    pub fn with_client(http: reqwest::Client, origin: &str, token: &str) -> Self {
        Self { http, origin: origin.to_owned(), token: token.to_owned() }
    }

    pub async fn run(&self) -> Result<RunView> {
        self.get("/v1/run").await
    }

    /// The whole learning curve.
    pub async fn curve(&self) -> Result<Vec<CurvePoint>> {
        self.get("/v1/run/curve?after=0").await
    }

    /// `start`, `pause` or `stop`.
    pub async fn order(&self, order: &str) -> Result<()> {
        let request = self.http.post(format!("{}/v1/run/{order}", self.origin)).bearer_auth(&self.token);
        let response = request.send().await?;
        if response.status().is_success() {
            return Ok(());
        }
        bail!("order {order}: {}: {}", response.status(), response.text().await?)
    }

    /// Status and body of any address, for what is not JSON.
    pub async fn text(&self, path: &str) -> Result<(u16, String)> {
        let response = self.http.get(format!("{}{path}", self.origin)).send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let (status, text) = self.text(path).await?;
        if status != 200 {
            bail!("{path}: status {status}: {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("{path} is not what protocol::view says: {text}"))
    }
}

/// A client that trusts the certificates of this authority, a PEM file, and no others; it follows no redirection.
pub fn client_trusting(authority: &Path) -> Result<reqwest::Client> {
    let certificate = reqwest::Certificate::from_pem(&fs::read(authority)?)?;
    let client = reqwest::Client::builder().add_root_certificate(certificate);
    Ok(client.redirect(reqwest::redirect::Policy::none()).build()?)
}

/// Whether the run has ended well; an error when it has ended otherwise.
pub fn finished(run: &RunView) -> Result<bool> {
    match run.phase {
        Phase::Finished => Ok(true),
        Phase::Stopped => bail!("the run has stopped: {}", run.reason),
        Phase::Waiting | Phase::Loading | Phase::Training | Phase::Serving | Phase::Paused => Ok(false),
    }
}
