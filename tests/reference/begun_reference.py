"""Writes begun.json: transformers' loss on the first windows of a run that begins with the golden GPT-2 `gpt2-tied`.

    python begun_reference.py --golden ../golden --data ../data

The first step's training loss and the loss on the held-out text, in f64, of the weights that the run begins with. The windows
are chosen here by the rules that coordinator/src/data/windows.rs and permutation.rs state, in code of its own, and `starts`
says which they are. Tokens are bytes, by a BPE without merges whose files are in `vocabulary` and `merges`.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
import transformers

from byte_tokenizer import save_tokenizer
from decode_reference import model_of

SET = "gpt2-tied"
RUN = {
    "source": "wikitext-2/test.txt", "seed": 7, "micro_batches": 3, "sequences": 4, "validation_batches": 2,
    "validation_fraction": 0.1,
}
BITS = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & BITS
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & BITS
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & BITS
    return x ^ (x >> 31)


def permuted(index, size, key):
    """Image of the index under a keyed permutation of 0..size: eight Feistel rounds, repeated until it is below size."""
    half = max(1, -(-(size - 1).bit_length() // 2))
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for number in range(8):
            left, right = right, left ^ (mix(mix(key ^ number) ^ right) & mask)
        index = left << half | right
        if index < size:
            return index


def training_starts(tokens, context):
    """First tokens of the sequences of step 0, in epoch 0."""
    windows = max(1, tokens // context - 1)
    offsets = min(max(1, tokens - windows * context), context)
    key = mix(mix(RUN["seed"]))
    offset = mix(~key & BITS) % offsets
    count = RUN["micro_batches"] * RUN["sequences"]
    assert count <= windows
    return [offset + permuted(turn, windows, key) * context for turn in range(count)]


@torch.no_grad()
def loss(model, ids, starts, context):
    """transformers' own loss: the mean cross-entropy of the token after each that the model reads."""
    windows = torch.tensor([ids[start : start + context + 1] for start in starts])
    inputs, targets = windows[:, :-1], windows[:, 1:]
    # Shifted already: the last target of a window lies beyond what the model reads.
    own = model(inputs, labels=inputs, shift_labels=targets.contiguous()).loss.item()
    # It rounds the logits to f32; what is stored is not rounded.
    exact = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten()).item()
    assert abs(own - exact) <= 1e-6 * exact, (own, exact)
    return exact


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--golden", type=Path, required=True)
    ask.add_argument("--data", type=Path, required=True)
    args = ask.parse_args()
    torch.set_num_threads(1)
    config = json.loads((args.golden / f"{SET}.json").read_text(encoding="utf-8"))["config"]
    model, context = model_of(args.golden, SET, config).double(), config["n_positions"]
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        model.config.save_pretrained(place)
        save_tokenizer(place, single=False)
        saved = json.loads((place / "config.json").read_text(encoding="utf-8"))
        files = {name: (place / name).read_text(encoding="utf-8") for name in ["vocab.json", "merges.txt"]}
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        ids = tokenizer((args.data / RUN["source"]).read_bytes().decode())["input_ids"]
    held_out = round(len(ids) * RUN["validation_fraction"])
    train = training_starts(len(ids) - held_out, context)
    count = RUN["validation_batches"] * RUN["sequences"]
    validation = [len(ids) - held_out + window * context for window in range(count)]
    out = {
        "transformers": transformers.__version__,
        "set": SET,
        "run": RUN | {"context": context},
        "config": saved,
        "vocabulary": json.loads(files["vocab.json"]),
        "merges": files["merges.txt"],
        "starts": {"training": train, "validation": validation},
        "training_loss": loss(model, ids, train, context),
        "validation_loss": loss(model, ids, validation, context),
    }
    (args.golden / "begun.json").write_text(json.dumps(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
