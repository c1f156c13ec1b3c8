"""Tests what users expect of any program: the last of two equal options wins, no file is replaced unless asked, progress is shown, recipes work elsewhere."""
import json
import os
import pty
import re
import signal
import subprocess
import unittest
from pathlib import Path

from support import FAMILY, MODEL, PROGRAM, PROMPT, ROOT, CommandLineTest, wait_until, write_checkpoint

TINY = ['--device', 'cpu', '--steps', 1, '--frames', 1]


class Habits(CommandLineTest):
    def recipe(self, file):
        return json.loads(self.succeed(self.run_program('inspect', file, '--json')).stdout)['recipe']

    def start_generate(self, *arguments):
        return self.start_program('generate', '-m', MODEL, '-p', PROMPT, *map(str, self.unless(arguments, '--device', 'cpu', *FAMILY.size) + list(arguments)))

    def interrupt_at(self, process, name):
        wait_until(lambda: name in self.names(), process)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 130)

    def test_last_of_a_repeated_option_wins(self):
        rows = self.succeed(self.run_program('config', 'show', '-m', 'nowhere', '-m', MODEL, '--steps', 9, '--num-inference-steps', 7, '-p', 'a', '-p', 'b',
                                             '--dynamic-cfg', '--no-dynamic-cfg')).stdout
        for line in ('steps: 7', 'prompt: "b"', 'dynamic_cfg: false'):
            self.assertRegex(rows, rf'(?m)^{line} ')
        self.assertIn('dynamic_cfg: true', self.succeed(self.run_program('config', 'show', '-m', MODEL, '--no-dynamic-cfg', '--dynamic-cfg')).stdout)

    def test_never_replaces_a_video_without_being_asked(self):
        for name in ('video.mp4', 'video-2.mp4', 'video-3.mp4'):
            self.assertIn(f'{name}: 1 frame,', self.succeed(self.generate('--frames', 1)).stdout)
        self.assertEqual(self.names(), ['video-2.mp4', 'video-3.mp4', 'video.mp4'])
        self.succeed(self.generate('--frames', 1, '--save-latents', 'a.safetensors', '-o', 'video.mp4'))  # video.mp4 is replaced, because -o names it
        self.assertIn('video-4.mp4: ', self.succeed(self.run_program('decode', 'a.safetensors', '-m', MODEL)).stdout)

    def test_interrupted_run_resumes_under_its_name(self):
        (self.folder / 'video.mp4').write_text('of an earlier run')
        usual = ['--frames', 5, '--steps', 200, '--checkpoint-every', 1]
        process, _ = self.start_generate(*usual)
        self.interrupt_at(process, 'video-2.mp4.checkpoint.safetensors')
        self.assertGreater(self.report(*usual)['resumed_at_step'], 0)
        self.assertEqual(self.names(), ['video-2.mp4', 'video.mp4'])

    def test_checkpoint_never_makes_a_run_replace_a_video(self):
        checkpoint = self.folder / 'video.mp4.checkpoint.safetensors'
        (self.folder / 'video.mp4').write_text('of an earlier run')
        for make in (write_checkpoint, Path.touch):
            make(checkpoint)
            before = checkpoint.read_bytes()
            self.succeed(self.generate('--frames', 1, '--checkpoint-every', 1))
            self.assertEqual((self.folder / 'video.mp4').read_text(), 'of an earlier run')
            self.assertEqual(checkpoint.read_bytes(), before)
            self.assertEqual(self.names(), ['video-2.mp4', 'video.mp4', checkpoint.name])
            for name in ('video-2.mp4', checkpoint.name):
                (self.folder / name).unlink()

    def test_random_seeds_are_reported(self):
        seeds = set()
        for seed in ('random', -1, 'random'):
            report = self.report('-o', 'a.mp4', '--frames', 1, '--seed', seed)
            seeds.add(report['recipe']['seed'])
            self.assertEqual(self.recipe('a.mp4')['seed'], report['recipe']['seed'])
        self.assertEqual(len(seeds), 3)
        self.assertRegex(self.succeed(self.generate('-o', 'a.mp4', '--frames', 1, '--seed', 'random')).stdout, r', seed \d+\n$')
        self.fail_with(self.generate('--seed', 'randm'), 2, '--seed randm', 'random')
        self.fail_with(self.generate('--seed', -2), 2, '--seed -2')
        self.warn_with(self.generate('-o', 'c.y4m', '--frames', 1, '--seed', -1, '--checkpoint-every', 1),
                       '--checkpoint-every 1 has no effect with --seed -1: the same command makes another video')
        (self.folder / 'set.csv').write_text('prompt,seed\na,random\nb,1\n')
        self.fail_with(self.run_program('batch', 'set.csv', '-o', 'out', '--seed', 'random'), 2, '--seed random')
        result = self.run_program('batch', 'set.csv', '-o', 'out', '-m', MODEL, *TINY)
        self.assertEqual(result.returncode, 1)
        self.assertIn('set.csv:2: seed random', result.stderr)

    def test_prints_warnings_before_the_work(self):
        asked, made = FAMILY.even_latents
        process, terminal = self.start_program('generate', '-m', MODEL, '-p', PROMPT, '--frames', asked, '--steps', 1, '--device', 'cpu')
        self.assertIn(f'{made} frames instead of {asked}', self.read_until(terminal, 'denoise'))
        self.read_until(terminal, None)
        process.wait()
        tiny = ROOT / 'assets' / 'tiny'
        usual = ['generate', '-m', tiny, *TINY, '-o', 'a.mp4', '-p']
        said = self.succeed(self.run_program(*usual, 'a purple elephant dances in the rain, slowly')).stderr
        self.assertIn('the tiny model knows moving shapes only', said)
        self.assertIn('mean nothing to it: elephant, dances, rain ...\n', said)
        self.assertNotIn('mean nothing', self.succeed(self.run_program(*usual, 'A small Red circle, moving to the right on a blue background.')).stderr)
        self.assertIn('x' * 40 + '...\n', self.succeed(self.run_program(*usual, 'x' * 10_000)).stderr)
        (self.folder / 'set.txt').write_text('a red unicorn\na blue unicorn\n')
        said = self.succeed(self.run_program('batch', 'set.txt', '-o', 'out', '-m', tiny, *TINY)).stderr
        self.assertEqual(said.count('unicorn'), 1)

    def test_warns_once_of_sizes_unknown_to_the_tiny_model(self):
        tiny = ROOT / 'assets' / 'tiny'
        warning = 'the tiny model was trained on 33 frames of 256x256'
        (self.folder / 'set.csv').write_text('prompt,size,frames\na star,256x192,33\na star,64x64,33\na star,64x64,9\n')
        usual = ['-m', tiny, '--steps', 1, '--device', 'cpu', '--quiet']
        said = self.succeed(self.run_program('batch', 'set.csv', '-o', 'out', *usual)).stderr
        self.assertEqual(said.count(warning), 1)
        self.assertIn('33 frames of 64x64 may show something else, and sparse attention is no faster than full there\n', said)
        for size, told in ((['--size', '256x192'], False), (['--frames', 9], True), (['--size', '176x256'], True), (['--size', '64x528', '--frames', 1], True)):
            said = self.succeed(self.run_program('generate', '-p', 'a star', '-o', 'a.mp4', *usual, *size)).stderr
            self.assertEqual(warning in said, told, size)
            self.assertEqual('no faster than full' in said, '64x528' in size, size)
        self.assertNotIn(warning, self.succeed(self.generate('-o', 'a.mp4', '--frames', 1)).stderr)

    def test_benchmarks_and_tune_warn_of_sizes_and_words_unknown_to_the_tiny_model(self):
        (self.folder / 'p.txt').write_text('a purple elephant\n')
        small = ('-m', ROOT / 'assets' / 'tiny', '--device', 'cpu', '--size', '64x64', '--frames', 1, '--json')
        for command, words in ((('bench', 'pipeline', '--modes', 'full', '--steps', 1, '--no-decode'), 0),
                               (('bench', 'quality', 'p.txt', '--topk', 0.5, '--steps', 2, '--timed-steps', 0), 1),
                               (('tune', 'p.txt', '--steps', 2, '--videos', 0, '--samples', 1), 1)):
            with self.subTest(command=command):
                said = self.run_program(*command, *small)
                self.assertIn(said.returncode, (0, 1), said.stderr)  # at such a small size, `tune` may find nothing that is faster than full attention
                warnings = ' '.join(json.loads(said.stdout)['warnings'])
                self.assertEqual(warnings.count('the tiny model was trained on 33 frames of 256x256'), 1, warnings)
                self.assertEqual(warnings.count('these words mean nothing to it: elephant'), words, warnings)

    def test_set_prints_a_line_per_video_without_a_terminal(self):
        (self.folder / 'set.txt').write_text('a\nb\nc\n')
        usual = ['batch', 'set.txt', '-m', MODEL, *TINY]
        self.assertRegex(self.succeed(self.run_program(*usual, '-o', 'out')).stderr, r'\Aset 1/3  .* s/it  ETA .*\nset 2/3 .*\n\Z')
        self.assertEqual(self.succeed(self.run_program(*usual, '-o', 'other', '--quiet')).stderr, '')

    def test_dumb_terminal_gets_no_escape_sequences(self):
        for terminal, bar in (('xterm', True), ('dumb', False)):
            process, shown = self.start_program('generate', '-m', MODEL, '-p', PROMPT, *map(str, TINY), env=os.environ | {'TERM': terminal})
            self.assertEqual('\x1b' in self.read_until(shown, None), bar, terminal)
            self.assertEqual(process.wait(), 0)

    def test_tables_on_a_terminal_are_aligned(self):
        table = ['bench', 'attention', '--shape', '1,1,64,64', '--modes', 'full,sparse', '--repetitions', 1, '--device', 'cpu']
        ours, theirs = pty.openpty()
        process = subprocess.Popen([PROGRAM, *map(str, table)], cwd=self.folder, stdout=theirs, stderr=subprocess.DEVNULL)
        os.close(theirs)
        shown = self.read_until(ours, None)
        self.assertEqual(process.wait(), 0)
        os.close(ours)
        lines = [line for line in shown.splitlines() if line.startswith('|')]
        self.assertEqual(len(lines), 6, shown)
        self.assertEqual(len({tuple(place for place, c in enumerate(line) if c == '|') for line in lines}), 1, shown)

    def test_doctor_prints_json(self):
        found = json.loads(self.succeed(self.run_program('doctor', '--json')).stdout)
        for key in ('version', 'installation', 'libtorch', 'cuda_build', 'cpu', 'gpus', 'encoders', 'tiny_model', 'missing'):
            self.assertIn(key, found)
        text = self.succeed(self.run_program('doctor')).stdout
        self.assertEqual(text.count('MISSING'), len(found['missing']))

    def test_every_kind_of_video_carries_its_recipe(self):
        usual = ['-p', PROMPT, '--frames', 9, '--seed', 7]
        for name in ('a.mp4', 'a.mov', 'a.mkv', 'a.webm', 'a.gif', 'a.y4m', 'frames'):
            with self.subTest(name):
                self.succeed(self.generate(*usual, '-o', name))
                self.assertEqual(self.recipe(name)['seed'], 7)
                again = 'again' + os.path.splitext(name)[1]
                self.succeed(self.run_program('generate', '--from', name, '-m', MODEL, '-o', again))
                pair = [self.folder / one / '000008.png' if one in ('frames', 'again') else self.folder / one for one in (name, again)]
                self.assertEqual(pair[0].read_bytes(), pair[1].read_bytes())
        for beside in ('a.y4m.json', 'frames.json'):
            self.assertIn(beside, self.names())
        self.succeed(self.generate(*usual, '-o', 'a.y4m', '--no-metadata'))
        self.assertNotIn('a.y4m.json', self.names())

    def test_container_decides_the_default_encoder(self):
        for name, encoder in (('a.webm', 'libvpx-vp9'), ('a.mov', 'libx264'), ('a.MKV', 'libx264')):
            report = self.report('-o', name, '--frames', 9, '--crf', 30)
            self.assertEqual((report['output']['encoder'], report['recipe']['crf']), (encoder, 30))
        self.fail_with(self.generate('-o', 'a.webm', '--codec', 'libx264'), 2, '--codec libx264', 'libvpx-vp9')

    def test_from_accepts_a_report_or_a_recipe(self):
        self.succeed(self.generate('-o', 'a.y4m', '--seed', 5, '--frames', 1, '--report', 'report.json'))
        (self.folder / 'recipe.json').write_text(json.dumps(self.recipe('a.y4m')))
        for name in ('report.json', 'recipe.json'):
            self.succeed(self.run_program('generate', '--from', name, '-m', MODEL, '-o', 'b.y4m'))
            self.assertEqual((self.folder / 'a.y4m').read_bytes(), (self.folder / 'b.y4m').read_bytes())
        (self.folder / 'other.json').write_text('{"rows": []}')
        self.fail_with(self.run_program('generate', '--from', 'other.json', '-m', MODEL), 2, 'other.json', 'carries no recipe')

    def test_from_accepts_one_video_of_a_report_of_several(self):
        self.succeed(self.generate('-o', 'a.y4m', '--frames', 1, '--count', 2, '--report', 'report.json'))
        self.fail_with(self.run_program('generate', '--from', 'report.json', '-m', MODEL), 2, 'report.json is the report of several videos', 'such as a-1.y4m')
        (self.folder / 'report.json').write_text('{"videos": [1]}')
        self.fail_with(self.run_program('generate', '--from', 'report.json', '-m', MODEL), 2, 'report.json', 'carries no recipe')

    def test_makes_several_videos_of_a_prompt(self):
        report = self.report('-o', 'clip.y4m', '--frames', 1, '--seed', 7, '--count', 3, '--save-latents', 'l.safetensors')
        self.assertEqual([video['output']['path'] for video in report['videos']], ['clip-1.y4m', 'clip-2.y4m', 'clip-3.y4m'])
        self.assertEqual([video['recipe']['seed'] for video in report['videos']], [7, 8, 9])
        self.assertIn('l-2.safetensors', self.names())
        self.succeed(self.generate('-o', 'one.y4m', '--frames', 1, '--seed', 8))
        self.assertEqual((self.folder / 'one.y4m').read_bytes(), (self.folder / 'clip-2.y4m').read_bytes())
        lines = self.succeed(self.generate('--frames', 1, '--batch-count', 10)).stdout.splitlines()
        self.assertEqual((len(lines), lines[1].split(':')[0]), (10, 'video-02.mp4'))
        self.assertIn('video-2-01.mp4: ', self.succeed(self.generate('--frames', 1, '--batch-count', 10)).stdout)
        self.fail_with(self.generate('--count', 0), 2, '--batch-count 0')
        self.fail_with(self.generate('-o', 'clip.y4m', '--count', 2, '--report', 'clip-2.y4m'), 2, 'clip-2.y4m')

    def test_makes_several_folders_of_pictures(self):
        for output in ('frames/', 'frames.d/'):
            self.succeed(self.generate('-o', output, '--frames', 1, '--count', 2))
        self.assertEqual(self.names(), sorted(f'{name}-{number}{ending}' for name in ('frames', 'frames.d') for number in (1, 2) for ending in ('', '.json')))

    def test_checks_all_outputs_before_it_makes_the_first_video(self):
        (self.folder / 'clip-2.y4m.json').write_text('mine')
        self.fail_with(self.generate('-o', 'clip.y4m', '--frames', 1, '--count', 2), 2, 'clip-2.y4m.json')
        self.assertEqual(self.names(), ['clip-2.y4m.json'])

    def test_opens_the_model_once_for_several_videos(self):
        model = self.copy_of_the_model()
        process, terminal = self.start_program('generate', '-m', model, '-p', 'a spotted dog', '--device', 'cpu', '--steps', 30, '--frames', 5, '--count', 3, '-o', 'clip.y4m', '--report', 'r.json')
        wait_until(lambda: 'clip-1.y4m' in self.names(), process)
        model.rename(self.folder / 'elsewhere')
        text = self.read_until(terminal, None)
        self.assertEqual(process.wait(timeout=60), 0, text)
        self.succeed(self.run_program('generate', '-m', 'elsewhere', '-p', 'a spotted dog', '--device', 'cpu', '--steps', 30, '--frames', 5, '--seed', 44, '-o', 'alone.y4m'))
        self.assertEqual((self.folder / 'clip-3.y4m').read_bytes(), (self.folder / 'alone.y4m').read_bytes())
        seconds = [video['seconds'] for video in json.loads((self.folder / 'r.json').read_text())['videos']]
        self.assertEqual([each['text'] > 0 for each in seconds], [True, False, False])

    def test_prints_warnings_once_that_several_videos_share(self):
        result = self.succeed(self.generate('-o', 'clip.y4m', '--frames', 5, '--count', 2, '--json', '--quiet', '-p', 'long ' * 40))
        self.assertEqual((result.stderr.count('frames instead of 5'), result.stderr.count('prompt was cut')), (1, 1), result.stderr)
        self.assertEqual([len(video['warnings']) for video in json.loads(result.stdout)['videos']], [2, 2])

    def test_config_show_prints_a_random_seed_as_random(self):
        for given in ('random', -1):
            shown = self.succeed(self.run_program('config', 'show', '-m', MODEL, '--seed', given)).stdout
            self.assertRegex(shown, r'(?m)^seed: "random" .*# command line$')

    def test_makes_several_videos_of_a_prompt_from_standard_input(self):
        result = self.succeed(self.run_program('generate', '--prompt-file', '-', '-m', MODEL, *TINY, '--frames', 1, '--seed', 'random', '--count', 2, '-o', 'c.y4m', input='a'))
        self.assertTrue({'c-1.y4m', 'c-2.y4m'} <= set(self.names()))
        self.assertEqual(len(re.findall(r', seed \d+$', result.stdout, re.M)), 2)

    def test_checkpoint_never_makes_several_videos_replace_others(self):
        usual = ['--frames', 5, '--steps', 200, '--count', 2, '--checkpoint-every', 1]
        process, terminal = self.start_generate(*usual)
        self.interrupt_at(process, 'video-2.mp4.checkpoint.safetensors')
        self.assertIn('run the same command again with -o video.mp4: it goes on from step', ' '.join(self.read_until(terminal, None).split()))
        left = {name: (self.folder / name).read_bytes() for name in self.names()}
        self.assertEqual(sorted(left), ['video-1.mp4', 'video-2.mp4.checkpoint.safetensors'])
        self.succeed(self.generate('--frames', 1, '--count', 2, '--checkpoint-every', 1))
        self.assertEqual(self.names(), ['video-1.mp4', 'video-2-1.mp4', 'video-2-2.mp4', 'video-2.mp4.checkpoint.safetensors'])
        self.assertEqual({name: (self.folder / name).read_bytes() for name in left}, left)
        self.assertGreater(self.report(*usual, '-o', 'video.mp4')['videos'][1]['resumed_at_step'], 0)
        self.assertEqual((self.folder / 'video-1.mp4').read_bytes(), left['video-1.mp4'])

    def test_measurements_refuse_random_seeds(self):
        self.fail_with(self.run_program('bench', 'attention', '--seed', 'random'), 2, '--seed random', 'give a number')
        self.fail_with(self.run_program('tune', '-m', MODEL, '-p', 'a', '-o', 'p.yaml', '--seed', -1), 2, '--seed -1', 'give a number')

    def test_rows_cannot_share_standard_input(self):
        (self.folder / 'set.csv').write_text('seed\n1\n')
        result = self.run_program('batch', 'set.csv', '-o', 'out', '-m', MODEL, '--prompt-file', '-', input='a')
        self.assertEqual(result.returncode, 1)
        self.assertIn("set.csv:2: --prompt-file -: a set's rows cannot share standard input", result.stderr)

    def test_makes_several_videos_of_each_row(self):
        (self.folder / 'set.csv').write_text('prompt,seed,output\na,5,a.y4m\nb,,\n')
        report = json.loads(self.succeed(self.run_program('batch', 'set.csv', '-o', 'out', '-m', MODEL, *TINY, '--count', 2, '--seed', 100, '--json')).stdout)
        self.assertEqual(report['set']['rendered'], 4)
        lines = [json.loads(line) for line in (self.folder / 'out' / 'manifest.0.jsonl').read_text().splitlines()]
        self.assertEqual([(line['output'], line['seed']) for line in lines],
                         [('a-1.y4m', 5), ('a-2.y4m', 6), ('0002-b.mp4', 102), ('0003-b.mp4', 103)])


class Reference(CommandLineTest):
    def test_has_no_section_twice(self):
        text = self.succeed(self.run_program('reference')).stdout
        for section in re.split(r'\n\n(?=\S)', text):
            headings = re.findall(r'(?m)^    ([A-Z][a-z ]+):$', section)
            self.assertEqual(len(headings), len(set(headings)), section[:60])
        self.assertRegex(text, r'(?m)^ENVIRONMENT$')
        for variable in ('RANK', 'SPARSEREEL_ATTENTION_KERNEL', 'OMP_NUM_THREADS', 'OMP_WAIT_POLICY', 'TERM'):
            self.assertIn(variable, text.split('\nENVIRONMENT\n')[1].split('\n\n')[0])

    def test_help_describes_values(self):
        text = self.succeed(self.run_program('generate', '--help')).stdout
        for words in ('-m, --model FOLDER', '--size WxH', 'number of frames'):
            self.assertIn(words, text)


if __name__ == '__main__':
    unittest.main()
