//! Workers that speak wrongly get a typed refusal and a closed connection, and disturb nobody else.

use anyhow::{Context, Result, bail, ensure};
use futures::{SinkExt, StreamExt};
use protocol::{
    SUBPROTOCOL, VERSION,
    frame::{self, MAX_FRAME},
    message::{Hello, Message, WorkerKind},
    refusal::Refusal,
};
use tests::{Coordinator, NativeWorker, alone, runs::TinyRun};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{self, client::IntoClientRequest, protocol::WebSocketConfig},
};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn connect(coordinator: &Coordinator) -> Result<Socket> {
    let url = format!("{}/v1/session", coordinator.url.replacen("http", "ws", 1));
    let mut request = url.into_client_request()?;
    request.headers_mut().insert("sec-websocket-protocol", SUBPROTOCOL.parse()?);
    // This side sends more than is allowed.
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    let (socket, response) = connect_async_with_config(request, Some(config), false).await?;
    let spoken = response.headers().get("sec-websocket-protocol").context("no subprotocol was agreed on")?;
    ensure!(spoken == SUBPROTOCOL, "another subprotocol: {spoken:?}");
    Ok(socket)
}

fn hello(protocol: u8) -> Message {
    Message::Hello(Hello {
        protocol,
        build: "test".to_owned(),
        kind: WorkerKind::Native,
        name: "rude".to_owned(),
    })
}

fn bytes(message: &Message) -> Result<tungstenite::Message> {
    Ok(tungstenite::Message::Binary(frame::encode(message, &[])?.into()))
}

/// The refusal that comes next, apart from what a worker is told anyway; then the end of the connection.
async fn refusal(socket: &mut Socket) -> Result<Refusal> {
    let mut refused = None;
    loop {
        let message = timeout(tests::LIMIT, socket.next()).await.context("the connection stays open")?;
        match message {
            None | Some(Err(_)) | Some(Ok(tungstenite::Message::Close(_))) => break,
            Some(Ok(tungstenite::Message::Binary(bytes))) => match frame::decode(&bytes)?.message {
                Message::Refuse(refusal) => refused = Some(refusal),
                Message::Welcome(_) | Message::Benchmark => {}
                other => bail!("{} instead of a refusal", other.name()),
            },
            Some(Ok(_)) => {}
        }
    }
    refused.context("closed without a refusal")
}

/// What a connection gets that starts with these messages.
async fn refused(coordinator: &Coordinator, messages: Vec<tungstenite::Message>) -> Result<Refusal> {
    let mut socket = connect(coordinator).await?;
    for message in messages {
        // The coordinator may close before it has read everything.
        if socket.send(message).await.is_err() {
            break;
        }
    }
    refusal(&mut socket).await
}

#[tokio::test]
async fn rude_workers_are_refused_and_the_run_goes_on() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 100_000, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let _worker = NativeWorker::start(&coordinator.url, "polite", &[])?;
    let before = coordinator.wait_for_run("the first step", |run| run.step > 0).await?;

    let other_version = tungstenite::Message::Binary(vec![VERSION + 1, 0, 0, 0, 0].into());
    let refusal = refused(&coordinator, vec![other_version]).await?;
    ensure!(refusal == Refusal::Version { theirs: VERSION + 1, ours: VERSION }, "{refusal:?}");

    let refusal = refused(&coordinator, vec![bytes(&hello(VERSION + 1))?]).await?;
    ensure!(refusal == Refusal::Version { theirs: VERSION + 1, ours: VERSION }, "{refusal:?}");

    let garbage = tungstenite::Message::Binary(vec![VERSION, 3, 0, 0, 0, 0xff, 0xff, 0xff].into());
    let refusal = refused(&coordinator, vec![garbage.clone()]).await?;
    ensure!(matches!(refusal, Refusal::Malformed { .. }), "{refusal:?}");

    let refusal = refused(&coordinator, vec![bytes(&hello(VERSION))?, garbage]).await?;
    ensure!(matches!(refusal, Refusal::Malformed { .. }), "after Hello: {refusal:?}");

    let text = tungstenite::Message::Text("hello".into());
    let refusal = refused(&coordinator, vec![text]).await?;
    ensure!(matches!(refusal, Refusal::Malformed { .. }), "{refusal:?}");

    let long_header = tungstenite::Message::Binary(vec![VERSION, 0xff, 0xff, 0xff, 0xff].into());
    let refusal = refused(&coordinator, vec![long_header]).await?;
    ensure!(matches!(refusal, Refusal::Malformed { .. } | Refusal::Oversized { .. }), "{refusal:?}");

    let oversized = tungstenite::Message::Binary(vec![VERSION; MAX_FRAME + 1].into());
    let refusal = refused(&coordinator, vec![oversized]).await?;
    ensure!(matches!(refusal, Refusal::Oversized { limit, .. } if limit == MAX_FRAME as u64), "{refusal:?}");

    let refusal = refused(&coordinator, vec![bytes(&Message::Heartbeat)?]).await?;
    ensure!(matches!(refusal, Refusal::Unexpected { .. }), "before Hello: {refusal:?}");

    let refusal = refused(&coordinator, vec![bytes(&hello(VERSION))?, bytes(&Message::Benchmark)?]).await?;
    ensure!(matches!(refusal, Refusal::Unexpected { .. }), "the coordinator's own words: {refusal:?}");

    // The worker that behaves has not noticed.
    let after = coordinator.wait_for_run("further steps", |run| run.step > before.step + 1).await?;
    ensure!(after.epoch == before.epoch, "the plan changed from {} to {}", before.epoch, after.epoch);
    ensure!(after.workers.len() == 1, "{:#?}", after.workers);
    Ok(())
}
