//! Strategies for everything that can stand in a frame.
//!
//! Numbers, texts and lists range over all that the rules of [`protocol::checked`] allow, ends included. Each test
//! program uses a part of them.

#![allow(dead_code)]

use proptest::{
    collection::vec,
    prelude::*,
    strategy::{BoxedStrategy, Union},
};
use protocol::{
    blob::{BlobHash, BlobRef},
    delta::DeltaEncoding,
    evaluation::Scores,
    limits,
    message::*,
    refusal::Refusal,
    spec::*,
    tensor::{Encoding, TensorMeta, encode_floats, encode_tokens},
};

/// A strategy per variant of an enum, all equally likely, and a match over the same list: a variant
/// without a strategy does not compile.
macro_rules! one_of_all {
    ($enum:ident { $($variant:ident => $strategy:expr),* $(,)? }) => {{
        fn none_forgotten(value: &$enum) {
            match value {
                $($enum::$variant { .. } => {})*
            }
        }
        Union::new([$($strategy.boxed()),*])
    }};
}

/// A message and the payload that belongs behind it.
#[derive(Debug, Clone)]
pub struct Sent<M> {
    pub message: M,
    pub payload: Vec<u8>,
}

impl<M> Sent<M> {
    /// The same message as part of another enum.
    fn into<N: From<M>>(self) -> Sent<N> {
        Sent { message: self.message.into(), payload: self.payload }
    }
}

/// What the coordinator can read.
pub fn from_worker() -> impl Strategy<Value = Sent<FromWorker>> {
    one_of_all!(FromWorker {
        Relayed => relayed().prop_map(Sent::into),
        Up => up().prop_map(Sent::into),
    })
}

/// What a worker can read.
pub fn to_worker() -> impl Strategy<Value = Sent<ToWorker>> {
    one_of_all!(ToWorker {
        Relayed => relayed().prop_map(Sent::into),
        Down => down().prop_map(Sent::into),
    })
}

pub fn up() -> impl Strategy<Value = Sent<Up>> {
    one_of_all!(Up {
        Hello => hello().prop_map(bare),
        Probe => (any::<u32>(), 0..2000_u32, 0..=limits::PROBE as u32)
            .prop_map(|(number, padding, answer)| padded(Probe { number, padding, answer }, padding)),
        Profile => profile().prop_map(bare),
        Heartbeat => Just(Heartbeat {}).prop_map(bare),
        Leaving => text(limits::SENTENCE).prop_map(|reason| Leaving { reason }).prop_map(bare),
        Fault => fault().prop_map(bare),
        Ready => counter().prop_map(|epoch| Ready { epoch }).prop_map(bare),
        StepReport => step_report().prop_map(bare),
        ValidationReport => validation_report().prop_map(bare),
        SnapshotReady => snapshot_ready().prop_map(bare),
        Decoded => (traversal(), seconds(), vec(read_token(), 0..=20), floats()).prop_map(
            |(of, seconds, tokens, (rows, payload))| {
                Sent { message: Decoded { of, seconds, tokens, rows }.into(), payload }
            }
        ),
        DeltaReady => delta_ready().prop_map(bare),
        EvaluationReport => (counter(), batch(), scores())
            .prop_map(|(round, batch, scores)| EvaluationReport { round, batch, scores })
            .prop_map(bare),
    })
}

