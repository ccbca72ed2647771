//! A folder with a model of block mode: a checkpoint of a run, or what `cohort export` wrote. The layout of the second is
//! `docs/block-checkpoint.md`, which goes with every exported model as its README.md.

use std::path::Path;

use engine::denoiser::{Weights, config};
use protocol::spec::RunSpec;

use super::{
    CONFIG, FolderError, WEIGHTS, bytes,
    export::{self, tokenizer_files},
    missing, text, tokenizer,
};
use crate::{data::tokenizer::Tokenizer, storage::write_atomically};

/// What is said of the layout.
const PAGE: &str = include_str!("../../../docs/block-checkpoint.md");

/// A model of block mode with what reads and writes its tokens.
#[derive(Debug)]
pub(crate) struct BlockModel {
    /// Its sizes and noise.
    pub(crate) run: RunSpec,
    /// The table and all blocks, as one safetensors file.
    pub(crate) weights: Vec<u8>,
    /// Its tokens.
    pub(crate) tokenizer: Tokenizer,
}

/// The run of a folder of block mode; None for a folder of another kind, or without a config.
///
/// # Errors
/// A config of block mode that cannot be used.
pub(crate) fn run(folder: &Path) -> Result<Option<RunSpec>, FolderError> {
    let Some(config) = text(folder, CONFIG)? else { return Ok(None) };
    config::read(&config).map_err(|error| FolderError::BlockConfig { folder: folder.into(), error })
}

/// The whole folder, whose run is `run`.
///
/// # Errors
/// What is missing or damaged, in words.
pub(crate) fn read(folder: &Path, run: RunSpec) -> Result<BlockModel, FolderError> {
    let unusable = |error| FolderError::Blocks { folder: folder.into(), error };
    let file = bytes(folder, WEIGHTS)?.ok_or_else(|| missing(folder, WEIGHTS))?;
    let weights = Weights::import(&run, &[file]).map_err(unusable)?;
    let weights = weights.whole_file().map_err(|error| unusable(error.into()))?;
    let tokenizer = tokenizer(folder)?;
    let (model, own) = (run.model.vocabulary, tokenizer.vocabulary());
    if model != own {
        return Err(FolderError::Vocabulary { folder: folder.into(), model, tokenizer: own });
    }
    Ok(BlockModel { run, weights, tokenizer })
}

