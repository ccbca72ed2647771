//! Nobody takes what is there for all: each address has its limits, is told so in words and when to try again, and others
//! still get in; and who sends or reads too slowly is not waited for.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use protocol::{
    VERSION,
    blob::{BlobHash, CHUNK},
    message::{Assign, Down, ToWorker},
    refusal::Refusal,
    view::RunView,
};
use reqwest::{Method, Response, StatusCode, header};
use tests::{
    Client, Coordinator, LIMIT, alone,
    client::{connection_from, hello, profile},
    resources::{memory, open_files},
    runs::TinyRun,
    wait_until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// The address of whoever asks for too much.
const GREEDY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
/// And of somebody else.
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 3));

/// A run that goes on for longer than anybody looks, with these fields of its sessions.
fn with_session(run: &TinyRun, fields: &str) -> String {
    run.toml().replace("[session]\n", &format!("[session]\n{fields}\n"))
}

async fn start(fields: &str) -> Result<Coordinator> {
    let run = TinyRun { steps: 1_000_000, ..TinyRun::default() };
    Coordinator::start(&with_session(&run, fields), &[]).await
}

/// Requests from one address, over as few connections as HTTP does.
fn http_from(address: IpAddr) -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().local_address(address).build()?)
}

async fn get(http: &reqwest::Client, coordinator: &Coordinator, path: &str) -> Result<Response> {
    Ok(http.get(format!("{}{path}", coordinator.url)).send().await?)
}

/// It is this status, with words, and says when to try again.
async fn ensure_refused(answer: Response, status: StatusCode) -> Result<()> {
    ensure!(answer.status() == status, "{answer:?}");
    let after = answer.headers().get(header::RETRY_AFTER).context("it does not say when to try again")?;
    ensure!(after.to_str()?.parse::<u32>()? > 0, "{after:?}");
    let words = answer.text().await?;
    ensure!(words.contains("try again later"), "{words}");
    Ok(())
}

#[tokio::test]
async fn one_address_has_so_many_workers_and_others_still_get_in() -> Result<()> {
    let _alone = alone().await;
    let coordinator = start("max_workers = 5\nworkers_per_address = 2").await?;
    let url = &coordinator.url;
    let join = async |address, name| -> Result<Client> {
        let connected = Client::connect_from(url, address).await?;
        let client = connected.map_err(|answer| anyhow::anyhow!("{answer:?}"))?;
        Ok(client.let_in(name).await?.0)
    };
    let first = join(GREEDY, "first").await?;
    let _second = join(GREEDY, "second").await?;
    let third = Client::connect_from(url, GREEDY).await?;
    let mut third = third.map_err(|answer| anyhow::anyhow!("{answer:?}"))?;
    third.say(hello(VERSION, "third")).await?;
    let refusal = third.refusal().await?;
    ensure!(matches!(refusal, Refusal::Crowded { .. }), "{refusal:?}");
    ensure!(refusal.to_string().contains("2 workers from your address"), "{refusal}");
    ensure!(refusal.retry_after().is_some_and(|after| !after.is_zero()), "{refusal:?}");
    let _other = join(OTHER, "another").await?;
    // This computer's own workers have no limit but the run's.
    let (_own, _) = Client::join(url, "own").await?;
    let (_own, _) = Client::join(url, "own too").await?;
    let mut sixth = Client::connect(url).await?;
    sixth.say(hello(VERSION, "one too many")).await?;
    let refusal = sixth.refusal().await?;
    ensure!(matches!(refusal, Refusal::Full { workers: 5 }), "{refusal:?}");
    // A place that is given back can be had again.
    drop(first);
    let left = |run: &RunView| run.workers.len() == 4;
    coordinator.wait_for_run("the first to be gone", left).await?;
    wait_until("its place", LIMIT, async || Ok(join(GREEDY, "fourth").await.ok())).await?;
    Ok(())
}

