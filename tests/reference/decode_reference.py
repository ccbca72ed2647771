"""Writes decode.json: what transformers writes greedily with the golden GPT-2 weights.

    python decode_reference.py --golden ../golden

For every `gpt2-*.json`, prompts of several lengths and the tokens that follow. Up to the model's positions
`generate` with its cache has written them, as one batch a prompt; beyond them the last tokens alone are seen, window
after window. Only texts whose every step has a winner by a margin are kept, so that rounding cannot change them.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

# Least distance of the best logit to the next one: a hundred times what f32 and f64 differ by.
MARGIN = 2e-3


def model_of(folder, name, config):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=config["n_layer"], n_embd=config["d"], n_head=config["heads"], n_positions=config["n_positions"],
        vocab_size=config["vocab"], activation_function="gelu_new", layer_norm_epsilon=1e-5,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=config["tied"],
        bos_token_id=None, eos_token_id=None, attn_implementation="eager",
    )).eval()
    state = load_file(folder / f"{name}.weights.safetensors")
    if config["tied"]:
        state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state, strict=True)
    return model


@torch.no_grad()
def whole_windows(model, prompt, count):
    """Greedy tokens in f64, from the last tokens that fit; and the smallest margin."""
    exact, text, margin = model.double(), list(prompt), float("inf")
    for _ in range(count):
        window = torch.tensor([text[-model.config.n_positions:]])
        best = exact(window, use_cache=False).logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        text.append(best.indices[0].item())
    model.float()
    return text[len(prompt):], margin


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--golden", type=Path, required=True)
    args = ask.parse_args()
    torch.set_num_threads(1)
    found = {}
    for path in sorted(args.golden.glob("gpt2-*.json")):
        config = json.loads(path.read_text(encoding="utf-8"))["config"]
        model = model_of(args.golden, path.stem, config)
        positions, texts, seed = config["n_positions"], [], 0
        for length in [1, 2, 5, positions // 2, positions - 1, positions, positions + 5]:
            while True:
                seed += 1
                prompt = torch.randint(config["vocab"], (length,), generator=torch.Generator().manual_seed(seed))
                count = 2 * positions if length == 5 else positions + 1 - min(length, positions)
                tokens, margin = whole_windows(model, prompt.tolist(), count)
                if margin >= MARGIN:
                    break
            within = min(count, positions + 1 - length)
            if within > 0:
                cached = model.generate(
                    prompt[None], attention_mask=torch.ones(1, length), do_sample=False, use_cache=True,
                    max_new_tokens=within, min_new_tokens=within, pad_token_id=0,
                )[0, length:].tolist()
                assert cached == tokens[:within], (path.stem, length)
            texts.append({"prompt": prompt.tolist(), "tokens": tokens, "margin": margin})
        found[path.stem] = texts
    out = {"transformers": transformers.__version__, "texts": found}
    (args.golden / "decode.json").write_text(json.dumps(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
