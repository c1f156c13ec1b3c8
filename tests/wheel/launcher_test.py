"""Tests the command of the wheel: it finds libtorch, the kernels and ffmpeg, and starts the program. A script stands in for the program, and folders for the packages."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / 'app' / 'wheel' / 'sparsereel_program'
PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" "libraries=${LD_LIBRARY_PATH-none}" "ffmpeg=${SPARSEREEL_FFMPEG-none}"
exit 7
"""
KERNELS = 'libsparsereel_kernels-0123456789ab.so'


def executable(path, text='#!/bin/sh\n'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Launcher(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='sparsereel launcher-ä-')).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.site = self.folder / 'site packages'
        package = self.site / 'sparsereel_program'
        shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns('__pycache__'))
        executable(package / 'bin/sparsereel', PROGRAM)
        (package / 'share/sparsereel').mkdir(parents=True)
        self.build_with(kernels='')

    def build_with(self, kernels):
        built = {'kind': 'wheel', 'version': '0.1.0', 'torch': '2.11.0', 'kernels': kernels}
        (self.site / 'sparsereel_program/share/sparsereel/package.json').write_text(json.dumps(built))

    def add_torch(self, site, version='2.11.3+cu130'):
        (site / 'torch/lib').mkdir(parents=True)
        (site / 'torch/lib/libtorch_cpu.so').touch()
        (site / 'torch/__init__.py').write_text('raise ImportError("nobody imports this")')
        (site / 'torch/version.py').write_text(f"from typing import Optional\n__version__ = '{version}'\n")

    def add_attention(self, site, *libraries):
        (site / 'sparsereel/lib').mkdir(parents=True)
        (site / 'sparsereel/__init__.py').write_text('raise ImportError("nobody imports this")')
        for name in ('libsparsereel_attention.so', *libraries):
            (site / 'sparsereel/lib' / name).touch()

    def call(self, *words, **variables):
        (self.folder / 'bin').mkdir(exist_ok=True)
        environment = {'PYTHONPATH': ':'.join(map(str, [self.site, self.folder / 'elsewhere'])), 'PATH': str(self.folder / 'bin'), **variables}
        # -S leaves out the packages of the Python that runs this test.
        return subprocess.run([sys.executable, '-S', '-m', 'sparsereel_program', *words], env=environment, capture_output=True, text=True)

    def test_starts_the_program_with_its_words_and_exit_code(self):
        self.add_torch(self.site)
        result = self.call('generate', '-p', 'two words')
        self.assertEqual((result.returncode, result.stdout.splitlines()), (7, ['generate', '-p', 'two words', 'libraries=none', 'ffmpeg=none']), result.stderr)

    def test_names_libtorch_to_the_loader_if_it_lies_elsewhere(self):
        self.add_torch(self.folder / 'elsewhere')
        libraries = self.folder / 'elsewhere/torch/lib'
        self.assertIn(f'libraries={libraries}', self.call().stdout.splitlines())
        self.assertIn(f'libraries={libraries}:/mine', self.call(LD_LIBRARY_PATH='/mine').stdout.splitlines())

    def test_names_the_kernels_to_the_loader_if_they_lie_elsewhere(self):
        self.build_with(KERNELS)
        self.add_torch(self.site)
        self.add_attention(self.folder / 'elsewhere', KERNELS)
        self.assertIn(f'libraries={self.folder / "elsewhere/sparsereel/lib"}:/mine', self.call(LD_LIBRARY_PATH='/mine').stdout.splitlines())

    def test_starts_with_the_kernels_beside_it(self):
        self.build_with(KERNELS)
        self.add_torch(self.site)
        self.add_attention(self.site, KERNELS)
        result = self.call()
        self.assertEqual((result.returncode, result.stdout.splitlines()), (7, ['libraries=none', 'ffmpeg=none']), result.stderr)

    def refuse(self, cause, remedy=r"python3 -m pip install 'torch==2\.11\.\*'"):
        result = self.call()
        self.assertEqual((result.returncode, result.stdout), (1, ''))
        self.assertRegex(result.stderr, rf'\Aerror: .*{cause}.*\n  remedy: {remedy}\n\Z')

    def refuse_kernels(self, cause):
        self.refuse(cause, r'python3 -m pip install --force-reinstall --no-deps WHEEL, with the wheel of sparsereel-attention 0\.1\.0 that .*')

    def test_refuses_missing_kernels(self):
        self.build_with(KERNELS)
        self.add_torch(self.site)
        self.refuse_kernels(r'needs the kernels of sparsereel-attention 0\.1\.0, which is not installed')

    def test_refuses_kernels_of_other_sources(self):
        self.build_with(KERNELS)
        self.add_torch(self.site)
        self.add_attention(self.site, 'libsparsereel_kernels-ba9876543210.so')
        self.refuse_kernels(rf'needs the kernels {KERNELS} of sparsereel-attention 0\.1\.0, but .*sparsereel/lib has libsparsereel_kernels-ba9876543210\.so')

    def test_refuses_an_attention_library_for_cpus(self):
        self.build_with(KERNELS)
        self.add_torch(self.site)
        self.add_attention(self.site)
        self.refuse_kernels('sparsereel/lib has none')

    def test_refuses_a_missing_torch(self):
        self.refuse('needs torch 2.11, which is not installed')

    def test_refuses_another_minor_version_of_torch(self):
        self.add_torch(self.site, '2.12.0')
        self.refuse(r'built for torch 2\.11, but torch 2\.12\.0')

    def test_uses_the_ffmpeg_of_a_package_only_if_there_is_no_other(self):
        self.add_torch(self.site)
        bundled = self.site / 'imageio_ffmpeg/binaries/ffmpeg-linux-x86_64-v7.0'
        executable(bundled)
        executable(bundled.parent.parent / '__init__.py', '')
        self.assertIn(f'ffmpeg={bundled}', self.call().stdout.splitlines())
        self.assertIn('ffmpeg=mine', self.call(SPARSEREEL_FFMPEG='mine').stdout.splitlines())
        executable(self.folder / 'bin/ffmpeg')
        self.assertIn('ffmpeg=none', self.call().stdout.splitlines())


if __name__ == '__main__':
    unittest.main()