#[tokio::test]
async fn one_address_has_so_many_streams_connections_and_handshakes_and_others_still_get_in() -> Result<()> {
    let _alone = alone().await;
    let coordinator = start("streams_per_address = 2\nconnections_per_address = 70").await?;
    let (greedy, other) = (http_from(GREEDY)?, http_from(OTHER)?);
    let events = "/v1/run/events";
    let streams = [get(&greedy, &coordinator, events).await?, get(&greedy, &coordinator, events).await?];
    ensure!(streams.iter().all(|stream| stream.status() == StatusCode::OK), "{streams:?}");
    ensure_refused(get(&greedy, &coordinator, events).await?, StatusCode::TOO_MANY_REQUESTS).await?;
    ensure!(get(&other, &coordinator, events).await?.status() == StatusCode::OK, "nobody else can follow it");
    drop(streams);
    let again = async || Ok(get(&greedy, &coordinator, events).await?.error_for_status().ok());
    wait_until("a stream that was given back", LIMIT, again).await?;

    let mut handshakes = Vec::new();
    let refused = loop {
        match Client::connect_from(&coordinator.url, GREEDY).await? {
            Ok(client) => handshakes.push(client),
            Err(answer) => break answer,
        }
        ensure!(handshakes.len() <= 1000, "as many sessions without a Hello as anybody likes");
    };
    ensure!(refused.status() == StatusCode::TOO_MANY_REQUESTS.as_u16(), "{refused:?}");
    ensure!(refused.headers().contains_key("retry-after"), "{refused:?}");
    let another = Client::connect_from(&coordinator.url, OTHER).await?;
    ensure!(another.is_ok(), "{:?}", another.err());
    drop(handshakes);

    // Connections of which nothing comes: those of one address never keep others out.
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(connection_from(&coordinator.url, GREEDY, None).await?);
    }
    let refused = http_from(GREEDY)?.get(format!("{}/healthz", coordinator.url)).send().await?;
    ensure_refused(refused, StatusCode::TOO_MANY_REQUESTS).await?;
    ensure!(get(&http_from(OTHER)?, &coordinator, "/healthz").await?.status() == StatusCode::OK);
    drop(open);
    let again =
        async || Ok(get(&http_from(GREEDY)?, &coordinator, "/healthz").await?.error_for_status().ok());
    wait_until("connections that were given back", LIMIT, again).await?;
    Ok(())
}

/// Asks until it has been enough.
async fn until_refused(asks: impl AsyncFn() -> Result<Response>) -> Result<Response> {
    for _ in 0..10_000 {
        let answer = asks().await?;
        if answer.status() != StatusCode::OK {
            return Ok(answer);
        }
    }
    anyhow::bail!("10,000 requests were answered")
}

#[tokio::test]
async fn one_address_may_ask_so_often_and_a_proxy_says_whose_request_it_is() -> Result<()> {
    let _alone = alone().await;
    let coordinator = start("requests_per_second = 5\nbehind_proxy = true").await?;
    let url = format!("{}/v1/run", coordinator.url);
    let http = reqwest::Client::new();
    let forwarded = async |chain: &str| Ok(http.get(&url).header("x-forwarded-for", chain).send().await?);
    let refused = until_refused(async || forwarded("198.51.100.1, 192.0.2.1").await).await?;
    ensure_refused(refused, StatusCode::TOO_MANY_REQUESTS).await?;
    // What a visitor writes into the field itself does not help, nor hurt somebody else.
    let helps = forwarded("198.51.100.2, 192.0.2.1").await?;
    ensure!(helps.status() == StatusCode::TOO_MANY_REQUESTS, "{helps:?}");
    ensure!(forwarded("192.0.2.1, 198.51.100.1").await?.status() == StatusCode::OK, "another address");
    // IPv6 counts by the upper half.
    let refused = until_refused(async || forwarded("2001:db8::1").await).await?;
    ensure_refused(refused, StatusCode::TOO_MANY_REQUESTS).await?;
    ensure!(forwarded("2001:db8::2").await?.status() == StatusCode::TOO_MANY_REQUESTS, "the same network");
    ensure!(forwarded("2001:db8:0:1::1").await?.status() == StatusCode::OK, "another network");
    // The organizer's own programs are not counted.
    for _ in 0..400 {
        ensure!(http.get(&url).send().await?.status() == StatusCode::OK);
    }
    Ok(())
}

#[tokio::test]
async fn who_is_not_behind_a_proxy_cannot_choose_an_address() -> Result<()> {
    let _alone = alone().await;
    let coordinator = start("requests_per_second = 5").await?;
    let (greedy, url) = (http_from(GREEDY)?, format!("{}/v1/run", coordinator.url));
    let mut number = 0..;
    let chosen = number.by_ref().map(|n: u32| format!("198.51.{}.{}", n / 256 % 256, n % 256));
    let chosen = std::cell::RefCell::new(chosen);
    let asks = async || {
        let address = chosen.borrow_mut().next().context("no more addresses")?;
        Ok(greedy.get(&url).header("x-forwarded-for", address).send().await?)
    };
    ensure_refused(until_refused(asks).await?, StatusCode::TOO_MANY_REQUESTS).await?;
    ensure!(get(&http_from(OTHER)?, &coordinator, "/v1/run").await?.status() == StatusCode::OK);
    Ok(())
}

