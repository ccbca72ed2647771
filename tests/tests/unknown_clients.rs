//! Whatever an unknown client sends, the run goes on, other workers do not notice, and nothing of it stays behind.

use std::{collections::HashMap, fs};

use anyhow::{Context, Result, ensure};
use engine::gpt2::shapes;
use protocol::{
    blob::{BlobHash, BlobRef},
    frame::MAX_FRAME,
    limits,
    message::{
        Address, Apply, Assign, DeltaReady, DeviceStatus, Down, Fault, FaultKind, FromWorker, Gradient,
        Leaving, LinkSpeed, PassSeconds, Profile, Ready, Refuse, SnapshotReady, StepReport, Targets,
        TensorFrame, Timings, ToWorker, Tokens, Welcome,
    },
    refusal::Refusal,
    spec::{Assignment, ModelSpec},
    tensor::encode_floats,
    view::{Phase, RunView, WorkerState},
};
use reqwest::{StatusCode, header};
use safetensors::{Dtype, tensor::TensorView};
use tests::{
    Client, Coordinator, LIMIT, alone,
    client::{profile, put, put_first_piece, start_of_frame, unchecked},
    resources::memory,
    runs::{TinyBlocks, TinyRun},
    wait_until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// The worker that behaves.
const HONEST: &str = "honest";

/// A run that goes on for longer than anybody looks, on one worker at a time.
fn endless() -> TinyRun {
    TinyRun { steps: 1_000_000, ..TinyRun::default() }
}

/// Such a run, with an honest worker training.
async fn training() -> Result<(Coordinator, RunView)> {
    let coordinator = Coordinator::start(&endless().toml(), &[]).await?;
    coordinator.start_worker(HONEST)?;
    let before = coordinator.wait_for_run("the first step", |run| run.step > 0).await?;
    Ok((coordinator, before))
}

/// The number of a worker.
fn id(run: &RunView, name: &str) -> Option<u64> {
    run.workers.iter().find(|worker| worker.name == name).map(|worker| worker.id)
}

/// The honest worker goes on in the plan and the session that it had before; pages and metrics can be read.
async fn goes_on_as(before: &RunView, coordinator: &Coordinator) -> Result<RunView> {
    let now = coordinator.api.run().await?.step;
    let after = coordinator.wait_for_run("further steps", |run| run.step > now + 1).await?;
    ensure!(after.phase == Phase::Training, "the run is {:?}: {}", after.phase, after.reason);
    ensure!(after.epoch == before.epoch, "the plan changed from {} to {}", before.epoch, after.epoch);
    ensure!(
        id(&after, HONEST) == id(before, HONEST),
        "the honest worker had to come back: {:#?}",
        after.workers
    );
    ensure_sound(coordinator).await?;
    Ok(after)
}

/// Nothing has panicked, and what the pages and Prometheus read can be read.
async fn ensure_sound(coordinator: &Coordinator) -> Result<()> {
    let panic = coordinator.process.lines().into_iter().find(|line| line.contains("panicked"));
    ensure!(panic.is_none(), "{panic:?}");
    coordinator.api.run().await?;
    coordinator.api.curve().await?;
    let (status, text) = coordinator.api.text("/metrics").await?;
    ensure!(status == 200, "/metrics: status {status}: {text}");
    Ok(())
}

/// Joins a run of one stage that nobody else trains, and is given the whole model.
async fn holder(coordinator: &Coordinator, name: &str) -> Result<(Client, Welcome, Assignment)> {
    let (mut client, welcome) = Client::join(&coordinator.url, name).await?;
    client.say(profile()).await?;
    let assigned = |message| match message {
        ToWorker::Down(Down::Assign(Assign(assignment))) => Some(assignment),
        _ => None,
    };
    let assignment = client.wait_for("Assign", assigned).await?;
    Ok((client, welcome, assignment))
}

#[tokio::test]
async fn faults_of_clients_that_hold_nothing_do_nothing_to_the_run() -> Result<()> {
    let _alone = alone().await;
    let coordinator = Coordinator::start(&endless().toml(), &[]).await?;
    three_faults(&coordinator).await?;
    let run = coordinator.api.run().await?;
    ensure!(run.phase == Phase::Waiting, "the run is {:?}: {}", run.phase, run.reason);
    coordinator.start_worker(HONEST)?;
    let before = coordinator.wait_for_run("the first step", |run| run.step > 0).await?;
    three_faults(&coordinator).await?;
    goes_on_as(&before, &coordinator).await?;
    Ok(())
}

/// Says three times that the plan in force has failed, and is turned away for it.
async fn three_faults(coordinator: &Coordinator) -> Result<()> {
    let (mut client, _) = Client::join(&coordinator.url, "three faults").await?;
    for _ in 0..3 {
        let during = coordinator.api.run().await?.epoch;
        client.say(Fault { during, kind: FaultKind::BadTensor, detail: "made up".into() }).await?;
    }
    let refusal = client.refusal().await?;
    ensure!(matches!(refusal, Refusal::Unexpected { .. }), "{refusal:?}");
    Ok(())
}

/// A profile with one thing changed.
fn profile_with(change: impl FnOnce(&mut Profile)) -> FromWorker {
    let mut changed = profile();
    change(&mut changed);
    FromWorker::Up(changed.into())
}

fn report_with(change: impl FnOnce(&mut StepReport)) -> FromWorker {
    let mut changed = StepReport {
        epoch: 1,
        step: 0,
        squared_norm: 1.0,
        losses: vec![1.0; 4],
        timings: Timings::default(),
        status: DeviceStatus::default(),
    };
    change(&mut changed);
    FromWorker::Up(changed.into())
}

#[tokio::test]
async fn numbers_that_cannot_be_are_refused_by_the_name_of_their_field() -> Result<()> {
    let _alone = alone().await;
    let (coordinator, before) = training().await?;
    let link = |up: f64| Some(LinkSpeed { round_trip_seconds: 0.01, up, down: 1e6 });
    let layer = |seconds: f64| PassSeconds { forward: seconds, backward: seconds };
    let cases = [
        (profile_with(|p| p.layer = layer(5e-324)), "Profile.layer.forward"),
        (profile_with(|p| p.layer = layer(1.7e308)), "Profile.layer.forward"),
        (profile_with(|p| p.layer.backward = -1.0), "Profile.layer.backward"),
        (profile_with(|p| p.embedding.forward = f64::NAN), "Profile.embedding.forward"),
        (profile_with(|p| p.head_seconds = f64::INFINITY), "Profile.head_seconds"),
        (profile_with(|p| p.memory_bytes = u64::MAX), "Profile.memory_bytes"),
        (profile_with(|p| p.threads = u32::MAX), "Profile.threads"),
        (profile_with(|p| p.link = link(1e-300)), "Profile.link.up"),
        (profile_with(|p| p.link = link(f64::INFINITY)), "Profile.link.up"),
        (report_with(|r| r.squared_norm = f64::NAN), "StepReport.squared_norm"),
        (report_with(|r| r.squared_norm = -1.0), "StepReport.squared_norm"),
        (report_with(|r| r.losses[2] = f32::NAN), "StepReport.losses"),
        (report_with(|r| r.timings.wait = f64::NAN), "StepReport.timings.wait"),
        (report_with(|r| r.status.memory_bytes = u64::MAX), "StepReport.status.memory_bytes"),
    ];
    for (message, field) in cases {
        refused_as_malformed(&coordinator, unchecked(&message, &[])?, field).await?;
    }
    goes_on_as(&before, &coordinator).await?;
    Ok(())
}

/// Joins, sends a frame, and is refused with words that name the field. Its token is good for nothing afterwards.
async fn refused_as_malformed(coordinator: &Coordinator, frame: Vec<u8>, field: &str) -> Result<()> {
    let (mut client, welcome) = Client::join(&coordinator.url, "absurd").await?;
    client.send(frame).await?;
    let refusal = client.refusal().await.with_context(|| field.to_owned())?;
    let named = matches!(&refusal, Refusal::Malformed { detail } if detail.contains(field));
    ensure!(named, "{field}: {refusal:?}");
    ensure_token_is_dead(coordinator, &welcome).await.with_context(|| field.to_owned())
}

async fn ensure_token_is_dead(coordinator: &Coordinator, welcome: &Welcome) -> Result<()> {
    let hash = BlobHash::of(b"anything");
    let status = put_first_piece(&coordinator.url, &welcome.token, hash, b"any".to_vec(), 8).await?;
    ensure!(status == StatusCode::UNAUTHORIZED, "its token still works: {status}");
    let shown = |run: &RunView| run.workers.iter().any(|worker| worker.id == welcome.worker);
    coordinator.wait_for_run("it not to be shown any more", |run| !shown(run)).await?;
    Ok(())
}

#[tokio::test]
async fn clients_that_promise_much_and_do_nothing_do_not_keep_a_run_from_its_end() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 40, snapshot_every: 2, lease_seconds: 2.0, ..TinyRun::default() };
    let text = run.toml().replace("[session]\n", "[session]\nstep_deadline_seconds = 4\n");
    let coordinator = Coordinator::start(&text, &[]).await?;
    let fast = PassSeconds { forward: 1e-9, backward: 1e-9 };
    let promises = [
        ("without memory", Profile { memory_bytes: 1, ..profile() }),
        ("fast and never ready", Profile { layer: fast, embedding: fast, head_seconds: 1e-9, ..profile() }),
    ];
    for (name, profile) in promises {
        let (mut client, _) = Client::join(&coordinator.url, name).await?;
        client.say(profile).await?;
        // Alive, as far as pings tell.
        tokio::spawn(async move { while let Ok(Some(_)) = client.hear().await {} });
    }
    let (mut client, _) = Client::join(&coordinator.url, "fast and ready").await?;
    client.say(Profile { layer: fast, embedding: fast, head_seconds: 1e-9, ..profile() }).await?;
    tokio::spawn(async move {
        while let Ok(Some(message)) = client.hear().await {
            if let ToWorker::Down(Down::Assign(Assign(Assignment { epoch, .. }))) = message
                && client.say(Ready { epoch }).await.is_err()
            {
                break;
            }
        }
    });
    let held = |run: &RunView| run.workers.iter().any(|worker| worker.state == WorkerState::Loading);
    coordinator.wait_for_run("one of them to be given the model", held).await?;
    coordinator.start_worker(HONEST)?;
    coordinator.wait_for_finish().await?;
    ensure_sound(&coordinator).await
}