/// Writes the model to a new folder, which appears under its name when it is whole.
///
/// # Errors
/// A folder that is there already, or a disk that does not take it; in words.
pub(crate) fn write(model: &BlockModel, out: &Path) -> anyhow::Result<()> {
    let mut files =
        vec![(CONFIG, config::export(&model.run)?.into_bytes()), ("README.md", PAGE.as_bytes().to_vec())];
    files.extend(tokenizer_files(&model.tokenizer, model.run.context)?);
    export::folder(out, |half| {
        for (name, bytes) in &files {
            write_atomically(&half.join(name), bytes)?;
        }
        write_atomically(&half.join(WEIGHTS), &model.weights)
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use engine::{
        Device,
        denoiser::{shapes, sweep::Composed, write::Continuation},
        generate::Sampling,
    };
    use futures::executor::block_on;
    use protocol::spec::ModelSpec;
    use serde::Deserialize;
    use serde_json::Value;
    use testkit::{
        fixtures,
        golden::{self, Tolerances},
    };

    use super::*;
    use crate::model_folder::TOKENIZER;

    /// A checkpoint as a run writes it.
    fn checkpoint(run: &RunSpec, weights: &[u8], tokenizer: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CONFIG), serde_json::to_string(run).unwrap()).unwrap();
        fs::write(folder.path().join(WEIGHTS), weights).unwrap();
        fs::write(folder.path().join(TOKENIZER), tokenizer).unwrap();
        folder
    }

    const CHARACTERS: &str = r#"{"kind": "characters", "characters": "abcdefghijk"}"#;

    /// What `cohort export` does.
    fn exported(checkpoint: &Path, out: &Path) -> anyhow::Result<()> {
        let run = run(checkpoint)?.expect("it is of block mode");
        write(&read(checkpoint, run)?, out)
    }

    #[test]
    fn what_is_exported_comes_back_the_same() {
        let run_before = fixtures::block_run();
        let weights = Weights::draw(&run_before, 3).unwrap().whole_file().unwrap();
        let folder = checkpoint(&run_before, &weights, CHARACTERS);
        let place = tempfile::tempdir().unwrap();
        let [once, twice] = ["once", "twice"].map(|name| place.path().join(name));
        exported(folder.path(), &once).unwrap();
        exported(&once, &twice).unwrap();
        let mut names: Vec<_> = fs::read_dir(&once)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected = [
            "README.md",
            "config.json",
            "model.safetensors",
            "tokenizer.cohort.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ];
        assert_eq!(names, expected);
        for name in names {
            // Without printing files of some kilobytes.
            assert!(fs::read(once.join(&name)).unwrap() == fs::read(twice.join(&name)).unwrap(), "{name}");
        }
        let run_after = run(&once).unwrap().unwrap();
        assert_eq!((run_after.model, run_after.blocks), (run_before.model, run_before.blocks));
        assert!(fs::read(once.join(WEIGHTS)).unwrap() == weights, "the weights are others");
    }

    #[test]
    fn what_cannot_be_exported_is_named_and_nothing_is_left() {
        let good = fixtures::block_run();
        let weights = Weights::draw(&good, 3).unwrap().whole_file().unwrap();
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("out");
        let refused = |change: &dyn Fn(&Path)| {
            let folder = checkpoint(&good, &weights, CHARACTERS);
            change(folder.path());
            let said = format!("{:#}", exported(folder.path(), &out).unwrap_err());
            assert!(!out.exists() && fs::read_dir(place.path()).unwrap().next().is_none(), "{said}");
            said
        };
        let said = refused(&|folder| fs::remove_file(folder.join(WEIGHTS)).unwrap());
        assert!(said.contains("has no model.safetensors"), "{said}");
        let said = refused(&|folder| fs::write(folder.join(WEIGHTS), &weights[..weights.len() / 2]).unwrap());
        assert!(said.contains("not a safetensors file"), "{said}");
        let said = refused(&|folder| {
            let mut wider = good.clone();
            wider.model.positions = 7;
            fs::write(folder.join(CONFIG), serde_json::to_string(&wider).unwrap()).unwrap();
        });
        assert!(said.contains("`blocks.0.positions.weight` has shape [6, 8]"), "{said}");
        let said = refused(&|folder| fs::write(folder.join(TOKENIZER), r#"{"kind": "bytes"}"#).unwrap());
        assert!(said.contains("its model has a vocabulary of 11, its tokenizer one of 256"), "{said}");
        let folder = checkpoint(&good, &weights, CHARACTERS);
        let mut config: Value = serde_json::to_value(&good).unwrap();
        config["blocks"]["new"] = 1.into();
        fs::write(folder.path().join(CONFIG), config.to_string()).unwrap();
        let said = run(folder.path()).unwrap_err().to_string();
        assert!(
            said.contains("unknown field `new`") && said.contains("use the version that wrote it"),
            "{said}"
        );
    }

    /// Names and shapes of the page's table, `B` and `L` for the numbers of a block and of a layer in it.
    fn described() -> BTreeMap<String, String> {
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
        let rows = rows.filter_map(|row| row.split_once("` | ["));
        rows.map(|(name, rest)| (name.to_owned(), rest.split_once(']').unwrap().0.to_owned())).collect()
    }

    #[test]
    fn the_page_has_every_tensor_with_its_shape() {
        // Sizes of which none is another's.
        let model =
            ModelSpec { vocabulary: 11, positions: 7, width: 6, heads: 2, layers: 6, tie_embeddings: false };
        let size = |word: &str| match word {
            "V" => 11,
            "P" => 7,
            "d" => 6,
            "3d" => 18,
            "4d" => 24,
            number => number.parse().unwrap(),
        };
        let described = described();
        let mut found = BTreeMap::new();
        for block in 0..3 {
            for shape in shapes::of_replica(&model, 2, block) {
                let mut name = shape.name.replace(&format!("blocks.{block}."), "blocks.B.");
                for layer in 0..2 {
                    name = name.replace(&format!("layers.{layer}."), "layers.L.");
                }
                let words = described.get(&name).unwrap_or_else(|| panic!("the page lacks `{name}`"));
                let sizes: Vec<usize> = words.split(", ").map(size).collect();
                assert_eq!(sizes, shape.shape, "{name}");
                found.insert(name, words.clone());
            }
        }
        assert_eq!(found, described, "the page has tensors that no model has");
    }

    #[derive(Deserialize)]
    struct Golden {
        sets: BTreeMap<String, Set>,
    }

    /// What the reader in Python made of an exported model.
    #[derive(Deserialize)]
    struct Set {
        config: Value,
        scores: Vec<Score>,
        texts: Vec<Text>,
    }

    #[derive(Deserialize)]
    struct Score {
        ids: Vec<u32>,
        seed: u64,
        cross_entropy: f64,
    }

    #[derive(Deserialize)]
    struct Text {
        prompt: Vec<u32>,
        seed: u64,
        tokens: Vec<u32>,
    }

    /// The run of a set `block-*`.
    fn golden_run(set: &str, folder: &golden::Folder) -> RunSpec {
        let json: Value = serde_json::from_slice(&folder.read(&format!("{set}.json")).unwrap()).unwrap();
        let size = |key: &str| json["config"][key].as_u64().unwrap() as u32;
        let number = |key: &str| json["config"][key].as_f64().unwrap();
        let mut run = fixtures::block_run();
        run.name = set.into();
        run.context = size("T");
        run.model = ModelSpec {
            vocabulary: size("vocab"),
            positions: size("T_max"),
            width: size("d"),
            heads: size("heads"),
            layers: size("B") * size("L_b"),
            tie_embeddings: false,
        };
        let blocks = run.blocks.as_mut().unwrap();
        blocks.count = size("B");
        [blocks.sigma_min, blocks.sigma_max] = ["sigma_min", "sigma_max"].map(number);
        [blocks.p_mean, blocks.p_std, blocks.gamma] = ["p_mean", "p_std", "gamma"].map(number);
        run
    }

    #[test]
    fn an_exported_model_says_what_the_reader_in_python_says() {
        let folder = golden::folder().unwrap();
        let Some(golden) = folder.read("exported.json") else {
            assert!(!golden::is_own(&folder.path), "tests/golden lacks exported.json: restore it");
            return;
        };
        let golden: Golden = serde_json::from_slice(&golden).unwrap();
        assert!(!golden.sets.is_empty());
        for (name, set) in &golden.sets {
            let weights = folder.read(&format!("{name}.weights.safetensors")).unwrap();
            let from = checkpoint(&golden_run(name, &folder), &weights, r#"{"kind": "bytes"}"#);
            let place = tempfile::tempdir().unwrap();
            let out = place.path().join("out");
            exported(from.path(), &out).unwrap();
            // The layout is a promise: a change needs another version, and a reader that knows it.
            let config: Value = serde_json::from_slice(&fs::read(out.join(CONFIG)).unwrap()).unwrap();
            assert_eq!(config, set.config, "{name}");

            let run = run(&out).unwrap().unwrap();
            let weights = fs::read(out.join(WEIGHTS)).unwrap();
            let model = block_on(Composed::import(&run, &[weights], &Device::Cpu)).unwrap();
            assert!(!set.scores.is_empty() && !set.texts.is_empty());
            let context = run.context as usize;
            for Score { ids, seed, cross_entropy } in &set.scores {
                let mut logs = Vec::new();
                for start in (0..ids.len() - 1).step_by(context) {
                    let window = &ids[start..ids.len().min(start + context + 1)];
                    logs.extend(block_on(model.score(window, *seed)).unwrap());
                }
                let found = -logs.iter().sum::<f64>() / logs.len() as f64;
                // As all losses in f32 beside those in f64.
                let off = (found - cross_entropy).abs() / cross_entropy;
                assert!(off <= Tolerances::CPU.loss, "{name}: {found}, not {cross_entropy}");
            }
            for Text { prompt, seed, tokens } in &set.texts {
                let sampling = Sampling { seed: *seed, ..Sampling::GREEDY };
                let wanted = Continuation { prompt, count: tokens.len(), chunk: 1, context, sampling };
                let (found, _) = block_on(model.write(wanted, |_| true)).unwrap();
                assert_eq!(found, *tokens, "{name} after {prompt:?}");
            }
        }
    }
}
