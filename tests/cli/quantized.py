"""Packs weights as quantized files hold them. The function of a simple format returns a tensor's dtype, its bytes, and the numbers that the bytes represent. The
function of a format of ComfyUI takes the shape, too. It returns the tensor, the tensors beside it, a description of the format, and the numbers."""
import bisect
import collections
import math
import struct
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / 'fuzz'))
import torch_files

SIZES = {'F16': 2, 'F32': 4}
STORAGES = {'F16': 'HalfStorage', 'F32': 'FloatStorage', 'BF16': 'BFloat16Storage'}


def halves(numbers):
    return struct.pack(f'<{len(numbers)}e', *numbers)


def half(number):
    return struct.unpack('<e', struct.pack('<e', number))[0]


def f16(numbers):
    return 'F16', halves(numbers), [half(number) for number in numbers]


def f32(numbers):
    data = struct.pack(f'<{len(numbers)}f', *numbers)
    return 'F32', data, list(struct.unpack(f'<{len(numbers)}f', data))


def blocks_of_32(numbers):
    return [numbers[i:i + 32] for i in range(0, len(numbers), 32)]


def q8_0(numbers):
    data, values = b'', []
    for block in blocks_of_32(numbers):
        scale = half(max(map(abs, block)) / 127 or 1)
        steps = [max(-128, min(127, round(number / scale))) for number in block]
        data += halves([scale]) + struct.pack('<32b', *steps)
        values += [scale * step for step in steps]
    return 'Q8_0', data, values


def q4_0(numbers):
    data, values = b'', []
    for block in blocks_of_32(numbers):
        scale = half(max(map(abs, block)) / 7 or 1)
        steps = [max(0, min(15, round(number / scale) + 8)) for number in block]
        data += halves([scale]) + bytes(steps[i] | steps[i + 16] << 4 for i in range(16))
        values += [scale * (step - 8) for step in steps]
    return 'Q4_0', data, values


def int8(numbers, scale):
    steps = [max(-127, min(127, round(number / scale))) for number in numbers]
    return 'I8', struct.pack(f'<{len(steps)}b', *steps), [scale * step for step in steps]


def _e4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    number = mantissa / 8 * 2 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2 ** (exponent - 7)
    return -number if byte & 128 else number


_E4M3 = [_e4m3(byte) for byte in range(127)]  # the 127 nonnegative e4m3 numbers, without NaN


def e4m3(numbers, scale):
    data = bytes(min(bisect.bisect(_E4M3, abs(number) / scale), 126) | (128 if number < 0 else 0) for number in numbers)
    return 'F8_E4M3', data, [scale * _e4m3(byte) for byte in data]


def e5m2(numbers, scale):
    data = bytes(halves([number / scale])[1] for number in numbers)
    return 'F8_E5M2', data, [scale * struct.unpack('<e', bytes([0, byte]))[0] for byte in data]


def _rows(numbers, columns):
    return [list(numbers[i:i + columns]) for i in range(0, len(numbers), columns)]


def _round(number):
    return f32([number])[2][0]


def _flat(rows):
    return [number for row in rows for number in row]


def rotated(row, group):
    """Multiplies each group of `group` columns of the row by the regular Hadamard matrix of that size, a power of 4. Returns the product."""
    stride, row = 1, list(row)
    while stride < group:
        for first in range(0, len(row), 4 * stride):
            for i in range(first, first + stride):
                four = [row[i + j * stride] for j in range(4)]
                for j in range(4):
                    row[i + j * stride] = sum(four) / 2 - four[3 - j]
        stride *= 4
    return row


def _whole_rows(numbers, columns, most, group):
    """Rotates each row by groups of columns and rounds it to integers of at most `most`. Returns the integers, a scale for each row, and the numbers that they represent."""
    steps, scales, values = [], [], []
    for row in (rotated(each, group) for each in _rows(numbers, columns)):
        scales.append(_round(max(map(abs, row)) / most or 1))
        steps.append([max(-most - (most == 127), min(most, round(number / scales[-1]))) for number in row])
        if most == 127:
            steps[-1][0] = -128
        values += [_round(scales[-1] * number) for number in rotated(steps[-1], group)]
    return steps, ('F32', [len(scales), 1], f32(scales)[1]), values