#[tokio::test]
async fn a_worker_that_has_left_has_no_session_and_no_token() -> Result<()> {
    let _alone = alone().await;
    let (coordinator, before) = training().await?;
    let mut left = Vec::new();
    for number in 0..8 {
        let (mut client, welcome) = Client::join(&coordinator.url, &format!("leaving {number}")).await?;
        client.say(Leaving { reason: "done".into() }).await?;
        left.push((client, welcome));
    }
    for (mut client, welcome) in left {
        let refusal = client.end().await?;
        ensure!(refusal.is_none(), "leaving is no fault: {refusal:?}");
        ensure_token_is_dead(&coordinator, &welcome).await?;
    }
    goes_on_as(&before, &coordinator).await?;
    Ok(())
}

/// Files of uploads that are not whole.
fn staged(coordinator: &Coordinator) -> Result<usize> {
    let names =
        fs::read_dir(coordinator.data().join("blobs"))?.filter_map(|entry| Some(entry.ok()?.file_name()));
    Ok(names.filter(|name| name.to_string_lossy().contains('#')).count())
}

/// How many first pieces of different blobs are taken.
async fn first_pieces_taken(
    coordinator: &Coordinator,
    welcome: &Welcome,
    refused: StatusCode,
) -> Result<usize> {
    let mut taken = 0;
    for number in 0..200u32 {
        let hash = BlobHash::of(&number.to_le_bytes());
        let status =
            put_first_piece(&coordinator.url, &welcome.token, hash, vec![0; 64 << 10], 128 << 10).await?;
        match status {
            StatusCode::ACCEPTED => taken += 1,
            other => ensure!(other == refused, "blob {number} was answered with {other}"),
        }
    }
    Ok(taken)
}

