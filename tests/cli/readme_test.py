"""Every command of README.md and app/README.md, as it stands there, on few small frames.

Left out: what says that it needs a GPU or a checkpoint, and the two scripts, which have tests of their own or are what runs this one.
"""
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from support import PROGRAM, ROOT, CommandLineTest

BUILD = Path(PROGRAM).parent
PAGES = ('README.md', 'app/README.md', 'configs/README.md', 'attention/README.md', 'tests/bench/README.md')
SCRIPTS = ('./app/quickstart', './tests/run')
NOT_HERE = re.compile(r'needs a GPU|needs a checkpoint|tests/gpu/|tests/fresh-debian|tests/bench/diffusers_report')
# Stands in for build/sparsereel: weaker than the command line, stronger than a recipe or a model's own.
SMALL = """#!/bin/bash
words=1
[ "$1" = bench ] && words=2
case " $* " in
  *" --config "* | *" --status "*) ;;
  " generate "* | " batch "* | " tune "* | " bench pipeline "* | " bench quality "*) small=(--config small.yaml) ;;
esac
exec PROGRAM "${@:1:words}" "${small[@]}" "${@:words+1}"
"""


class Readme(CommandLineTest):
    def setUp(self):
        super().setUp()
        for name in ('configs', 'tests', 'models', 'assets/tiny', 'assets/prompts', 'assets/tiny-training'):
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
        """prompts.csv and my.yaml as the page shows them."""
        for kind, text in re.findall(r'^```(csv|yaml)\n(.*?)^```$', page, re.M | re.S):
            name = 'prompts.csv' if kind == 'csv' else text.split()[1]
            (self.folder / name).write_text(text)

    def commands_of(self, page):
        """In the page's order: lines of blocks without a language, and what stands in a sentence."""
        commands = []
        for block, sentence in re.findall(r'^```\n(.*?)^```$|`((?:build/sparsereel|tests/|\./)[^`]* [^`]*)`', re.sub(r'^```[a-z]+\n.*?^```$', '', page, flags=re.M | re.S), re.M | re.S):
            lines = block.splitlines() if block else [sentence.replace('\n', ' ')]
            commands += [line for line in lines if not line.startswith(SCRIPTS) and not NOT_HERE.search(line)]
        return commands

    def run_page(self, name, least):
        page = (ROOT / name).read_text()
        self.write_files_of(page)
        commands = self.commands_of(page)
        self.assertGreaterEqual(len(commands), least, commands)
        environment = {**os.environ, 'OMP_WAIT_POLICY': 'passive'}
        for command in commands:
            with self.subTest(command=command):
                result = subprocess.run(['bash', '-c', command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_front_page(self):
        self.run_page('README.md', 6)

    def test_page_of_the_program(self):
        self.run_page('app/README.md', 25)
        self.assertEqual((self.folder / 'same.mp4').read_bytes(), (self.folder / 'clip.mp4').read_bytes())

    def test_pages_name_files_that_exist(self):
        for name in PAGES:
            page = ROOT / name
            prose = re.sub(r'^```.*?^```$', '', page.read_text(), flags=re.M | re.S)
            for target in re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', prose):
                self.assertTrue((page.parent / target).exists(), f'{name}: {target}')

    def test_pages_name_paths_of_the_source_tree_that_exist(self):
        for name in PAGES:
            page = ROOT / name
            found = re.findall(r'(?<![\w/.-])(?:app|models|attention|hilbert|configs|assets|tests)/[\w./*-]+', page.read_text())
            self.assertGreater(len(found), 0, name)
            for path in {path.rstrip('./') for path in found if not path.startswith('configs/distill/')}:  # which is LightX2V's
                there = [*ROOT.glob(path), *page.parent.glob(path), *ROOT.glob(path + '.c*')]  # a program is named as it is built
                self.assertTrue(there, f'{name}: {path}')

    def test_the_page_names_the_videos_of_its_prompt_set(self):
        page = (ROOT / 'app/README.md').read_text()
        self.write_files_of(page)
        shown = self.succeed(self.run_program('batch', 'prompts.csv', '-o', 'out', '--dry-run', '--json', '--device', 'cpu')).stdout
        self.assertIn(f"`{json.loads(shown)['videos'][0]['output']}`", page)


if __name__ == '__main__':
    unittest.main()
