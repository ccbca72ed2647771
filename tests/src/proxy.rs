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
        let target: SocketAddr = url.trim_start_matches("http://").parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let cut = watch::Sender::new(false);
        let state = cut.subscribe();
        let accept = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, target, state.clone()));
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

async fn pass(near: TcpStream, target: SocketAddr, mut cut: watch::Receiver<bool>) {
    // Whoever connects while the network is cut waits like everybody else.
    if cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    let Ok(far) = TcpStream::connect(target).await else { return };
    let (near_reads, near_writes) = near.into_split();
    let (far_reads, far_writes) = far.into_split();
    tokio::join!(one_way(near_reads, far_writes, cut.clone()), one_way(far_reads, near_writes, cut));
}

async fn one_way(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut cut: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if cut.wait_for(|cut| !cut).await.is_err() {
            return;
        }
        // The end of a connection passes like everything else: by dropping the other half.
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}
