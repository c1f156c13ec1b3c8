#!/usr/bin/env python3
"""python tests/parity/make_gguf.py: writes data/gguf/blocks.gguf with the package gguf: a tensor of each type of weights that the reader takes. Writes blocks.safetensors
beside it: the same tensors in fp32, as that package unpacks them. The package cannot pack K and IQ types. Their blocks are random bytes with scales as large as
those of weights. Needs gguf 0.19 and safetensors."""
import pathlib

import gguf
import numpy
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent / "data" / "gguf"
PACKED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
RANDOM = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,)}  # {type: offsets of the fp16 scales in a block}


def random_blocks(generator, kind, scales):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (2, size), dtype=numpy.uint8)
    for row, place in ((row, place) for row in range(2) for place in scales):
        number = numpy.float16(generator.uniform(-3e-5, 3e-5) if row == 0 else generator.uniform(0.01, 0.02))  # scales of row 0 are subnormal in fp16, as those of small weights are
        blocks[row, place:place + 2] = numpy.frombuffer(number.tobytes(), numpy.uint8)
    return blocks


def main():
    FOLDER.mkdir(exist_ok=True)
    generator = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(FOLDER / "blocks.gguf", "wan")
    golden = {}

    def add(name, packed, kind):
        writer.add_tensor(name, packed, raw_dtype=kind)
        golden[name] = gguf.dequantize(packed, kind).astype(numpy.float32)

    for name in PACKED:
        values = generator.normal(0, 0.02, (3, 64)).astype(numpy.float32)
        values[1, :32] = 0
        kind = gguf.GGMLQuantizationType[name]
        add(name, gguf.quantize(values, kind), kind)
    for name, scales in RANDOM.items():
        kind = gguf.GGMLQuantizationType[name]
        add(name, random_blocks(generator, kind, scales), kind)
    for name in ("F32", "F16", "BF16"):
        kind = gguf.GGMLQuantizationType[name]
        packed = gguf.quantize(generator.normal(0, 1, (2, 3, 1, 2, 4)).astype(numpy.float32), kind)
        add(name, packed, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(golden, FOLDER / "blocks.safetensors")


if __name__ == "__main__":
    main()