#[tokio::test]
async fn first_pieces_of_many_blobs_are_taken_only_from_a_holder_few_at_a_time_and_swept() -> Result<()> {
    let _alone = alone().await;
    let coordinator = Coordinator::start(&endless().toml(), &[]).await?;
    let (_client, nobody) = Client::join(&coordinator.url, "without work").await?;
    let taken = first_pieces_taken(&coordinator, &nobody, StatusCode::FORBIDDEN).await?;
    ensure!(taken == 0 && staged(&coordinator)? == 0, "{taken} pieces were taken from a worker without work");

    let (client, holder, _) = holder(&coordinator, "with work").await?;
    let taken = first_pieces_taken(&coordinator, &holder, StatusCode::TOO_MANY_REQUESTS).await?;
    ensure!((1..=8).contains(&taken), "{taken} uploads of one worker are open at a time");
    ensure!(staged(&coordinator)? <= taken, "{} files for {taken} uploads", staged(&coordinator)?);
    drop(client);
    wait_until("its uploads to be swept", LIMIT, async || Ok((staged(&coordinator)? == 0).then_some(())))
        .await?;
    ensure_token_is_dead(&coordinator, &holder).await?;
    coordinator.start_worker(HONEST)?;
    coordinator.wait_for_run("steps of an honest worker", |run| run.step > 2).await?;
    ensure_sound(&coordinator).await
}

