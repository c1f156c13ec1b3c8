"""Tests that --help, completion and reference list the same options, and that errors about wrong words name the nearest right ones."""
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from support import PROGRAM, CommandLineTest

# A bash script that prints the completions of its arguments. It defines compopt, because bash has this command only in interactive shells.
BASH = 'compopt() { :; }; source "$0"; COMP_WORDS=("${@}"); COMP_CWORD=$(($# - 1)); _sparsereel; printf "%s\\n" "${COMPREPLY[@]}"'


class Help(CommandLineTest):
    texts = {}  # what each command printed; shared by all tests, because starting the program takes most of the time

    def text(self, *arguments):
        if arguments not in self.texts:
            self.texts[arguments] = self.succeed(self.run_program(*arguments)).stdout
        return self.texts[arguments]

    def script(self, shell):
        """Writes the completion script for a shell to a file and returns the file's path."""
        path = self.folder / f'completion.{shell}'
        path.write_text(self.text('completion', shell))
        return str(path)

    def commands(self):
        names = re.findall(r'^  (\w+)', self.text('--help').split('Commands\n')[1].split('\n\n')[0], re.M)
        self.assertIn('generate', names)
        return [[name] for name in names] + [['bench', name] for name in ('attention', 'pipeline', 'quality', 'plot')] + [['config', 'show']]

    def options(self, *command):
        return set(re.findall(r'^  (?:-\w,|   ) (--[\w-]+)', self.text(*command, '--help-all'), re.M))

    def test_help_is_short_and_grouped(self):
        for command in [[]] + self.commands():
            text, everything = self.text(*command, '--help'), self.text(*command, '--help-all')
            for each in (text, everything):
                self.assertIn(' '.join(['usage: sparsereel', *command]), each)
                short = each.replace(PROGRAM, 'sparsereel')  # this path is long, and commands are not wrapped, since users copy them
                self.assertLessEqual(max(map(len, short.splitlines())), 100, command)
            self.assertLessEqual(len(text.splitlines()), 45, command)
            self.assertRegex(text.splitlines()[-1], f"^'{re.escape(' '.join([PROGRAM, *command]))} --help-all' lists all; '.* reference' explains them")
        text = self.text('generate', '--help-all')
        places = [text.index('\n' + group + '\n') for group in ('Prompt', 'Video', 'Sampling', 'Attention', 'Machine', 'Latents', 'Output and reports', 'Research', 'Options')]
        self.assertEqual(places, sorted(places))

    def test_commands_to_copy_name_the_program_as_it_was_called(self):
        (self.folder / 'bin').mkdir()
        for name, called in (('./bin/program', './bin/program'), ('program', 'program'), ('./bin/my program', "'./bin/my program'")):
            (self.folder / 'bin' / Path(name).name).unlink(missing_ok=True)
            (self.folder / 'bin' / Path(name).name).symlink_to(PROGRAM)
            environment = {**os.environ, 'PATH': f'{self.folder}/bin:{os.environ["PATH"]}'}
            run = lambda *arguments: subprocess.run([name, *arguments], capture_output=True, text=True, cwd=self.folder, env=environment)
            self.assertIn(f'e.g.   {called} generate -p ', run('generate', '--help').stdout)
            self.assertIn(f"'{called} reference' explains", run('bench', '--help').stdout)
            self.assertIn(f'source <({called} completion bash)', run('completion', '--help').stdout)
            self.assertIn(f"see '{called} generate --help'", run('generate', 'a', '--qqq').stderr + run('generate', '--qqqqqqqq').stderr)
            self.assertIn(f"'{called} doctor'", run('generate', '-p', 'x', '--device', 'cuda:77').stderr)  # a message of the library names the program's command, too
            self.assertIn('sparsereel generate', run('reference').stdout)
            self.assertNotIn('program', run('completion', 'bash').stdout)

    def test_reference_explains_every_option(self):
        text = self.text('reference')
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        sections = dict(section.split('\n', 1) for section in re.split(r'\n\n(?=sparsereel \w|[A-Z])', text))
        for command in self.commands():
            section = next((body for title, body in sections.items() if re.fullmatch(' '.join(['sparsereel', *command]) + '( [A-Z]+)?', title)), '')
            self.assertLessEqual(self.options(*command) - {'--help', '--help-all'}, set(re.findall(r'--[a-z][a-z0-9-]*', section)), command)
        for word in ('--num-inference-steps', 'In YAML: cfg_scale', 'Values: full, quantized, sparse, check', 'EXIT STATUS', 'sparsereel decode LATENTS'):
            self.assertIn(word, ' '.join(text.split()))
        man = self.text('reference', '--format', 'man')
        self.assertTrue(man.startswith('.TH SPARSEREEL 1'))
        for line in man.splitlines():
            self.assertRegex(line, r"^(\.(TH|SH|PP|TP|B)\b|[^.'])", line)
        if shutil.which('man'):
            page = subprocess.run(['man', '-l', '-'], input=man, capture_output=True, text=True, env={'MANWIDTH': '100', 'LC_ALL': 'C', 'PATH': '/usr/bin:/bin'})
            self.assertIn('--num-inference-steps', page.stdout.replace('\b', ''))

    def complete_in_bash(self, *words):
        result = subprocess.run(['bash', '-c', BASH, self.script('bash'), *words], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        return result.stdout.split('\n')[:-1]

    def complete_in_fish(self, *words):
        script = f'source {self.script("fish")}; complete -C "{" ".join(words)}"'
        result = subprocess.run(['fish', '-c', script], capture_output=True, text=True, cwd=self.folder, env={'HOME': str(self.folder), 'PATH': '/usr/bin:/bin'})
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        return [line.split('\t')[0] for line in result.stdout.splitlines()]

    def check_completion(self, complete):
        (self.folder / 'clip one.mp4').write_text('')
        (self.folder / 'folder.mp4').write_text('')
        (self.folder / 'folder one').mkdir()
        self.assertIn('generate', complete('sparsereel', ''))
        self.assertNotIn('attention', complete('sparsereel', ''))
        self.assertEqual(set(complete('sparsereel', 'bench', '')) & {'attention', 'pipeline', 'quality', 'plot', 'generate'}, {'attention', 'pipeline', 'quality', 'plot'})
        self.assertEqual(complete('sparsereel', 'generate', '--token-o'), ['--token-order'])
        self.assertEqual(complete('sparsereel', 'generate', '--attention', 'q'), ['quantized'])
        self.assertEqual(complete('sparsereel', 'generate', '--steps', '3', '--vae-tiling', ''), complete('sparsereel', 'config', 'show', '--vae_tiling'.replace('_', '-'), ''))
        self.assertEqual(set(complete('sparsereel', 'generate', '--vae-tiling', '')), {'auto', 'on', 'off'})
        self.assertEqual(complete('sparsereel', 'bench', 'plot', '--ou'), ['--output'])
        self.assertEqual(set(complete('sparsereel', 'completion', '')), {'bash', 'zsh', 'fish'})
        self.assertEqual([name.replace('\\', '') for name in complete('sparsereel', 'generate', '--from', 'cl')], ['clip one.mp4'])
        self.assertEqual([name.replace('\\', '') for name in complete('sparsereel', 'inspect', 'cl')], ['clip one.mp4'])
        self.assertEqual([word for word in complete('sparsereel', 'generate', '--seed', '') if word], [])
        self.assertEqual(set(complete('sparsereel', 'batch', '--format', '')), {'mp4', 'mov', 'mkv', 'webm', 'gif', 'y4m', 'safetensors'})
        self.assertEqual(set(complete('sparsereel', 'generate', '--device', '')), {'auto', 'cpu', 'cuda'})
        for option in ('-o', '--status'):
            self.assertEqual([name.replace('\\', '').rstrip('/') for name in complete('sparsereel', 'batch', option, 'fo')], ['folder one'], option)
        for command in self.commands():
            offered = set(complete('sparsereel', *command, '--'))
            self.assertLessEqual(self.options(*command), offered, command)

    def test_bash_completes(self):
        self.check_completion(self.complete_in_bash)
        self.assertEqual(self.complete_in_bash('sparsereel', 'generate', '--attention', '=', 'sp'), ['sparse'])

    @unittest.skipUnless(shutil.which('fish'), 'fish is not installed')
    def test_fish_completes(self):
        self.check_completion(self.complete_in_fish)

    @unittest.skipUnless(shutil.which('zsh'), 'zsh is not installed')
    def test_zsh_takes_its_script(self):
        (self.folder / '_sparsereel').write_text(self.text('completion', 'zsh'))
        script = 'autoload -U compinit; compinit -u -D; source ./_sparsereel; print $_comps[sparsereel]; whence -w _sparsereel_bench_plot'
        result = subprocess.run(['zsh', '-f', '-c', script], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual((result.stdout, result.stderr), ('_sparsereel\n_sparsereel_bench_plot: function\n', ''))
        self.assertIn(":DIR:_files -/'", self.text('completion', 'zsh'))

    def test_wrong_words_are_answered_with_the_nearest_right_ones(self):
        for arguments, meant in ((['generat', '-p', 'x'], 'did you mean generate?'), (['bench', 'atention'], 'did you mean attention?'),
                                 (['generate', '--stepz', '3'], 'did you mean --steps?'), (['generate', '--negativ-prompt=x'], 'did you mean --negative-prompt?'),
                                 (['generate', '-p', 'x', '--attention', 'spares'], 'did you mean sparse?'),
                                 (['bench', 'attention', '--shpae', '1,1,64,64'], 'did you mean --shape?'), (['completion', 'fis'], 'did you mean fish?'),
                                 (['reference', '--format', 'mna'], 'did you mean man?'), (['--verison'], 'did you mean --version?')):
            self.fail_with(self.run_program(*arguments), 2, meant)
        self.assertNotIn('did you mean', self.run_program('generate', '--zzzzzz').stderr)

    def test_wrong_values_are_answered_with_all_choices_and_the_nearest(self):
        attention = ['bench', 'attention', '--shape', '1,1,64,64']
        (self.folder / 'set.txt').write_text('a\n')
        for arguments, choices, meant in (
                (['generate', '-p', 'x', '--scheduler', 'dmp'], 'ddim, dpm', 'dpm'), (['generate', '-p', 'x', '--device', 'cdua'], 'auto, cpu, cuda, cuda:N', 'cuda'),
                (['generate', '-p', 'x', '--device', 'cuda:x'], 'auto, cpu, cuda, cuda:N', 'cuda:N'), (['tune', '-p', 'x', '--device', 'cup'], 'auto, cpu', 'cpu'),
                ([*attention, '--modes', 'full,spares'], 'full, quantized, sparse', 'sparse'), ([*attention, '--format', 'cvs'], 'md, csv, json', 'csv'),
                (['bench', 'attention', '--workload', 'mochi,cogvideox-2'], 'cogvideox-2b, cogvideox-5b, mochi', 'cogvideox-2b'),
                ([*attention, '--data', 'gausian'], 'gaussian, structured, smooth, loud', 'gaussian'), ([*attention, '--dtype', 'fp23'], 'auto, fp32, bf16, fp16', 'fp32'),
                ([*attention, '--device', 'cdua'], 'auto, cpu, cuda', 'cuda'), ([*attention, '--selection-rows', '127'], '64, 128, 192', '128'),
                ([*attention, '--text-tokens', 'modle'], 'model', 'model'), (['bench', 'pipeline', '--modes', 'ful'], 'full, quantized, sparse', 'full'),
                (['bench', 'pipeline', '--format', 'jsno'], 'md, csv, json', 'json'), (['bench', 'pipeline', '--token-order', 'native,hilbret'], 'hilbert, native, time-major', 'hilbert'),
                (['batch', 'set.txt', '-o', 'out', '--format', 'mp5'], 'mp4, mov, mkv, webm, gif, y4m, safetensors', 'mp4'), (['batch', 'set.jsnl', '-o', 'out'], '.txt, .jsonl, .csv', '.jsonl'),
                (['generate', '-p', 'x', '-o', 'v.mp5'], '.mp4, .gif, .webm, .mov, .mkv, .y4m, .safetensors', '.mp4'), (['generate', '-p', 'x', '-o', 'v.GFI'], '.mp4, .gif', '.gif')):
            self.fail_with(self.run_program(*arguments), 2, choices, f'did you mean {meant}?')
        self.assertNotIn('did you mean', self.run_program('generate', '-p', 'x', '-o', 'v.flac').stderr)

    def test_options_of_batch_stand_in_their_groups(self):
        groups = dict(group.split('\n', 1) for group in self.text('batch', '--help-all').split('\n\n') if '\n' in group)
        for option, group in (('--output DIR', 'Output and reports'), ('--format WORD', 'Output and reports'), ('--share i/n', 'Prompt set'), ('--status DIR', 'Prompt set')):
            self.assertIn(option, groups[group])


if __name__ == '__main__':
    unittest.main()