pub fn down() -> impl Strategy<Value = Sent<Down>> {
    one_of_all!(Down {
        Welcome => welcome().prop_map(bare),
        Refuse => refusal().prop_map(Refuse).prop_map(bare),
        ProbeAnswer => (any::<u32>(), 0..2000_u32)
            .prop_map(|(number, padding)| padded(ProbeAnswer { number, padding }, padding)),
        HeartbeatAnswer => Just(HeartbeatAnswer {}).prop_map(bare),
        Benchmark => Just(Benchmark {}).prop_map(bare),
        Drain => drain_reason().prop_map(|reason| Drain { reason }).prop_map(bare),
        Assign => assignment().prop_map(Assign).prop_map(bare),
        Tokens => with_tensor(tokens(), Tokens),
        Targets => with_tensor(tokens(), Targets),
        Apply => apply().prop_map(bare),
        Revoke => counter().prop_map(|epoch| Revoke { epoch }).prop_map(bare),
        SnapshotKept => counter().prop_map(|steps_done| SnapshotKept { steps_done }).prop_map(bare),
        Decode => (traversal(), vec(text_rows(), 0..=20), floats())
            .prop_map(|(of, texts, (rows, payload))| Sent { message: Decode { of, texts, rows }.into(), payload }),
        CloseTexts => (counter(), vec(counter(), 0..=20))
            .prop_map(|(epoch, texts)| CloseTexts { epoch, texts })
            .prop_map(bare),
        Round => (round_task(), tokens())
            .prop_map(|(task, (windows, payload))| Sent { message: Round { task, windows }.into(), payload }),
        DeltaOutcome => (counter(), block(), prop::option::of(text(limits::SENTENCE)))
            .prop_map(|(round, block, refused)| DeltaOutcome { round, block, refused })
            .prop_map(bare),
        Evaluate => (evaluation_task(), tokens())
            .prop_map(|(task, (windows, payload))| Sent { message: Evaluate { task, windows }.into(), payload }),
    })
}

pub fn relayed() -> impl Strategy<Value = Sent<Relayed>> {
    one_of_all!(Relayed {
        Activation => with_tensor(floats(), Activation),
        Gradient => with_tensor(floats(), Gradient),
    })
}

fn bare<M>(message: impl Into<M>) -> Sent<M> {
    Sent { message: message.into(), payload: Vec::new() }
}

fn padded<M>(message: impl Into<M>, padding: u32) -> Sent<M> {
    Sent { message: message.into(), payload: vec![7; padding as usize] }
}

fn with_tensor<T: Into<M>, M: std::fmt::Debug>(
    tensor: impl Strategy<Value = (TensorMeta, Vec<u8>)>,
    message: fn(TensorFrame) -> T,
) -> impl Strategy<Value = Sent<M>> {
    (address(), tensor).prop_map(move |(to, (tensor, payload))| Sent {
        message: message(TensorFrame { to, tensor }).into(),
        payload,
    })
}

pub fn shape() -> impl Strategy<Value = Vec<u32>> {
    vec(0..=7_u32, 1..=4)
}

pub fn float_encoding() -> impl Strategy<Value = Encoding> {
    encoding().prop_filter("floats", |encoding| *encoding != Encoding::U32)
}

/// Finite values that every encoding can carry.
pub fn values(shape: &[u32]) -> impl Strategy<Value = Vec<f32>> + use<> {
    let value = prop_oneof![-60_000.0..60_000_f32, -1.0..1_f32, Just(0.0), Just(-0.0), Just(1e-45)];
    vec(value, shape.iter().product::<u32>() as usize)
}

fn floats() -> impl Strategy<Value = (TensorMeta, Vec<u8>)> {
    (shape(), float_encoding()).prop_flat_map(|(shape, encoding)| {
        values(&shape).prop_map(move |values| encode_floats(&values, &shape, encoding).unwrap())
    })
}

fn tokens() -> impl Strategy<Value = (TensorMeta, Vec<u8>)> {
    shape().prop_flat_map(|shape| {
        vec(any::<u32>(), shape.iter().product::<u32>() as usize)
            .prop_map(move |ids| encode_tokens(&ids, &shape).unwrap())
    })
}

/// At most `limit` characters of one to four bytes.
fn text(limit: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        9 => vec(any::<char>(), 0..=limit.min(20)),
        1 => vec(any::<char>(), limit),
    ]
    .prop_map(|characters| characters.into_iter().collect())
}

/// Finite numbers from `least` to `most`, often just these.
fn real(least: f64, most: f64) -> impl Strategy<Value = f64> {
    prop_oneof![8 => least..=most, 1 => Just(least), 1 => Just(most)]
}

/// Whole numbers up to `most`, often just that.
fn whole(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..=most, 1 => Just(most)]
}

fn whole32(most: u64) -> impl Strategy<Value = u32> {
    whole(most).prop_map(|value| value as u32)
}

fn counter() -> impl Strategy<Value = u64> {
    whole(1 << 53)
}

