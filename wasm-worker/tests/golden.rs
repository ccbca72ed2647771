//! Golden vectors in a real browser: the kernels through WASM SIMD, and WebGPU.
//!
//! The folder COHORT_GOLDEN, by default the repository's own copy, is built into the test.
#![cfg(web)]

use engine::{
    device::{self, Device},
    golden::{DRAWN, Report, Scope, Source, Splits, Tolerances, check, drawn},
};
use include_dir::{Dir, include_dir};
use protocol::spec::Backend;
use wasm_bindgen_test::{console_log, wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

static GOLDEN: Dir = include_dir!("$COHORT_GOLDEN");

async fn passes(device: &Device, tolerances: &Tolerances, scope: &Scope) -> Report {
    let names: Vec<&str> = GOLDEN.files().filter_map(|file| file.path().to_str()).collect();
    let source: Source<'_> = &|name| GOLDEN.get_file(name).map(|file| file.contents().to_vec());
    match check(&names, source, device, tolerances, scope).await {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

#[wasm_bindgen_test]
async fn kernels_agree_with_the_golden_vectors_in_every_split() {
    let report = passes(&Device::Host, &Tolerances::CPU, &Scope::full()).await;
    console_log!("{report}");
}

#[wasm_bindgen_test]
async fn webgpu_agrees_with_the_golden_vectors() {
    let device = match device::open(Backend::WebGpu).await {
        Ok(device) => device,
        Err(error) => panic!("{error}"),
    };
    // A software adapter takes its time: the undivided model, and two of the splits into two stages.
    let scope = Scope { stages: 2, splits: Splits::Two, recompute: vec![false] };
    let report = passes(&device, &Tolerances::GPU, &scope).await;
    console_log!("{report}");
}

#[wasm_bindgen_test]
async fn drawn_weights_are_the_same_bits_as_natively() {
    assert_eq!(drawn().await, Ok(DRAWN));
}

#[wasm_bindgen_test]
async fn probe_timing() {
    use wasm_bindgen_test::console_log as say;
    let now = || js_sys::Date::now() / 1e3;
    let device = device::open(Backend::WebGpu).await.unwrap();
    for n in 0..2 {
        let run = protocol::spec::RunSpec {
            name: "x".into(),
            model: protocol::spec::ModelSpec {
                vocabulary: 96,
                positions: 16,
                width: 32,
                heads: 4,
                layers: 4,
                tie_embeddings: false,
            },
            optimizer: protocol::spec::OptimizerSpec {
                beta1: 0.9,
                beta2: 0.95,
                epsilon: 1e-8,
                weight_decay: 0.1,
                clip_norm: 1.0,
            },
            sequences: 2,
            context: 16,
            micro_batches: 4,
            recompute: false,
            wire: protocol::tensor::Encoding::F32,
        };
        let t = now();
        let s = engine::profile::bench_step(&run, &device, 4, now).await.unwrap();
        say!("round {n}: total {:.2} s, steps {:?}", now() - t, s);
        let t = now();
        let hops = [protocol::spec::Hop { index: 0, part: engine::shapes::whole(&run.model) }];
        let set = engine::parameters::ParameterSet::draw(&run.model, &hops, 1, &device);
        say!("draw {:.2}", now() - t);
        let t = now();
        for i in 0..set.shapes().len() {
            set.read(i, engine::parameters::Quantity::Value).await.unwrap();
        }
        say!("{} reads {:.2}", set.shapes().len(), now() - t);
    }
}
