"""What the command-line tests share: running the program, reading what it wrote. Standard library only.

By hand: SPARSEREEL=build/sparsereel python3 tests/cli/generate_test.py
"""
import ctypes
import hashlib
import json
import math
import os
import pty
import resource
import select
import shutil
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from families import family_of
from fork_server import run_forked

ROOT = Path(__file__).resolve().parents[2]
# Absolute, since tests run in folders of their own.
PROGRAM = os.path.abspath(os.environ.get('SPARSEREEL', ROOT / 'build' / 'sparsereel'))
MODEL = os.path.abspath(os.environ.get('SPARSEREEL_TEST_MODEL', ROOT / 'tests' / 'parity' / 'data' / 'pipeline'))
FAMILY = family_of(MODEL)
PROMPT = 'a red circle moving to the right on a blue background'


needs_gnuplot = unittest.skipUnless(shutil.which('gnuplot'), 'needs gnuplot (package gnuplot-nox)')


def wait_until(event, process=None, seconds=60):
    """Returns what `event` returns once that is true. Ends early where the process has ended: with what `event` returns then. AssertionError: the time is over."""
    end = time.monotonic() + seconds
    while True:
        has_ended = process is not None and process.poll() is not None  # asked first: an event may come just before the end
        result = event()
        if result or has_ended:
            return result
        if time.monotonic() > end:
            raise AssertionError(f'it did not happen within {seconds} s')
        time.sleep(0.002)  # the one poll of these tests: files and processes of others tell nobody


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}, and the metadata under '__metadata__'."""
    data = Path(path).read_bytes()
    size, = struct.unpack('<Q', data[:8])
    header = json.loads(data[8:8 + size])
    body = data[8 + size:]
    result = {'__metadata__': header.pop('__metadata__', {})}
    for name, entry in header.items():
        begin, end = entry['data_offsets']
        result[name] = (entry['dtype'], entry['shape'], body[begin:end])
    return result


def read_weights(folder):
    """Of a component's folder, all shards: {name: (dtype, shape, bytes)}."""
    tensors = {}
    for file in sorted(folder.glob('*.safetensors')):
        tensors |= read_safetensors(file)
    del tensors['__metadata__']
    return tensors


def write_safetensors(path, tensors):
    header, body = {}, b''
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text + body)
    return path


def floats(tensor):
    dtype, _, data = tensor
    assert dtype == 'F32', dtype
    return struct.unpack(f'<{len(data) // 4}f', data)


def psnr(pixels, reference):
    """In dB, of two videos' pixels in 0 to 1."""
    error = sum((a - b) ** 2 for a, b in zip(pixels, reference, strict=True)) / len(reference)
    return math.inf if error == 0 else -10 * math.log10(error)


def write_checkpoint(path, identity='of another run'):
    """What a run finds of a denoising that was cut short, but for the tensors to go on from."""
    header = json.dumps({'__metadata__': {'identity': identity, 'run': '{}'}, 'latents': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}).encode()
    Path(path).write_bytes(struct.pack('<Q', len(header)) + header + bytes(4))


def limited(size):
    """Files may not grow past `size`: write() fails as on a full disk."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return {'preexec_fn': limit}


def kept_off():
    """What has no write permission is not written, by root neither."""
    def drop():
        drop_from_bounding_set, override_permissions = 24, 1
        ctypes.CDLL(None).prctl(drop_from_bounding_set, override_permissions, 0, 0, 0)
    return {'preexec_fn': drop}


def limited_memory(size):
    """No more than `size` bytes of addresses: what asks for more fails."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    return {'preexec_fn': limit}


def without(descriptors):
    """A process in which these standard descriptors are closed."""
    def close():
        for descriptor in descriptors:
            os.close(descriptor)
    return {'preexec_fn': close}


class Long:
    """Bytes or a list: equal as they are, shown in short."""
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Long) and self.value == other.value

    def __repr__(self):
        data = self.value if isinstance(self.value, bytes) else repr(self.value).encode()
        return f'{type(self.value).__name__} of {len(self.value)}, SHA-256 {hashlib.sha256(data).hexdigest()}'


def brief(value):
    """The same with all that is long in it as a Long."""
    if isinstance(value, (bytes, tuple, list)) and len(value) > 1000:
        return Long(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(brief, value))
    return {key: brief(each) for key, each in value.items()} if isinstance(value, dict) else value


