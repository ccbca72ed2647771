//! A process that attacks a coordinator from other addresses of this computer, at a bounded rate, until it is ended.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use protocol::{
    blob::BlobHash,
    frame::MAX_FRAME,
    message::{FromWorker, Heartbeat, Up},
};
use tests::{
    Client,
    client::{connection_from, start_of_frame, unchecked},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

/// The first argument with which this program is the attacker; what it does, whom it attacks and a blob come after it.
pub const ATTACKER: &str = "attacker";
/// What it says once the first wave is out.
pub const ATTACKING: &str = "attacking";
/// How what it has done so far begins, many times a second.
pub const DONE: &str = "done ";

/// Attacks, and what each is called in the results.
pub const ATTACKS: [(&str, &str); 6] = [
    ("none", "a process that does nothing: how far rounds differ by chance"),
    ("requests", "1,000 requests and 5,000 messages a second: ten times what one address may"),
    ("half-open", "10,000 connections with nothing or half a head, 500 of them opened again each second"),
    ("slow-readers", "200 event streams and 100 downloads that nobody reads"),
    ("oversized", "100 frames and bodies a second that are too large"),
    ("uploads", "200 uploads begun and abandoned, each second"),
];

const HALF_OPEN: usize = 10_000;
/// Half-open connections made in a second, at first and then.
const OPENED_PER_SECOND: [usize; 2] = [4000, 500];
/// Time for an answer that may never come.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connections, requests and messages so far.
static ACTS: AtomicU64 = AtomicU64::new(0);

fn count(acts: u64) {
    ACTS.fetch_add(acts, Ordering::Relaxed);
}

/// Attacks as the arguments say, for ever.
pub async fn attack(arguments: &[String]) -> Result<()> {
    tokio::spawn(async {
        let mut looks = rounds(20.0);
        loop {
            looks.tick().await;
            println!("{DONE}{}", ACTS.load(Ordering::Relaxed));
        }
    });
    let [kind, url, blob] = arguments else { bail!("the attacker needs an attack, an address and a blob") };
    match kind.as_str() {
        "none" => {
            println!("{ATTACKING}");
            std::future::pending().await
        }
        "requests" => requests(url).await,
        "half-open" => half_open(url).await,
        "slow-readers" => slow_readers(url, blob.parse()?).await,
        "oversized" => oversized(url).await,
        "uploads" => uploads(url).await,
        other => bail!("`{other}` is no attack"),
    }
}

/// One of a few addresses that are not the organizer's.
fn address(number: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, 2 + (number % 8) as u8).into()
}

fn rounds(per_second: f64) -> tokio::time::Interval {
    let mut rounds = interval(Duration::from_secs_f64(1.0 / per_second));
    rounds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    rounds
}

async fn join(url: &str, address: IpAddr) -> Result<(Client, String)> {
    let connected = Client::connect_from(url, address).await?;
    let client = connected.map_err(|answer| anyhow::anyhow!("no session: {}", answer.status()))?;
    let (client, welcome) = client.let_in("attacker").await?;
    Ok((client, welcome.token))
}

async fn requests(url: &str) -> Result<()> {
    let (mut client, _) = join(url, address(0)).await?;
    let heartbeat = unchecked(&FromWorker::Up(Up::Heartbeat(Heartbeat {})), &[])?;
    tokio::spawn(async move {
        let mut rounds = rounds(100.0);
        loop {
            rounds.tick().await;
            for _ in 0..50 {
                if client.send(heartbeat.clone()).await.is_err() {
                    return;
                }
                count(1);
            }
        }
    });
    let mut connections = Vec::new();
    for _ in 0..8 {
        connections.push(connection_from(url, address(0), None).await?);
    }
    println!("{ATTACKING}");
    let mut rounds = rounds(125.0);
    let mut answers = vec![0; 64 << 10];
    loop {
        rounds.tick().await;
        for connection in &mut connections {
            // The answers to those before are read, whole or not: only that they do not pile up counts.
            while connection.try_read(&mut answers).is_ok_and(|bytes| bytes > 0) {}
            if connection.write_all(b"GET /v1/run HTTP/1.1\r\nHost: localhost\r\n\r\n").await.is_err() {
                *connection = connection_from(url, address(0), None).await?;
            }
            count(1);
        }
    }
}

