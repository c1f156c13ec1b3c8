"""Tests `generate --dry-run` and `batch --dry-run`, which show the videos without making them, and lengths in seconds."""
import json
import os
import shutil
import unittest

from support import MODEL, PROMPT, ROOT, CommandLineTest

STAGES = ['text', 'denoise', 'decode']
HUGE = ['--size', '16000000x16000000']


class DryRun(CommandLineTest):
    def shown(self, *arguments):
        return json.loads(self.succeed(self.generate('--dry-run', '--json', *arguments)).stdout)

    def test_shows_what_the_run_would_make_and_writes_nothing(self):
        shown = self.shown('-o', 'clip.mp4', '--size', '48x32', '--frames', 25, '--fps', 12, '--seed', 7)
        self.assertEqual(self.names(), [])
        video, = shown['videos']
        self.assertEqual([video[key] for key in ('output', 'width', 'height', 'frames', 'fps', 'steps', 'seed')], ['clip.mp4', 48, 32, 25, 12, 2, 7])
        self.assertEqual(shown['model']['path'], MODEL)
        self.assertEqual([stage['stage'] for stage in shown['memory']['stages']], STAGES)
        for stage in shown['memory']['stages']:
            self.assertGreater(stage['bytes'], stage['weights_bytes'] - 1)
            self.assertTrue(stage['fits'], stage)
        report = self.report('-o', 'clip.mp4', '--size', '48x32', '--frames', 25, '--fps', 12, '--seed', 7)
        for key in ('width', 'height', 'frames', 'fps'):
            self.assertEqual(video[key], report['output'][key])
        self.assertEqual(video['preset'], report['preset'].split(':')[0].split()[1].rstrip(',') if report.get('preset') else '')

    def test_prints_a_readable_summary(self):
        text = self.succeed(self.generate('--dry-run', '-o', 'clip.mp4', '--count', 2)).stdout
        for words in ('dry run: nothing is loaded', 'clip-1.mp4: 9 frames 64x64', 'clip-2.mp4: 9 frames', 'memory: ', '\n  denoise', 'fits', 'time: not estimated'):
            self.assertIn(words, text)
        self.assertEqual(self.names(), [])

    def test_shows_the_files_of_parts(self):
        decoder = ROOT / 'tests' / 'parity' / 'data' / 'pipeline' / 'vae' / 'diffusion_pytorch_model.safetensors'
        shown = self.shown('--vae', decoder)
        self.assertEqual(shown['model']['files']['vae']['path'], str(decoder))

    def test_shows_a_model_without_its_weights(self):
        shown = json.loads(self.run_program('generate', '--random-weights', ROOT / 'configs' / 'wan-2.1-1.3b.yaml', '--dry-run', '--json', '--device', 'cpu').stdout)
        self.assertEqual([shown['videos'][0][key] for key in ('width', 'height', 'frames')], [832, 480, 81])
        denoise = next(stage for stage in shown['memory']['stages'] if stage['stage'] == 'denoise')
        self.assertGreater(denoise['weights_bytes'], 5e9)
        self.assertLess(denoise['weights_bytes'], 6e9)

    def test_shows_where_weights_stay_on_a_gpu_of_a_given_size(self):
        model = ROOT / 'configs' / 'wan-2.1-1.3b.yaml'
        command = ('generate', '--random-weights', model, '--size', '832x480', '--dry-run', '--device', 'cpu')
        plans = [json.loads(self.succeed(self.run_program(*command, '--json', '--max-vram', gib)).stdout)['memory']['plan'] for gib in (80, 5, 4)]
        resident = [plan['resident_blocks'] for plan in plans]
        self.assertEqual((resident[0], plans[0]['blocks']), (30, 30))
        self.assertEqual(resident, sorted(resident, reverse=True))
        self.assertGreater(resident[1], resident[2])
        self.assertTrue(plans[2]['text_in_layers'])
        self.assertNotIn('step_seconds', plans[2])
        text = self.succeed(self.run_program(*command, '--max-vram', 5)).stdout
        self.assertIn(f'{resident[1]} of 30 blocks of the transformer stay in 5.0 GiB of the GPU', text)
        self.assertIn('the time of a step is unknown', text)
        self.assertNotIn('plan', self.shown()['memory'])  # there is no plan for memory on a CPU
        self.fail_with(self.run_program(*command, '--max-vram', 0), 2, '--max-vram 0')

    def test_shows_the_step_from_which_a_checkpoint_resumes(self):
        given = ('--seed', '7', '--steps', '200')
        self.assertNotIn('resumed_at_step', self.shown('-o', 'clip.mp4', *given)['videos'][0])
        self.run_to_step(2, *given, '--checkpoint-every', '1')
        before = self.names()
        step = self.shown('-o', 'clip.mp4', *given)['videos'][0]['resumed_at_step']
        self.assertGreaterEqual(step, 2)
        self.assertIn(f'goes on from step {step}', self.succeed(self.generate('--dry-run', '-o', 'clip.mp4', *given)).stdout)
        self.assertEqual(self.names(), before)

    def test_checks_the_ranks_of_a_launcher(self):
        launched = {**os.environ, 'RANK': '0', 'WORLD_SIZE': '1000'}
        self.succeed(self.generate('--dry-run', '--gpus', 1, env=launched))
        self.assertEqual(self.generate('--dry-run', env=launched).returncode, 2)

    def test_fails_like_the_run_if_the_video_does_not_fit(self):
        said = self.generate(*HUGE)
        self.fail_with(said, 2, 'needs at least')
        dry = self.generate('--dry-run', *HUGE)
        self.assertEqual(dry.returncode, 2)
        for words in ('frames 16000000x16000000', 'may not fit: '):
            self.assertIn(words, dry.stdout)
        self.assertIn('needs at least', dry.stderr)
        report = json.loads(self.generate('--dry-run', '--json', *HUGE).stdout)
        self.assertEqual((report['exit']['code'], report['memory']['fits']), (2, False))
        self.fail_with(self.generate('--dry-run', '--frames', 30), 2, '--frames 30', 'use 25 or 32')
        self.fail_with(self.generate('--dry-run', '-o', 'none/clip.mp4'), 2, 'none')
        self.assertEqual(self.names(), [])

    def test_fails_like_the_run_if_the_weights_do_not_fit(self):
        model = self.folder / 'model'
        shutil.copytree(MODEL, model)
        config = model / 'vae' / 'config.json'
        config.write_text(json.dumps({**json.loads(config.read_text()), 'latent_channels': 7}))
        said, dry = (self.run_program('generate', '-m', model, '-p', PROMPT, '--device', 'cpu', *more) for more in ((), ('--dry-run',)))
        self.assertEqual((said.returncode, dry.returncode), (2, 2), said.stderr + dry.stderr)
        self.assertIn(said.stderr.splitlines()[0], dry.stderr)
        (self.folder / 'set.txt').write_text(PROMPT + '\n')
        of_set = self.run_program('batch', 'set.txt', '-o', 'out', '-m', model, '--device', 'cpu', '--dry-run')
        self.assertEqual(of_set.returncode, 2, of_set.stdout + of_set.stderr)
        self.assertEqual(self.names(), ['model', 'set.txt'])

    def test_config_file_can_request_it(self):
        (self.folder / 'my.yaml').write_text('dry_run: true\nseconds: 1\n')
        self.succeed(self.run_program('generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--config', 'my.yaml'))
        self.assertEqual(self.names(), ['my.yaml'])


