"""The shipped readers read back as networks, so that training can go on from them.

What is shipped is quantised: a restored network is near the one that was exported (vectors have a
cosine of .99), not the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import NodeProto, numpy_helper

from promptguard.model.packing import read_packed
from training.network import SHAPES, Network

Arrays = dict[str, np.ndarray]
_LAYER = re.compile(r"/(layers\.\d+)/(\w+)(?:/rest)?/MatMul_output")
_HEAD = re.compile(r"(message|context|document)_MatMul_output")


def read_arrays(path: Path) -> tuple[onnx.ModelProto, Arrays]:
    """Return a stored graph and its arrays by name, those beside it too."""
    # What lies beside the graph is in our own packed form, which ONNX cannot read.
    model = onnx.load(str(path), load_external_data=False)
    arrays = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if not tensor.external_data
    }
    beside = path.with_suffix(".npz")
    return model, arrays | (dict(read_packed(beside)) if beside.exists() else {})


def whole(arrays: Arrays, name: str) -> np.ndarray:
    """Return a quantised array in float; the scales run along the last axis."""
    stored = arrays[f"{name}_quantized"].astype(np.float32)
    zero = arrays[f"{name}_zero_point"].astype(np.float32)
    return (stored - zero) * arrays[f"{name}_scale"]


def name_of(node: NodeProto) -> str:
    """Return the name of the linear layer that a product belongs to."""
    if head := _HEAD.match(node.output[0]):
        return f"{head[1]}_head"
    if layer := _LAYER.match(node.output[0]):
        return f"{layer[1]}.{layer[2]}"
    raise SystemExit(f"{node.output[0]} is not a product of a known layer")


def taken_out(model: onnx.ModelProto, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """Return the channels that `outliers.py` took out of each layer; alike ones are stored once."""
    gathered = {n.output[0]: n.input[1] for n in model.graph.node if n.op_type == "Gather"}
    return {
        node.input[1].removesuffix(".few"): arrays[gathered[node.input[0]]]
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1].endswith(".few")
    }


def state_of(model: onnx.ModelProto, arrays: Arrays, hidden: int) -> Mapping[str, np.ndarray]:
    """Return a network's weights by name."""
    state = {
        name: array
        for name, array in arrays.items()
        if re.fullmatch(r"[\w.]+\.(weight|bias)", name) and not name.startswith("onnx")
    }
    if "words.rows" in arrays:
        state["words.weight"] = arrays["words.rows"].astype(np.float32) * arrays["words.scale"]
    for table in ("words.weight", "places.weight", "speakers.weight"):
        if f"{table}_quantized" in arrays:
            state[table] = whole(arrays, table)
    attentions = [node for node in model.graph.node if node.op_type == "QAttention"]
    for index, node in enumerate(attentions):
        matrix = whole(arrays, node.input[1].removesuffix("_quantized"))
        for place, part in enumerate(("query", "key", "value")):
            span = slice(place * hidden, (place + 1) * hidden)
            state[f"layers.{index}.{part}.weight"] = matrix[:, span].T
            state[f"layers.{index}.{part}.bias"] = arrays[node.input[2]][span]
    channels = taken_out(model, arrays)
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":
            name = name_of(node)
            matrix = whole(arrays, node.input[1].removesuffix("_quantized"))
            if name in channels:
                # Their rows are zero in the int8 matrix, since they are multiplied in float.
                matrix[channels[name]] = arrays[f"{name}.few"]
            state[f"{name}.weight"] = matrix.T
    return state


def restore(name: str, folder: Path) -> Network:
    """Return a shipped reader as a network."""
    shape = SHAPES[name]
    model, arrays = read_arrays(folder / f"{name}.onnx")
    state = state_of(model, arrays, shape.hidden)
    network = Network(shape, state["words.weight"].shape[0])
    missing, unexpected = network.load_state_dict(
        {k: torch.from_numpy(np.array(v, dtype=np.float32)) for k, v in state.items()},
        strict=False,
    )
    if missing or unexpected:
        raise SystemExit(f"{folder} does not hold a whole {name} reader: {missing} {unexpected}")
    return network
