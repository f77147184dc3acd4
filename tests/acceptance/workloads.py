"""What the programs compute: kernels in torch, with random data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["KINDS"]

_CACHED_SHARE = 0.5
"""Part of the L2 cache that a tile of the cache-sensitive kernel fills: one fits, two do too,
with nothing else. An assumption."""
_ROWS = 10240
_SWEEPS = 8
"""Times that the cache-sensitive kernel goes over a tile before the next one."""

Pass = Callable[[], object]


def _cache_sensitive() -> Pass:
    """Scale each tile of a matrix several times over: from the second time on it is in the cache."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    matrix = torch.rand(_ROWS * _ROWS, device="cuda", dtype=torch.float32) + 0.5
    count = int(cache * _CACHED_SHARE) // matrix.element_size()
    tiles = torch.split(matrix, max(1, min(count, matrix.numel())))

    def one() -> None:
        for part in tiles:
            for _ in range(_SWEEPS):
                part.mul_(1.0)

    return one


def _inference() -> Pass:
    """A vision transformer of the dimensions of YOLOS-small, which nos ran: 12 layers, width 384,
    6 heads, patches of 16 x 16 of a picture of 512 x 864 and 100 tokens of detection
    (https://github.com/huggingface/transformers, `YolosConfig` and the converter of YOLOS).
    Its weights are random.
    """
    layer = torch.nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda().eval()
    tokens = torch.rand(1, 32 * 54 + 1 + 100, 384, device="cuda")

    def one() -> None:
        with torch.inference_mode():
            model(tokens)

    return one


def _training() -> Pass:
    """One step of training a small convolutional network with Adam."""
    layers: list[torch.nn.Module] = []
    before = 3
    for width in (64, 128, 256):
        layers += [torch.nn.Conv2d(before, width, 3, padding=1), torch.nn.ReLU()]
        layers += [torch.nn.MaxPool2d(2)]
        before = width
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(4096, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    pictures = torch.rand(256, 3, 32, 32, device="cuda")
    labels = torch.randint(10, (256,), device="cuda")

    def one() -> None:
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()

    return one


def _light() -> Pass:
    """A short kernel and a longer pause, as a service with few requests has it."""
    square = torch.rand(512, 512, device="cuda")

    def one() -> None:
        torch.mm(square, square)
        torch.cuda.synchronize()
        time.sleep(0.002)

    return one


KINDS: dict[str, Callable[[], Pass]] = {
    "inference": _inference,
    "training": _training,
    "light": _light,
    "cache-sensitive": _cache_sensitive,
}
