//! Checkpoints that `transformers` reads and writes.
//!
//! Names, shapes and numbers are checked against what `transformers` itself wrote and computed: the golden vectors.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use engine::{
    checkpoint::{self, Checkpoint},
    device::Device,
    gpt2::{HopInput, Stage},
    parameters::ParameterSet,
};
use futures::executor::block_on;
use protocol::spec::{Hop, ModelSpec, Moments};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use testkit::golden::{Tolerances, folder};

fn golden(file: &str) -> Vec<u8> {
    folder().unwrap().read(file).unwrap_or_else(|| panic!("the golden file `{file}` is missing"))
}

/// Every set's name and model.
fn sets() -> Vec<(String, ModelSpec)> {
    let folder = folder().unwrap();
    let names = folder.names.iter().filter(|name| name.starts_with("gpt2-"));
    names
        .filter_map(|name| name.strip_suffix(".json"))
        .map(|name| {
            let numbers: serde_json::Value =
                serde_json::from_slice(&golden(&format!("{name}.json"))).unwrap();
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
        })
        .collect()
}

fn whole(model: &ModelSpec) -> [Hop; 1] {
    [Hop { index: 0, part: model.whole() }]
}

fn tensors(file: &[u8]) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let file = SafeTensors::deserialize(file).unwrap();
    file.iter().map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), view.data().to_vec()))).collect()
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
        let cut = model.whole();
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
        let whole = [Hop { index: 0, part: model.whole() }];
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

/// The logits that transformers' own model computed from the weights it saved.
#[test]
fn the_checkpoints_of_transformers_give_its_logits() {
    for (name, model) in sets() {
        let weights = golden(&format!("{name}.weights.safetensors"));
        let checkpoint = Checkpoint { config: checkpoint::config(&model), weights };
        let (model, parameters) = checkpoint.load(&Device::Cpu).unwrap();
        let file = golden(&format!("{name}.forward.safetensors"));
        let file = SafeTensors::deserialize(&file).unwrap();
        let view = |name: &str| file.tensor(name).unwrap();
        let words = |name: &str| -> Vec<[u8; 4]> {
            view(name).data().chunks_exact(4).map(|word| word.try_into().unwrap()).collect()
        };
        let ids: Vec<u32> = words("input_ids").into_iter().map(u32::from_le_bytes).collect();
        let expected: Vec<f32> = words("logits").into_iter().map(f32::from_le_bytes).collect();
        let shape = [view("input_ids").shape()[0], view("input_ids").shape()[1]];
        let stage = Stage::for_inference(&model, &whole(&model), &Device::Cpu, parameters).unwrap();
        let found = block_on(stage.logits(0, HopInput::Tokens(&ids), shape)).unwrap();
        assert_eq!(found.len(), expected.len());
        let highest = expected.iter().fold(0.0f32, |highest, logit| highest.max(logit.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let tolerance = Tolerances::CPU.activation * f64::from(highest);
            assert!(f64::from((found - expected).abs()) <= tolerance, "{name}: {found} is not {expected}");
        }
    }
}

/// What transformers looks for when it loads a file: every name and shape of its own state dict, and no other.
#[test]
fn checkpoints_have_the_names_and_shapes_of_transformers() {
    for (name, model) in sets() {
        let parameters = ParameterSet::draw(&model, &whole(&model), 7, &Device::Cpu);
        let checkpoint = block_on(Checkpoint::new(&model, &parameters)).unwrap();
        let shapes = |file: &[u8]| -> BTreeMap<String, Vec<usize>> {
            tensors(file).into_iter().map(|(name, (shape, _))| (name, shape)).collect()
        };
        assert_eq!(shapes(&checkpoint.weights), shapes(&golden(&format!("{name}.weights.safetensors"))));
    }
}