/// Everything that comes over a connection until it ends, at whatever speed.
async fn rest(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    // Closed or reset, whichever is first: what came before counts.
    let _ = timeout(LIMIT, stream.read_to_end(&mut bytes)).await.context("the connection stays open")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The head of a request for a blob.
fn head(method: Method, hash: BlobHash, token: &str, fields: &str) -> String {
    format!(
        "{method} /v1/blobs/{hash} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{fields}\r\n"
    )
}

/// How much memory all of a test's connections together may cost.
const MEMORY: u64 = 32 << 20;
/// Connections of a test.
const MANY: usize = 40;

#[tokio::test]
async fn bodies_that_never_come_and_answers_that_nobody_reads_take_no_memory_and_end() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { layers: 2, width: 256, steps: 1_000_000, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let (url, pid) = (coordinator.url.as_str(), coordinator.process.id());
    // A large blob, which the organizer may store.
    let organizer = coordinator.organizer.split_once("#token=").context("the link has no token")?.1;
    let large: Vec<u8> = (0..3 * CHUNK as u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let hash = BlobHash::of(&large);
    for (number, piece) in large.chunks(CHUNK as usize).enumerate() {
        let first = number as u64 * CHUNK;
        let range = format!("bytes {first}-{}/{}", first + piece.len() as u64 - 1, large.len());
        let put = reqwest::Client::new().put(format!("{url}/v1/blobs/{hash}")).bearer_auth(organizer);
        put.header(header::CONTENT_RANGE, range).body(piece.to_vec()).send().await?.error_for_status()?;
    }
    let whole = reqwest::Client::new().get(format!("{url}/v1/blobs/{hash}")).bearer_auth(organizer);
    ensure!(whole.send().await?.bytes().await? == large, "a download in pieces is another file");

    // Holds the model, so that something is expected of it.
    let (mut holder, welcome) = Client::join(url, "holder").await?;
    holder.say(profile()).await?;
    let assigned = |message| matches!(message, ToWorker::Down(Down::Assign(Assign(_)))).then_some(());
    holder.wait_for("Assign", assigned).await?;
    tokio::spawn(async move { while let Ok(Some(_)) = holder.hear().await {} });
    let token = welcome.token;
    let at_first = (memory(pid)?.now, open_files(pid)?);

    let mut unread = Vec::new();
    for _ in 0..MANY {
        let mut stream = connection_from(url, GREEDY, Some(4096)).await?;
        stream.write_all(head(Method::GET, hash, &token, "").as_bytes()).await?;
        unread.push(stream);
    }
    let piece = "Content-Length: 65536\r\nContent-Range: bytes 0-65535/131072\r\n";
    let mut trickling = Vec::new();
    let mut nameless = Vec::new();
    for number in 0..MANY {
        let hash = BlobHash::of(&number.to_le_bytes());
        let mut stream = connection_from(url, GREEDY, None).await?;
        stream.write_all(head(Method::PUT, hash, &token, piece).as_bytes()).await?;
        stream.write_all(b"a little").await?;
        trickling.push(stream);
        // Of somebody without a session nothing is read.
        let mut stream = connection_from(url, GREEDY, None).await?;
        stream.write_all(head(Method::PUT, hash, "made up", piece).as_bytes()).await?;
        nameless.push(stream);
    }
    // More pieces at a time than one worker may send are refused at once, but for what it has begun to send.
    let mut refused = 0;
    for mut stream in trickling {
        let answer = rest(&mut stream).await?;
        match answer.lines().next().unwrap_or_default() {
            line if line.contains("408") => ensure!(answer.contains("did not arrive within"), "{answer}"),
            line if line.contains("429") => {
                ensure!(answer.to_lowercase().contains("retry-after"), "{answer}");
                refused += 1;
            }
            _ => anyhow::bail!("a piece that does not come is answered so: {answer}"),
        }
    }
    ensure!((MANY - 8..MANY).contains(&refused), "{refused} of {MANY} pieces were refused");
    for mut stream in nameless {
        let answer = rest(&mut stream).await?;
        ensure!(answer.contains("401"), "{answer}");
    }
    let grown = memory(pid)?.most.saturating_sub(at_first.0);
    ensure!(grown < MEMORY, "its memory grew by {grown} bytes");
    // Whoever reads nothing is not waited for.
    let ended = async || Ok((open_files(pid)? <= at_first.1).then_some(()));
    wait_until("the connections of those who read nothing to end", LIMIT, ended).await?;
    drop(unread);
    coordinator.api.run().await?;
    Ok(())
}

#[tokio::test]
async fn a_page_can_ask_whether_its_token_is_the_organizers() -> Result<()> {
    let _alone = alone().await;
    let coordinator = start("").await?;
    let organizer = coordinator.organizer.split_once("#token=").context("the link has no token")?.1;
    let ask = async |token: &str| -> Result<StatusCode> {
        let request = reqwest::Client::new().get(format!("{}/v1/organizer", coordinator.url));
        Ok(request.bearer_auth(token).send().await?.status())
    };
    ensure!(ask(organizer).await? == StatusCode::NO_CONTENT);
    ensure!(ask("another").await? == StatusCode::UNAUTHORIZED);
    Ok(())
}
