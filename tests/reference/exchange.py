"""Checks `cohort import` and `cohort export` against transformers, tokenizers and gguf themselves.

    python exchange.py --cohort ../../target/debug/cohort --golden ../golden

(`pip install torch transformers safetensors numpy gguf`.) Saves GPT-2s with transformers in every form that `import` reads,
imports and exports them, and compares logits, greedy text, tokens and tensors. Prints a line for each, fails at the first
difference.
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

from decode_reference import model_of

TEXTS = ["Hello, world!  Two  spaces\n\n\ttabs", "naïve café — 日本語 🙂", "it's we'll 1234 5,678.", " lead and trail "]


def byte_letters():
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    letters = {byte: chr(byte) for byte in seen} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]


def save_tokenizer(folder, single):
    """A byte-level BPE of 257 tokens: all bytes but one, one merge, and the end of text."""
    vocabulary = {letter: id for id, letter in enumerate(byte_letters())} | {"<|endoftext|>": 256}
    folder.mkdir(parents=True, exist_ok=True)
    if single:
        library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
        library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = tokenizers.decoders.ByteLevel()
        library.add_special_tokens(["<|endoftext|>"])
        library.save(str(folder / "tokenizer.json"))
    else:
        (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")


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


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--cohort", type=Path, required=True)
    ask.add_argument("--golden", type=Path, required=True)
    ask.add_argument("--vocabulary", type=Path, default=Path(__file__).parent.parent / "data" / "gpt2")
    args = ask.parse_args()

    def cohort(*words):
        return subprocess.run([args.cohort, *map(str, words)], check=True, capture_output=True).stdout

    config = json.loads((args.golden / "gpt2-tied.json").read_text())["config"]
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
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
