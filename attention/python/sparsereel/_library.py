"""Loads libsparsereel_attention with ctypes and declares the structs and functions of sparsereel/attention.h. Raises AttentionError for an error status."""
import ctypes
import ctypes.util
import os
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint8, c_uint64, c_void_p

NAME = 'libsparsereel_attention.so'
VERSION = '0.1'
CPU = -1
OK, BAD_ARGUMENT, UNSUPPORTED, TOO_SHORT = 0, 1, 3, 5
FP32, FP16, BF16 = range(3)
SELECTIONS = {'topk': 0, 'cdf': 1, 'error': 2, 'dense': 3, 'block_error': 4}
DROPPED = {'mean': 0, 'none': 1}
RANKINGS = {'error': 0, 'mass': 1}
ORDERS = {'hilbert': 0, 'native': 1, 'time-major': 2, 'morton': 3}
COUNT_KEPT, COUNT_SKIPPED_PV, COUNTS = 0, 1, 4


class AttentionError(RuntimeError):
    """A failure of the library. The message gives its cause and a remedy. `status` is a value of sparsereel_status in sparsereel/attention.h."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Tensor(Structure):
    _fields_ = [('data', c_void_p), ('batch_stride', c_int64), ('token_stride', c_int64), ('head_stride', c_int64)]


class HeadPolicy(Structure):
    _fields_ = [('selection', c_int), ('topk', c_double), ('cdf', c_double), ('error', c_double), ('similarity', c_double), ('pv_threshold', c_double)]


class Policy(Structure):
    _fields_ = [('all', HeadPolicy), ('heads', POINTER(HeadPolicy)), ('dropped', c_int), ('ranking', c_int), ('cell', c_int64), ('selection_rows', c_int64),
                ('dense_operations', c_double)]


class Prologue(Structure):
    _fields_ = [('norm', c_int), ('across_heads', c_int), ('eps', c_double), ('q_weight', POINTER(c_float)), ('q_bias', POINTER(c_float)),
                ('k_weight', POINTER(c_float)), ('k_bias', POINTER(c_float)), ('rotary_cos', POINTER(c_float)), ('rotary_sin', POINTER(c_float)),
                ('rotary_pairs', c_void_p), ('interleaved', c_int)]


class Parts(Structure):
    _fields_ = [('text_q_weight', POINTER(c_float)), ('text_k_weight', POINTER(c_float)), ('rotary_positions', POINTER(c_float)),
                ('rotary_frequencies', POINTER(c_float))]


class Call(Structure):
    _fields_ = [('size', c_size_t), ('element', c_int), ('batch', c_int64), ('heads', c_int64), ('queries', c_int64), ('keys', c_int64), ('head_dim', c_int64),
                ('q', Tensor), ('k', Tensor), ('v', Tensor), ('out', Tensor), ('lse', POINTER(c_float)), ('scale', c_double), ('quantized', c_int),
                ('text_tokens', c_int64), ('causal', c_int), ('key_lengths', POINTER(c_int64)), ('policy', Policy), ('map', POINTER(c_uint8)),
                ('map_rows', c_int64), ('prologue', Prologue), ('counts', POINTER(c_uint64)), ('kv_heads', c_int64), ('arithmetic', c_int64), ('parts', Parts)]


def _candidates():
    """Returns the paths at which the library may be. If $SPARSEREEL_ATTENTION_LIBRARY is set, this is the only one. Otherwise they are, in order: this package's folder,
    where a wheel puts the library; the lib folder of this Python; and plain names, which the system's loader looks up in its own folders."""
    named = os.environ.get('SPARSEREEL_ATTENTION_LIBRARY')
    if named:
        return [named]
    folders = os.path.dirname(os.path.abspath(__file__)), sys.prefix
    return [path for path in (os.path.join(folder, 'lib', NAME) for folder in folders) if os.path.exists(path)] + [NAME, f'{NAME}.{VERSION}']


def _load():
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
            continue
        return _declared(library, path)
    raise ImportError(f'no {NAME}: {"; ".join(reasons)}. Install it with "cmake --install build --component attention --prefix PREFIX", '
                      f'and set SPARSEREEL_ATTENTION_LIBRARY to PREFIX/lib/{NAME}')


def _declared(library, path):
    status, handle, call = c_int, c_void_p, POINTER(Call)
    functions = {
        'sparsereel_status_name': (c_char_p, [c_int]),
        'sparsereel_message': (c_char_p, []),
        'sparsereel_attention_version': (c_char_p, []),
        'sparsereel_attention_has_cuda': (c_int, []),
        'sparsereel_attention_create': (status, [c_int, POINTER(c_void_p)]),
        'sparsereel_attention_set_threads': (status, [handle, c_int]),
        'sparsereel_attention_call_init': (status, [call, c_size_t]),
        'sparsereel_attention_workspace_size': (status, [handle, call, POINTER(c_size_t)]),
        'sparsereel_attention_run': (status, [handle, call, c_void_p, c_size_t, c_void_p]),
        'sparsereel_attention_total_blocks': (status, [handle, call, POINTER(c_int64)]),
        'sparsereel_attention_describe': (status, [handle, call, c_char_p, c_size_t]),
        'sparsereel_token_order': (status, [c_int, c_int64, c_int64, c_int64, POINTER(c_int64), POINTER(c_int64)]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    version = library.sparsereel_attention_version().decode()
    if not version.startswith(VERSION + '.'):
        raise ImportError(f'{path} is version {version}, this package is for {VERSION}: install both from one source tree')
    return library


LIBRARY = _load()


def check(status):
    if status != OK:
        raise AttentionError(status, LIBRARY.sparsereel_message().decode())


def new_call():
    """Returns a call whose fields have their default values."""
    call = Call()
    check(LIBRARY.sparsereel_attention_call_init(byref(call), ctypes.sizeof(call)))
    return call


def create(device):
    """Returns a new handle of a GPU or of the CPU. Raises AttentionError if the library cannot use the device."""
    handle = c_void_p()
    check(LIBRARY.sparsereel_attention_create(device, byref(handle)))
    return handle
