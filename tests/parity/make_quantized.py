#!/usr/bin/env python3
"""python tests/parity/make_quantized.py: writes data/quantized/layers.safetensors with the package comfy-kitchen: small matrices in each format of ComfyUI that the
reader takes, with descriptions as its files have them. Writes golden.safetensors beside it: the same matrices in fp32, as that package dequantizes them. Needs
comfy-kitchen 0.2.40, torch and safetensors."""
import json
import pathlib

import torch
from comfy_kitchen.backends.eager import convrot_w4a4, quantization, w4a8_int8
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parent / "data" / "quantized"
tensors, golden, described = {}, {}, {}


def text(value, padding=b""):
    return torch.frombuffer(bytearray(json.dumps(value).encode() + padding), dtype=torch.uint8)


def add(name, weight, expected, mark=None, padding=b"", **beside):
    """Adds a layer to the file, and its expected numbers to the golden file. `mark` is the description that a tensor of the layer holds; None if the file's header holds it."""
    tensors[f"{name}.weight"] = weight.clone(memory_format=torch.contiguous_format)
    for part, tensor in beside.items():
        tensors[f"{name}.{part}"] = tensor.clone(memory_format=torch.contiguous_format)
    if mark is not None:
        tensors[f"{name}.comfy_quant"] = text(mark, padding)
    golden[name] = expected.to(torch.float32).clone(memory_format=torch.contiguous_format)


def matrix(rows, columns):
    values = torch.randn(rows, columns) * 0.02
    values[:, 3] *= 20  # an outlier channel
    return values


def with_least(codes):
    codes[0, 0] = -128  # symmetric formats do not need -128, but published files contain it
    return codes


def add_int8():
    codes, scale = quantization.quantize_int8_tensorwise(matrix(3, 64))
    add("int8_one", with_least(codes), quantization.dequantize_int8_simple(codes, scale), weight_scale=scale)
    codes, scale = quantization.quantize_int8_rowwise(matrix(5, 40))
    add("int8_rows", with_least(codes), quantization.dequantize_int8_simple(codes, scale), {"format": "int8_tensorwise", "per_row": True}, weight_scale=scale)
    marks = {4: {"format": "int8_tensorwise", "params": {"convrot": True, "convrot_groupsize": 4}},
             16: {"format": "int8_tensorwise", "params": {"convrot": True, "convrot_groupsize": 16}},
             64: {"convrot": True, "convrot_groupsize": 64, "per_row": True},
             256: {"format": "int8_tensorwise", "convrot": True},
             1024: {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 1024},
             4096: {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 4096}}
    for group, mark in marks.items():
        columns = 12 if group == 4 else group if group > 256 else 3 * group  # 12 columns are not whole blocks of 8
        codes, scale = quantization.quantize_int8_convrot_weight(matrix(3, columns).bfloat16(), group)
        add(f"convrot_{group}", with_least(codes), quantization.dequantize_int8_convrot_weight(codes, scale, group), mark, b"\0\0\0" if group == 16 else b"", weight_scale=scale)
    codes, scale = quantization.quantize_int8_convrot_weight(matrix(3, 256), 256)
    add("header", codes, quantization.dequantize_int8_convrot_weight(codes, scale, 256), weight_scale=scale.view(-1))
    described["header"] = {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 256}


def add_fours():
    for name, rows, columns in (("nvfp4", 130, 80), ("nvfp4_padded", 5, 40)):
        values = matrix(rows, columns)
        whole = values.abs().max() / (448 * 6)
        codes, scales = quantization.quantize_nvfp4(values, whole, pad_16x=True)
        expected = quantization.dequantize_nvfp4(codes, whole, scales, torch.float32)[:rows, :columns]
        add(name, codes, expected, {"format": "nvfp4"}, weight_scale=scales, weight_scale_2=whole)
        if name == "nvfp4":
            swapped = (codes << 4 | codes >> 4)
            add("nvfp4_low_first", swapped, expected, weight_scale=scales, alpha=whole / 4, input_global_scale=torch.tensor([4.0]))
            columns_by = torch.rand(columns).bfloat16() + 0.5
            add("awq_scaled", codes, expected * columns_by.float(), {"format": "nvfp4", "full_precision_matrix_mult": True}, weight_scale=scales.view(torch.uint8),
                weight_scale_2=whole, pre_quant_scale=columns_by)
    codes, scales = quantization.quantize_mxfp8(matrix(33, 160), pad_32x=True)
    add("mxfp8", codes, quantization.dequantize_mxfp8(codes, scales, torch.float32)[:33], weight_scale=scales.view(torch.uint8))
    described["mxfp8"] = "mxfp8"
    codes, scale = convrot_w4a4.quantize_convrot_w4a4_weight(matrix(5, 256))
    add("w4a4", codes, convrot_w4a4.dequantize_convrot_w4a4_weight(codes, scale), {"format": "convrot_w4a4", "linear_dtype": "int4"}, weight_scale=scale)


def add_w4a8():
    for name, options in {"w4a8": {}, "w4a8_uniform": {"codebook": False}, "w6a8": {"bits": 6, "codebook": False}, "w4a8_of_32": {"group_size": 32, "scale_dtype": torch.float32}}.items():
        codes, relative, channel, correction, codebook = w4a8_int8.quantize_w4a8_int8_weight(matrix(4, 256), **options)
        assert correction is None
        group = options.get("group_size", 16)
        expected = w4a8_int8.dequantize_w4a8_int8_weight(codes, relative, channel, codebook, None, group, 256, torch.float32)
        beside = {} if codebook is None else {"weight_codebook": codebook.float()}
        add(name, codes, expected, {"format": "asym_w4a8_int8", "group_size": group, "convrot_groupsize": 256}, weight_s_rel=relative, weight_s_channel=channel, **beside)


def add_awq():
    codes = torch.randint(-128, 128, (6, 64), dtype=torch.int8)  # two 4-bit numbers per byte: 128 columns
    scales, zeros = (torch.rand(2, 6) * 0.01).bfloat16(), (torch.randn(2, 6) * 0.01).bfloat16()
    numbers = torch.stack([codes.int() & 15, codes.int() >> 4 & 15], -1).view(6, 2, 64).float()
    add("awq", codes, ((numbers - 8) * scales.float().t().unsqueeze(-1) + zeros.float().t().unsqueeze(-1)).view(6, 128), {"format": "awq_w4a16", "group_size": 64},
        weight_scale=scales, weight_zeros=zeros)


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(1)
    for make in (add_int8, add_fours, add_w4a8, add_awq):
        make()
    save_file(tensors, FOLDER / "layers.safetensors", {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": described})})
    save_file(golden, FOLDER / "golden.safetensors")


if __name__ == "__main__":
    main()
