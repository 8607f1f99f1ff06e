"""A model small enough to reason about: it knows eight words and sums what they mean.

Where onnx is installed, `python tests/tiny_model.py` writes the weights, `tiny.onnx`, again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from promptguard.model.artifact import MESSAGE_OUTPUTS, OUTPUTS, Artifact, open_artifact
from promptguard.model.network import BUCKETS

WEIGHTS = Path(__file__).parent / "tiny.onnx"
CLS, UNKNOWN = 101, 100
WORDS = {
    "attack": 110,
    "trick": 111,
    "reveal": 112,
    "harm": 113,
    "bread": 120,
    "water": 121,
    "flour": 122,
    "salt": 123,
}
RESTING = -4.0  # every logit of a text without a telling word
TELLING = 8.0  # what one telling word adds to its logit
THRESHOLDS = dict.fromkeys(OUTPUTS, 0.8)
ALONE = {"quick": 1.0, "shift": 0.0}
BOTH = {"quick": 0.5, "thorough": 0.5, "shift": 0.0}
READERS = ("quick.onnx", "thorough.onnx")


def write_model(folder: Path, **changes: Any) -> Artifact:
    """Write a whole model into `folder`, both readers alike; `changes` go over the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for reader in READERS:
        shutil.copy(WEIGHTS, folder / reader)
    (folder / "tokenizer.json").write_text(_tokenizer(), encoding="utf-8")
    no_pairs = np.zeros((len(MESSAGE_OUTPUTS), BUCKETS), dtype=np.int8)
    units = np.ones(len(MESSAGE_OUTPUTS), dtype=np.float32)
    np.savez_compressed(folder / "word_pairs.npz", table=no_pairs, units=units)
    manifest = {
        "name": "tiny",
        "version": "1",
        "license": "Apache-2.0",
        "base": {"quick": "none", "thorough": "none"},
        "sha256": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in (*READERS, "tokenizer.json", "word_pairs.npz")
        },
        "calibration": {name: {"alone": ALONE, "both": BOTH} for name in OUTPUTS},
        "thresholds": THRESHOLDS,
        "data": {"none": 0},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest | changes), encoding="utf-8")
    return open_artifact(folder)


def _tokenizer() -> str:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = {"[PAD]": 0, "[UNK]": UNKNOWN, "[CLS]": CLS, "[SEP]": 102, **WORDS}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(8)  # as the real base does; the encoder must switch it off
    tokenizer.enable_padding(length=8)
    return tokenizer.to_str()


def _graph() -> Any:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    table = np.zeros((128, 8), dtype=np.float32)
    table[CLS, :4] = RESTING
    for output, word in enumerate(("attack", "trick", "reveal", "harm")):
        table[WORDS[word], [0, output]] = TELLING
    table[:, 4:] = np.random.default_rng(0).normal(size=(128, 4))

    def constant(name: str, values: Any) -> Any:
        return numpy_helper.from_array(np.array(values), name)

    def node(kind: str, inputs: str, output: str, **more: Any) -> Any:
        return helper.make_node(kind, inputs.split(), [output], **more)

    nodes = [
        node("Gather", "table ids", "rows"),
        node("Cast", "mask", "floats", to=TensorProto.FLOAT),
        node("Unsqueeze", "floats last", "weight"),
        node("Mul", "rows weight", "kept"),
        node("ReduceSum", "kept first", "sums", keepdims=0),
        node("Slice", "sums zero four last", "message"),
        node("Equal", "speakers user", "is_user"),
        node("Cast", "is_user", "by_user", to=TensorProto.FLOAT),
        node("Unsqueeze", "by_user last", "users"),
        node("Mul", "kept users", "said"),
        node("ReduceSum", "said first", "by_users", keepdims=0),
        node("Slice", "by_users zero once last", "session"),
        node("Concat", "session session", "context", axis=-1),
        node("Equal", "speakers tool", "is_tool"),
        node("Cast", "is_tool", "by_tool", to=TensorProto.FLOAT),
        node("Unsqueeze", "by_tool last", "tools"),
        node("Mul", "kept tools", "brought"),
        node("ReduceSum", "brought first", "by_tools", keepdims=0),
        node("Slice", "by_tools zero once last", "orders"),
        node("Add", "orders resting", "document"),
        node("Slice", "sums four eight last", "meaning"),
        node("Tile", "meaning wide", "long"),
        node("LpNormalization", "long", "embedding", axis=-1, p=2),
    ]
    constants = [
        constant("table", table),
        constant("last", np.array([-1], dtype=np.int64)),
        constant("first", np.array([1], dtype=np.int64)),
        constant("zero", np.array([0], dtype=np.int64)),
        constant("once", np.array([1], dtype=np.int64)),
        constant("four", np.array([4], dtype=np.int64)),
        constant("eight", np.array([8], dtype=np.int64)),
        constant("wide", np.array([1, 96], dtype=np.int64)),
        constant("user", np.array(0, dtype=np.int64)),
        constant("tool", np.array(3, dtype=np.int64)),
        constant("resting", np.array(RESTING, dtype=np.float32)),
    ]
    whole = ("batch", "length")
    given = [
        helper.make_tensor_value_info(name, TensorProto.INT64, whole)
        for name in ("ids", "speakers", "mask")
    ]
    made = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", width))
        for name, width in (("message", 4), ("context", 2), ("document", 1), ("embedding", 384))
    ]
    return helper.make_graph(nodes, "tiny", given, made, constants)


def main() -> None:
    import onnx

    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(_graph(), opset_imports=opset, ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(WEIGHTS))


if __name__ == "__main__":
    main()
