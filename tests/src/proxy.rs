//! The network between a tab and the coordinator, to be cut at will: what is sent meanwhile arrives later, as over a
//! real one.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

pub struct Proxy {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    cut: watch::Sender<bool>,
    accept: JoinHandle<()>,
}

impl Proxy {
    /// In front of the coordinator at this address.
    pub async fn start(url: &str) -> Result<Self> {
        Self::start_under(url, "").await
    }

    /// The same, for requests under a path such as `/cohort`, of which the coordinator does not hear.
    pub async fn start_under(url: &str, path: &str) -> Result<Self> {
        let target: SocketAddr = url.trim_start_matches("http://").parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}{path}", listener.local_addr()?);
        let path = path.to_owned();
        let cut = watch::Sender::new(false);
        let state = cut.subscribe();
        let accept = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, target, path.clone(), state.clone()));
            }
        });
        Ok(Self { url, cut, accept })
    }

    /// Nothing passes any more, in either direction, and nobody is told.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// All passes again, also what had to wait.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn pass(near: TcpStream, target: SocketAddr, path: String, mut cut: watch::Receiver<bool>) {
    // Whoever connects while the network is cut waits like everybody else.
    if cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    let Ok(far) = TcpStream::connect(target).await else { return };
    let (near_reads, near_writes) = near.into_split();
    let (far_reads, far_writes) = far.into_split();
    let shorten = Shorten::new(&path);
    tokio::join!(
        one_way(near_reads, far_writes, shorten, cut.clone()),
        one_way(far_reads, near_writes, Shorten::new(""), cut)
    );
}

async fn one_way(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut shorten: Shorten,
    mut cut: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if cut.wait_for(|cut| !cut).await.is_err() {
            return;
        }
        // The end of a connection passes like everything else: by dropping the other half.
        if read == 0 || to.write_all(&shorten.pass(&buffer[..read])).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}

/// Takes a path out of the first lines of requests as they pass. What lies in a body is taken for one only where it reads
/// ` PATH/`, which no weights do.
struct Shorten {
    from: Vec<u8>,
    /// The start of one, whose rest is still to come.
    held: Vec<u8>,
}

impl Shorten {
    fn new(path: &str) -> Self {
        let from = if path.is_empty() { Vec::new() } else { format!(" {path}/").into_bytes() };
        Self { from, held: Vec::new() }
    }

    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.from.is_empty() {
            return bytes.to_vec();
        }
        let mut passed = Vec::new();
        for &byte in bytes {
            self.held.push(byte);
            if self.held == self.from {
                passed.extend(b" /");
                self.held.clear();
            }
            // Only its first byte is a space: where it breaks off, it can begin anew at this byte at the earliest.
            if !self.from.starts_with(&self.held) {
                let again = (byte == self.from[0]).then(|| self.held.pop()).flatten();
                passed.append(&mut self.held);
                self.held.extend(again);
            }
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_out_wherever_it_is_cut() {
        let request = b"GET /cohort/v1/blobs HTTP/1.1\r\n  /cohort2/ ";
        for at in 0..request.len() {
            let mut shorten = Shorten::new("/cohort");
            let mut passed = shorten.pass(&request[..at]);
            passed.extend(shorten.pass(&request[at..]));
            passed.append(&mut shorten.held);
            assert_eq!(passed, b"GET /v1/blobs HTTP/1.1\r\n  /cohort2/ ");
        }
    }
}
