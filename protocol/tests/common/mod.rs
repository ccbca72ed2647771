//! Strategies for everything that can stand in a frame.
//!
//! Numbers, texts and lists range over all that the limits allow; floats include NaN and infinity, because
//! a diverged run reports them.

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
        #[allow(dead_code)]
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
pub struct Sent {
    pub message: Message,
    pub payload: Vec<u8>,
}

pub fn sent() -> impl Strategy<Value = Sent> {
    one_of_all!(Message {
        Hello => hello().prop_map(Message::Hello).prop_map(bare),
        Profile => profile().prop_map(Message::Profile).prop_map(bare),
        Ready => any::<u64>().prop_map(|epoch| Message::Ready { epoch }).prop_map(bare),
        StepReport => step_report().prop_map(Message::StepReport).prop_map(bare),
        ValidationReport => validation_report().prop_map(Message::ValidationReport).prop_map(bare),
        SnapshotReady => snapshot_ready().prop_map(Message::SnapshotReady).prop_map(bare),
        Heartbeat => Just(Message::Heartbeat).prop_map(bare),
        Pausing => Just(Message::Pausing).prop_map(bare),
        Leaving => text(limits::SENTENCE).prop_map(|reason| Message::Leaving { reason }).prop_map(bare),
        Fault => fault().prop_map(Message::Fault).prop_map(bare),
        Activation => with_tensor(floats(), Message::Activation),
        Gradient => with_tensor(floats(), Message::Gradient),
        Welcome => welcome().prop_map(Message::Welcome).prop_map(bare),
        Benchmark => Just(Message::Benchmark).prop_map(bare),
        Assign => assignment().prop_map(Message::Assign).prop_map(bare),
        Tokens => with_tensor(tokens(), Message::Tokens),
        Targets => with_tensor(tokens(), Message::Targets),
        Apply => apply().prop_map(Message::Apply).prop_map(bare),
        Revoke => any::<u64>().prop_map(|epoch| Message::Revoke { epoch }).prop_map(bare),
        Drain => drain_reason().prop_map(|reason| Message::Drain { reason }).prop_map(bare),
        Refuse => refusal().prop_map(Message::Refuse).prop_map(bare),
        Probe => (any::<u32>(), 0..2000u32, 0..=limits::PROBE as u32)
            .prop_map(|(number, padding, answer)| padded(Message::Probe(Probe { number, padding, answer }))),
        ProbeAnswer => (any::<u32>(), 0..2000u32)
            .prop_map(|(number, padding)| padded(Message::ProbeAnswer { number, padding })),
        SnapshotKept => any::<u64>().prop_map(|steps_done| Message::SnapshotKept { steps_done }).prop_map(bare),
        Round => round().prop_map(Message::Round).prop_map(bare),
        DeltaReady => delta_ready().prop_map(Message::DeltaReady).prop_map(bare),
        Judged => (any::<u64>(), proptest::option::of(text(limits::SENTENCE)))
            .prop_map(|(round, refused)| Message::Judged(Judged { round, refused }))
            .prop_map(bare),
        Evaluate => evaluate().prop_map(Message::Evaluate).prop_map(bare),
        Evaluated => (any::<u64>(), any::<u32>(), scores())
            .prop_map(|(round, batch, scores)| Message::Evaluated(Evaluated { round, batch, scores }))
            .prop_map(bare),
    })
}

fn padded(message: Message) -> Sent {
    Sent { payload: vec![7; message.padding() as usize], message }
}

fn bare(message: Message) -> Sent {
    Sent { message, payload: Vec::new() }
}