class CommandLineTest(unittest.TestCase):
    def assertEqual(self, first, second, msg=None):
        """unittest looks for the lines that differ, which takes minutes for a tuple that holds a video."""
        super().assertEqual(brief(first), brief(second), msg)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='sparsereel-cli-'))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def copy_of_the_model(self):
        return Path(shutil.copytree(MODEL, self.folder / 'model'))

    def model_whose_videos_are(self, number):
        """A copy of the model whose decoder's last bias is this number."""
        model = self.copy_of_the_model()
        weights = model / 'vae' / 'diffusion_pytorch_model.safetensors'
        data = bytearray(weights.read_bytes())
        size, = struct.unpack('<Q', data[:8])
        bias = json.loads(data[8:8 + size])[FAMILY.decoders_last]
        begin, end = bias['data_offsets']
        value = struct.pack({'F16': '<e', 'F32': '<f'}[bias['dtype']], number)
        data[8 + size + begin:8 + size + end] = value * ((end - begin) // len(value))
        weights.write_bytes(data)
        return model

    def run_program(self, *arguments, program=PROGRAM, **options):
        """Forked from a loaded program where that makes no difference: the environment is the test's, and no option prepares the process."""
        command = [str(program), *map(str, arguments)]
        return run_forked(command, self.folder, options) or subprocess.run(command, **{'cwd': self.folder, 'capture_output': True, 'text': True, 'timeout': 300, **options})

    def start_program(self, *arguments, **options):
        """The program with its progress bar on a terminal that the test reads; returns (process, terminal)."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE, stderr=theirs, **options)
        os.close(theirs)
        self.addCleanup(process.stdout.close)
        self.addCleanup(os.close, ours)
        return process, ours

    def read_until(self, terminal, word, seconds=60):
        """What the terminal shows up to `word`; all of it until the program ends, where word is None."""
        text, end = '', time.monotonic() + seconds
        while (word is None or word not in text) and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    text += os.read(terminal, 4096).decode(errors='replace')
                except OSError:
                    break
        return text

    def generate(self, *arguments, **options):
        """`generate` on the small checkpoint: 2 steps, the model's frames of 64x64, unless the arguments say otherwise."""
        return self.run_program('generate', '-m', MODEL, '-p', PROMPT, *self.unless(arguments, '--steps', '2', '--device', 'cpu', *FAMILY.size), *arguments, **options)

    def run_to_step(self, step, *arguments):
        """Kills `generate` once it has a checkpoint of that step."""
        process = subprocess.Popen([PROGRAM, 'generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '-o', 'clip.mp4', '--quiet',
                                    *map(str, self.unless(arguments, *FAMILY.size)), *arguments],
                                   cwd=self.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        checkpoint = self.folder / 'clip.mp4.checkpoint.safetensors'
        wait_until(lambda: checkpoint.exists() and json.loads(read_safetensors(checkpoint)['__metadata__']['run'])['step'] >= step, process)
        process.kill()
        process.wait()
        self.assertTrue(checkpoint.exists())
        self.assertFalse((self.folder / 'clip.mp4').exists())

    def frames(self, name, *arguments):
        """The pixels of a video that `generate` makes."""
        self.succeed(self.generate('-o', name, *arguments))
        return floats(read_safetensors(self.folder / name)['frames'])

    @staticmethod
    def unless(arguments, *options):
        """The options, names and values in turn, that the arguments do not give."""
        left = []
        for name, value in zip(options[::2], options[1::2]):
            names = {name, '--num-inference-steps', '--config'} if name == '--steps' else {name}
            left += [] if names & set(map(str, arguments)) else [name, value]
        return left

    def succeed(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def fail_with(self, result, code, *words):
        """Exit code, one line of cause and one of remedy on stderr, and every word in them."""
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        lines = result.stderr.strip().splitlines()
        self.assertEqual(len(lines), 2, result.stderr)
        self.assertTrue(lines[0].startswith('error: '), result.stderr)
        self.assertTrue(lines[1].startswith('  remedy: '), result.stderr)
        self.assertGreater(len(lines[1]), len('  remedy: '), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def warn_with(self, result, *warnings):
        """A run that succeeds, and on stderr these warnings alone."""
        self.succeed(result)
        self.assertEqual(result.stderr.splitlines(), [f'warning: {warning}' for warning in warnings])

    def report(self, *arguments, **options):
        """The report of a successful generate."""
        return json.loads(self.succeed(self.generate('--json', '--quiet', *arguments, **options)).stdout)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())
