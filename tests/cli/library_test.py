"""Tests `cmake --install`, and builds and runs the example of tests/library with the installed files."""
import json
import os
import subprocess
import unittest
from pathlib import Path

from support import MODEL, PROGRAM, PROMPT, ROOT, CommandLineTest, floats, read_safetensors


class Library(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not (Path(PROGRAM).parent / 'cmake_install.cmake').exists():
            raise unittest.SkipTest('SPARSEREEL is not in its build folder')

    def command(self, *arguments, **options):
        result = subprocess.run([*map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=300, **options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def install(self):
        """Installs into a folder with a space in its name. The test's environment has no LD_LIBRARY_PATH, so the program must find its libraries itself."""
        prefix = self.folder / 'the prefix'
        self.command('cmake', '--install', Path(PROGRAM).parent, '--prefix', prefix)
        return prefix

    def pictures(self, file):
        """Returns the frames of a .safetensors file as the bytes of a .ppm, which the example writes."""
        dtype, (count, height, width, _), data = read_safetensors(self.folder / file)['frames']
        pictures, values = b'', floats((dtype, None, data))
        for frame in range(count):
            size = height * width * 3
            pictures += f'P6\n{width} {height}\n255\n'.encode()
            pictures += bytes(int(value * 255 + 0.5) for value in values[frame * size:(frame + 1) * size])
        return pictures

    def test_example_uses_the_installed_library_and_makes_the_same_video_as_the_program(self):
        prefix = self.install()
        self.command('cmake', '-S', ROOT / 'tests' / 'library', '-B', 'example', '-G', 'Ninja', f'-DCMAKE_PREFIX_PATH={prefix}')
        self.command('cmake', '--build', 'example')
        environment = {key: value for key, value in os.environ.items() if key != 'LD_LIBRARY_PATH'}
        example = self.folder / 'example' / 'example'
        # Three models whose defaults come from three places: the checkpoint, configs/tiny.yaml, and a file in configs/ that this test writes.
        tiny, wan = prefix / 'share' / 'sparsereel' / 'assets' / 'tiny', ROOT / 'tests' / 'parity' / 'data' / 'wan' / 'pipeline'
        (prefix / 'share' / 'sparsereel' / 'configs' / 'small.yaml').write_text(
            'match: {class: WanTransformer3DModel, layers: 2, heads: 2}\n'
            'defaults: {size: 64x32, frames: 5, fps: 16, steps: 50, cfg_scale: 5, flow_shift: 8, negative_prompt: 色调艳丽}\n')
        program = prefix / 'bin' / 'sparsereel'
        self.command(program, 'tune', '-m', MODEL, '--device', 'cpu', '--samples', 1, '--videos', 0, '--steps', 2, '-p', PROMPT, '-o', 'p.yaml', env=environment)
        for model, steps, profile in ((MODEL, 2, []), (MODEL, 2, ['p.yaml']), (tiny, 1, []), (wan, 2, [])):
            with self.subTest(model=model, profile=profile):
                shown = self.command(example, model, PROMPT, steps, 'frames.ppm', *profile, env=environment)
                options = ['--profile', *profile] if profile else []
                self.command(program, 'generate', '-m', model, '-p', PROMPT, '--steps', steps, '-o', 'frames.safetensors', *options, env=environment)
                made, expected = (self.folder / 'frames.ppm').read_bytes(), self.pictures('frames.safetensors')
                self.assertEqual(len(made), len(expected), shown)
                # The example rounds products in float and pictures() in double, so a few values may differ.
                self.assertLess(sum(a != b for a, b in zip(made, expected)), 5 + len(made) // 100000)
                # With these variables, OpenMP may give libtorch only one thread. The frames must stay the same.
                self.command(example, model, PROMPT, steps, 'again.ppm', *profile, env=environment | {'OMP_MAX_ACTIVE_LEVELS': '0', 'OMP_DYNAMIC': 'true'})
                self.assertEqual((self.folder / 'again.ppm').read_bytes(), made)

        for arguments, options in ((('nowhere', PROMPT, 2), ['-m', 'nowhere']), ((MODEL, PROMPT, 0), ['-m', MODEL, '--steps', 0])):
            library = subprocess.run([example, *map(str, arguments), 'x.ppm'], capture_output=True, text=True)
            program = self.run_program('generate', '-p', PROMPT, '-o', 'x.mp4', *options)
            # The two messages are equal, except that the library names the field (steps) and the program names the option (--steps).
            self.assertEqual((library.returncode, library.stderr), (program.returncode, program.stderr.replace('--steps', 'steps')))

    def test_installed_program_finds_its_data_and_its_libraries(self):
        prefix = self.install()
        program = prefix / 'bin' / 'sparsereel'
        environment = {key: value for key, value in os.environ.items() if key != 'LD_LIBRARY_PATH'}
        shown = self.command(program, 'config', 'show', '--device', 'cpu', env=environment)
        self.assertIn(f'model: {json.dumps(str(prefix / "share/sparsereel/assets/tiny"))}', shown)
        self.assertIn(f'{prefix}/share/sparsereel/configs/tiny.yaml', shown)
        for name, word in (('man/man1/sparsereel.1', '.SH "?EXIT STATUS'), ('bash-completion/completions/sparsereel', 'complete -F'),
                           ('zsh/site-functions/_sparsereel', '#compdef sparsereel\n'), ('fish/vendor_completions.d/sparsereel.fish', 'complete -c')):
            self.assertRegex((prefix / 'share' / name).read_text(), word)

    def test_installed_program_measures_quality_without_the_classifier_of_the_source_tree(self):
        prefix = self.install()
        self.assertEqual([*prefix.rglob('*judge*')], [])
        (self.folder / 'p.txt').write_text('a red circle moving to the right on a blue background\n')
        small = ['p.txt', '--device', 'cpu', '--size', '64x64', '--frames', 1, '--steps', 1, '--no-rel-l1', '--timed-steps', 0, '--quiet']
        table = self.command(prefix / 'bin' / 'sparsereel', 'bench', 'quality', *small)
        self.assertIn('| PSNR', table)
        self.assertNotIn('judge', table)
        judge = ROOT / 'assets' / 'tiny-training' / 'judge.safetensors'
        self.assertIn('the classifier is right for', self.command(prefix / 'bin' / 'sparsereel', 'bench', 'quality', *small, '--judge', judge))

    def test_library_exports_only_its_own_names(self):
        library = self.install() / 'lib' / 'libsparsereel.so'
        if not library.exists():
            library = next((self.folder / 'the prefix').glob('lib*/**/libsparsereel.so'))
        names = [line.split(maxsplit=2)[2] for line in self.command('nm', '-DC', '--defined-only', library).splitlines()]
        ours = [name for name in names if 'sparsereel::' in name]
        self.assertTrue(any('TextToVideo::generate' in name for name in ours), ours)
        for name in ours:
            self.assertRegex(name, r'sparsereel::(TextToVideo|Failure)', name)
        self.assertIn('#include', (self.folder / 'the prefix' / 'include' / 'sparsereel.h').read_text())
        self.assertNotRegex((self.folder / 'the prefix' / 'include' / 'sparsereel.h').read_text(), r'#include <(ATen|torch|c10)|#include "')


if __name__ == '__main__':
    unittest.main()
