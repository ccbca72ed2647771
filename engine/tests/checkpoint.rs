//! Checkpoints that `transformers` reads and writes.
//!
//! Names, shapes and numbers are always checked against files that `transformers` wrote (the golden vectors).
//! Where Python has torch and transformers, both libraries also read each other's checkpoints.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use engine::{
    checkpoint::{self, Checkpoint},
    device::Device,
    parameters::ParameterSet,
    shapes,
    stage::{HopInput, Stage},
};
use futures::executor::block_on;
use protocol::spec::{Hop, ModelSpec, Moments};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

/// Python's answer when it has no torch or no transformers.
const WITHOUT: i32 = 77;

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checkpoint").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn golden(file: &str) -> Vec<u8> {
    let folder = match std::env::var_os("COHORT_GOLDEN") {
        Some(folder) => PathBuf::from(folder),
        None => "../tests/golden".into(),
    };
    std::fs::read(folder.join(file)).unwrap()
}

/// Every set's name and model.
fn sets() -> Vec<(String, ModelSpec)> {
    let sets = ["gpt2-tied", "gpt2-untied"].map(|name| {
        let numbers: serde_json::Value = serde_json::from_slice(&golden(&format!("{name}.json"))).unwrap();
        let size = |key: &str| numbers["config"][key].as_u64().unwrap() as u32;
        let model = ModelSpec {
            vocabulary: size("vocab"),
            positions: size("n_positions"),
            width: size("d"),
            heads: size("heads"),
            layers: size("n_layer"),
            tie_embeddings: numbers["config"]["tied"].as_bool().unwrap(),
        };
        (name.to_owned(), model)
    });
    sets.to_vec()
}

fn whole(model: &ModelSpec) -> [Hop; 1] {
    [Hop { index: 0, part: shapes::whole(model) }]
}

fn tensors(file: &[u8]) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let file = SafeTensors::deserialize(file).unwrap();
    file.iter().map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), view.data().to_vec()))).collect()
}

fn logits(model: &ModelSpec, parameters: ParameterSet, tokens: &[u32], shape: [usize; 2]) -> Vec<f32> {
    let stage = Stage::for_inference(model, &whole(model), &Device::Cpu, parameters).unwrap();
    block_on(stage.logits(0, HopInput::Tokens(tokens), shape)).unwrap()
}

#[test]
fn what_transformers_wrote_comes_out_as_it_went_in() {
    for (name, model) in sets() {
        let file = golden(&format!("{name}.weights.safetensors"));
        let written = Checkpoint { config: checkpoint::config(&model), weights: file.clone() };
        let (read, parameters) = written.load(&Device::Cpu).unwrap();
        assert_eq!(read, model);
        let again = block_on(Checkpoint::new(&model, &parameters)).unwrap();
        assert_eq!(tensors(&again.weights), tensors(&file), "{name}");
        let (_, header) = SafeTensors::read_metadata(&again.weights).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    }
}