fn with_tensor(
    tensor: impl Strategy<Value = (TensorMeta, Vec<u8>)>,
    message: fn(TensorFrame) -> Message,
) -> impl Strategy<Value = Sent> {
    (address(), tensor).prop_map(move |(to, (tensor, payload))| Sent {
        message: message(TensorFrame { to, tensor }),
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

fn real() -> impl Strategy<Value = f64> {
    prop::num::f64::ANY
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
        Train => any::<u32>().prop_map(|micro_batch| Pass::Train { micro_batch }),
        Validate => any::<u32>().prop_map(|batch| Pass::Validate { batch }),
    });
    (any::<u64>(), any::<u64>(), pass, any::<u32>()).prop_map(|(epoch, step, pass, hop)| Address {
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
    let link =
        prop::option::of((real(), real(), real()).prop_map(|(round_trip_seconds, up, down)| LinkSpeed {
            round_trip_seconds,
            up,
            down,
        }));
    (backend(), text(limits::LABEL), any::<u32>(), any::<u64>(), seconds(), seconds(), real(), link).prop_map(
        |(backend, device, threads, memory_bytes, layer, embedding, head_seconds, link)| Profile {
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

fn seconds() -> impl Strategy<Value = PassSeconds> {
    (real(), real()).prop_map(|(forward, backward)| PassSeconds { forward, backward })
}

fn vitals() -> impl Strategy<Value = Vitals> {
    let pressure = one_of_all!(Pressure {
        Nominal => Just(Pressure::Nominal),
        Fair => Just(Pressure::Fair),
        Serious => Just(Pressure::Serious),
        Critical => Just(Pressure::Critical),
    });
    (any::<u64>(), prop::option::of(pressure))
        .prop_map(|(memory_bytes, pressure)| Vitals { memory_bytes, pressure })
}

fn moments() -> impl Strategy<Value = Moments> {
    one_of_all!(Moments {
        Full => Just(Moments::Full),
        F16 => Just(Moments::F16),
        None => Just(Moments::None),
    })
}

fn timings() -> impl Strategy<Value = Timings> {
    (real(), real(), real(), real(), real(), real()).prop_map(
        |(forward, backward, wait, send, receive, optimizer)| Timings {
            forward,
            backward,
            wait,
            send,
            receive,
            optimizer,
        },
    )
}

fn step_report() -> impl Strategy<Value = StepReport> {
    let losses = prop_oneof![
        9 => vec(prop::num::f32::ANY, 0..=16),
        1 => vec(prop::num::f32::ANY, limits::LOSSES),
    ];
    (any::<u64>(), any::<u64>(), real(), losses, timings(), vitals()).prop_map(
        |(epoch, step, squared_norm, losses, timings, vitals)| StepReport {
            epoch,
            step,
            squared_norm,
            losses,
            timings,
            vitals,
        },
    )
}

fn validation_report() -> impl Strategy<Value = ValidationReport> {
    (any::<u64>(), any::<u64>(), any::<u32>(), prop::num::f32::ANY)
        .prop_map(|(epoch, step, batch, loss)| ValidationReport { epoch, step, batch, loss })
}

fn apply() -> impl Strategy<Value = Apply> {
    (any::<u64>(), any::<u64>(), real(), real(), any::<bool>()).prop_map(
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
    (any::<[u8; 32]>(), any::<u64>()).prop_map(|(hash, bytes)| BlobRef { hash: BlobHash(hash), bytes })
}

fn snapshot_ready() -> impl Strategy<Value = SnapshotReady> {
    (any::<u64>(), any::<u64>(), blob()).prop_map(|(epoch, steps_done, blob)| SnapshotReady {
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
    (any::<u64>(), kind, text(limits::SENTENCE)).prop_map(|(epoch, kind, detail)| Fault {
        epoch,
        kind,
        detail,
    })
}

fn run_spec() -> impl Strategy<Value = RunSpec> {
    let model = (any::<[u32; 5]>(), any::<bool>()).prop_map(
        |([vocabulary, positions, width, heads, layers], tie_embeddings)| ModelSpec {
            vocabulary,
            positions,
            width,
            heads,
            layers,
            tie_embeddings,
        },
    );
    let optimizer = (real(), real(), real(), real(), real()).prop_map(
        |(beta1, beta2, epsilon, weight_decay, clip_norm)| OptimizerSpec {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            clip_norm,
        },
    );
    let sizes = (any::<[u32; 3]>(), any::<bool>());
    (text(limits::NAME), model, optimizer, sizes, encoding(), moments(), proptest::option::of(blocks()))
        .prop_map(
            |(
                name,
                model,
                optimizer,
                ([sequences, context, micro_batches], recompute),
                wire,
                moments,
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
    (any::<u32>(), real(), real(), real(), real(), real(), delta).prop_map(
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

fn round() -> impl Strategy<Value = Round> {
    let numbers = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>());
    let rates = vec(real(), 0..=limits::LOCAL_STEPS);
    (numbers, blob(), blob(), rates, any::<bool>()).prop_map(
        |((round, block, seed, deadline_ms), base, table, learning_rates, fresh)| Round {
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
    (any::<u64>(), any::<u32>(), blob(), real(), real(), timings(), vitals()).prop_map(
        |(round, block, blob, loss, cross_entropy, timings, vitals)| DeltaReady {
            round,
            block,
            blob,
            loss: loss as f32,
            cross_entropy: cross_entropy as f32,
            timings,
            vitals,
        },
    )
}

fn evaluate() -> impl Strategy<Value = Evaluate> {
    (any::<[u64; 2]>(), any::<[u32; 2]>(), vec(blob(), 0..=limits::BLOBS), blob()).prop_map(
        |([round, seed], [batch, draws], blocks, table)| Evaluate {
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
    let list = || vec(real(), 0..=limits::BLOCKS);
    (real(), any::<u32>(), real(), real(), (list(), list(), list(), list())).prop_map(
        |(one_draw, draws, many_draws, from_zero, (chain, alone, local, scrambled))| Scores {
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
    (any::<u64>(), text(limits::TOKEN), run_spec(), any::<u32>(), any::<u32>()).prop_map(
        |(worker, token, run, heartbeat_ms, lease_ms)| Welcome { worker, token, run, heartbeat_ms, lease_ms },
    )
}

fn assignment() -> impl Strategy<Value = Assignment> {
    let hop = (any::<u32>(), any::<bool>(), any::<u32>(), any::<u32>(), any::<bool>()).prop_map(
        |(index, embedding, first_layer, end_layer, head)| Hop {
            index,
            part: Part { embedding, first_layer, end_layer, head },
        },
    );
    let weights = one_of_all!(WeightSource {
        Seed => any::<u64>().prop_map(WeightSource::Seed),
        Snapshot => vec(blob(), 0..=20).prop_map(WeightSource::Snapshot),
    });
    (any::<u64>(), vec(hop, 0..=20), any::<u32>(), any::<u64>(), any::<[u32; 2]>(), weights).prop_map(
        |(epoch, hops, hop_count, first_step, [micro_batches, window], weights)| Assignment {
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
    })
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
