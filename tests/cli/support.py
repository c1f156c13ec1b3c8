"""Helpers that the command-line tests share: they run the program and read its files. Need only the standard library.

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
# These paths are absolute, because each test runs in its own folder.
PROGRAM = os.path.abspath(os.environ.get('SPARSEREEL', ROOT / 'build' / 'sparsereel'))
MODEL = os.path.abspath(os.environ.get('SPARSEREEL_TEST_MODEL', ROOT / 'tests' / 'parity' / 'data' / 'pipeline'))
FAMILY = family_of(MODEL)
PROMPT = 'a red circle moving to the right on a blue background'


needs_gnuplot = unittest.skipUnless(shutil.which('gnuplot'), 'needs gnuplot (package gnuplot-nox)')


def wait_until(event, process=None, seconds=60):
    """Calls event() until its value is true, and returns that value. If the process ends first, returns the value that event() has then. Raises AssertionError after
    `seconds`."""
    end = time.monotonic() + seconds
    while True:
        has_ended = process is not None and process.poll() is not None  # checked before event(), so that an event just before the end of the process counts
        result = event()
        if result or has_ended:
            return result
        if time.monotonic() > end:
            raise AssertionError(f'it did not happen within {seconds} s')
        time.sleep(0.002)  # polls, because files and other processes send no notification; no other code of these tests polls


def read_safetensors(path):
    """Returns the tensors of a file, {name: (dtype, shape, bytes)}, and its metadata as '__metadata__'."""
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
    """Returns the tensors of all shards in a component's folder: {name: (dtype, shape, bytes)}."""
    tensors = {}
    for file in sorted(folder.glob('*.safetensors')):
        tensors |= read_safetensors(file)
    del tensors['__metadata__']
    return tensors


def write_safetensors(path, tensors, metadata=None):
    header, body = {'__metadata__': metadata} if metadata else {}, b''
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
    """Returns the PSNR of two videos in dB. Pixels are from 0 to 1."""
    error = sum((a - b) ** 2 for a, b in zip(pixels, reference, strict=True)) / len(reference)
    return math.inf if error == 0 else -10 * math.log10(error)


def write_checkpoint(path, identity='of another run'):
    """Writes a checkpoint of an interrupted run, without the tensors that resuming needs."""
    header = json.dumps({'__metadata__': {'identity': identity, 'run': '{}'}, 'latents': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}).encode()
    Path(path).write_bytes(struct.pack('<Q', len(header)) + header + bytes(4))


def limited(size):
    """Returns options for subprocess with which no file can grow beyond `size` bytes: write() fails as on a full disk."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return {'preexec_fn': limit}


def kept_off():
    """Returns options for subprocess with which even root cannot write files without write permission."""
    def drop():
        drop_from_bounding_set, override_permissions = 24, 1
        ctypes.CDLL(None).prctl(drop_from_bounding_set, override_permissions, 0, 0, 0)
    return {'preexec_fn': drop}


def limited_memory(size):
    """Returns options for subprocess with which the process has at most `size` bytes of address space. Further allocations fail."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    return {'preexec_fn': limit}


def without(descriptors):
    """Returns options for subprocess that close these file descriptors (0, 1 or 2) in the process."""
    def close():
        for descriptor in descriptors:
            os.close(descriptor)
    return {'preexec_fn': close}


class Long:
    """Wraps bytes, a tuple or a list. It compares like the wrapped value, but assertions print it in a few words."""
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Long) and self.value == other.value

    def __repr__(self):
        data = self.value if isinstance(self.value, bytes) else repr(self.value).encode()
        return f'{type(self.value).__name__} of {len(self.value)}, SHA-256 {hashlib.sha256(data).hexdigest()}'


def brief(value):
    """Returns the value with every long part replaced by a Long."""
    if isinstance(value, (bytes, tuple, list)) and len(value) > 1000:
        return Long(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(brief, value))
    return {key: brief(each) for key, each in value.items()} if isinstance(value, dict) else value


class CommandLineTest(unittest.TestCase):
    def assertEqual(self, first, second, msg=None):
        """Wraps long values before it compares, because unittest takes minutes to find the differing lines of a tuple that holds a video."""
        super().assertEqual(brief(first), brief(second), msg)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='sparsereel-cli-'))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def copy_of_the_model(self):
        return Path(shutil.copytree(MODEL, self.folder / 'model'))

    def model_whose_videos_are(self, number):
        """Returns a copy of the model in which the bias of the decoder's last layer is `number`."""
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
        """Runs the program and returns a CompletedProcess. If the options change neither the environment nor the process, forks a process that has already loaded the
        program, which is faster."""
        command = [str(program), *map(str, arguments)]
        return run_forked(command, self.folder, options) or subprocess.run(command, **{'cwd': self.folder, 'capture_output': True, 'text': True, 'timeout': 300, **options})

    def start_program(self, *arguments, **options):
        """Starts the program with a pseudo-terminal as stderr, where it draws its progress bar. Returns (process, file descriptor from which the test reads)."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE, stderr=theirs, **options)
        os.close(theirs)
        self.addCleanup(process.stdout.close)
        self.addCleanup(os.close, ours)
        return process, ours

    def read_until(self, terminal, word, seconds=60):
        """Reads from the terminal until `word` appears, or until the program ends if `word` is None. Returns what was read."""
        text, end = '', time.monotonic() + seconds
        while (word is None or word not in text) and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    text += os.read(terminal, 4096).decode(errors='replace')
                except OSError:
                    break
        return text

    def generate(self, *arguments, **options):
        """Runs `generate` on the small checkpoint with 2 steps and frames of 64x64, unless the arguments say otherwise."""
        return self.run_program('generate', '-m', MODEL, '-p', PROMPT, *self.unless(arguments, '--steps', '2', '--device', 'cpu', *FAMILY.size), *arguments, **options)

    def run_to_step(self, step, *arguments):
        """Starts `generate` and kills it once it has written a checkpoint of that step."""
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
        """Runs `generate` and returns the pixels of its video."""
        self.succeed(self.generate('-o', name, *arguments))
        return floats(read_safetensors(self.folder / name)['frames'])

    @staticmethod
    def unless(arguments, *options):
        """Returns the options whose names are not among the arguments. `options` holds names and values in turn. --num-inference-steps and --config count as --steps."""
        left = []
        for name, value in zip(options[::2], options[1::2]):
            names = {name, '--num-inference-steps', '--config'} if name == '--steps' else {name}
            left += [] if names & set(map(str, arguments)) else [name, value]
        return left

    def succeed(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def fail_with(self, result, code, *words, warning=None):
        """Checks the exit code, and that stderr has two lines, the cause and the remedy, that contain each of `words`. With a `warning`, a line that begins with it
        comes first."""
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        lines = result.stderr.strip().splitlines()
        if warning is not None:
            self.assertTrue(lines.pop(0).startswith(f'warning: {warning}'), result.stderr)
        self.assertEqual(len(lines), 2, result.stderr)
        self.assertTrue(lines[0].startswith('error: '), result.stderr)
        self.assertTrue(lines[1].startswith('  remedy: '), result.stderr)
        self.assertGreater(len(lines[1]), len('  remedy: '), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def warn_with(self, result, *warnings):
        """Checks that the run succeeded and that stderr holds only these warnings."""
        self.succeed(result)
        self.assertEqual(result.stderr.splitlines(), [f'warning: {warning}' for warning in warnings])

    def report(self, *arguments, **options):
        """Returns the report of a successful `generate`."""
        return json.loads(self.succeed(self.generate('--json', '--quiet', *arguments, **options)).stdout)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())