class DryRunOfASet(CommandLineTest):
    def batch(self, *arguments):
        return self.run_program('batch', 'set.csv', '-o', 'out', '-m', MODEL, '--device', 'cpu', '--steps', 2, '--quiet', *arguments)

    def test_counts_finished_videos_and_groups_the_rest_by_size(self):
        (self.folder / 'set.csv').write_text('prompt,size,frames\na,,\nb,,\nc,32x32,9\nd,32x32,9\ne,32x32,1\n')
        shown = json.loads(self.succeed(self.batch('--dry-run', '--json')).stdout)
        self.assertEqual(self.names(), ['set.csv'])
        self.assertEqual([shown['set'][key] for key in ('rows', 'done', 'left', 'would_fail')], [5, 0, 5, 0])
        sizes, = [group['sizes'] for group in shown['models']]
        self.assertEqual([(size['width'], size['frames'], size['videos']) for size in sizes], [(64, 9, 2), (32, 9, 2), (32, 1, 1)])
        self.assertEqual([video['output'] for video in shown['videos']], ['0000-a.mp4', '0001-b.mp4', '0002-c.mp4', '0003-d.mp4', '0004-e.mp4'])
        (self.folder / 'first.csv').write_text('prompt,size,frames\na,,\nb,,\n')
        (self.folder / 'set.csv').rename(self.folder / 'whole.csv')
        (self.folder / 'first.csv').rename(self.folder / 'set.csv')
        self.succeed(self.batch())
        (self.folder / 'whole.csv').rename(self.folder / 'set.csv')
        before = sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in (self.folder / 'out').iterdir())
        text = self.succeed(self.batch('--dry-run')).stdout
        self.assertIn('out: 5 rows, 2 done, 3 to make, 0 would fail', text)
        self.assertIn('2 videos (2 done), each 9 frames 64x64', text)
        self.assertEqual(sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in (self.folder / 'out').iterdir()), before)

    def test_names_rows_that_would_fail(self):
        (self.folder / 'set.csv').write_text('prompt,size,frames\na,,\nb,16000000x16000000,1\nc,,30\n')
        result = self.batch('--dry-run')
        self.assertEqual(result.returncode, 2)
        self.assertIn('3 rows, 0 done, 1 to make, 2 would fail', result.stdout)
        for words in ('set.csv:3', 'needs at least', 'set.csv:4', '25 or 32', '2 rows would fail'):
            self.assertIn(words, result.stderr)
        self.assertEqual(self.names(), ['set.csv'])


