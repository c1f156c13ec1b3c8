"""Tests output files: where the program may write, full disks, and which files a failed run leaves."""
import fcntl
import json
import os
import shlex
import signal
import struct
import subprocess
import unittest
from pathlib import Path

from support import FAMILY, MODEL, PROGRAM, PROMPT, ROOT, CommandLineTest, limited, read_safetensors, wait_until


class Outputs(CommandLineTest):
    def test_refuses_too_long_names_at_once(self):
        for arguments in (['-o', 'x' * 300 + '.mp4'], ['-o', 'x' * 236 + '.mp4'], ['-o', 'x' * 240], ['-o', 'x' * 256],
                          ['-o', 'x' * 256, '--save-latents', 'latents.safetensors'], ['--save-latents', 'x' * 250 + '.safetensors'],
                          ['-o', 'x' * 248 + '.gif', '--save-latents', 'latents.safetensors'], ['--contact-sheet', 'x' * 255 + '.png']):
            with self.subTest(arguments=arguments):
                self.fail_with(self.generate(*arguments), 2, 'too long')
        self.assertEqual(self.names(), [])

    def test_longest_names_work(self):
        for name in ('x' * 251 + '.mp4', 'x' * 250):
            self.succeed(self.generate('-o', name, '--steps', 1, '--save-latents', 'latents.safetensors'))
        self.assertEqual(self.names(), ['latents.safetensors', 'x' * 250, 'x' * 250 + '.json', 'x' * 251 + '.mp4'])

    def test_files_of_a_run_are_different_files(self):
        (self.folder / 'report.json').write_text('old')
        (self.folder / 'link.json').symlink_to('report.json')
        (self.folder / 'dangling.json').symlink_to('b.safetensors')
        for arguments in (['-o', 'a.safetensors', '--save-latents', 'a.safetensors'], ['-o', './a.mp4', '--report', 'a.mp4'],
                          ['-o', 'a.gif', '--report', 'a.gif.json'], ['-o', 'a.gif', '--no-metadata', '--report', 'a.gif.json'],
                          ['-o', 'a.gif', '--report', 'a.gif.wav'], ['--contact-sheet', 'a.png', '--report', 'a.png'],
                          ['-o', 'a', '--contact-sheet', 'a/'], ['--report', 'report.json', '--save-latents', 'link.json'],
                          ['--report', 'dangling.json', '--save-latents', 'b.safetensors']):
            with self.subTest(arguments=arguments):
                self.fail_with(self.generate(*arguments), 2, *[word for word in arguments if word in ('--report', '--save-latents')][:1])
        self.assertEqual(self.names(), ['dangling.json', 'link.json', 'report.json'])
        self.assertEqual((self.folder / 'report.json').read_text(), 'old')

    def test_outputs_never_replace_input_files(self):
        self.succeed(self.generate('--save-latents', 'latents.safetensors', '-o', 'a.mp4'))
        before = (self.folder / 'latents.safetensors').read_bytes()
        for result in (self.generate('--init-latents', 'latents.safetensors', '-o', 'latents.safetensors'),
                       self.generate('--init-latents', 'latents.safetensors', '--save-latents', 'latents.safetensors'),
                       self.generate('--init-latents', 'latents.safetensors', '--report', 'latents.safetensors'),
                       self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'latents.safetensors')):
            self.fail_with(result, 2, 'latents.safetensors', 'same file')
        self.assertEqual((self.folder / 'latents.safetensors').read_bytes(), before)

    def test_outputs_never_replace_the_config_file(self):
        config = self.folder / 'my.yaml'
        config.write_text('steps: 2\n')
        (self.folder / 'link.yaml').symlink_to('my.yaml')
        for arguments in (['--report', 'my.yaml'], ['--save-latents', './my.yaml'], ['--contact-sheet', 'link.yaml'], ['-o', 'my.yaml']):
            with self.subTest(arguments=arguments):
                self.fail_with(self.generate('--config', 'my.yaml', *arguments), 2, '--config', 'same file')
        self.fail_with(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '--config', 'my.yaml', '--report', 'my.yaml'), 2, 'same file')
        self.assertEqual(config.read_text(), 'steps: 2\n')
        config.write_text('report: my.yaml\n')
        self.fail_with(self.generate('--config', 'my.yaml'), 2, '--config', 'same file')

    def test_outputs_never_replace_a_part_of_the_model(self):
        model = self.copy_of_the_model()
        weights = model / 'vae' / 'diffusion_pytorch_model.safetensors'
        weights.rename(self.folder / 'blob')  # replace the file by a link to it, as in Hugging Face's cache
        weights.symlink_to('../../blob')
        config = model / 'transformer' / 'config.json'
        os.link(config, self.folder / 'hard.json')
        (self.folder / 'soft.safetensors').symlink_to(weights)
        (self.folder / 'same').symlink_to('model')
        self.succeed(self.generate('--save-latents', 'l.safetensors', '-o', 'a.mp4', '-m', model))
        before = {path: path.read_bytes() for path in self.folder.rglob('*') if path.is_file()}
        for option, name in (('-o', weights), ('--save-latents', weights), ('--save-latents', 'soft.safetensors'), ('--save-latents', 'blob'),
                             ('--report', 'hard.json'), ('--report', 'model/model_index.json'), ('--report', 'same/vae/config.json'),
                             ('--report', 'model/scheduler/scheduler_config.json'), ('--report', 'model/tokenizer/spiece.model'),
                             ('-o', 'model/text_encoder/new.safetensors'), ('--contact-sheet', 'model/vae/new.png'), ('-o', 'model/vae/new/')):
            with self.subTest(f'{option} {name}'):
                self.fail_with(self.generate('-m', model, option, name), 2, Path(name).name, 'is among the files from which the model is read')
                if option != '--save-latents' and option != '--contact-sheet':
                    self.fail_with(self.run_program('decode', 'l.safetensors', '-m', model, option, name), 2, 'is among the files from which the model is read')
                self.assertEqual({path: path.read_bytes() for path in self.folder.rglob('*') if path.is_file()}, before)
        (self.folder / 'set.txt').write_text('a\n')
        (self.folder / 'row.jsonl').write_text(json.dumps({'prompt': 'a', 'model': 'model', 'output': 'diffusion_pytorch_model.safetensors'}))
        for command in (['batch', 'set.txt', '-o', 'out', '-m', model, '--report', config], ['batch', 'set.txt', '-o', 'model/vae', '-m', model],
                        ['batch', 'row.jsonl', '-o', 'model/vae'], ['tune', '-m', model, '-p', 'a', '-o', 'model/vae/config.json'],
                        ['tune', '-m', model, '-p', 'a', '-o', 'p.yaml', '--heat-map', 'model/vae/a.png'],
                        ['bench', 'pipeline', '-m', model, '-o', 'model/model_index.json'],
                        ['bench', 'quality', 'set.txt', '-m', model, '-o', 'model/model_index.json'],
                        ['bench', 'quality', 'set.txt', '-m', model, '--pictures', 'model/transformer']):
            with self.subTest(command):
                self.fail_with(self.run_program(*command), 2, 'is among the files from which the model is read')
        self.assertEqual({path: path.read_bytes() for path in self.folder.rglob('*') if path.is_file()},
                         before | {self.folder / name: (self.folder / name).read_bytes() for name in ('set.txt', 'row.jsonl')})
        self.succeed(self.generate('-m', model, '-o', 'model/clip.mp4', '--report', 'model/outputs.json', '--frames', 1))

    def test_outputs_never_replace_the_architecture_of_random_weights(self):
        text = (ROOT / 'configs' / 'tiny.yaml').read_bytes()
        (self.folder / 'tiny.yaml').write_bytes(text)
        (self.folder / 'link.json').symlink_to('tiny.yaml')
        for name in ('tiny.yaml', 'link.json'):
            self.fail_with(self.run_program('generate', '--random-weights', 'tiny.yaml', '--report', name), 2, '--random-weights', 'same file')
        self.assertEqual((self.folder / 'tiny.yaml').read_bytes(), text)

    def test_report_of_a_failed_run_is_not_written_into_the_model(self):
        model = self.copy_of_the_model()
        self.fail_with(self.run_program('generate', '-m', model, '-p', 'a', '--steps', 0, '--report', 'model/vae/new.json', '-o', 'a.xyz'), 2)
        self.assertFalse((model / 'vae' / 'new.json').exists())

    def test_refuses_latents_inside_the_folder_of_pngs(self):
        (self.folder / 'frames').mkdir()
        self.fail_with(self.generate('-o', 'frames', '--save-latents', 'frames/latents.safetensors'), 2, '--save-latents')

    @unittest.skipIf(os.geteuid() == 0, 'root may write everywhere')
    def test_refuses_an_unwritable_folder(self):
        (self.folder / 'locked').mkdir(mode=0o500)
        self.fail_with(self.generate('-o', 'locked/clip.mp4'), 2, 'locked')

    def test_refuses_a_read_only_file_system(self):
        self.fail_with(self.generate('-o', '/proc/clip.mp4'), 2, '/proc/clip.mp4')

    def test_read_only_files_are_not_replaced(self):
        for arguments in (['-o', 'old.y4m'], ['--report', 'old.json'], ['--save-latents', 'old.safetensors'], ['--contact-sheet', 'old.png'],
                          ['-o', 'clip.gif']):
            with self.subTest(arguments=arguments):
                old = self.folder / arguments[1].replace('.gif', '.gif.json')  # for a GIF, tests its recipe
                old.write_text('old')
                old.chmod(0o444)
                self.fail_with(self.generate(*arguments), 2, 'cannot write', old.name, 'read-only')
                self.assertEqual(old.read_text(), 'old')
        self.assertEqual(self.names(), sorted(['old.y4m', 'old.json', 'old.safetensors', 'old.png', 'clip.gif.json']))

    def test_refuses_devices_and_pipes(self):
        for name in ('/dev/null', '/dev/stdout', '/dev/stdout/'):  # stdout is a pipe in this test
            with self.subTest(name=name):
                self.fail_with(self.generate('-o', name), 2, name, 'choose another name')

    def test_full_disk_without_room_for_latents_warns_and_leaves_nothing(self):
        result = self.generate('-o', 'clip.safetensors', **limited(512))
        self.assertEqual(result.returncode, 1)
        warning, cause, remedy = result.stderr.splitlines()
        self.assertRegex(warning, 'warning: .*clip.safetensors.latents.safetensors')
        self.assertRegex(cause, 'error: .*clip.safetensors: ')
        self.assertIn('file size limit', remedy)
        self.assertNotIn('sparsereel decode', remedy)  # no advice to decode, because no latents were saved
        self.assertEqual(self.names(), [])

    def test_video_is_written_even_if_its_latents_found_no_room(self):
        # The latents' file contains the recipe with its long prompt. It is far larger than the GIF of a few frames of 16 x 16.
        video = ['generate', '-m', MODEL, '-p', PROMPT + ' ' * 9000, '--size', '16x16', '--steps', '1', '-o', 'clip.gif', '--no-metadata']
        report = json.loads(self.succeed(self.run_program(*video, '--json', **limited(8000))).stdout)
        self.assertIn('clip.gif.latents.safetensors', report['warnings'][0])
        self.assertEqual(self.names(), ['clip.gif'])
        # With --save-latents, the run fails if the latents cannot be written.
        result = self.run_program(*video, '--save-latents', 'latents.safetensors', '--json', **limited(8000))
        self.assertEqual(result.returncode, 1, result.stderr)
        warning, cause, remedy = result.stderr.splitlines()
        self.assertRegex(warning, 'warning: .*latents.safetensors')
        self.assertRegex(cause, 'error: clip.gif exists, but cannot write .*latents.safetensors')
        self.assertIn('file size limit', remedy)
        self.assertEqual(json.loads(result.stdout)['output']['path'], 'clip.gif')
        self.assertEqual(self.names(), ['clip.gif'])

    def test_full_disk_keeps_the_latents_and_says_how_to_continue(self):
        result = self.generate('-o', 'clip.safetensors', **limited(65536))
        self.fail_with(result, 1, 'clip.safetensors', 'sparsereel decode clip.safetensors.latents.safetensors -o clip.safetensors')
        self.assertEqual(self.names(), ['clip.safetensors.latents.safetensors'])
        self.assertNotIn('--fps', result.stderr)  # the command repeats only options that were given
        command = result.stderr.split('sparsereel decode ')[1].split()
        self.succeed(self.run_program('decode', *command))
        self.succeed(self.generate('-o', 'direct.safetensors'))
        self.assertEqual((self.folder / 'clip.safetensors').read_bytes(), (self.folder / 'direct.safetensors').read_bytes())

    def test_latents_of_a_failed_run_are_removed_when_the_video_is_made(self):
        kept = 'clip.safetensors.latents.safetensors'
        for more in ([], ['--save-latents', 'latents.safetensors']):
            self.assertEqual(self.generate('-o', 'clip.safetensors', **limited(65536)).returncode, 1)
            self.assertEqual(self.generate('-o', 'clip.safetensors', **limited(65536)).returncode, 1)
            self.assertEqual(self.names(), [kept])  # the second run replaced the latents of the first
            self.succeed(self.generate('-o', 'clip.safetensors', '--seed', 5))
            self.assertEqual(self.names(), ['clip.safetensors', kept])  # the latents stay, because they belong to a video with another seed
            self.succeed(self.generate('-o', 'clip.safetensors', *more))
            self.assertEqual(self.names(), ['clip.safetensors', *more[1:]])
            (self.folder / 'clip.safetensors').unlink()

    def test_latents_of_a_failed_run_stay_if_they_are_requested(self):
        kept = 'clip.safetensors.latents.safetensors'
        for spelling in (kept, './' + kept):
            with self.subTest(spelling):
                self.assertEqual(self.generate('-o', 'clip.safetensors', **limited(65536)).returncode, 1)
                self.succeed(self.generate('-o', 'clip.safetensors', '--save-latents', spelling))
                self.assertEqual(self.names(), ['clip.safetensors', kept])
                self.assertNotIn('kept', read_safetensors(self.folder / kept)['__metadata__'])  # without this mark, later runs do not remove the file as a leftover
                for name in self.names():
                    (self.folder / name).unlink()

    def test_recipe_never_replaces_other_files(self):
        for output, beside in (('frames', 'frames.json'), ('clip.gif', 'clip.gif.json'), ('clip.y4m', 'clip.y4m.json')):
            for text in ('', '{"version": "1.0.0", "name": "a package"}', 'no JSON'):
                with self.subTest(output=output, text=text):
                    (self.folder / beside).write_text(text)
                    self.fail_with(self.generate('-o', output), 2, beside, 'holds something else')
                    self.assertFalse((self.folder / output).exists())
                    self.assertEqual((self.folder / beside).read_text(), text)
        self.succeed(self.generate('-o', 'clip.y4m', '--frames', 1, '--no-metadata'))
        self.assertEqual((self.folder / 'clip.y4m.json').read_text(), 'no JSON')
        (self.folder / 'clip.y4m.json').write_text('{"version": "1.0.0", "name": "a package"}')
        self.succeed(self.generate('-o', 'clip.y4m', '--frames', 1, '--no-metadata'))
        self.assertIn('clip.y4m.json', self.names())

    def test_command_to_continue_repeats_the_options_of_the_run(self):
        name = 'my.yaml'
        (self.folder / name).write_text('dtype: fp32\ncrf: 20\n')
        result = self.generate('--config', name, '-o', 'clip.safetensors', '--steps', 1, '--fps', 12, '--vae-tiling', 'on', '--no-metadata',
                               '--contact-sheet', 'a sheet.png', '--seed', 5, **limited(65536))
        self.assertEqual(result.returncode, 1)
        command = result.stderr.split('sparsereel decode ')[1].strip()
        for words in ('--fps 12', '--vae-tiling on', '--no-metadata', "--contact-sheet 'a sheet.png'", '--dtype fp32', '--device cpu'):
            self.assertIn(words, command)
        self.assertNotIn('--crf', command)  # --crf has no effect on .safetensors
        self.assertNotIn('--seed', command)
        self.succeed(self.run_program('decode', *shlex.split(command)))
        self.assertIn('a sheet.png', self.names())

    def test_full_file_system_leaves_the_old_video(self):
        (self.folder / 'clip.y4m').write_text('old')
        self.fail_with(self.generate('-o', 'clip.y4m', **limited(65536)), 1, 'clip.y4m')
        self.assertEqual((self.folder / 'clip.y4m').read_text(), 'old')

    @unittest.skipIf(os.geteuid() != 0, 'only root may mount')
    def test_full_disk_leaves_no_file(self):
        disk = self.folder / 'disk'
        disk.mkdir()
        if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=96k', 'tmpfs', disk], capture_output=True).returncode:
            self.skipTest('a tmpfs cannot be mounted on this machine')
        self.addCleanup(subprocess.run, ['umount', disk], check=True)
        for name in ('clip.y4m', 'frames', 'clip.safetensors'):
            self.fail_with(self.generate('-o', f'disk/{name}', '--save-latents', 'latents.safetensors'), 1, name, 'free some space')
            self.assertEqual(list(disk.iterdir()), [])

    def test_opened_files_may_be_moved(self):
        model = self.copy_of_the_model()
        self.succeed(self.generate('-o', 'a.y4m', '--save-latents', 'noise.safetensors'))
        options = ['generate', '-m', model, '-p', PROMPT, '--device', 'cpu', '--steps', 150, '--init-latents', 'noise.safetensors']
        self.succeed(self.run_program(*options, '-o', 'still.y4m'))
        process, terminal = self.start_program(*map(str, options), '-o', 'moved.y4m', '--save-latents', 'latents.safetensors')
        self.read_until(terminal, 's/it')
        model.rename(self.folder / 'elsewhere')
        (self.folder / 'noise.safetensors').unlink()
        text = self.read_until(terminal, None)
        self.assertEqual(process.wait(timeout=60), 0, text)
        self.assertEqual((self.folder / 'moved.y4m').read_bytes(), (self.folder / 'still.y4m').read_bytes())
        self.assertIn('latents.safetensors', self.names())

    def test_failed_run_has_a_report(self):
        result = self.generate('-o', 'clip.safetensors', '--report', 'report.json', '--json', **limited(65536))
        self.assertEqual(result.returncode, 1)
        report = json.loads((self.folder / 'report.json').read_text())
        self.assertEqual((report['exit']['code'], report['exit']['state']), (1, 'failed'))
        self.assertIn('clip.safetensors', report['exit']['cause'])
        self.assertEqual(report, json.loads(result.stdout))

    def test_report_that_cannot_be_written_does_not_change_how_a_run_failed(self):
        result = self.generate('--steps', 0, '--report', 'report.json', '--json', **limited(16))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn('error: --steps 0', result.stderr)
        self.assertRegex(result.stderr, 'warning: .*report.json')
        self.assertEqual(json.loads(result.stdout)['exit']['code'], 2)
        self.assertEqual(self.names(), [])

    def test_report_that_cannot_be_written_fails_a_successful_run(self):
        latents = {'__metadata__': {'recipe': json.dumps({'prompt': 'x' * 9000})},
                   'latents': {'dtype': 'F32', 'shape': [1, 1, 4, 2, 2], 'data_offsets': [0, 64]}}
        text = json.dumps(latents).encode()
        (self.folder / 'latents.safetensors').write_bytes(struct.pack('<Q', len(text)) + text + bytes(64))
        result = self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'clip.gif', '--no-metadata', '--json',
                                  '--report', 'report.json', **limited(8000))
        self.fail_with(result, 1, 'report.json')
        self.assertEqual(json.loads(result.stdout)['exit']['code'], 1)