/// A dimension of a model or of its inputs.
fn size() -> impl Strategy<Value = u32> {
    whole32(1 << 24)
}

fn position() -> impl Strategy<Value = u32> {
    whole32(limits::HOPS as u64)
}

fn micro_batches() -> impl Strategy<Value = u32> {
    whole32(limits::LOSSES as u64)
}

fn batch() -> impl Strategy<Value = u32> {
    whole32(limits::VALIDATION_BATCHES)
}

fn block() -> impl Strategy<Value = u32> {
    whole32(limits::BLOCKS as u64)
}

fn draws() -> impl Strategy<Value = u32> {
    whole32(limits::DRAWS)
}

fn seconds() -> impl Strategy<Value = f64> {
    real(0.0, 1e7)
}

fn positive_seconds() -> impl Strategy<Value = f64> {
    real(1e-9, 1e7)
}

fn cross_entropy() -> impl Strategy<Value = f64> {
    real(-1e-3, 1e9)
}

/// In f32, -1e-3 lies a little below the least cross-entropy.
fn cross_entropy_f32() -> impl Strategy<Value = f32> {
    real(-9e-4, 1e9).prop_map(|nats| nats as f32)
}

pub fn encoding() -> Union<BoxedStrategy<Encoding>> {
    one_of_all!(Encoding {
        U32 => Just(Encoding::U32),
        F32 => Just(Encoding::F32),
        F16 => Just(Encoding::F16),
        Int8 => Just(Encoding::Int8),
    })
}

fn backend() -> impl Strategy<Value = Backend> {
    one_of_all!(Backend { Cpu => Just(Backend::Cpu), WebGpu => Just(Backend::WebGpu) })
}

fn drain_reason() -> impl Strategy<Value = DrainReason> {
    one_of_all!(DrainReason { Finished => Just(DrainReason::Finished), Stopped => Just(DrainReason::Stopped) })
}