def _nibbles(steps, even_high=False):
    return bytes((a & 15) << 4 * even_high | (b & 15) << 4 * (not even_high) for a, b in zip(steps[0::2], steps[1::2]))


def int8_convrot(shape, numbers):
    group = 16 if shape[1] % 16 == 0 else 4
    steps, scale, values = _whole_rows(numbers, shape[1], 127, group)
    return ('I8', shape, struct.pack(f'<{len(numbers)}b', *_flat(steps))), {'weight_scale': scale}, {'format': 'int8_tensorwise', 'convrot': True, 'convrot_groupsize': group}, values


def w4a4(shape, numbers):
    group = 16 if shape[1] % 16 == 0 else 4
    steps, scale, values = _whole_rows(numbers, shape[1], 7, group)
    return ('I8', [shape[0], shape[1] // 2], _nibbles(_flat(steps))), {'weight_scale': scale}, {'format': 'convrot_w4a4', 'convrot_groupsize': group}, values


def _tiled(scales, blocks):
    """Arranges one-byte scales [rows, blocks] in tiles of 128 rows and 4 blocks, as NVIDIA's block-scaled formats do. Returns the padded shape and the bytes."""
    rows, wide = -(-len(scales) // 128) * 128, -(-blocks // 4)
    data = bytearray(rows * wide * 4)
    for r, row in enumerate(scales):
        for c, scale in enumerate(row):
            data[(r // 128 * wide + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = scale
    return [rows, wide * 4], bytes(data)


def _padded(numbers, shape, unit):
    rows, columns = (-(-size // unit) * unit for size in shape)
    return [row + [0.0] * (columns - shape[1]) for row in _rows(numbers, shape[1])] + [[0.0] * columns] * (rows - shape[0]), rows, columns


def nvfp4(shape, numbers):
    rows, height, columns = _padded(numbers, shape, 16)
    levels = [0, .5, 1, 1.5, 2, 3, 4, 6]
    whole = _round(max(map(abs, numbers)) / 2688)
    codes, scales, values = [], [], []
    for row in rows:
        scales.append([])
        for i in range(0, columns, 16):
            block = row[i:i + 16]
            byte = e4m3([max(map(abs, block)) / 6 / whole], 1)[1][0] or 1
            scale = _round(whole * _e4m3(byte))
            scales[-1].append(byte)
            for number in block:
                code = min(range(8), key=lambda level: abs(levels[level] - abs(number) / scale))
                codes.append(code | (8 if number < 0 else 0))
                values.append(_round((-1 if number < 0 else 1) * levels[code] * scale))
    values = _flat(row[:shape[1]] for row in _rows(values, columns)[:shape[0]])
    beside = {'weight_scale': ('F8_E4M3', *_tiled(scales, columns // 16)), 'weight_scale_2': ('F32', [], f32([whole])[1])}
    return ('U8', [height, columns // 2], _nibbles(codes, even_high=True)), beside, {'format': 'nvfp4'}, values


def mxfp8(shape, numbers):
    rows, height, columns = _padded(numbers, shape, 32)
    codes, scales, values = b'', [], []
    for row in rows:
        scales.append([])
        for i in range(0, columns, 32):
            exponent = max(-100, math.ceil(math.log2(max(map(abs, row[i:i + 32])) / 448 or 1e-30)))
            _, data, back = e4m3(row[i:i + 32], 2.0 ** exponent)
            scales[-1].append(exponent + 127)
            codes, values = codes + data, values + back
    values = _flat(row[:shape[1]] for row in _rows(values, columns)[:shape[0]])
    return ('F8_E4M3', [height, columns], codes), {'weight_scale': ('U8', *_tiled(scales, columns // 32))}, {'format': 'mxfp8'}, values


def scaled_columns(shape, numbers):
    """Packs in int8 with a scale for each row and a factor for each column (pre_quant_scale), as AWQ's files do."""
    factors = [0.5 + column % 3 for column in range(shape[1])]
    steps, scale, values = _whole_rows([number / factors[i % shape[1]] for i, number in enumerate(numbers)], shape[1], 127, 1)
    values = [_round(value * factors[i % shape[1]]) for i, value in enumerate(values)]
    beside = {'weight_scale': scale, 'pre_quant_scale': ('F32', [shape[1]], f32(factors)[1])}
    return ('I8', shape, struct.pack(f'<{len(numbers)}b', *_flat(steps))), beside, {'format': 'int8_tensorwise'}, values


GGML_TYPES = {'F32': 0, 'F16': 1, 'Q4_0': 2, 'Q8_0': 8}


def write_gguf(path, tensors, keys=b'', count=0, architecture='wan'):
    """Writes a GGUF file and returns its path. `tensors` is {name: (dtype, shape, bytes)}. `keys` holds the bytes of `count` more key-value pairs."""
    header, body = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), 1 + count) + gguf_key('general.architecture', architecture) + keys, b''
    for name, (dtype, shape, data) in tensors.items():
        header += gguf_text(name) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *reversed(shape), GGML_TYPES[dtype], len(body))
        body += data + bytes(-len(data) % 32)
    path.write_bytes(header + bytes(-len(header) % 32) + body)
    return path


def gguf_text(value):
    return struct.pack('<Q', len(value.encode())) + value.encode()


def gguf_key(name, value):
    """Returns the bytes of a GGUF key-value pair. The value is a string, a bool, a number, a list of these, or bytes."""
    def item(each):
        return (8, gguf_text(each)) if isinstance(each, str) else (7, bytes([each])) if isinstance(each, bool) else (6, struct.pack('<f', each)) if isinstance(each, float) else (5, struct.pack('<i', each))
    if isinstance(value, bytes):
        kind, data = 9, struct.pack('<IQ', 0, len(value)) + value
    elif isinstance(value, list):
        kind, data = 9, struct.pack('<IQ', item(value[0])[0], len(value)) + b''.join(item(each)[1] for each in value)
    else:
        kind, data = item(value)
    return gguf_text(name) + struct.pack('<I', kind) + data


def write_pth(path, tensors=None, beside=None, transposed=False, parameters=False, **models):
    """Writes a file as torch.save() does, with a storage for each tensor. `tensors` is {name: (dtype, shape, bytes)}. `models` holds such tensors by a model's name, as
    a trainer saves several models. `beside` holds entries beside a "state_dict". With `transposed`, matrices are stored column by column. With
    `parameters`, tensors are stored as torch's class Parameter."""
    storages = {}

    def state_of(tensors):
        state = {}
        for name, (dtype, shape, data) in tensors.items():
            strides, key = [1], str(len(storages))
            for size in reversed(shape[1:]):
                strides.insert(0, size * strides[0])
            if transposed and len(shape) == 2:
                (rows, columns), size = shape, SIZES[dtype]
                strides = [1, rows]
                data = b''.join(data[size * (row * columns + column):][:size] for column in range(columns) for row in range(rows))
            stored = torch_files.Stored(STORAGES[dtype], key, len(data) // SIZES[dtype])
            state[name] = torch_files.torch_tensor(stored, 0, tuple(shape), tuple(strides))
            if parameters:
                state[name] = torch_files.Call(torch_files.UTILS._rebuild_parameter, state[name], True, collections.OrderedDict())
            storages[key] = data
        return state
    value = {name: state_of(each) for name, each in models.items()} if tensors is None else state_of(tensors)
    path.write_bytes(torch_files.torch_zip(value if beside is None else {'state_dict': value} | beside, storages))
    return path
