//! Golden vectors in a real browser: the kernels through WASM SIMD, and WebGPU.
//!
//! The folder COHORT_GOLDEN, by default the repository's own copy, is built into the test.
#![cfg(web)]

use engine::device::{self, Device};
use include_dir::{Dir, include_dir};
use protocol::spec::Backend;
use testkit::golden::{DRAWN, Report, Scope, Source, Splits, Tolerances, check, drawn, is_own, require_all};
use wasm_bindgen_test::{console_log, wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

static GOLDEN: Dir = include_dir!("$COHORT_GOLDEN");

async fn passes(device: &Device, tolerances: &Tolerances, scope: &Scope) -> Report {
    let names: Vec<&str> = GOLDEN.files().filter_map(|file| file.path().to_str()).collect();
    if is_own(env!("COHORT_GOLDEN").as_ref())
        && let Err(error) = require_all(&names)
    {
        panic!("{error}");
    }
    let source: Source<'_> = &|name| GOLDEN.get_file(name).map(|file| file.contents().to_vec());
    match check(&names, source, device, tolerances, scope).await {
        Ok(report) => report,
        Err(error) => panic!("{error}"),
    }
}

#[wasm_bindgen_test]
async fn kernels_agree_with_the_golden_vectors_in_every_split() {
    let report = passes(&Device::Cpu, &Tolerances::CPU, &Scope::full()).await;
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
