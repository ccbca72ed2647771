"""Checks `cohort import` and `cohort export` against transformers, tokenizers and gguf themselves.

    python exchange.py --cohort ../../target/debug/cohort --golden ../golden

(`pip install torch transformers safetensors numpy gguf`.) Saves GPT-2s with transformers in every form that `import` reads,
imports and exports them, and compares logits, greedy text, tokens and tensors. Models of block mode, of the golden sets and
of the runs named with `--run`, are exported, read by block_reader.py, and compared with `cohort generate`. Prints a line for
each, fails at the first difference.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import gguf
import numpy
import tokenizers
import torch
import transformers
from safetensors.torch import load_file

from block_reader import Model, Tokens
from byte_tokenizer import save_tokenizer
from decode_reference import model_of
from exported_reference import agrees_with_the_set, checkpoint_of

TEXTS = ["Hello, world!  Two  spaces\n\n\ttabs", "naïve café — 日本語 🙂", "it's we'll 1234 5,678.", " lead and trail "]


def same_logits(a, b, vocabulary, tolerance):
    ids = torch.arange(12)[None] * 19 % vocabulary
    with torch.no_grad():
        difference = (a(ids).logits - b(ids).logits).abs().max().item()
    assert difference <= tolerance, difference


def other_tokenizers(cohort, place, data):
    """Characters, bytes and GPT-2's own: what transformers makes of the exported tokenizer."""
    characters = "".join(sorted(set("".join(TEXTS))))
    reference = tokenizers.ByteLevelBPETokenizer.from_file(str(data / "encoder.json"), str(data / "vocab.bpe"))
    for kind, saved, ids_of in [
        ("characters", {"kind": "characters", "characters": characters}, lambda text: [characters.index(c) for c in text]),
        ("bytes", {"kind": "bytes"}, lambda text: list(text.encode())),
        ("gpt2", None, lambda text: reference.encode(text).ids),
    ]:
        vocabulary = {"characters": len(characters), "bytes": 256, "gpt2": 50257}[kind]
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_layer=1, n_embd=8, n_head=2, n_positions=64, vocab_size=vocabulary, tie_word_embeddings=False,
            bos_token_id=None, eos_token_id=None))
        folder, out = place / kind, place / f"{kind}-out"
        model.save_pretrained(folder)
        if saved:
            (folder / "tokenizer.cohort.json").write_text(json.dumps(saved), encoding="utf-8")
        else:
            (folder / "vocab.json").write_bytes((data / "encoder.json").read_bytes())
            (folder / "merges.txt").write_bytes((data / "vocab.bpe").read_bytes())
        cohort("export", folder, "--format", "safetensors", "--out", out)
        cohort("export", folder, "--format", "gguf", "--out", place / f"{kind}-gguf")
        gguf.GGUFReader(place / f"{kind}-gguf" / "model.gguf")
        same_logits(model.eval(), transformers.AutoModelForCausalLM.from_pretrained(out), vocabulary, 1e-5)
        tokenizer = transformers.AutoTokenizer.from_pretrained(out)
        for text in TEXTS:
            ids = tokenizer(text)["input_ids"]
            assert ids == ids_of(text), (kind, text, ids)
            assert tokenizer.decode(ids) == text, (kind, text, tokenizer.decode(ids))
        print(f"{kind}: transformers takes texts apart and puts them together in the same way")


def blocks(cohort, out, prompts):
    """An exported model of block mode: what the reader says of it, in f32, is what the program says."""
    model, tokens = Model(out), Tokens(out)
    for seed, prompt in enumerate(prompts, 1):
        ids = tokens.encode(prompt)
        said = cohort("generate", out, "--score", "--prompt", prompt, "--seed", seed).split()
        # Four digits are printed.
        assert abs(float(said[1]) - model.score(ids, seed)) <= 1e-4, (prompt, said, model.score(ids, seed))
        options = ["--tokens", 24, "--temperature", 0, "--seed", seed]
        said = cohort("generate", out, "--prompt", prompt, *options).removesuffix(b"\n")
        written = ids + model.write(ids, 24, seed)[0]
        assert said.decode(errors="replace") == tokens.decode(written), (prompt, said, tokens.decode(written))