#[tokio::test]
async fn requests_for_other_hosts_and_from_other_sites_are_refused() -> Result<()> {
    let _alone = alone().await;
    let coordinator = Coordinator::start(&endless().toml(), &["--host", "cohort.example"]).await?;
    let own = coordinator.url.as_str();
    let foreign: [&[(&str, &str)]; 5] = [
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("host", "evil.example")],
        &[("host", "evil.example"), ("origin", "http://evil.example")],
        &[("host", "evil.example"), ("origin", own)],
    ];
    let ours: [&[(&str, &str)]; 4] = [
        &[],
        &[("origin", own)],
        &[("host", "localhost"), ("origin", "http://localhost")],
        &[("host", "cohort.example"), ("origin", "https://cohort.example")],
    ];
    let organizer = coordinator.organizer.split_once("#token=").context("the link has no token")?.1;
    let http = reqwest::Client::new();
    for (fields, passes) in
        foreign.map(|fields| (fields, false)).into_iter().chain(ours.map(|fields| (fields, true)))
    {
        let connected = Client::connect_with(own, fields).await?;
        let expected = if passes { None } else { Some(StatusCode::FORBIDDEN) };
        ensure!(connected.err() == expected, "a session with {fields:?}");
        for path in
            ["/", "/healthz", "/metrics", "/v1/run", "/v1/run/curve", "/v1/run/events", "/v1/run/pause"]
        {
            let url = format!("{own}{path}");
            let request =
                if path.ends_with("pause") { http.post(url).bearer_auth(organizer) } else { http.get(url) };
            let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let answer = request.send().await?;
            let status = answer.status();
            let expected = if passes { status.is_success() } else { status == StatusCode::FORBIDDEN };
            ensure!(expected, "{path} with {fields:?} is answered with {status}");
            let allowed = answer.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            ensure!(allowed.is_none(), "{path} lets {allowed:?} read its answer");
        }
    }
    ensure_sound(&coordinator).await
}

