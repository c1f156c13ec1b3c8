"""Makes weights as quantized files hold them. Each function returns the dtype and bytes of a tensor, and the numbers that they represent."""
import bisect
import collections
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


_E4M3 = [_e4m3(byte) for byte in range(127)]  # without NaN


def e4m3(numbers, scale):
    data = bytes(min(bisect.bisect(_E4M3, abs(number) / scale), 126) | (128 if number < 0 else 0) for number in numbers)
    return 'F8_E4M3', data, [scale * _e4m3(byte) for byte in data]


def e5m2(numbers, scale):
    data = bytes(halves([number / scale])[1] for number in numbers)
    return 'F8_E5M2', data, [scale * struct.unpack('<e', bytes([0, byte]))[0] for byte in data]


GGML_TYPES = {'F32': 0, 'F16': 1, 'Q4_0': 2, 'Q8_0': 8}


def write_gguf(path, tensors, keys=b'', count=0, architecture='wan'):
    """Returns a GGUF file. tensors: {name: (dtype, shape, bytes)}. keys: `count` further key-values."""
    header, body = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), 1 + count) + gguf_key('general.architecture', architecture) + keys, b''
    for name, (dtype, shape, data) in tensors.items():
        header += gguf_text(name) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *reversed(shape), GGML_TYPES[dtype], len(body))
        body += data + bytes(-len(data) % 32)
    path.write_bytes(header + bytes(-len(header) % 32) + body)
    return path


def gguf_text(value):
    return struct.pack('<Q', len(value.encode())) + value.encode()


def gguf_key(name, value):
    """Returns the GGUF key-value of a text, a flag, or a list of texts, numbers or bytes."""
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
    """Writes a file as torch.save() does, with a storage for each tensor. tensors: as above, or models by their names, as a trainer saves them. beside: entries
    beside a "state_dict". transposed: matrices are stored by columns."""
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
