//! Those who want nothing good, or nothing for long.

use anyhow::{Context, Result, ensure};
use protocol::blob::BlobHash;
use tests::{
    Client,
    client::{profile, put_first_piece},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// Bytes of a piece, and of the blob that it is a quarter of.
const PIECE: usize = 64 << 10;

/// Reads the event stream until the connection or this task ends.
pub(crate) async fn watch(url: &str) -> Result<()> {
    let mut events = reqwest::get(format!("{url}/v1/run/events")).await?;
    while events.chunk().await?.is_some() {}
    Ok(())
}

/// A frame that is none; the connection ends.
pub(crate) async fn nonsense(url: String) -> Result<()> {
    let mut client = Client::connect(&url).await?;
    client.send(vec![7; 300]).await?;
    client.refusal().await.context("nonsense was not turned away")?;
    Ok(())
}

/// Comes, measures itself, and is gone without a word.
pub(crate) async fn visit(url: String) -> Result<()> {
    let (mut client, _) = Client::join(&url, "visitor").await?;
    client.say(profile()).await
}

/// The same, and leaves a quarter of a blob behind if it is let.
pub(crate) async fn abandon_piece(url: String, number: usize) -> Result<()> {
    let (mut client, welcome) = Client::join(&url, "uploader").await?;
    client.say(profile()).await?;
    let hash = BlobHash::of(&number.to_le_bytes());
    // Refused unless it has been given work, which is up to the run.
    put_first_piece(&url, &welcome.token, hash, vec![1; PIECE], 4 * PIECE).await?;
    drop(client);
    Ok(())
}

/// Announces a body and closes in the middle of it.
pub(crate) async fn abandon_request(url: String) -> Result<()> {
    let (client, welcome) = Client::join(&url, "breaker").await?;
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await?;
    let head = format!(
        "PUT /v1/blobs/{} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Length: {PIECE}\r\n\r\n",
        BlobHash::of(b"never whole"),
        welcome.token
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&[1; PIECE / 2]).await?;
    ensure!(stream.shutdown().await.is_ok(), "the connection was cut");
    drop(client);
    Ok(())
}
