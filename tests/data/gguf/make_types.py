"""Makes types.npz: blocks of every tensor type that conversion reads and the values that PyPI's gguf 0.19.0 gives for
them. Needs gguf and numpy.

Usage: python make_types.py
"""

import pathlib

import gguf
import numpy as np

BLOCKS = 3
# Where a block's float16 scales begin.
SCALES = {
    "F32": [],
    "F16": [],
    "BF16": [],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
}

random = np.random.default_rng(20261130)
arrays = {}
for name, scales in SCALES.items():
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    if values == 1:
        numbers = random.normal(size=64).astype(np.float32)
        if name == "F32":
            blocks = numbers.view(np.uint8)
        elif name == "F16":
            blocks = numbers.astype(np.float16).view(np.uint8)
        else:
            blocks = (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        blocks = random.integers(0, 256, size=(BLOCKS, size), dtype=np.uint8)
        for begin in scales:
            half = random.normal(scale=0.05, size=BLOCKS).astype(np.float16)
            blocks[:, begin : begin + 2] = half.view(np.uint8).reshape(BLOCKS, 2)
    blocks = blocks.reshape(1, -1)
    arrays[name + "_blocks"] = blocks.ravel()
    arrays[name + "_values"] = gguf.dequantize(blocks, kind).astype(np.float32).ravel()
np.savez_compressed(pathlib.Path(__file__).with_name("types.npz"), **arrays)