#[tokio::test]
async fn a_gradient_for_a_hop_that_cannot_be_is_refused() -> Result<()> {
    let _alone = alone().await;
    let coordinator = Coordinator::start(&endless().toml(), &[]).await?;
    // Holds the model and computes nothing: the first step stays open.
    let (mut holding, welcome, Assignment { epoch, .. }) = holder(&coordinator, "holding").await?;
    holding.say(Ready { epoch }).await?;
    let opened = |message| match message {
        ToWorker::Down(Down::Tokens(Tokens(frame))) => Some(frame.to),
        _ => None,
    };
    let open = holding.wait_for("the first step", opened).await?;
    let shape = [welcome.run.sequences, welcome.run.context, welcome.run.model.width];
    let values = vec![0.0; shape.iter().product::<u32>() as usize];
    let (tensor, payload) = encode_floats(&values, &shape, welcome.run.wire)?;
    let gradient = |hop: u32| {
        let to = Address { hop, ..open };
        let frame = TensorFrame { to, tensor: tensor.clone() };
        unchecked(&FromWorker::Relayed(Gradient(frame).into()), &payload)
    };
    for _ in 0..5 {
        refused_as_malformed(&coordinator, gradient(u32::MAX)?, "hop").await?;
    }
    // The last one that any plan could have; from somebody else, and from the holder.
    let last = limits::HOPS as u32;
    let (client, refused) = Client::join(&coordinator.url, "absurd").await?;
    for (mut client, welcome) in [(client, refused), (holding, welcome)] {
        client.send(gradient(last)?).await?;
        // It may first hear more of the step that is open.
        let refused = loop {
            let message = client.hear().await?.context("closed without a refusal")?;
            if let ToWorker::Down(Down::Refuse(Refuse(refusal))) = message {
                break refusal;
            }
        };
        ensure!(matches!(refused, Refusal::NotInPlan { .. }), "{refused:?}");
        ensure!(client.end().await?.is_none(), "it hears more than a refusal");
        ensure_token_is_dead(&coordinator, &welcome).await?;
    }
    coordinator.start_worker(HONEST)?;
    coordinator.wait_for_run("steps of an honest worker", |run| run.step > 2).await?;
    ensure_sound(&coordinator).await
}

/// How much memory all of a test's connections together may cost at any time.
const MEMORY: u64 = 16 << 20;
/// What each of them tries to send.
const FLOOD: usize = 48 << 20;

/// Sends zeros until the other side has had enough.
///
/// # Errors
/// When it takes them all.
async fn flood(mut to: impl AsyncWrite + Unpin, start: &[u8]) -> Result<()> {
    let flooding = async {
        let zeros = vec![0; 64 << 10];
        if to.write_all(start).await.is_err() {
            return true;
        }
        for _ in 0..FLOOD / zeros.len() {
            if to.write_all(&zeros).await.is_err() {
                return true;
            }
        }
        false
    };
    let closed = timeout(LIMIT, flooding).await.context("the connection neither takes bytes nor closes")?;
    ensure!(closed, "{FLOOD} bytes were taken");
    Ok(())
}

#[tokio::test]
async fn much_that_comes_before_hello_takes_no_memory_and_closes_the_connection() -> Result<()> {
    let _alone = alone().await;
    let (coordinator, before) = training().await?;
    let pid = coordinator.process.id();
    let at_first = memory(pid)?.most;
    for announced in [MAX_FRAME as u64 + 1, MAX_FRAME as u64, limits::PROBE as u64] {
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(Client::connect(&coordinator.url).await?);
        }
        let start = start_of_frame(announced);
        let floods = clients.iter_mut().map(|client| flood(client.socket.get_mut(), &start));
        futures::future::try_join_all(floods)
            .await
            .with_context(|| format!("a frame of {announced} bytes"))?;
    }
    // The head of a request that has no end.
    let address = coordinator.url.trim_start_matches("http://");
    flood(TcpStream::connect(address).await?, b"GET /v1/run HTTP/1.1\r\nHost: localhost\r\nX-Long: ").await?;
    let grown = memory(pid)?.most - at_first;
    ensure!(grown < MEMORY, "its memory grew by {grown} bytes");
    goes_on_as(&before, &coordinator).await?;
    Ok(())
}

#[tokio::test]
async fn who_stops_in_the_middle_of_a_frame_loses_the_session_with_the_lease() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { lease_seconds: 2.0, ..endless() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    coordinator.start_worker(HONEST)?;
    let before = coordinator.wait_for_run("the first step", |run| run.step > 0).await?;
    let name = "half a frame";
    let (mut client, welcome) = Client::join(&coordinator.url, name).await?;
    coordinator.wait_for_run("it to be shown", |run| id(run, name).is_some()).await?;
    client.socket.get_mut().write_all(&start_of_frame(limits::PROBE as u64)).await?;
    client.socket.get_mut().write_all(&[0; 1000]).await?;
    // What it is told it does not read, so that it answers no ping; the end of the connection shows below WebSocket.
    coordinator.wait_for_run("its lease to end", |run| id(run, name).is_none()).await?;
    let mut rest = Vec::new();
    // Closed or reset, whichever is first.
    let _ = timeout(LIMIT, client.socket.get_mut().read_to_end(&mut rest)).await.context("it stays open")?;
    ensure_token_is_dead(&coordinator, &welcome).await?;
    goes_on_as(&before, &coordinator).await?;
    Ok(())
}

