//! Folders in every form that is read, what is refused, and what is written.

use std::collections::BTreeMap;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::golden;

use super::*;
use crate::data::gpt2::{END_OF_TEXT, letter};

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A model that transformers has made, its head tied: 3 layers, d 48, V 257.
fn golden_model() -> (ModelSpec, Tensors) {
    let folder = golden::folder().unwrap();
    let json: Value = serde_json::from_slice(&folder.read("gpt2-tied.json").unwrap()).unwrap();
    let size = |key: &str| json["config"][key].as_u64().unwrap() as u32;
    let model = ModelSpec {
        vocabulary: size("vocab"),
        positions: size("n_positions"),
        width: size("d"),
        heads: size("heads"),
        layers: size("n_layer"),
        tie_embeddings: true,
    };
    (model, tensors(&folder.read("gpt2-tied.weights.safetensors").unwrap()))
}

fn tensors(file: &[u8]) -> Tensors {
    let file = SafeTensors::deserialize(file).unwrap();
    let floats = |view: TensorView<'_>| {
        view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    file.iter().map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), floats(view)))).collect()
}

/// A safetensors file of these tensors in another kind of floats.
fn file(tensors: &Tensors, dtype: Dtype) -> Vec<u8> {
    let bytes: BTreeMap<&String, Vec<u8>> = tensors
        .iter()
        .map(|(name, (_, values))| {
            let bytes = |value: &f32| match dtype {
                Dtype::F16 => f16::from_f32(*value).to_le_bytes().to_vec(),
                Dtype::BF16 => bf16::from_f32(*value).to_le_bytes().to_vec(),
                _ => value.to_le_bytes().to_vec(),
            };
            (name, values.iter().flat_map(bytes).collect())
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(name, (shape, _))| (name, TensorView::new(dtype, shape.clone(), &bytes[name]).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

/// All bytes, one merge's worth of nothing, and the end of a document: a BPE of 257 tokens.
fn vocabulary() -> BTreeMap<String, u32> {
    let bytes = (0..=255u8).map(|byte| (letter(byte).to_string(), u32::from(byte)));
    bytes.chain([(END_OF_TEXT.to_owned(), 256)]).collect()
}

/// A folder as transformers saves it: config, one file of f32, the two files of the tokenizer.
fn saved() -> TempDir {
    let (model, tensors) = golden_model();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write(CONFIG, checkpoint::config(&model).as_bytes());
    write(WEIGHTS, &file(&tensors, Dtype::F32));
    write(VOCABULARY_FILE, &serde_json::to_vec(&vocabulary()).unwrap());
    write(MERGES_FILE, b"#version: 0.2\n");
    folder
}

#[test]
fn every_form_of_the_weights_is_read() {
    let (model, golden) = golden_model();
    let bare: Tensors = golden
        .iter()
        .map(|(name, tensor)| (name.trim_start_matches("transformer.").to_owned(), tensor.clone()))
        .collect();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        for tensors_there in [&golden, &bare] {
            for shards in [1, 3] {
                let folder = saved();
                if shards > 1 {
                    fs::remove_file(folder.path().join(WEIGHTS)).unwrap();
                    let mut map = BTreeMap::new();
                    for shard in 0..shards {
                        let name = format!("model-{shard}.safetensors");
                        let own: Tensors = tensors_there
                            .iter()
                            .enumerate()
                            .filter(|(index, _)| index % shards == shard)
                            .map(|(_, (name, tensor))| (name.clone(), tensor.clone()))
                            .collect();
                        map.extend(own.keys().map(|tensor| (tensor.clone(), name.clone())));
                        fs::write(folder.path().join(&name), file(&own, dtype)).unwrap();
                    }
                    fs::write(folder.path().join(INDEX), json!({ "weight_map": map }).to_string()).unwrap();
                } else {
                    fs::write(folder.path().join(WEIGHTS), file(tensors_there, dtype)).unwrap();
                }
                let found = read(folder.path()).unwrap();
                assert_eq!(found.model, model);
                let rounded = |value: &f32| match dtype {
                    Dtype::F16 => f16::from_f32(*value).to_f32(),
                    Dtype::BF16 => bf16::from_f32(*value).to_f32(),
                    _ => *value,
                };
                let expected: Tensors = golden
                    .iter()
                    .map(|(name, (shape, values))| {
                        (name.clone(), (shape.clone(), values.iter().map(rounded).collect()))
                    })
                    .collect();
                assert_eq!(tensors(&found.checkpoint.weights), expected, "{dtype:?} in {shards}");
            }
        }
    }
}

#[test]
fn a_tokenizer_json_alone_is_enough() {
    let folder = saved();
    let two_files = read(folder.path()).unwrap().tokenizer;
    for old_merges in [false, true] {
        let (mut json, _) = tokenizer_json::of(&two_files).unwrap();
        if old_merges {
            json["model"]["merges"] = json!([]);
            json["model"]["vocab"].as_object_mut().unwrap().remove(END_OF_TEXT);
        }
        let alone = saved();
        for name in [VOCABULARY_FILE, MERGES_FILE] {
            fs::remove_file(alone.path().join(name)).unwrap();
        }
        fs::write(alone.path().join(TOKENIZER_JSON), json.to_string()).unwrap();
        let tokenizer = read(alone.path()).unwrap().tokenizer;
        assert_eq!(tokenizer.vocabulary(), 257);
        for text in ["plain", "naïve café\n\t 日本"] {
            assert_eq!(tokenizer.encode(text).unwrap(), two_files.encode(text).unwrap());
        }
        assert_eq!(tokenizer.decode(&[256]).unwrap(), END_OF_TEXT.as_bytes());
    }
}

/// What `change` makes of a good folder, in words.
fn refused(change: impl FnOnce(&Path)) -> String {
    let folder = saved();
    change(folder.path());
    read(folder.path()).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_used_is_named_with_what_to_do() {
    let remove = |name: &'static str| move |folder: &Path| fs::remove_file(folder.join(name)).unwrap();
    assert!(refused(remove(CONFIG)).contains("has no config.json; give the folder of a checkpoint"));
    assert!(refused(remove(WEIGHTS)).contains("has no model.safetensors"));
    assert!(refused(remove(MERGES_FILE)).contains("has no tokenizer"));
    let pickled = refused(|folder| {
        fs::rename(folder.join(WEIGHTS), folder.join("pytorch_model.bin")).unwrap();
    });
    assert!(pickled.contains("safe_serialization=True"), "{pickled}");

    let blocks = refused(|folder| {
        let run = serde_json::to_string(&testkit::fixtures::block_run()).unwrap();
        fs::write(folder.join(CONFIG), run).unwrap();
    });
    assert!(blocks.contains("has a model of block mode, which is no GPT-2"), "{blocks}");

    let config = |change: fn(&mut Value)| {
        refused(move |folder: &Path| {
            let mut config: Value = serde_json::from_slice(&fs::read(folder.join(CONFIG)).unwrap()).unwrap();
            change(&mut config);
            fs::write(folder.join(CONFIG), config.to_string()).unwrap();
        })
    };
    assert!(config(|config| config["model_type"] = json!("llama")).contains("its type is `llama`"));
    assert!(
        config(|config| config["n_layer"] = json!(4)).contains("no tensor `transformer.h.3.ln_1.weight`")
    );
    let wide = config(|config| config["n_positions"] = json!(64));
    assert!(
        wide.contains("`transformer.wpe.weight` has shape [32, 48] where the model needs [64, 48]"),
        "{wide}"
    );

    let index = |map: Value| {
        refused(move |folder: &Path| {
            fs::remove_file(folder.join(WEIGHTS)).unwrap();
            fs::write(folder.join(INDEX), json!({ "weight_map": map }).to_string()).unwrap();
        })
    };
    assert!(index(json!({ "wte.weight": "gone.safetensors" })).contains("is not whole: "));
    for elsewhere in ["../other.safetensors", "/etc/passwd", "a/b", ""] {
        let said = index(json!({ "wte.weight": elsewhere }));
        assert!(said.contains("is not the name of a file in the folder"), "{elsewhere}: {said}");
    }
    let half = refused(|folder| {
        let whole = fs::read(folder.join(WEIGHTS)).unwrap();
        fs::write(folder.join(WEIGHTS), &whole[..whole.len() / 2]).unwrap();
    });
    assert!(half.contains("not a safetensors file"), "{half}");
    let other = refused(|folder| {
        fs::write(folder.join(TOKENIZER), r#"{"kind": "bytes"}"#).unwrap();
    });
    assert!(other.contains("its model has a vocabulary of 257, its tokenizer one of 256"), "{other}");
    let unigram = refused(|folder| {
        fs::remove_file(folder.join(VOCABULARY_FILE)).unwrap();
        fs::write(folder.join(TOKENIZER_JSON), r#"{"model": {"type": "Unigram"}}"#).unwrap();
    });
    assert!(unigram.contains("Unigram"), "{unigram}");
}

/// A small model with random weights and this tokenizer.
fn small(tokenizer: Tokenizer, tie_embeddings: bool) -> FolderModel {
    let vocabulary = tokenizer.vocabulary();
    let model = ModelSpec { vocabulary, positions: 4, width: 2, heads: 1, layers: 1, tie_embeddings };
    let hops = [protocol::spec::Hop { index: 0, part: model.whole() }];
    let parameters = engine::parameters::ParameterSet::draw(&model, &hops, 1, &engine::Device::Cpu);
    let checkpoint = futures::executor::block_on(Checkpoint::new(&model, &parameters)).unwrap();
    FolderModel { model, checkpoint, tokenizer }
}

#[test]
fn what_is_exported_comes_back_the_same() {
    let place = tempfile::tempdir().unwrap();
    let tokenizers =
        [Tokenizer::bytes(), Tokenizer::characters("so\nwhat é"), read(saved().path()).unwrap().tokenizer];
    for (number, tokenizer) in tokenizers.into_iter().enumerate() {
        for tied in [false, true] {
            let before = small(
                Tokenizer::restore(&tokenizer.save(), None)
                    .unwrap_or_else(|_| read(saved().path()).unwrap().tokenizer),
                tied,
            );
            let out = place.path().join(format!("deep/{number}-{tied}"));
            export::transformers(&before, &out).unwrap();
            let after = read(&out).unwrap();
            assert_eq!(after.model, before.model);
            assert_eq!(after.tokenizer.save(), before.tokenizer.save());
            assert_eq!(tensors(&after.checkpoint.weights), tensors(&before.checkpoint.weights));
            let again = export::transformers(&before, &out).unwrap_err().to_string();
            assert!(again.contains("is there already"), "{again}");
        }
    }
    let left = fs::read_dir(place.path().join("deep")).unwrap().count();
    assert_eq!(left, 6, "nothing half written stays");
}

/// A GGUF file's numbers, read in order.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().unwrap())
    }

    fn text(&mut self) -> String {
        let len = self.u64() as usize;
        String::from_utf8(self.bytes(len).to_vec()).unwrap()
    }

    fn value(&mut self, kind: u32) -> Value {
        match kind {
            4 => json!(self.u32()),
            5 => json!(self.u32() as i32),
            6 => json!(f32::from_bits(self.u32())),
            8 => json!(self.text()),
            9 => {
                let kind = self.u32();
                (0..self.u64()).map(|_| self.value(kind)).collect()
            }
            other => panic!("metadata of the kind {other}"),
        }
    }
}

#[test]
fn a_gguf_file_begins_as_its_definition_says() {
    let file = gguf::file(&small(Tokenizer::characters("ab"), true), "tiny", gguf::Precision::F32).unwrap();
    // Magic, version 3, 16 tensors, 12 lines of metadata, the first of them a text (8).
    let mut expected = b"GGUF\x03\0\0\0\x10\0\0\0\0\0\0\0\x0c\0\0\0\0\0\0\0".to_vec();
    expected.extend(b"\x14\0\0\0\0\0\0\0general.architecture\x08\0\0\0\x04\0\0\0\0\0\0\0gpt2");
    assert_eq!(file[..expected.len()], expected);
    assert_eq!(file.len() % 32, 0);
}

#[test]
fn a_gguf_file_has_every_tensor_in_its_place() {
    for (precision, tied) in [(gguf::Precision::F32, true), (gguf::Precision::F16, false)] {
        let tokenizer = read(saved().path()).unwrap().tokenizer;
        let model = small(tokenizer, tied);
        let file = gguf::file(&model, "tiny", precision).unwrap();
        let mut reader = Reader(&file);
        assert_eq!((reader.bytes(4), reader.u32()), (&b"GGUF"[..], 3));
        let (count, lines) = (reader.u64(), reader.u64());
        let metadata: BTreeMap<String, Value> = (0..lines)
            .map(|_| {
                let (key, kind) = (reader.text(), reader.u32());
                (key, reader.value(kind))
            })
            .collect();
        assert_eq!(metadata["gpt2.block_count"], 1);
        assert_eq!(metadata["gpt2.attention.layer_norm_epsilon"], json!(1e-5f32));
        assert_eq!(metadata["tokenizer.ggml.tokens"][256], END_OF_TEXT);
        assert_eq!(
            (&metadata["tokenizer.ggml.token_type"][0], &metadata["tokenizer.ggml.token_type"][256]),
            (&json!(1), &json!(3))
        );
        assert_eq!(metadata["tokenizer.ggml.eos_token_id"], 256);
        let heads: Vec<(String, Vec<u64>, u32, usize)> = (0..count)
            .map(|_| {
                let (name, dimensions) = (reader.text(), reader.u32());
                let dimensions = (0..dimensions).map(|_| reader.u64()).collect();
                (name, dimensions, reader.u32(), reader.u64() as usize)
            })
            .collect();
        let data = (file.len() - reader.0.len()).next_multiple_of(32);
        let golden = tensors(&model.checkpoint.weights);
        assert_eq!(heads.len(), golden.len());
        let of = |name: &str| {
            let (_, dimensions, kind, offset) = heads.iter().find(|(found, ..)| found == name).unwrap();
            let len = dimensions.iter().product::<u64>() as usize;
            let bytes = &file[data + offset..];
            let values: Vec<f32> = match kind {
                0 => bytes
                    .chunks_exact(4)
                    .take(len)
                    .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                    .collect(),
                1 => bytes
                    .chunks_exact(2)
                    .take(len)
                    .map(|b| f16::from_le_bytes(b.try_into().unwrap()).to_f32())
                    .collect(),
                other => panic!("{name} is of the kind {other}"),
            };
            (dimensions.clone(), values)
        };
        let near = |found: &[f32], exact: &[f32]| {
            // f16 keeps 11 bits.
            let tolerance = if precision == gguf::Precision::F32 { 0.0 } else { 5e-4 };
            found.len() == exact.len()
                && found.iter().zip(exact).all(|(a, b)| (a - b).abs() <= tolerance * b.abs().max(1e-2))
        };
        let (_, up) = &golden["transformer.h.0.mlp.c_fc.weight"];
        // [inputs, outputs] = [2, 8] becomes [outputs, inputs], the fastest dimension first.
        let turned: Vec<f32> = (0..16).map(|i| up[(i % 2) * 8 + i / 2]).collect();
        let (dimensions, found) = of("blk.0.ffn_up.weight");
        assert!(dimensions == [2, 8] && near(&found, &turned));
        let (dimensions, found) = of("token_embd.weight");
        assert!(dimensions == [2, 257] && near(&found, &golden["transformer.wte.weight"].1));
        let (dimensions, found) = of("position_embd.weight");
        assert!(dimensions == [2, 4] && found == golden["transformer.wpe.weight"].1);
        let (dimensions, found) = of("blk.0.attn_norm.bias");
        assert!(dimensions == [2] && found == golden["transformer.h.0.ln_1.bias"].1);
        assert_eq!(heads.iter().any(|(name, ..)| name == "output.weight"), !tied);
    }
}
