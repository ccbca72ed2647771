//! Requests to the coordinator's store.

use std::{ops::Range, sync::Arc};

use protocol::blob::BlobHash;
use reqwest::{Client, RequestBuilder, Response, StatusCode, header};
use rustls::ClientConfig;
use tokio::runtime::Handle;
use worker::platform::{self, Got, Later, PlatformError, Put};

use crate::{io::Task, link::Link};

/// Header that names the byte at which the next piece must begin.
const UPLOAD_OFFSET: &str = "upload-offset";

/// The store of one coordinator.
pub(crate) struct Blobs {
    link: Arc<Link>,
    io: Handle,
    client: Client,
}

/// What makes the requests.
///
/// # Errors
/// When the library refuses these settings.
pub(crate) fn client(settings: &ClientConfig) -> reqwest::Result<Client> {
    Client::builder().use_preconfigured_tls(settings.clone()).build()
}

impl Blobs {
    pub(crate) fn new(link: Arc<Link>, client: Client, io: Handle) -> Self {
        Self { link, io, client }
    }

    /// Send on the IO runtime, since the session's thread has none; gives the answer and its body.
    async fn send(&self, request: RequestBuilder) -> Result<(Response, Vec<u8>), PlatformError> {
        let exchange = async move {
            let mut answer = request.send().await?;
            let mut body = Vec::new();
            while let Some(piece) = answer.chunk().await? {
                body.extend_from_slice(&piece);
            }
            Ok::<_, reqwest::Error>((answer, body))
        };
        match Task::spawn(&self.io, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                Err(PlatformError(format!("the coordinator's store cannot be reached: {error}")))
            }
            Err(error) => Err(PlatformError(error.to_string())),
        }
    }
}

/// Whether the store asks for the same request again.
fn later(answer: &Response) -> Option<Later> {
    let after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    Later::of(answer.status().as_u16(), after)
}

fn unexpected(status: StatusCode) -> PlatformError {
    PlatformError(format!("the coordinator's store answered {status}"))
}

impl platform::Blobs for Blobs {
    async fn get(&self, token: &str, hash: BlobHash, range: Range<u64>) -> Result<Got, PlatformError> {
        let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        let request = self.client.get(self.link.blob(hash)).bearer_auth(token).header(header::RANGE, range);
        match self.send(request).await? {
            (answer, body) if answer.status() == StatusCode::PARTIAL_CONTENT => Ok(Got::Bytes(body)),
            (answer, _) => later(&answer).map(Got::Later).ok_or_else(|| unexpected(answer.status())),
        }
    }

    async fn put(
        &self,
        token: &str,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, PlatformError> {
        let last = first + (piece.len() as u64).saturating_sub(1);
        let request = self
            .client
            .put(self.link.blob(hash))
            .bearer_auth(token)
            .header(header::CONTENT_RANGE, format!("bytes {first}-{last}/{total}"))
            .body(piece.to_vec());
        let (answer, _) = self.send(request).await?;
        match answer.status() {
            StatusCode::CREATED => Ok(Put::Whole),
            StatusCode::ACCEPTED => Ok(Put::More),
            StatusCode::PAYLOAD_TOO_LARGE => Ok(Put::TooLarge),
            StatusCode::CONFLICT => {
                let at = answer.headers().get(UPLOAD_OFFSET).and_then(|v| v.to_str().ok()?.parse().ok());
                at.map(Put::GoOnAt).ok_or_else(|| unexpected(StatusCode::CONFLICT))
            }
            status => later(&answer).map(Put::Later).ok_or_else(|| unexpected(status)),
        }
    }
}
