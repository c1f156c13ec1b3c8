"""Runs the commands of README.md and of seven pages in app/docs/ as they are printed there, but for few and small frames. Also checks the links of all pages.

Leaves out downloads, commands that need a GPU or a checkpoint, and two scripts, which have their own tests or run this test.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from support import PROGRAM, ROOT, CommandLineTest

BUILD = Path(PROGRAM).parent
PAGES = sorted(str(path.relative_to(ROOT)) for folder in ('.', '.github', 'app', 'assets', 'attention', 'configs', 'tests')
               for path in (ROOT / folder).glob('*.md' if folder in ('.', '.github') else '**/*.md'))
SCRIPTS = ('./app/quickstart', './tests/run')
CHART = re.compile(r'--plot|bench plot|--heat-map')
NOT_HERE = re.compile(r'needs (?:a GPU|four GPUs|two hosts|a checkpoint)|tests/gpu/|tests/fresh-debian|tests/bench/diffusers_report|^hf download|pip install')
# Replaces build/sparsereel by a script that runs the program with settings for small videos. The command line overrides these settings. They override recipes and
# models' defaults.
SMALL = """#!/bin/bash
words=1
[ "$1" = bench ] && words=2
case " $* " in
  *" --config "* | *" --status "*) ;;
  " generate "* | " batch "* | " tune "* | " bench pipeline "* | " bench quality "*) small=(--config small.yaml) ;;
esac
exec PROGRAM "${@:1:words}" "${small[@]}" "${@:words+1}"
"""


def anchors_of(page):
    """Returns the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r'^```.*?^```$', '', page.read_text(), flags=re.M | re.S)
    return {re.sub(r'[^\w -]', '', heading.lower()).strip().replace(' ', '-') for heading in re.findall(r'^#+ (.*)$', text, re.M)}