class OverlappingRuns(CommandLineTest):
    """Tests that runs without -o at the same time write files of their own, and that a run removes what a killed run left."""
    def start(self, *arguments):
        process = subprocess.Popen([PROGRAM, *map(str, arguments), '-m', MODEL, '--device', 'cpu', '--threads', '1', '--quiet'], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def generating(self, seed, *arguments):
        return self.start('generate', '-p', PROMPT, *FAMILY.size, '--seed', seed, *self.unless(arguments, '--steps', 20), *arguments)

    def finished(self, process):
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        return out

    def recipe(self, name):
        return json.loads(self.succeed(self.run_program('inspect', name, '--json')).stdout)['recipe']

    def test_runs_make_separate_videos(self):
        self.succeed(self.generate('--save-latents', 'l.safetensors', '-o', 'a.y4m'))
        alone = [self.generating(100 * seed, '--report', f'r{seed}.json', '--checkpoint-every', 5) for seed in range(1, 6)]
        several = [self.generating(100 * seed, '--count', 3, '--report', f'r{seed}.json') for seed in (6, 7)]
        decoding = self.start('decode', 'l.safetensors', '--report', 'r8.json')
        lines = [line for process in (*alone, *several, decoding) for line in self.finished(process).splitlines()]
        names = [line.split(':')[0] for line in lines]
        videos = sorted(name for name in self.names() if name.endswith('.mp4'))
        self.assertEqual((len(videos), sorted(names)), (5 + 2 * 3 + 1, videos), lines)
        for seed in range(1, 9):
            report = json.loads((self.folder / f'r{seed}.json').read_text())
            for i, video in enumerate(report.get('videos', [report])):
                name = video['output']['path']
                self.assertIn(name, videos)
                if seed < 8:
                    self.assertEqual(self.recipe(name)['seed'], 100 * seed + i, name)
        self.assertEqual(set(self.names()) - set(videos), {'l.safetensors', 'a.y4m', 'a.y4m.json', *(f'r{seed}.json' for seed in range(1, 9))})

    def test_killed_run_does_not_reserve_its_name(self):
        process = self.generating(1, '--steps', 900)
        wait_until(lambda: list(self.folder.glob('.video.*.partial.mp4')))
        running = self.generating(2)
        self.assertIn('video-2.mp4: ', self.finished(running))
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertIn('video.mp4: ', self.finished(self.generating(3)))
        self.assertEqual(self.names(), ['video-2.mp4', 'video.mp4'])

    def test_next_run_removes_leftovers_of_a_killed_run(self):
        for name in ('clip.y4m', 'frames'):
            leftovers = {f'.{Path(name).stem}.12.partial{Path(name).suffix}', f'.{name}.checkpoint.12-1.partial.safetensors', '.r.7.partial.json', '.s.7.partial.png'}
            strangers = {'.mine.12.partial.mp4', f'.{name}', '.clip.12.y4m'}
            live = '.r.8.partial.json'
            for each in leftovers | strangers | {live}:
                (self.folder / each).write_text('x')
            with (self.folder / live).open() as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self.succeed(self.generate('-o', name, '--frames', 1, '--report', 'r.json', '--contact-sheet', 's.png', '--save-latents', 'l.safetensors'))
                self.assertEqual({each for each in self.names() if each.startswith('.')}, strangers | {live})
            (self.folder / '.r.7.partial.json').write_text('x')
            self.succeed(self.run_program('decode', 'l.safetensors', '-m', MODEL, '-o', 'other.y4m', '--report', 'r.json'))
            self.assertEqual({each for each in self.names() if each.startswith('.')}, strangers)
            for each in strangers:
                (self.folder / each).unlink()

    def test_next_run_removes_leftovers_of_a_run_killed_while_it_writes(self):
        arguments = ['-o', 'clip.y4m', '--size', '256x256', '--frames', 49, '--steps', 1]
        process = self.generating(1, *arguments)
        wait_until(lambda: [path for path in self.folder.glob('.clip.*.partial.y4m') if self.size_of(path) > 0], process, seconds=120)
        process.kill()
        process.wait()
        if process.returncode == 0:
            self.skipTest('on this busy machine the run ended before it was killed')
        self.assertTrue(list(self.folder.glob('.clip.*.partial.y4m')))
        self.succeed(self.generate('-o', 'clip.y4m', '--frames', 1))
        self.assertEqual([name for name in self.names() if name.startswith('.')], [])

    @staticmethod
    def size_of(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0


if __name__ == '__main__':
    unittest.main()
