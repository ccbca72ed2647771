//! Times full training steps of a whole model and prints one line of JSON per model.
//!
//! `cargo run --release --example bench_step -p engine [-- --device flex] [--repeats 10] [--widths 128,256]
//! [--layers 4] [--heads 4] [--context 128] [--sequences 8] [--vocabulary 256]`

use std::time::Instant;

use engine::{device::Device, profile};
use protocol::spec::{ModelSpec, RunSpec};
use testkit::fixtures;

/// As `cohort work` does.
const KEPT: u32 = 1 << 30;

/// The value after `--name`, or `default`.
fn option<T: std::str::FromStr>(name: &str, default: T) -> T {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    engine::heap::keep_freed(KEPT);
    let name: String = option("--device", "cpu".into());
    let device = match name.as_str() {
        "cpu" => Device::Cpu,
        "flex" => Device::flex(),
        _ => return Err(format!("--device is cpu or flex, not `{name}`").into()),
    };
    let widths: String = option("--widths", "128,256".into());
    for width in widths.split(',') {
        let context = option("--context", 128);
        let run = RunSpec {
            name: "bench".into(),
            model: ModelSpec {
                vocabulary: option("--vocabulary", 256),
                positions: context,
                width: width.parse()?,
                heads: option("--heads", 4),
                layers: option("--layers", 4),
                tie_embeddings: false,
            },
            sequences: option("--sequences", 8),
            context,
            micro_batches: 1,
            ..fixtures::run()
        };
        let began = Instant::now();
        let now = || began.elapsed().as_secs_f64();
        let repeats = option("--repeats", 10);
        let mut seconds = futures::executor::block_on(profile::bench_step(&run, &device, repeats, now))?;
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN);
        let tokens = f64::from(run.sequences * run.context);
        let line = serde_json::json!({
            "bench": "engine step",
            "device": name,
            "threads": std::thread::available_parallelism().map_or(1, usize::from),
            "model": run.model,
            "sequences": run.sequences,
            "context": run.context,
            "median_seconds": median,
            "best_seconds": seconds.first(),
            "tokens_per_second": tokens / median,
        });
        println!("{line}");
    }
    Ok(())
}
