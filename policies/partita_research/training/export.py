"""Writes a trained network as ONNX, with the settings of the training in its metadata.

The graph is built operator by operator instead of traced by torch: the network is small, and the
same weights give the same file.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from partita_policies.dqn.configuration import Training
from partita_policies.dqn.demand import Floats
from partita_policies.dqn.observation import (
    CANDIDATE_FEATURES,
    DUAL_VALUE,
    FEATURE_VERSION,
    STATE_FEATURES,
)
from partita_policies.dqn.served import KIND
from partita_research.training.network import SharedScorer

__all__ = ["OPSET", "export", "write"]

OPSET = 17
"""Opset of ONNX 1.12 (2022). Every ONNX Runtime for the supported Python versions has it."""
_IR = 8
"""File format version of the same release."""


def export(network: SharedScorer, training: Training, known: Floats, path: Path) -> None:
    """Write a network to a file.

    Parameters
    ----------
    network
        The network.
    training
        Settings of the training, written to the metadata.
    known
        (2, STATE_FEATURES): minimum and maximum of each state feature in training.
    path
        The file.
    """
    weights = {name: part.detach().cpu().numpy() for name, part in network.named_parameters()}
    nodes = [
        ("MatMul", ["states", "state.weight"], "state_sum"),
        ("Add", ["state_sum", "state.bias"], "state_all"),
        ("Relu", ["state_all"], "state"),
        ("MatMul", ["candidates", "candidate.weight"], "candidate_sum"),
        ("Add", ["candidate_sum", "candidate.bias"], "candidate_all"),
        ("MatMul", ["state", "context.weight"], "context_row"),
        ("Unsqueeze", ["context_row", "one"], "context"),
        ("Add", ["candidate_all", "context"], "mixed_all"),
        ("Relu", ["mixed_all"], "mixed"),
        ("MatMul", ["mixed", "deep.weight"], "deep_sum"),
        ("Add", ["deep_sum", "deep.bias"], "deep_all"),
        ("Relu", ["deep_all"], "deep"),
        ("MatMul", ["deep", "advantage.weight"], "advantage_sum"),
        ("Add", ["advantage_sum", "advantage.bias"], "advantage_all"),
        ("Squeeze", ["advantage_all", "last"], "advantage"),
    ]
    if network.dueling:
        nodes += [
            ("MatMul", ["state", "value_hidden.weight"], "value_hidden_sum"),
            ("Add", ["value_hidden_sum", "value_hidden.bias"], "value_hidden_all"),
            ("Relu", ["value_hidden_all"], "value_hidden"),
            ("MatMul", ["value_hidden", "value.weight"], "value_sum"),
            ("Add", ["value_sum", "value.bias"], "value"),
            ("Mul", ["advantage", "legal"], "legal_advantage"),
            ("ReduceSum", ["legal_advantage", "last"], "advantages"),
            ("ReduceSum", ["legal", "last"], "count_or_none"),
            ("Max", ["count_or_none", "least"], "count"),
            ("Div", ["advantages", "count"], "mean"),
            ("Sub", ["advantage", "mean"], "above"),
            ("Add", ["value", "above"], "returns"),
        ]
    else:
        weights = {name: part for name, part in weights.items() if name[:5] not in _VALUE}
        nodes += [("Identity", ["advantage"], "returns")]
    nodes += [
        ("MatMul", ["candidates", "prior"], "bets"),
        ("Squeeze", ["bets", "last"], "bet"),
        ("Add", ["returns", "bet"], "estimates"),
    ]
    constants: dict[str, NDArray[np.generic]] = {
        name: np.ascontiguousarray(part.T) for name, part in weights.items()
    }
    constants["one"] = np.array([1], np.int64)
    constants["last"] = np.array([-1], np.int64)
    constants["prior"] = np.zeros((CANDIDATE_FEATURES, 1), np.float32)
    constants["prior"][DUAL_VALUE] = network.prior
    if network.dueling:
        constants["least"] = np.array(1, np.float32)
    metadata = {
        "kind": KIND,
        "features": str(FEATURE_VERSION),
        "training": training.model_dump_json(),
        "known": json.dumps(np.round(known, 4).tolist()),
    }
    inputs: dict[str, list[str | int]] = {
        "states": ["gpus", STATE_FEATURES],
        "candidates": ["gpus", "combinations", CANDIDATE_FEATURES],
        "legal": ["gpus", "combinations"],
    }
    write(nodes, constants, inputs, metadata, path)


def write(
    nodes: list[tuple[str, list[str], str]],
    constants: Mapping[str, NDArray[np.generic]],
    inputs: Mapping[str, list[str | int]],
    metadata: Mapping[str, str],
    path: Path,
) -> None:
    """Write a graph with one output, `estimates`, of the shape (gpus, combinations).

    Parameters
    ----------
    nodes
        Operator, inputs and output of each node.
    constants
        Arrays by name.
    inputs
        Shape of each input; an axis of any size has a name instead of a number.
    metadata
        Metadata of the file.
    path
        The file.
    """
    graph = helper.make_graph(
        [helper.make_node(kind, given, [out], out) for kind, given, out in nodes],
        "partita",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info("estimates", TensorProto.FLOAT, ["gpus", "combinations"])],
        [numpy_helper.from_array(part, name) for name, part in constants.items()],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR,
        producer_name="partita",
    )
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())


_VALUE = {"value_hidden", "value"}