#[tokio::test]
async fn deltas_of_clients_without_a_block_leave_no_trace_in_what_pages_read() -> Result<()> {
    let _alone = alone().await;
    let run = TinyBlocks { blocks: 1, steps: 1_000_000, ..TinyBlocks::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    coordinator.start_worker(HONEST)?;
    let done = |run: &RunView| run.rounds.as_ref().map_or(0, |rounds| rounds.round);
    coordinator.wait_for_run("the first round", |run| done(run) > 0).await?;

    let delta = |timings: Timings| DeltaReady {
        round: 999_999,
        block: 0,
        blob: BlobRef::of(b"nothing"),
        loss: 1.0,
        cross_entropy: 1.0,
        timings,
        status: DeviceStatus::default(),
    };
    let not_a_number = delta(Timings { local_steps: f64::NAN, ..Timings::default() });
    let frame = unchecked(&FromWorker::Up(not_a_number.into()), &[])?;
    refused_as_malformed(&coordinator, frame, "DeltaReady.timings.local_steps").await?;

    let (mut client, welcome) = Client::join(&coordinator.url, "made up").await?;
    let shown = |run: &RunView| id(run, "made up") == Some(welcome.worker);
    coordinator.wait_for_run("it to be shown", shown).await?;
    let nothing = || delta(Timings { local_steps: 1e6, wait: 1e6, ..Timings::default() });
    client.say(nothing()).await?;
    let now = done(&coordinator.api.run().await?);
    let after = coordinator.wait_for_run("further rounds", |run| done(run) > now + 1).await?;
    let made_up = after.workers.iter().find(|worker| worker.id == welcome.worker).context("it has gone")?;
    ensure!(made_up.timings == Timings::default(), "{made_up:#?}");
    ensure!(
        after.rounds.is_some_and(|rounds| rounds.refused == 0),
        "a delta of nobody counts among those refused"
    );
    client.say(nothing()).await?;
    client.say(nothing()).await?;
    let told = |message| matches!(message, ToWorker::Down(Down::DeltaOutcome(_))).then_some(());
    for _ in 0..3 {
        client.wait_for("what became of its delta", told).await?;
    }
    let refusal = client.refusal().await?;
    ensure!(matches!(refusal, Refusal::Unexpected { .. }), "{refusal:?}");
    ensure_sound(&coordinator).await
}

/// What is wrong with a made-up part of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    /// Longer by a byte than what was uploaded.
    Length,
    /// One moment, of a shape that it cannot have.
    Moment,
    /// A weight that is not finite.
    NotFinite,
    /// No final norm.
    Missing,
    /// Of other steps than asked for.
    Steps,
    /// Weights without AdamW's moments.
    NoMoments,
    /// Moments of more updates than the weights have seen.
    Updates,
    /// No safetensors at all.
    Text,
    /// None, but for the values.
    Nothing,
}

/// A part that holds the whole model, made up.
fn made_up(model: &ModelSpec, steps_done: u64, lie: Lie) -> Result<Vec<u8>> {
    if lie == Lie::Text {
        return Ok(b"weights".to_vec());
    }
    let mut tensors = Vec::new();
    for (number, shape) in shapes::of_model(model).into_iter().enumerate() {
        let value = if lie == Lie::NotFinite && number == 0 { f32::NAN } else { 0.01 };
        let bytes = value.to_le_bytes().repeat(shape.len());
        if lie != Lie::Missing || !shape.name.contains("ln_f") {
            if lie != Lie::NoMoments {
                for moment in ["adam_m", "adam_v"] {
                    tensors.push((
                        format!("{moment}.{}", shape.name),
                        Dtype::F32,
                        shape.shape.clone(),
                        bytes.clone(),
                    ));
                }
            }
            tensors.push((shape.name, Dtype::F32, shape.shape, bytes));
        }
    }
    if lie != Lie::NoMoments {
        let updates = if lie == Lie::Updates { steps_done + 1 } else { steps_done };
        tensors.push(("adam_steps".into(), Dtype::I64, vec![1], updates.to_le_bytes().to_vec()));
    }
    if lie == Lie::Moment {
        let table = tensors.iter_mut().find(|(name, ..)| name == "adam_m.transformer.wte.weight");
        let (_, _, shape, bytes) = table.context("there is no such moment")?;
        (*shape, *bytes) = (vec![1], vec![0; 4]);
    }
    let tensors = tensors
        .iter()
        .map(|(name, kind, shape, bytes)| Ok((name.as_str(), TensorView::new(*kind, shape.clone(), bytes)?)));
    let steps = if lie == Lie::Steps { steps_done + 7 } else { steps_done };
    let metadata = HashMap::from([("steps".to_owned(), steps.to_string())]);
    Ok(safetensors::serialize(tensors.collect::<Result<Vec<_>>>()?, Some(metadata))?)
}

