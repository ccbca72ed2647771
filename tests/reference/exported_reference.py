"""Writes exported.json: what block_reader.py makes of models that `cohort export` wrote.

    python exported_reference.py --cohort ../../target/debug/cohort --golden ../golden

For every set `block-*`: the exported `config.json`, scores of texts, and greedy texts token by token, all in f64. The reader
itself is held against the set's own sweep, which other code has made, and the config against the set's sigmas. Only texts
whose every step has a winner by a margin are kept, so that rounding cannot change them.
"""

import argparse
import json
import math
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

from block_reader import Model

# Least distance of the best logit to the next one: some hundred times what f32 and f64 differ by in these sets.
MARGIN = 2e-3


def checkpoint_of(folder, golden, name):
    """A checkpoint with the weights of a golden set, as a run of block mode writes it."""
    config = json.loads((golden / f"{name}.json").read_text(encoding="utf-8"))["config"]
    assert config["vocab"] == 256, "its tokens are bytes"
    noise = {key: config[key] for key in ["sigma_min", "sigma_max", "p_mean", "p_std", "gamma"]}
    run = {
        "name": name,
        "model": {
            "vocabulary": config["vocab"], "positions": config["T_max"], "width": config["d"], "heads": config["heads"],
            "layers": config["B"] * config["L_b"], "tie_embeddings": False,
        },
        "optimizer": {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0},
        "sequences": config["batch"], "context": config["T"], "micro_batches": 1, "recompute": False, "wire": "f32",
        "moments": "none", "blocks": {"count": config["B"], **noise, "delta": "f32"},
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(run), encoding="utf-8")
    (folder / "tokenizer.cohort.json").write_text(json.dumps({"kind": "bytes"}), encoding="utf-8")
    shutil.copy(golden / f"{name}.weights.safetensors", folder / "model.safetensors")


def agrees_with_the_set(model, golden, name):
    """The reader's sweep is the reference's, and the exported sigmas are those it swept with."""
    sweep = load_file(golden / f"{name}.sweep.safetensors")
    sigmas = json.loads((golden / f"{name}.json").read_text(encoding="utf-8"))["sweep"]["sigmas"]
    assert len(sigmas) == len(model.config["sampler"]["sigmas"])
    assert all(math.isclose(*pair, rel_tol=1e-8) for pair in zip(sigmas, model.config["sampler"]["sigmas"]))
    for x, z, expected in zip(sweep["x"], sweep["z.0"], sweep[f"logits.{len(sigmas) - 1}"].double()):
        found = model.sweep(x.long(), z.double())
        # The set is stored in f32.
        assert (found - expected).abs().max() <= 1e-6 * expected.abs().max(), name


@torch.no_grad()
def texts_of(model, name):
    context, draw = model.config["context"], random.Random(name)
    ids = lambda count: [draw.randrange(256) for _ in range(count)]
    scores = [(ids(length), seed) for length, seed in [(2, 1), (context + 1, 2), (3 * context, 2**64 - 1)]]
    scores = [{"ids": text, "seed": seed, "cross_entropy": model.score(text, seed)} for text, seed in scores]
    texts, seed = [], 0
    for length in [1, 3, context, context + 5]:
        margin = 0.0
        while margin < MARGIN:
            seed, prompt = seed + 1, ids(length)
            tokens, margin = model.write(prompt, 12, seed)
        texts.append({"prompt": prompt, "seed": seed, "tokens": tokens, "margin": margin})
    return scores, texts


@torch.no_grad()
def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--cohort", type=Path, required=True)
    ask.add_argument("--golden", type=Path, required=True)
    args = ask.parse_args()
    torch.set_num_threads(1)
    found = {}
    for path in sorted(args.golden.glob("block-*.json")):
        with tempfile.TemporaryDirectory() as place:
            checkpoint, out = Path(place) / "checkpoint", Path(place) / "out"
            checkpoint_of(checkpoint, args.golden, path.stem)
            subprocess.run([args.cohort, "export", checkpoint, "--format", "safetensors", "--out", out], check=True)
            model = Model(out, torch.float64)
            agrees_with_the_set(model, args.golden, path.stem)
            scores, texts = texts_of(model, path.stem)
            found[path.stem] = {"config": model.config, "scores": scores, "texts": texts}
    out = {"torch": torch.__version__, "sets": found}
    (args.golden / "exported.json").write_text(json.dumps(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