class Readme(CommandLineTest):
    def setUp(self):
        super().setUp()
        for name in ('configs', 'tests', 'models', 'assets/tiny', 'assets/tiny-4-steps.safetensors', 'assets/tiny-image.safetensors', 'assets/first-frame.png', 'assets/prompts', 'assets/tiny-training'):
            link = self.folder / name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(ROOT / name)
        shutil.copytree(ROOT / 'assets' / 'charts', self.folder / 'assets' / 'charts')
        (self.folder / 'build').mkdir()
        (self.folder / 'build' / 'cmake_install.cmake').symlink_to(BUILD / 'cmake_install.cmake')
        program = self.folder / 'build' / 'sparsereel'
        program.write_text(SMALL.replace('PROGRAM', PROGRAM))
        program.chmod(0o755)
        (self.folder / 'small.yaml').write_text('size: 64x64\nframes: 9\nsteps: 2\ndevice: cpu\nthreads: 2\n')

    def write_files_of(self, page):
        """Writes the files that the page shows, prompts.csv and my.yaml."""
        for kind, text in re.findall(r'^```(csv|yaml)\n(.*?)^```$', page, re.M | re.S):
            name = 'prompts.csv' if kind == 'csv' else text.split()[1]
            (self.folder / name).write_text(text)

    def commands_of(self, page):
        """Returns the page's commands in their order: the lines of code blocks without a language, and commands between backquotes in sentences."""
        commands = []
        for block, sentence in re.findall(r'^```\n(.*?)^```$|`((?:build/sparsereel|tests/|\./)[^`]* [^`]*)`', re.sub(r'^```[a-z]+\n.*?^```$', '', page, flags=re.M | re.S), re.M | re.S):
            lines = block.splitlines() if block else [sentence.replace('\n', ' ')]
            commands += [line for line in lines if not line.startswith(SCRIPTS) and not NOT_HERE.search(line)]
        return commands

    def run_page(self, name, least):
        """Runs the page's commands in their order, which must be at least `least`. Returns what they wrote to stdout."""
        page = (ROOT / name).read_text()
        self.write_files_of(page)
        commands = self.commands_of(page)
        self.assertGreaterEqual(len(commands), least, commands)
        environment = {**os.environ, 'OMP_WAIT_POLICY': 'passive'}
        shown = ''
        for command in commands:
            with self.subTest(command=command):
                if CHART.search(command) and not shutil.which('gnuplot'):
                    self.skipTest('needs gnuplot (package gnuplot-nox)')
                result = subprocess.run(['bash', '-c', command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                shown += result.stdout
        return shown

    def code_of(self, name, language):
        blocks = re.findall(rf'^```{language}\n(.*?)^```$', (ROOT / name).read_text(), re.M | re.S)
        self.assertGreater(len(blocks), 0, name)
        return blocks

    def test_commands_of_the_readme_run(self):
        self.run_page('README.md', 4)

    def test_figures_of_the_readme_match_the_tables(self):
        page, tables = ((ROOT / name).read_text() for name in ('README.md', 'tests/bench/README.md'))
        known = set(re.findall(r'\d+(?:\.\d+)?', tables))
        rows = [row for part in ('Speed', 'Quality') for row in re.findall(r'^\|.*\d.*\|$', re.search(rf'^## {part}\n(.*?)^## ', page, re.M | re.S)[1], re.M)]
        self.assertEqual(len(rows), 11)
        for row in rows:
            seconds_or_decibels = [cell for cell in row.split('|')[2:] if re.fullmatch(r' \**\d+(\.\d+)?\** ', cell)]
            self.assertGreater(len(seconds_or_decibels), 1, row)
            self.assertEqual({cell.strip(' *') for cell in seconds_or_decibels} - known, set(), row)

    def test_commands_of_the_page_of_videos_run(self):
        self.run_page('app/docs/generate.md', 15)
        self.assertEqual((self.folder / 'same.mp4').read_bytes(), (self.folder / 'clip.mp4').read_bytes())

    def test_commands_of_the_page_of_models_run(self):
        self.run_page('app/docs/models.md', 2)

    def test_downloads_of_the_page_of_models_match_those_of_inspect(self):
        page = (ROOT / 'app/docs/models.md').read_text()
        commands = set(re.findall(r'^hf download .*$', page, re.M))
        self.assertGreater(len(commands), 20)
        printed = [self.succeed(self.run_program('inspect', path)).stdout for path in sorted((ROOT / 'configs').glob('*.yaml'))]
        self.assertEqual(commands - {line.strip() for text in printed for line in text.splitlines()}, set())

    def test_commands_of_the_page_of_settings_run(self):
        self.run_page('app/docs/settings.md', 4)

    def test_commands_of_the_page_of_sets_run(self):
        self.run_page('app/docs/batch.md', 5)

    def test_commands_of_the_page_of_gpus_run(self):
        self.run_page('app/docs/gpus.md', 3)

    def test_commands_of_the_page_of_measuring_run_and_the_glossary_explains_their_columns(self):
        shown = self.run_page('app/docs/measure.md', 7)
        heads = re.findall(r'^(\|[^\n]*\|)\n\|(?:[ :-]+\|)+$', shown, re.M)
        self.assertGreater(len(heads), 4)
        explained = re.findall(r'^\| ([^|]+) \|', (ROOT / 'app/docs/glossary.md').read_text(), re.M)
        known = {word.strip('`') for entry in explained for word in entry.split('; ')}
        titles = {re.sub(r'^\d+-step ', '', title.strip()) for line in heads for title in line.split('|') if title.strip()}
        self.assertEqual(titles - known, set())

    def test_commands_of_the_page_of_the_library_run(self):
        self.run_page('app/docs/library.md', 2)

    def test_cpp_code_of_the_pages_compiles(self):
        compiler = shutil.which(os.environ.get('CXX', 'g++'))
        if compiler is None:
            self.skipTest('no C++ compiler')
        snippet, = self.code_of('app/docs/library.md', 'cpp')
        whole = [*self.code_of('attention/README.md', 'cpp'), *self.code_of('attention/README.md', 'c')]
        for source in (f'#include <sparsereel.h>\nint main() {{\n{snippet}}}\n', *whole):
            command = [compiler, '-std=c++17', '-fsyntax-only', '-x', 'c++', f'-I{ROOT}/models', f'-I{ROOT}/attention/include', '-']
            result = subprocess.run(command, input=source, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_python_code_of_the_pages_runs(self):
        library = BUILD / 'libsparsereel_attention.so'
        if subprocess.run([sys.executable, '-c', 'import torch'], capture_output=True).returncode != 0 or not library.exists():
            self.skipTest('no torch for Python, or no attention library')
        environment = {**os.environ, 'SPARSEREEL_ATTENTION_LIBRARY': str(library), 'PYTHONPATH': str(ROOT / 'attention' / 'python')}
        for name in ('app/docs/library.md', 'attention/README.md'):
            for block in self.code_of(name, 'python'):
                result = subprocess.run([sys.executable, '-c', block], cwd=self.folder, env=environment, capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_links_lead_to_files_and_headings_that_exist(self):
        for name in PAGES:
            page = ROOT / name
            prose = re.sub(r'^```.*?^```$', '', page.read_text(), flags=re.M | re.S)
            for target, heading in re.findall(r'\]\(([^)#:]*)(?:#([^):]*))?\)', prose):
                with self.subTest(page=name, link=f'{target}#{heading}'):
                    there = page.parent / target if target else page
                    self.assertTrue(there.exists())
                    if heading:
                        self.assertIn(heading, anchors_of(there))

    def test_errors_on_the_troubleshooting_page_occur_in_the_program(self):
        page = (ROOT / 'app/docs/troubleshooting.md').read_text()
        sources = ''.join(path.read_text() for folder in ('app', 'models', 'hilbert') for path in sorted((ROOT / folder).glob('**/*.cpp')))
        pieces = [piece.strip() for cell in re.findall(r'^\| ([^|]+) \|', page, re.M) for code in re.findall(r'`([^`]+)`', cell) for piece in code.split('...')]
        pieces = [piece for piece in pieces if len(piece.split()) > 2]
        self.assertGreater(len(pieces), 4)
        for piece in pieces:
            self.assertTrue(piece in sources, piece)  # assertIn would print all sources

    def test_kernel_page_names_sources_that_exist(self):
        found = set(re.findall(r'`(?:[\w/]*/)?([\w*]+\.(?:cu|cuh|h|cpp))`', (ROOT / 'attention/docs/kernels.md').read_text()))
        self.assertGreater(len(found), 10)
        for name in found:
            self.assertTrue(any(next((ROOT / folder).rglob(name), None) for folder in ('attention', 'models')), name)

    def test_pages_name_paths_of_the_source_tree_that_exist(self):
        for name in PAGES:
            page = ROOT / name
            found = re.findall(r'(?<![\w/.-])(?:app|models|attention|hilbert|configs|assets|tests)/[\w./*-]+', page.read_text())
            for path in {path.rstrip('./') for path in found if not re.search('^configs/distill/|DIR|NAME', path)}:  # configs/distill is a folder in LightX2V's repository
                there = [*ROOT.glob(path), *page.parent.glob(path), *ROOT.glob(path + '.c*')]  # the last one, because a page may name a program without its source's extension
                self.assertTrue(there, f'{name}: {path}')

    def test_page_of_sets_names_the_videos_of_its_prompt_set(self):
        page = (ROOT / 'app/docs/batch.md').read_text()
        self.write_files_of(page)
        shown = self.succeed(self.run_program('batch', 'prompts.csv', '-o', 'out', '--dry-run', '--json', '--device', 'cpu')).stdout
        self.assertIn(f"`{json.loads(shown)['videos'][0]['output']}`", page)


if __name__ == '__main__':
    unittest.main()
