"""Weights as quantised files hold them: each function gives dtype and bytes of a tensor, and the numbers that they stand for."""
import bisect
import struct

SIZES = {'F16': 2, 'F32': 4}


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


def write_gguf(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}."""
    def text(value):
        return struct.pack('<Q', len(value.encode())) + value.encode()
    header, body = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), 1) + text('general.architecture') + struct.pack('<I', 8) + text('wan'), b''
    for name, (dtype, shape, data) in tensors.items():
        header += text(name) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *reversed(shape), GGML_TYPES[dtype], len(body))
        body += data + bytes(-len(data) % 32)
    path.write_bytes(header + bytes(-len(header) % 32) + body)
    return path