async fn half_open(url: &str) -> Result<()> {
    let mut open: Vec<Option<TcpStream>> = (0..HALF_OPEN).map(|_| None).collect();
    let mut rounds = rounds(100.0);
    let (mut next, mut first_wave) = (0, true);
    loop {
        rounds.tick().await;
        for _ in 0..OPENED_PER_SECOND[usize::from(!first_wave)] / 100 {
            if next == HALF_OPEN {
                next = 0;
                if std::mem::take(&mut first_wave) {
                    println!("{ATTACKING}");
                }
            }
            // Those that the coordinator has closed are opened again.
            let closed = open[next].as_ref().is_none_or(|stream| {
                !matches!(stream.try_read(&mut [0; 16]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
            });
            if closed && let Ok(mut stream) = connection_from(url, address(next), None).await {
                if next % 2 == 0 {
                    let _ = stream.write_all(b"GET /v1/run HTTP/1.1\r\nHost: local").await;
                }
                open[next] = Some(stream);
                count(1);
            }
            next += 1;
        }
    }
}

async fn slow_readers(url: &str, blob: BlobHash) -> Result<()> {
    let (mut client, token) = join(url, address(0)).await?;
    tokio::spawn(async move { while let Ok(Some(_)) = client.hear().await {} });
    let mut open: Vec<Option<TcpStream>> = (0..300).map(|_| None).collect();
    let mut first_wave = true;
    loop {
        for (number, place) in open.iter_mut().enumerate() {
            let closed = match place {
                None => true,
                Some(stream) => stream.write_all(b"").await.is_err(),
            };
            if closed {
                let mut stream = connection_from(url, address(number), Some(4096)).await?;
                let head = match number % 3 {
                    0 => format!(
                        "GET /v1/blobs/{blob} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
                    ),
                    _ => "GET /v1/run/events HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
                };
                stream.write_all(head.as_bytes()).await?;
                *place = Some(stream);
                count(1);
            }
        }
        if std::mem::take(&mut first_wave) {
            println!("{ATTACKING}");
        }
        sleep(PATIENCE).await;
    }
}

async fn oversized(url: &str) -> Result<()> {
    println!("{ATTACKING}");
    let mut rounds = rounds(100.0);
    for number in 0usize.. {
        rounds.tick().await;
        count(1);
        let url = url.to_owned();
        tokio::spawn(async move {
            let attack = async {
                match number % 2 {
                    0 => {
                        let connected = Client::connect_from(&url, address(number / 2)).await?;
                        let mut client = connected.ok().context("refused")?;
                        let socket = client.socket.get_mut();
                        socket.write_all(&start_of_frame(MAX_FRAME as u64 + 1)).await?;
                        socket.write_all(&vec![0; 64 << 10]).await?;
                    }
                    _ => {
                        let mut stream = connection_from(&url, address(number / 2), None).await?;
                        let length = 1 << 30;
                        let head = put_head(BlobHash::of(b""), length, length) + "\r\n";
                        stream.write_all(head.as_bytes()).await?;
                        stream.write_all(&vec![0; 64 << 10]).await?;
                        let _answered = stream.read(&mut [0; 1024]).await?;
                    }
                }
                anyhow::Ok(())
            };
            let _ = timeout(PATIENCE, attack).await;
        });
    }
    Ok(())
}

fn put_head(hash: BlobHash, length: u64, total: u64) -> String {
    format!(
        "PUT /v1/blobs/{hash} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nContent-Range: bytes 0-{}/{total}\r\n",
        length - 1
    )
}

async fn uploads(url: &str) -> Result<()> {
    let (mut client, token) = join(url, address(0)).await?;
    tokio::spawn(async move { while let Ok(Some(_)) = client.hear().await {} });
    println!("{ATTACKING}");
    let mut rounds = rounds(1.0);
    for wave in 0u32.. {
        rounds.tick().await;
        let mut begun = Vec::new();
        for number in 0..200u32 {
            let hash = BlobHash::of(&(wave * 200 + number).to_le_bytes());
            let Ok(mut stream) = connection_from(url, address(number as usize), None).await else { continue };
            let head = put_head(hash, 1 << 20, 2 << 20) + &format!("Authorization: Bearer {token}\r\n\r\n");
            if stream.write_all(head.as_bytes()).await.is_ok() {
                let _ = timeout(PATIENCE, stream.write_all(&[0; 4096])).await;
            }
            begun.push(stream);
            count(1);
        }
        // Abandoned when the next wave begins.
        sleep(PATIENCE / 2).await;
        drop(begun);
    }
    Ok(())
}