#[test]
fn bare_names_and_buffers_are_understood() {
    for (name, model) in sets() {
        let file = golden(&format!("{name}.weights.safetensors"));
        let mut bare: BTreeMap<String, (Vec<usize>, Vec<u8>)> = tensors(&file)
            .into_iter()
            .map(|(name, tensor)| (name.trim_start_matches("transformer.").to_owned(), tensor))
            .collect();
        // The causal mask that older versions of transformers saved along.
        bare.insert("h.0.attn.bias".into(), (vec![1, 1, 2, 2], vec![0; 16]));
        bare.insert("h.0.attn.masked_bias".into(), (vec![], vec![0; 4]));
        let views = bare
            .iter()
            .map(|(name, (shape, bytes))| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
        let weights = safetensors::serialize(views, None).unwrap();
        let (_, parameters) =
            Checkpoint { config: checkpoint::config(&model), weights }.load(&Device::Cpu).unwrap();
        let again = block_on(Checkpoint::new(&model, &parameters)).unwrap();
        assert_eq!(tensors(&again.weights), tensors(&file), "{name}");
    }
}

#[test]
fn parts_of_a_snapshot_become_a_checkpoint() {
    for (name, model) in sets() {
        let file = golden(&format!("{name}.weights.safetensors"));
        let cut = shapes::whole(&model);
        let middle = model.layers / 2;
        let parts = [
            protocol::spec::Part { end_layer: middle, head: false, ..cut.clone() },
            protocol::spec::Part { embedding: false, first_layer: middle, ..cut },
        ];
        let files: Vec<Vec<u8>> = parts
            .map(|part| {
                let hops = [Hop { index: 0, part }];
                let parameters = ParameterSet::import(&model, &hops, &[&file], &Device::Cpu).unwrap();
                block_on(parameters.export(Moments::Full)).unwrap()
            })
            .to_vec();
        let whole = [Hop { index: 0, part: shapes::whole(&model) }];
        let joined = ParameterSet::import(&model, &whole, &files, &Device::Cpu).unwrap();
        let joined = block_on(joined.export(Moments::Full)).unwrap();
        let state = checkpoint::state_hash(&files).unwrap();
        assert_eq!(state, checkpoint::state_hash(&[&joined]).unwrap(), "the split does not matter");
        assert_ne!(state, checkpoint::state_hash(&files[..1]).unwrap());
        let checkpoint = Checkpoint::from_snapshot(&model, &files).unwrap();
        assert_eq!(tensors(&checkpoint.weights), tensors(&file), "{name}");
        let lacking = Checkpoint::from_snapshot(&model, &files[..1]).unwrap_err().to_string();
        assert!(lacking.starts_with(&format!("the weights hold no tensor `transformer.h.{middle}.")));
    }
}

/// Runs the script on `folder`; false if Python lacks what it needs.
fn python(mode: &str, folder: &Path) -> bool {
    let script = "tests/transformers_check.py";
    let run = match Command::new("python3").arg(script).arg(mode).arg(folder).output() {
        Ok(run) => run,
        Err(error) => {
            println!("passed over: python3 does not start: {error}");
            return false;
        }
    };
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    if run.status.code() == Some(WITHOUT) {
        println!("passed over: {}", out.trim());
        return false;
    }
    assert!(run.status.success(), "{out}{err}");
    true
}

/// 24 token ids of each model, two sequences of twelve.
fn prompt(model: &ModelSpec) -> (Vec<u32>, [usize; 2]) {
    ((0..24).map(|i| (i * 17 + 5) % model.vocabulary).collect(), [2, 12])
}

#[test]
fn transformers_reads_our_checkpoints() {
    for (name, model) in sets() {
        let folder = folder(&format!("read-{name}"));
        let parameters = ParameterSet::draw(&model, &whole(&model), 7, &Device::Cpu);
        let checkpoint = block_on(Checkpoint::new(&model, &parameters)).unwrap();
        let (ids, shape) = prompt(&model);
        let logits = logits(&model, parameters, &ids, shape);
        let expected = serde_json::json!({ "ids": ids, "shape": shape, "logits": logits });
        std::fs::write(folder.join("config.json"), checkpoint.config).unwrap();
        std::fs::write(folder.join("model.safetensors"), checkpoint.weights).unwrap();
        std::fs::write(folder.join("expected.json"), expected.to_string()).unwrap();
        if !python("read", &folder) {
            return;
        }
        println!("{name}: transformers computes our logits");
    }
}

#[test]
fn we_read_the_checkpoints_of_transformers() {
    let folder = folder("write");
    if !python("write", &folder) {
        return;
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let read = |file: &str| std::fs::read(path.join(file)).unwrap();
        let checkpoint = Checkpoint {
            config: String::from_utf8(read("config.json")).unwrap(),
            weights: read("model.safetensors"),
        };
        let (model, parameters) = checkpoint.load(&Device::Cpu).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(&read("expected.json")).unwrap();
        let numbers = |key: &str| -> Vec<f64> {
            expected[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
        };
        let ids: Vec<u32> = numbers("ids").iter().map(|&id| id as u32).collect();
        let shape = [numbers("shape")[0] as usize, numbers("shape")[1] as usize];
        let golden = numbers("logits");
        let highest = golden.iter().fold(0.0f64, |max, x| max.max(x.abs()));
        let found = logits(&model, parameters, &ids, shape);
        assert_eq!(found.len(), golden.len());
        for (found, golden) in found.iter().zip(golden) {
            assert!((f64::from(*found) - golden).abs() <= 2e-5 * highest, "{found} is not {golden}");
        }
        println!("{}: we compute transformers' logits", path.display());
    }
}
