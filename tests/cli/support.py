"""What the command-line tests share: running the program, reading what it wrote. Standard library only.

By hand: SPARSEREEL=build/sparsereel python3 tests/cli/generate_test.py
"""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get('SPARSEREEL', str(ROOT / 'build' / 'sparsereel'))
MODEL = os.environ.get('SPARSEREEL_TEST_MODEL', str(ROOT / 'tests' / 'parity' / 'data' / 'pipeline'))
PROMPT = 'a red circle moving to the right on a blue background'


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


def floats(tensor):
    dtype, _, data = tensor
    assert dtype == 'F32', dtype
    return struct.unpack(f'<{len(data) // 4}f', data)


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='sparsereel-cli-'))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_program(self, *arguments, **options):
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              timeout=300, **options)

    def generate(self, *arguments, **options):
        """`generate` on the small checkpoint: 2 steps, 9 frames of 64x64, unless the arguments say otherwise."""
        return self.run_program('generate', '-m', MODEL, '-p', PROMPT, *self.unless(arguments, '--steps', '2'),
                                *self.unless(arguments, '--device', 'cpu'), *arguments, **options)

    @staticmethod
    def unless(arguments, name, value):
        names = {name, '--num-inference-steps', '--config'} if name == '--steps' else {name}
        return [] if names & set(map(str, arguments)) else [name, value]

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

    def report(self, *arguments, **options):
        """The report of a successful generate."""
        return json.loads(self.succeed(self.generate('--json', '--quiet', *arguments, **options)).stdout)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())
