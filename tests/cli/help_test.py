"""--help, completion and reference say the same options, and wrong words are answered with the nearest right ones."""
import re
import shutil
import subprocess
import unittest

from support import CommandLineTest

# compopt works in an interactive shell only.
BASH = 'compopt() { :; }; source "$0"; COMP_WORDS=("${@}"); COMP_CWORD=$(($# - 1)); _sparsereel; printf "%s\\n" "${COMPREPLY[@]}"'


class Help(CommandLineTest):
    texts = {}  # the program's start costs more than all that is looked at

    def text(self, *arguments):
        if arguments not in self.texts:
            self.texts[arguments] = self.succeed(self.run_program(*arguments)).stdout
        return self.texts[arguments]

    def script(self, shell):
        """A file with the completion of a shell."""
        path = self.folder / f'completion.{shell}'
        path.write_text(self.text('completion', shell))
        return str(path)

    def commands(self):
        names = re.findall(r'^  (\w+)', self.text('--help').split('Commands\n')[1].split('\n\n')[0], re.M)
        self.assertIn('generate', names)
        return [[name] for name in names] + [['bench', name] for name in ('attention', 'pipeline', 'plot')] + [['config', 'show']]

    def options(self, *command):
        return set(re.findall(r'^  (?:-\w,|   ) (--[\w-]+)', self.text(*command, '--help'), re.M))

    def test_help_is_short_and_grouped(self):
        for command in [[]] + self.commands():
            text = self.text(*command, '--help')
            self.assertIn(' '.join(['usage: sparsereel', *command]), text)
            self.assertLessEqual(max(map(len, text.splitlines())), 100, command)
            self.assertLessEqual(len(text.splitlines()), 90, command)
            self.assertIn('--help', text)
        text = self.text('generate', '--help')
        places = [text.index('\n' + group + '\n') for group in ('Prompt', 'Video', 'Sampling', 'Attention', 'Machine', 'Latents', 'Output and reports', 'Options')]
        self.assertEqual(places, sorted(places))

    def test_reference_explains_every_option(self):
        text = self.text('reference')
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        for command in self.commands():
            for option in self.options(*command) - {'--help'}:
                self.assertIn(option, text)
        for word in ('--num-inference-steps', 'In YAML: cfg_scale', 'one of full, quantized, sparse, check', 'EXIT STATUS', 'sparsereel decode LATENTS'):
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
        self.assertIn('generate', complete('sparsereel', ''))
        self.assertNotIn('attention', complete('sparsereel', ''))
        self.assertEqual(set(complete('sparsereel', 'bench', '')) & {'attention', 'pipeline', 'plot', 'generate'}, {'attention', 'pipeline', 'plot'})
        self.assertEqual(complete('sparsereel', 'generate', '--token-o'), ['--token-order'])
        self.assertEqual(complete('sparsereel', 'generate', '--attention', 'q'), ['quantized'])
        self.assertEqual(complete('sparsereel', 'generate', '--steps', '3', '--vae-tiling', ''), complete('sparsereel', 'config', 'show', '--vae_tiling'.replace('_', '-'), ''))
        self.assertEqual(set(complete('sparsereel', 'generate', '--vae-tiling', '')), {'auto', 'on', 'off'})
        self.assertEqual(complete('sparsereel', 'bench', 'plot', '--ou'), ['--output'])
        self.assertEqual(set(complete('sparsereel', 'completion', '')), {'bash', 'zsh', 'fish'})
        self.assertEqual([name.replace('\\', '') for name in complete('sparsereel', 'generate', '--from', 'cl')], ['clip one.mp4'])
        self.assertEqual([name.replace('\\', '') for name in complete('sparsereel', 'inspect', 'cl')], ['clip one.mp4'])
        self.assertEqual([word for word in complete('sparsereel', 'generate', '--seed', '') if word], [])
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

    def test_wrong_words_are_answered_with_the_nearest_right_ones(self):
        for arguments, meant in ((['generat', '-p', 'x'], 'did you mean generate?'), (['bench', 'atention'], 'did you mean attention?'),
                                 (['generate', '--stepz', '3'], 'did you mean --steps?'), (['generate', '--negativ-prompt=x'], 'did you mean --negative-prompt?'),
                                 (['generate', '-p', 'x', '--attention', 'spares'], 'did you mean sparse?'),
                                 (['bench', 'attention', '--shpae', '1,1,64,64'], 'did you mean --shape?'), (['completion', 'fis'], 'did you mean fish?'),
                                 (['reference', '--format', 'mna'], 'did you mean man?'), (['--verison'], 'did you mean --version?')):
            self.fail_with(self.run_program(*arguments), 2, meant)
        self.assertNotIn('did you mean', self.run_program('generate', '--zzzzzz').stderr)


if __name__ == '__main__':
    unittest.main()