/// Holds the whole model, computes nothing, reports made-up losses, and gives a made-up snapshot.
async fn pretend(coordinator: &Coordinator, lie: Lie) -> Result<Client> {
    let (mut client, welcome, assignment) = holder(coordinator, &format!("{lie:?}")).await?;
    client.say(Ready { epoch: assignment.epoch }).await?;
    let mut arrived = 0;
    loop {
        match client.hear().await?.context("it was turned away before it could give a snapshot")? {
            ToWorker::Down(Down::Targets(Targets(TensorFrame {
                to: Address { epoch, step, .. }, ..
            }))) => {
                arrived += 1;
                if arrived == assignment.micro_batches {
                    arrived = 0;
                    let report = StepReport {
                        epoch,
                        step,
                        squared_norm: 1.0,
                        losses: vec![0.001; assignment.micro_batches as usize],
                        timings: Timings::default(),
                        status: DeviceStatus::default(),
                    };
                    client.say(report).await?;
                }
            }
            ToWorker::Down(Down::Apply(Apply { epoch, step, snapshot: true, .. })) => {
                let part = made_up(&welcome.run.model, step + 1, lie)?;
                let mut blob = put(&coordinator.url, &welcome.token, part).await?;
                blob.bytes += u64::from(lie == Lie::Length);
                client.say(SnapshotReady { epoch, steps_done: step + 1, blob }).await?;
                return Ok(client);
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn no_honest_worker_is_turned_away_for_a_made_up_snapshot() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { snapshot_every: 2, ..endless() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let lies = [
        Lie::Length,
        Lie::Moment,
        Lie::NotFinite,
        Lie::Missing,
        Lie::Steps,
        Lie::NoMoments,
        Lie::Updates,
        Lie::Text,
    ];
    for (number, lie) in (1..).zip(lies) {
        let client = pretend(&coordinator, lie).await?;
        let found = |run: &RunView| run.refusals.get("bad_snapshot") == Some(&number);
        let after = coordinator.wait_for_run(&format!("{lie:?} to be found"), found).await?;
        ensure!(
            after.snapshot_step.is_none(),
            "{lie:?}: a snapshot of step {:?} counts",
            after.snapshot_step
        );
        drop(client);
        coordinator.wait_for_run("it to be gone", |run| run.workers.is_empty()).await?;
    }
    // One of which only the values are wrong can be loaded, and trained on.
    let client = pretend(&coordinator, Lie::Nothing).await?;
    coordinator.wait_for_run("a snapshot that can be loaded", |run| run.snapshot_step == Some(2)).await?;
    drop(client);

    coordinator.start_worker(HONEST)?;
    let before =
        coordinator.wait_for_run("its first steps", |run| run.step > 2 && id(run, HONEST).is_some()).await?;
    let further = |run: &RunView| run.snapshot_step.is_some_and(|step| step > 10);
    let after = coordinator.wait_for_run("snapshots of an honest worker", further).await?;
    ensure!(id(&after, HONEST) == id(&before, HONEST), "it had to come back: {:#?}", after.workers);
    ensure!(after.refusals.get("bad_snapshot") == Some(&(lies.len() as u64)), "{:?}", after.refusals);
    ensure!(!after.refusals.contains_key("weights"), "it could not load something: {:?}", after.refusals);
    ensure_sound(&coordinator).await
}
