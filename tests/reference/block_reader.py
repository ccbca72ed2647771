"""Reads a model of block mode that `cohort export --format safetensors` wrote, with torch and safetensors alone.

    python block_reader.py FOLDER --prompt "LOVE" --tokens 20

Prints JSON: the prompt's ids, their cross-entropy in nats per token by sweeps over the true context, and the greedy ids and
text that follow, each token by a sweep of its own. Both are as `cohort generate` has them, with its noise of the same seed.
Written from docs/block-checkpoint.md, not from the program.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn.functional import layer_norm, silu

BITS = (1 << 64) - 1


def mix(a):
    a = (a ^ (a >> 30)) * 0xBF58476D1CE4E5B9 & BITS
    a = (a ^ (a >> 27)) * 0x94D049BB133111EB & BITS
    return a ^ (a >> 31)


def random(key, i):
    return mix(key + (i + 1) * 0x9E3779B97F4A7C15 & BITS)


def stream(seed, name):
    fnv = 0xCBF29CE484222325
    for byte in name.encode():
        fnv = (fnv ^ byte) * 0x100000001B3 & BITS
    return mix(fnv ^ mix(seed))


def normal(key, count):
    """Normal numbers from counters, as Cohort draws them."""
    unit = lambda i: ((random(key, i) >> 11) + 0.5) / 2**53
    numbers = []
    for i in range(0, count, 2):
        radius, angle = math.sqrt(-2 * math.log(unit(i))), 2 * math.pi * unit(i + 1)
        numbers += [radius * math.cos(angle), radius * math.sin(angle)]
    return numbers[:count]


def attention(p, name, h, heads):
    t, d = h.shape
    parts = (h @ p[f"{name}.c_attn.weight"] + p[f"{name}.c_attn.bias"]).split(d, dim=-1)
    q, k, v = (part.reshape(t, heads, d // heads).transpose(0, 1) for part in parts)
    scores = q @ k.transpose(-1, -2) / math.sqrt(d // heads)
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return mixed.transpose(0, 1).reshape(t, d) @ p[f"{name}.c_proj.weight"] + p[f"{name}.c_proj.bias"]


class Model:
    def __init__(self, folder, dtype=torch.float32):
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if (self.config.get("format"), self.config.get("version")) != ("cohort-blocks", 1):
            raise SystemExit(f"{folder}/config.json is not of cohort-blocks, version 1; export the model again")
        self.weights = {k: v.to(dtype) for k, v in load_file(folder / "model.safetensors").items()}
        table = self.weights["embed.weight"]
        self.codes = table / table.norm(dim=-1, keepdim=True)
        self.dtype = dtype

    def norm(self, name, h):
        p, epsilon = self.weights, self.config["layer_norm_epsilon"]
        return layer_norm(h, h.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], epsilon)

    def block(self, b, x, z, sigma):
        """Logits [T, V] of block b for ids x [T] and noisy codes z [T, d]."""
        p, name, sd, d = self.weights, f"blocks.{b}", self.config["noise"]["sigma_data"], z.shape[-1]
        variance = sigma**2 + sd**2
        half = self.config["time_features"] // 2
        angles = math.log(sigma) / 4 * torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float64) / half)
        phi = torch.cat([angles.cos(), angles.sin()]).to(self.dtype)
        time = silu(phi @ p[f"{name}.time.0.weight"].T + p[f"{name}.time.0.bias"])
        time = time @ p[f"{name}.time.2.weight"].T + p[f"{name}.time.2.bias"]
        h = math.sqrt(d) * self.codes[x] + z / math.sqrt(variance) @ p[f"{name}.noise_in.weight"].T
        h = h + p[f"{name}.positions.weight"][: len(x)] + time
        for layer in range(self.config["layers_per_block"]):
            part = f"{name}.layers.{layer}"
            h = h + attention(p, f"{part}.attn", self.norm(f"{part}.ln_1", h), self.config["heads"])
            up = self.norm(f"{part}.ln_2", h) @ p[f"{part}.mlp.c_fc.weight"] + p[f"{part}.mlp.c_fc.bias"]
            up = torch.nn.functional.gelu(up, approximate="tanh")
            h = h + up @ p[f"{part}.mlp.c_proj.weight"] + p[f"{part}.mlp.c_proj.bias"]
        h = self.norm(f"{name}.ln_f", h)
        zhat = sigma * sd / math.sqrt(variance) * h + sd**2 / variance * z
        return p[f"{name}.logit_scale"] * (zhat @ self.codes.T)

    def sweep(self, x, z):
        """Logits [T, V] of the last block, from the start z [T, d]."""
        sigmas = self.config["sampler"]["sigmas"]
        for b, sigma in enumerate(sigmas):
            logits = self.block(b, x, z, sigma)
            if b + 1 < len(sigmas):
                keep = sigmas[b + 1] / sigma
                z = keep * z + (1 - keep) * (logits.softmax(-1) @ self.codes)
        return logits

    def predict(self, ids, seed, number):
        """Logits [T, V] after each of the ids, by a sweep from the noise of this number."""
        d, spread = self.config["width"], self.config["sampler"]["start_deviation"]
        noise = normal(random(stream(seed, "start"), number), len(ids) * d)
        start = torch.tensor([spread * value for value in noise], dtype=torch.float32)
        return self.sweep(torch.tensor(ids), start.to(self.dtype).reshape(len(ids), d))

    def score(self, ids, seed=1):
        """Mean cross-entropy of all ids but the first; None for a single one."""
        step, total = self.config["context"], 0.0
        for start in range(0, len(ids) - 1, step):
            window = ids[start : start + step + 1]
            shares = self.predict(window[:-1], seed, 0).log_softmax(-1)
            total -= sum(shares[place, token].item() for place, token in enumerate(window[1:]))
        return total / (len(ids) - 1) if len(ids) > 1 else None

    def write(self, prompt, count, seed=1):
        """Greedy ids after the prompt, and the least distance of a winner to the next best."""
        ids, margin = list(prompt), math.inf
        for number in range(count):
            best = self.predict(ids[-self.config["context"] :], seed, number)[-1].topk(2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            ids.append(best.indices[0].item())
        return ids[len(prompt) :], margin


class Tokens:
    """Text to ids and back: bytes and characters by themselves, GPT-2's with the library `tokenizers`."""

    def __init__(self, folder):
        saved = json.loads((folder / "tokenizer.cohort.json").read_text(encoding="utf-8"))
        if saved["kind"] == "bytes":
            self.encode = lambda text: list(text.encode())
            self.decode = lambda ids: bytes(ids).decode(errors="replace")
        elif saved["kind"] == "characters":
            self.encode = lambda text: [saved["characters"].index(character) for character in text]
            self.decode = lambda ids: "".join(saved["characters"][i] for i in ids)
        else:
            import tokenizers

            library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            self.encode, self.decode = lambda text: library.encode(text).ids, library.decode


@torch.no_grad()
def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--prompt", required=True)
    ask.add_argument("--tokens", type=int, default=20)
    ask.add_argument("--seed", type=int, default=1)
    args = ask.parse_args()
    model, tokens = Model(args.folder), Tokens(args.folder)
    ids = tokens.encode(args.prompt)
    written, _ = model.write(ids, args.tokens, args.seed)
    found = {"ids": ids, "cross_entropy": model.score(ids, args.seed), "tokens": written, "text": tokens.decode(written)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