def all_blocks(cohort, golden, runs, place):
    texts = ["Hello, world", "It is the east, and Juliet is the sun. " * 4]
    for path in sorted(golden.glob("block-*.json")):
        checkpoint, out = place / path.stem, place / f"{path.stem}-out"
        checkpoint_of(checkpoint, golden, path.stem)
        cohort("export", checkpoint, "--format", "safetensors", "--out", out)
        agrees_with_the_set(Model(out, torch.float64), golden, path.stem)
        blocks(cohort, out, texts)
        print(f"{path.stem}: the reader in Python agrees")
    for number, run in enumerate(runs):
        out = place / f"run-{number}"
        cohort("export", run, "--format", "safetensors", "--out", out)
        blocks(cohort, out, texts)
        print(f"{run}: the reader in Python agrees")


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--cohort", type=Path, required=True)
    ask.add_argument("--golden", type=Path, required=True)
    ask.add_argument("--vocabulary", type=Path, default=Path(__file__).parent.parent / "data" / "gpt2")
    ask.add_argument("--run", type=Path, action="append", default=[], help="folder of a run or checkpoint of block mode")
    args = ask.parse_args()

    def cohort(*words):
        return subprocess.run([args.cohort, *map(str, words)], check=True, capture_output=True).stdout

    config = json.loads((args.golden / "gpt2-tied.json").read_text())["config"]
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        with torch.no_grad():
            all_blocks(cohort, args.golden, args.run, place)
        other_tokenizers(cohort, place, args.vocabulary)
        for dtype in [torch.float32, torch.float16, torch.bfloat16]:
            for shards in [False, True]:
                model = model_of(args.golden, "gpt2-tied", config).to(dtype)
                form = f"{str(dtype)[6:]}-{'sharded' if shards else 'whole'}"
                saved, imported, exported, packed = (place / f"{form}-{kind}" for kind in ["hf", "in", "out", "gguf"])
                model.save_pretrained(saved, max_shard_size="100KB" if shards else "5GB")
                save_tokenizer(saved, single=shards)
                cohort("import", saved, "--out", imported)
                cohort("export", imported, "--format", "safetensors", "--out", exported)
                again = transformers.AutoModelForCausalLM.from_pretrained(exported, attn_implementation="eager")
                same_logits(model.float(), again, config["vocab"], 0.0)
                tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
                for text in TEXTS:
                    ids = tokenizer(text)["input_ids"]
                    assert ids == list(text.encode()), (text, ids)
                    assert tokenizer.decode(ids) == text
                assert tokenizer.eos_token == "<|endoftext|>" and again.config.eos_token_id == 256
                said = cohort("generate", exported, "--prompt", "ab", "--tokens", 12, "--temperature", 0)
                with torch.no_grad():
                    prompt = torch.tensor([[97, 98]])
                    ids = again.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                                         max_new_tokens=12, eos_token_id=None, pad_token_id=0)[0].tolist()
                expected = b"".join(bytes([i]) if i < 256 else b"<|endoftext|>" for i in ids)
                assert said == expected + b"\n", (said, expected)
                for precision in ["f32", "f16"]:
                    out = packed.with_name(packed.name + precision)
                    cohort("export", imported, "--format", "gguf", "--precision", precision, "--out", out)
                    compare_gguf(out / "model.gguf", load_file(exported / "model.safetensors"), precision)
                print(f"{form}: transformers, tokenizers and gguf agree")


def compare_gguf(path, weights, precision):
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.get_field(key).contents()
    assert field("general.architecture") == "gpt2" and field("gpt2.block_count") == 3
    assert field("tokenizer.ggml.model") == "gpt2" and len(field("tokenizer.ggml.tokens")) == 257
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, 3)
    found = {tensor.name: tensor for tensor in reader.tensors}
    for name, tensor in weights.items():
        stem, end = name.rsplit(".", 1)
        theirs = found.pop(names.get_name(stem) + "." + end)
        values = tensor.numpy()
        if end == "weight" and any(part in name for part in ["c_attn", "c_proj", "c_fc"]):
            values = values.T
        if precision == "f16" and values.ndim > 1 and "wpe" not in name:
            values = values.astype(numpy.float16)
        assert theirs.data.dtype == values.dtype and numpy.array_equal(theirs.data, values), name
    assert not found, found.keys()


if __name__ == "__main__":
    main()
