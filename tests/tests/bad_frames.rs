//! Workers that speak wrongly get a typed refusal and a closed connection, and disturb nobody else.

use anyhow::{Context, Result, ensure};
use futures::SinkExt;
use protocol::{
    VERSION,
    frame::{self, MAX_FRAME},
    message::{
        Activation, Address, Benchmark, FrameHeader, FromWorker, Heartbeat, Pass, TensorFrame, ToWorker,
    },
    refusal::Refusal,
    tensor::encode_floats,
};
use tests::{Client, Coordinator, alone, client, runs::TinyRun};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite;

fn hello(protocol: u8) -> FromWorker {
    FromWorker::Up(client::hello(protocol, "rude").into())
}

fn bytes(message: &impl FrameHeader) -> Result<tungstenite::Message> {
    Ok(tungstenite::Message::Binary(frame::encode(message, &[])?.into()))
}

/// What a connection gets that starts with these messages.
async fn refused(
    coordinator: &Coordinator,
    what: &str,
    messages: Vec<tungstenite::Message>,
) -> Result<Refusal> {
    let mut client = Client::connect(&coordinator.url).await?;
    for message in messages {
        client.socket.send(message).await?;
    }
    client.refusal().await.with_context(|| what.to_owned())
}

/// What a connection gets that announces a frame longer than any may be, and of it sends nothing: the answer to
/// a whole one could be lost, as a connection that is closed with bytes unread is reset.
async fn refused_by_length(
    coordinator: &Coordinator,
    hello: Option<tungstenite::Message>,
) -> Result<Refusal> {
    let mut client = Client::connect(&coordinator.url).await?;
    if let Some(hello) = hello {
        client.socket.send(hello).await?;
    }
    client.socket.get_mut().write_all(&client::start_of_frame(MAX_FRAME as u64 + 1)).await?;
    client.refusal().await
}

#[tokio::test]
async fn rude_workers_are_refused_and_the_run_goes_on() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 100_000, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    coordinator.start_worker("polite")?;
    let before = coordinator.wait_for_run("the first step", |run| run.step > 0).await?;

    let raw = |bytes: Vec<u8>| tungstenite::Message::Binary(bytes.into());
    let garbage = || raw(vec![VERSION, 3, 0, 0, 0, 0xff, 0xff, 0xff]);
    type Expected = fn(&Refusal) -> bool;
    let version: Expected = |refusal| *refusal == Refusal::Version { theirs: VERSION + 1, ours: VERSION };
    let malformed: Expected = |refusal| matches!(refusal, Refusal::Malformed { .. });
    let unexpected: Expected = |refusal| matches!(refusal, Refusal::Unexpected { .. });
    let cases: [(&str, Vec<tungstenite::Message>, Expected); 9] = [
        ("a frame of another version", vec![raw(vec![VERSION + 1, 0, 0, 0, 0])], version),
        ("a Hello of another version", vec![bytes(&hello(VERSION + 1))?], version),
        ("garbage", vec![garbage()], malformed),
        ("garbage after Hello", vec![bytes(&hello(VERSION))?, garbage()], malformed),
        ("text", vec![tungstenite::Message::Text("hello".into())], malformed),
        ("an endless header", vec![raw(vec![VERSION, 0xff, 0xff, 0xff, 0xff])], malformed),
        ("no Hello", vec![bytes(&FromWorker::Up(Heartbeat {}.into()))?], unexpected),
        (
            "the coordinator's own words",
            vec![bytes(&hello(VERSION))?, bytes(&ToWorker::Down(Benchmark {}.into()))?],
            // To a worker's enum these bytes are no message.
            malformed,
        ),
        ("a second Hello", vec![bytes(&hello(VERSION))?, bytes(&hello(VERSION))?], unexpected),
    ];
    for (what, messages, expected) in cases {
        let refusal = refused(&coordinator, what, messages).await?;
        ensure!(expected(&refusal), "{what}: {refusal:?}");
        ensure!(!refusal.to_string().is_empty(), "{what}: refused without words");
    }

    // A tensor of a plan that does not exist; an older one would be passed over in silence.
    let run = &before.run;
    let shape = [run.sequences, run.context, run.model.width];
    let values = vec![0.0; shape.iter().product::<u32>() as usize];
    let (tensor, payload) = encode_floats(&values, &shape, run.wire)?;
    let to =
        Address { epoch: before.epoch + 1, step: before.step, pass: Pass::Train { micro_batch: 0 }, hop: 1 };
    let activation =
        frame::encode(&FromWorker::Relayed(Activation(TensorFrame { to, tensor }).into()), &payload)?;
    let messages = vec![bytes(&hello(VERSION))?, raw(activation)];
    let refusal = refused(&coordinator, "a tensor of no plan", messages).await?;
    ensure!(matches!(refusal, Refusal::NotInPlan { .. }), "a tensor of no plan: {refusal:?}");

    for hello in [Some(bytes(&hello(VERSION))?), None] {
        let after_hello = hello.is_some();
        let refusal = refused_by_length(&coordinator, hello).await;
        let refusal = refusal.with_context(|| format!("an oversized frame, after Hello {after_hello}"))?;
        // The limit that it names is this run's, not the largest of any run.
        let expected = matches!(refusal, Refusal::Oversized { bytes, limit } if bytes > limit && limit < MAX_FRAME as u64);
        ensure!(expected, "an oversized frame, after Hello {after_hello}: {refusal:?}");
    }

    // The worker that behaves has not noticed.
    let after = coordinator.wait_for_run("further steps", |run| run.step > before.step + 1).await?;
    ensure!(after.epoch == before.epoch, "the plan changed from {} to {}", before.epoch, after.epoch);
    ensure!(after.workers.len() == 1, "{:#?}", after.workers);
    // All are counted.
    let counted: Vec<(&str, u64)> = after.refusals.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    let expected =
        [("malformed", 5), ("not_in_plan", 1), ("oversized", 2), ("unexpected", 2), ("version", 2)];
    ensure!(counted == expected, "{counted:?}");
    let (_, metrics) = coordinator.api.text("/metrics").await?;
    for start in [
        "cohort_refusals_total{reason=\"not_in_plan\"} 1",
        "cohort_pipeline_efficiency_ratio ",
        "cohort_worker_backward_seconds{worker=\"1\",name=\"polite\"} ",
        "cohort_worker_memory_bytes{worker=\"1\",name=\"polite\"} ",
    ] {
        ensure!(metrics.lines().any(|line| line.starts_with(start)), "`{start}` is missing in\n{metrics}");
    }
    Ok(())
}