class Seconds(CommandLineTest):
    def frames_of(self, *arguments):
        shown = json.loads(self.succeed(self.generate('--dry-run', '--json', *arguments)).stdout)
        return shown['videos'][0]['frames']

    def test_become_the_nearest_number_of_frames_that_the_model_makes(self):
        for arguments, frames in (((1,), 8), ((2,), 16), ((2.1,), 17), ((1, '--fps', 24), 24), ((0.01,), 1), ((3.4,), 25), ((3.6,), 32)):
            self.assertEqual(self.frames_of('--seconds', *arguments), frames, arguments)
        self.assertEqual(self.frames_of('--duration', 1), 8)

    def test_replace_the_number_of_frames(self):
        self.fail_with(self.generate('--seconds', 1, '--frames', 9), 2, '--seconds and --frames exclude each other')
        (self.folder / 'my.yaml').write_text('frames: 25\nfps: 16\n')
        self.assertEqual(self.frames_of('--config', 'my.yaml', '--seconds', 1), 16)
        (self.folder / 'my.yaml').write_text('seconds: 3\n')
        self.assertEqual(self.frames_of('--config', 'my.yaml', '--frames', 9), 9)
        for wrong in (0, -1, 1e9):
            self.fail_with(self.generate('--seconds', wrong), 2, '--seconds')
        self.fail_with(self.generate('--seconds', 'long'), 2, '--seconds long', 'a number')

    def test_are_stored_as_frames_in_the_recipe(self):
        report = self.report('-o', 'clip.y4m', '--seconds', 1)
        self.assertEqual((report['recipe']['frames'], report['output']['frames']), (8, 8))
        self.assertNotIn('seconds', report['recipe'])
        self.succeed(self.run_program('generate', '--from', 'clip.y4m', '-m', MODEL, '-o', 'again.y4m'))
        self.assertEqual((self.folder / 'clip.y4m').read_bytes(), (self.folder / 'again.y4m').read_bytes())
        shown = self.succeed(self.run_program('config', 'show', '-m', MODEL, '--device', 'cpu', '--seconds', 1)).stdout
        self.assertRegex(shown, r'(?m)^frames: 8 +# seconds 1 of command line$')
        self.assertNotIn('\nseconds:', shown)

    def test_are_accepted_in_rows_of_a_set(self):
        (self.folder / 'set.jsonl').write_text('{"prompt": "a", "seconds": 1}\n{"prompt": "b", "frames": 9}\n')
        shown = json.loads(self.succeed(self.run_program('batch', 'set.jsonl', '-o', 'out', '-m', MODEL, '--device', 'cpu', '--seconds', 3, '--dry-run', '--json')).stdout)
        self.assertEqual([size['frames'] for size in shown['models'][0]['sizes']], [8, 9])


if __name__ == '__main__':
    unittest.main()