fn address() -> impl Strategy<Value = Address> {
    let pass = one_of_all!(Pass {
        Train => micro_batches().prop_map(|micro_batch| Pass::Train { micro_batch }),
        Validate => batch().prop_map(|batch| Pass::Validate { batch }),
    });
    (counter(), counter(), pass, position()).prop_map(|(epoch, step, pass, hop)| Address {
        epoch,
        step,
        pass,
        hop,
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    let kind = one_of_all!(WorkerKind {
        Native => Just(WorkerKind::Native),
        Browser => Just(WorkerKind::Browser),
    });
    (any::<u8>(), text(limits::LABEL), kind, text(limits::NAME))
        .prop_map(|(protocol, build, kind, name)| Hello { protocol, build, kind, name })
}

fn profile() -> impl Strategy<Value = Profile> {
    let rate = || real(1.0, limits::LINK_RATE);
    let link = (seconds(), rate(), rate()).prop_map(|(round_trip_seconds, up, down)| LinkSpeed {
        round_trip_seconds,
        up,
        down,
    });
    let device = (backend(), text(limits::LABEL), whole32(limits::THREADS), whole(limits::MEMORY_BYTES));
    (device, pass_seconds(), pass_seconds(), positive_seconds(), prop::option::of(link)).prop_map(
        |((backend, device, threads, memory_bytes), layer, embedding, head_seconds, link)| Profile {
            backend,
            device,
            threads,
            memory_bytes,
            layer,
            embedding,
            head_seconds,
            link,
        },
    )
}

fn pass_seconds() -> impl Strategy<Value = PassSeconds> {
    (positive_seconds(), positive_seconds()).prop_map(|(forward, backward)| PassSeconds { forward, backward })
}

fn device_status() -> impl Strategy<Value = DeviceStatus> {
    let pressure = one_of_all!(Pressure {
        Nominal => Just(Pressure::Nominal),
        Fair => Just(Pressure::Fair),
        Serious => Just(Pressure::Serious),
        Critical => Just(Pressure::Critical),
    });
    (whole(limits::MEMORY_BYTES), prop::option::of(pressure))
        .prop_map(|(memory_bytes, pressure)| DeviceStatus { memory_bytes, pressure })
}

fn moments() -> impl Strategy<Value = Moments> {
    one_of_all!(Moments {
        Full => Just(Moments::Full),
        F16 => Just(Moments::F16),
        None => Just(Moments::None),
    })
}

fn timings() -> impl Strategy<Value = Timings> {
    let computing = (seconds(), seconds(), seconds(), seconds());
    (computing, seconds(), seconds(), seconds()).prop_map(
        |((forward, backward, local_steps, optimizer), wait, send, receive)| Timings {
            forward,
            backward,
            local_steps,
            wait,
            send,
            receive,
            optimizer,
        },
    )
}

fn step_report() -> impl Strategy<Value = StepReport> {
    let losses = prop_oneof![
        9 => vec(cross_entropy_f32(), 0..=16),
        1 => vec(cross_entropy_f32(), limits::LOSSES),
    ];
    let squared_norm = real(0.0, limits::SQUARED_NORM);
    (counter(), counter(), squared_norm, losses, timings(), device_status()).prop_map(
        |(epoch, step, squared_norm, losses, timings, status)| StepReport {
            epoch,
            step,
            squared_norm,
            losses,
            timings,
            status,
        },
    )
}

fn validation_report() -> impl Strategy<Value = ValidationReport> {
    (counter(), counter(), batch(), cross_entropy_f32())
        .prop_map(|(epoch, step, batch, loss)| ValidationReport { epoch, step, batch, loss })
}

fn apply() -> impl Strategy<Value = Apply> {
    (counter(), counter(), real(0.0, 1.0), real(0.0, 1e6), any::<bool>()).prop_map(
        |(epoch, step, clip_scale, learning_rate, snapshot)| Apply {
            epoch,
            step,
            clip_scale,
            learning_rate,
            snapshot,
        },
    )
}

fn blob() -> impl Strategy<Value = BlobRef> {
    (any::<[u8; 32]>(), whole(limits::BLOB_BYTES))
        .prop_map(|(hash, bytes)| BlobRef { hash: BlobHash(hash), bytes })
}

fn snapshot_ready() -> impl Strategy<Value = SnapshotReady> {
    (counter(), counter(), blob()).prop_map(|(epoch, steps_done, blob)| SnapshotReady {
        epoch,
        steps_done,
        blob,
    })
}

fn fault() -> impl Strategy<Value = Fault> {
    let kind = one_of_all!(FaultKind {
        BadTensor => Just(FaultKind::BadTensor),
        NotFinite => Just(FaultKind::NotFinite),
        Device => Just(FaultKind::Device),
        Weights => Just(FaultKind::Weights),
    });
    (counter(), kind, text(limits::SENTENCE)).prop_map(|(during, kind, detail)| Fault {
        during,
        kind,
        detail,
    })
}

fn run_spec() -> impl Strategy<Value = RunSpec> {
    let model = ([size(), size(), size(), size()], position(), any::<bool>()).prop_map(
        |([vocabulary, positions, width, heads], layers, tie_embeddings)| ModelSpec {
            vocabulary,
            positions,
            width,
            heads,
            layers,
            tie_embeddings,
        },
    );
    let share = || real(0.0, 1.0);
    let optimizer = (share(), share(), share(), real(0.0, 1e6), real(0.0, f64::MAX)).prop_map(
        |(beta1, beta2, epsilon, weight_decay, clip_norm)| OptimizerSpec {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            clip_norm,
        },
    );
    let batches = (size(), size(), micro_batches(), any::<bool>());
    let encodings = (encoding(), moments());
    let texts = (any::<bool>(), whole(limits::MEMORY_BYTES));
    (text(limits::NAME), model, optimizer, batches, encodings, texts, prop::option::of(blocks())).prop_map(
        |(
            name,
            model,
            optimizer,
            (sequences, context, micro_batches, recompute),
            (wire, moments),
            (trains, cache_bytes),
            blocks,
        )| {
            RunSpec {
                name,
                model,
                optimizer,
                sequences,
                context,
                micro_batches,
                recompute,
                wire,
                moments,
                trains,
                cache_bytes,
                blocks,
            }
        },
    )
}

fn blocks() -> impl Strategy<Value = BlockSpec> {
    let delta = one_of_all!(DeltaEncoding {
        F32 => Just(DeltaEncoding::F32),
        F16 => Just(DeltaEncoding::F16),
        Int8 => Just(DeltaEncoding::Int8),
        TopK => any::<u32>().prop_map(|per_mille| DeltaEncoding::TopK { per_mille }),
    });
    let sigma = || real(0.0, 1e9);
    (block(), sigma(), sigma(), real(-1e3, 1e3), real(0.0, 1e3), real(0.0, 1e3), delta).prop_map(
        |(count, sigma_min, sigma_max, p_mean, p_std, gamma, delta)| BlockSpec {
            count,
            sigma_min,
            sigma_max,
            p_mean,
            p_std,
            gamma,
            delta,
        },
    )
}

fn round_task() -> impl Strategy<Value = RoundTask> {
    let numbers = (counter(), block(), any::<u64>(), counter());
    let rates = vec(real(0.0, 1e6), 0..=limits::LOCAL_STEPS);
    (numbers, blob(), blob(), rates, any::<bool>()).prop_map(
        |((round, block, seed, deadline_ms), base, table, learning_rates, fresh)| RoundTask {
            round,
            block,
            base,
            table,
            seed,
            learning_rates,
            fresh,
            deadline_ms,
        },
    )
}

fn delta_ready() -> impl Strategy<Value = DeltaReady> {
    let loss = real(-9e-4, 1e12).prop_map(|loss| loss as f32);
    (counter(), block(), blob(), loss, cross_entropy_f32(), timings(), device_status()).prop_map(
        |(round, block, blob, loss, cross_entropy, timings, status)| DeltaReady {
            round,
            block,
            blob,
            loss,
            cross_entropy,
            timings,
            status,
        },
    )
}

fn evaluation_task() -> impl Strategy<Value = EvaluationTask> {
    (counter(), batch(), vec(blob(), 0..=limits::BLOBS), blob(), any::<u64>(), draws()).prop_map(
        |(round, batch, blocks, table, seed, draws)| EvaluationTask {
            round,
            batch,
            blocks,
            table,
            seed,
            draws,
        },
    )
}

fn scores() -> impl Strategy<Value = Scores> {
    let list = || vec(cross_entropy(), 0..=limits::BLOCKS);
    let single = (cross_entropy(), draws(), cross_entropy(), cross_entropy());
    (single, list(), list(), list(), list()).prop_map(
        |((one_draw, draws, many_draws, from_zero), chain, alone, local, scrambled)| Scores {
            one_draw,
            draws,
            many_draws,
            from_zero,
            chain,
            alone,
            local,
            scrambled,
        },
    )
}

fn welcome() -> impl Strategy<Value = Welcome> {
    (counter(), text(limits::TOKEN), run_spec(), any::<u32>(), any::<u32>()).prop_map(
        |(worker, token, run, heartbeat_ms, lease_ms)| Welcome { worker, token, run, heartbeat_ms, lease_ms },
    )
}

fn assignment() -> impl Strategy<Value = Assignment> {
    let hop = (position(), any::<bool>(), position(), position(), any::<bool>()).prop_map(
        |(index, embedding, first_layer, end_layer, head)| Hop {
            index,
            part: Part { embedding, first_layer, end_layer, head },
        },
    );
    let weights = one_of_all!(WeightSource {
        Seed => any::<u64>().prop_map(WeightSource::Seed),
        Snapshot => vec(blob(), 0..=20).prop_map(WeightSource::Snapshot),
    });
    let sizes = (position(), micro_batches(), micro_batches());
    (counter(), vec(hop, 0..=20), sizes, counter(), weights).prop_map(
        |(epoch, hops, (hop_count, micro_batches, window), first_step, weights)| Assignment {
            epoch,
            hops,
            hop_count,
            first_step,
            micro_batches,
            window,
            weights,
        },
    )
}

fn traversal() -> impl Strategy<Value = Traversal> {
    (counter(), counter(), position()).prop_map(|(epoch, number, hop)| Traversal { epoch, number, hop })
}

fn text_rows() -> impl Strategy<Value = TextRows> {
    let rows = || whole32(limits::READ_ROWS as u64);
    let read =
        (vec(any::<u32>(), 0..=20), rows(), counter(), any::<(u32, u64)>(), real(0.0, 1e6), real(0.0, 1.0));
    let reading = (read, whole32(limits::LIKELIEST as u64)).prop_map(
        |((scored, choices, first, (top_k, seed), temperature, top_p), likeliest)| ReadRows {
            scored,
            choices,
            first,
            temperature,
            top_k,
            top_p,
            seed,
            likeliest,
        },
    );
    (counter(), size(), size(), size(), reading).prop_map(|(text, positions, keep, rows, reading)| TextRows {
        text,
        positions,
        keep,
        rows,
        reading,
    })
}

fn read_token() -> impl Strategy<Value = ReadToken> {
    let log = || real(-1e20, 1e-3);
    (any::<u32>(), log(), vec((any::<u32>(), log()), 0..=limits::LIKELIEST))
        .prop_map(|(id, log_probability, likeliest)| ReadToken { id, log_probability, likeliest })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let labelled = || (text(limits::LABEL), text(limits::SENTENCE));
    one_of_all!(Refusal {
        Version => any::<(u8, u8)>().prop_map(|(theirs, ours)| Refusal::Version { theirs, ours }),
        Malformed => text(limits::SENTENCE).prop_map(|detail| Refusal::Malformed { detail }),
        Oversized => any::<(u64, u64)>().prop_map(|(bytes, limit)| Refusal::Oversized { bytes, limit }),
        Unexpected => labelled().prop_map(|(message, detail)| Refusal::Unexpected { message, detail }),
        NotInPlan => labelled().prop_map(|(message, detail)| Refusal::NotInPlan { message, detail }),
        BadProfile => text(limits::SENTENCE).prop_map(|detail| Refusal::BadProfile { detail }),
        Full => any::<u32>().prop_map(|workers| Refusal::Full { workers }),
        RunOver => Just(Refusal::RunOver),
        Removed => Just(Refusal::Removed),
        LeaseEnded => any::<u32>().prop_map(|seconds| Refusal::LeaseEnded { seconds }),
        Crowded => (text(limits::SENTENCE), any::<u32>())
            .prop_map(|(detail, seconds)| Refusal::Crowded { detail, seconds }),
    })
}

/// The frame of a header given as bytes, as a sender without checks would write it.
pub fn framed(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![protocol::VERSION];
    frame.extend((header.len() as u32).to_le_bytes());
    frame.extend(header);
    frame.extend(payload);
    frame
}

/// One way of damaging a frame.
#[derive(Debug, Clone)]
pub enum Damage {
    Set { at: usize, to: u8 },
    Flip { at: usize, bit: u8 },
    Cut { at: usize },
    Remove { at: usize },
    Insert { at: usize, bytes: Vec<u8> },
}

pub fn damage() -> impl Strategy<Value = Vec<Damage>> {
    // Most positions near the front: that is where the header is.
    let at = || prop_oneof![3 => 0..100_usize, 1 => any::<usize>()];
    let one = one_of_all!(Damage {
        Set => (at(), any::<u8>()).prop_map(|(at, to)| Damage::Set { at, to }),
        Flip => (at(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        Cut => at().prop_map(|at| Damage::Cut { at }),
        Remove => at().prop_map(|at| Damage::Remove { at }),
        Insert => (at(), vec(any::<u8>(), 1..=12)).prop_map(|(at, bytes)| Damage::Insert { at, bytes }),
    });
    vec(one, 1..=4)
}

pub fn apply_damage(frame: &mut Vec<u8>, damage: &[Damage]) {
    for damage in damage {
        if frame.is_empty() {
            return;
        }
        let length = frame.len();
        match damage {
            Damage::Set { at, to } => frame[at % length] = *to,
            Damage::Flip { at, bit } => frame[at % length] ^= 1 << bit,
            Damage::Cut { at } => frame.truncate(at % length),
            Damage::Remove { at } => drop(frame.remove(at % length)),
            Damage::Insert { at, bytes } => drop(frame.splice(at % length..at % length, bytes.clone())),
        }
    }
}
