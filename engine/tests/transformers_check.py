"""Checkpoints between this project and `transformers`.

read FOLDER   loads the checkpoint in FOLDER and compares its logits with expected.json
write FOLDER  writes checkpoints into folders in FOLDER, each with an expected.json

Exits with 77 when torch or transformers is missing.
"""

import json
import pathlib
import sys

try:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as error:
    print(f"Python lacks {error.name}")
    sys.exit(77)


def compute(model, ids, shape):
    model.eval()
    with torch.no_grad():
        return model(torch.tensor(ids).reshape(shape)).logits.flatten()


def read(folder):
    expected = json.loads((folder / "expected.json").read_text())
    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], f"{kind}: {info[kind]}"
    found = compute(model, expected["ids"], expected["shape"])
    golden = torch.tensor(expected["logits"])
    assert found.shape == golden.shape, (found.shape, golden.shape)
    error = (found - golden).abs().max() / golden.abs().max()
    assert error <= 2e-5, f"logits differ by {error}"


def write(folder):
    for tied in (False, True):
        torch.manual_seed(5)
        config = GPT2Config(
            vocab_size=61,
            n_positions=20,
            n_embd=24,
            n_layer=3,
            n_head=3,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=None,
        )
        model = GPT2LMHeadModel(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        target = folder / ("tied" if tied else "untied")
        model.save_pretrained(target)
        ids, shape = [(i * 7 + 3) % 61 for i in range(24)], [2, 12]
        logits = compute(model, ids, shape).tolist()
        (target / "expected.json").write_text(json.dumps({"ids": ids, "shape": shape, "logits": logits}))


{"read": read, "write": write}[sys.argv[1]](pathlib.Path(sys.argv[2]))
