//! A slow network between a worker and the coordinator: everything one worker sends or receives shares so many bytes a
//! second and takes so long to arrive, over all its connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

/// A worker's way to the coordinator.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// From one end to the other.
    pub latency: Duration,
    /// Bytes a second, each way.
    pub bytes_per_second: f64,
}

pub struct ShapedProxy {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    bytes: Arc<AtomicU64>,
    accept: JoinHandle<()>,
}

/// One direction of the way: when the last byte that was let through has left.
type Lane = Arc<Mutex<Instant>>;

impl ShapedProxy {
    /// In front of the coordinator at this address.
    pub async fn start(url: &str, shape: Shape) -> Result<Self> {
        let target: SocketAddr = url.trim_start_matches("http://").parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let lanes: [Lane; 2] = [(); 2].map(|()| Arc::new(Mutex::new(Instant::now())));
        let bytes = Arc::<AtomicU64>::default();
        let count = bytes.clone();
        let accept = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let [up, down] = lanes.clone();
                let (there, back) = (count.clone(), count.clone());
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(target).await else { return };
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    let (near_reads, near_writes) = near.into_split();
                    let (far_reads, far_writes) = far.into_split();
                    tokio::join!(
                        one_way(near_reads, far_writes, up, shape, there),
                        one_way(far_reads, near_writes, down, shape, back)
                    );
                });
            }
        });
        Ok(Self { url, bytes, accept })
    }

    /// Bytes that have gone through, both ways together.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for ShapedProxy {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn one_way(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    lane: Lane,
    shape: Shape,
    count: Arc<AtomicU64>,
) {
    let (travelling, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let arrivals = tokio::spawn(async move {
        while let Some((at, bytes)) = arriving.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // The end of a connection travels like everything else.
        let _ = to.shutdown().await;
    });
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            break;
        }
        count.fetch_add(read as u64, Ordering::Relaxed);
        let left = {
            let mut free = lane.lock().await;
            *free =
                (*free).max(Instant::now()) + Duration::from_secs_f64(read as f64 / shape.bytes_per_second);
            *free
        };
        sleep_until(left).await;
        if travelling.send((left + shape.latency, buffer[..read].to_vec())).await.is_err() {
            break;
        }
    }
    drop(travelling);
    let _ = arrivals.await;
}
