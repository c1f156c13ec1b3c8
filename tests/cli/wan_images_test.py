"""Tests Wan's image to video: videos from one picture or two, and what is refused before anything is loaded."""
import hashlib
import json
import math
import shutil
import unittest
from pathlib import Path

from support import MODEL, PROMPT, ROOT, CommandLineTest, floats, psnr, read_safetensors, read_weights, write_safetensors

DATA = ROOT / 'tests' / 'parity' / 'data'
TEXT, KNOWN = Path(MODEL), DATA / 'wan' / 'pipeline_5b'
ONE, TWO, EXPERTS = (DATA / 'wan_i2v' / name for name in ('pipeline', 'pipeline_two_images', 'pipeline_two_experts'))
FIRST, LAST = ['--image', 'warm.ppm'], ['--last-image', 'cold.ppm']
SIZES = {ONE: '48x80', TWO: '48x80', EXPERTS: '48x80', KNOWN: '96x160', TEXT: '48x80'}
CONFIGS = {'wan-2.1-i2v-14b': ('width: 832 ', 'steps: 40 ', 'flow_shift: 3.0 '), 'wan-2.1-flf2v-14b-720p': ('width: 1280 ', 'steps: 50 ', 'cfg_scale: 5.5 ', 'flow_shift: 16.0 '),
           'wan-2.2-i2v-a14b': ('width: 1280 ', 'cfg_scale: 3.5 ', 'cfg_scale_2: 3.5 ', 'flow_shift: 5.0 ')}


class Images(CommandLineTest):
    def setUp(self):
        super().setUp()
        for name, color in (('warm', b'\xfa\x80\x20'), ('cold', b'\x10\x50\xe0')):
            (self.folder / f'{name}.ppm').write_bytes(b'P6 30 20 255\n' + color * 300 + color[::-1] * 300)

    def options(self, model, *arguments, frames=5):
        return ['-m', str(model), '--size', SIZES[model], '--frames', str(frames), '--attention', 'full', *arguments]

    def video(self, model, *arguments):
        return self.frames('clip.safetensors', *self.options(model, *arguments))

    def test_video_depends_on_the_pictures(self):
        cold = ['--image', 'cold.ppm']
        for model, first, second in ((ONE, FIRST, cold), (TWO, FIRST + LAST, FIRST + ['--last-image', 'warm.ppm']), (TWO, FIRST + LAST, cold + LAST), (EXPERTS, FIRST, cold),
                                     (EXPERTS, FIRST, FIRST + LAST), (KNOWN, FIRST, cold), (KNOWN, FIRST, [])):
            with self.subTest(model=model.name, second=second):
                usual = self.video(model, *first)
                self.assertEqual(usual, self.video(model, *first))
                self.assertNotEqual(usual, self.video(model, *second))

    def test_reports_compare_the_first_frame_with_the_picture(self):
        for model, arguments in ((ONE, FIRST), (EXPERTS, FIRST + LAST), (KNOWN, FIRST)):
            report = self.report('-o', 'clip.mp4', *self.options(model, *arguments))
            self.assertEqual({*report['image']}, {'first_frame_psnr', 'first_frame_difference', 'colour_drift', 'colour_drift_most'})
            # Only the model KNOWN uses the picture's latent as its first latent. The first frame depends on no other latent, so it equals the decoded picture.
            self.assertEqual(report['image']['first_frame_psnr'] == 100, model is KNOWN, report['image'])
        self.assertNotIn('image', self.report('-o', 'clip.mp4', *self.options(KNOWN)))

    def test_recipes_record_the_dtype_in_which_a_picture_is_encoded(self):
        asked, usual = (self.report('-o', 'clip.mp4', *self.options(ONE, *FIRST), '--dtype', 'fp32', *more)['recipe'] for more in (['--vae-dtype', 'fp32'], []))
        self.assertEqual(asked.get('vae_dtype'), 'fp32')
        self.assertNotIn('vae_dtype', usual)

    def test_refuses_missing_and_unused_pictures(self):
        for model, arguments, words in ((ONE, [], '--image is missing'), (EXPERTS, [], '--image is missing'), (TWO, FIRST, '--last-image is missing'), (TWO, LAST, '--image is missing'),
                                        (ONE, FIRST + LAST, '--last-image is given'), (KNOWN, FIRST + LAST, '--last-image is given'), (TEXT, FIRST, '--image is given')):
            with self.subTest(model=model.name, arguments=arguments):
                self.fail_with(self.generate('-o', 'a.mp4', *self.options(model, *arguments)), 2, words)
                self.assertFalse((self.folder / 'a.mp4').exists())
        self.fail_with(self.generate('-o', 'a.mp4', *self.options(EXPERTS, *FIRST, *LAST, frames=1)), 2, '--frames 1 leaves no room for a last image')

    def test_requires_encoders_only_for_pictures(self):
        for source, role, prefix, gone in ((KNOWN, 'vae', 'encoder.', 'encoder.conv_in.weight'), (EXPERTS, 'vae', 'encoder.', 'encoder.conv_in.weight'),
                                           (ONE, 'image_encoder', 'vision_model.encoder.layers.0.', 'vision_model.encoder.layers.0.layer_norm1.weight')):
            with self.subTest(source.name):
                model = Path(shutil.copytree(source, self.folder / f'{source.name}-{role}'))
                SIZES[model] = SIZES[source]
                file = next((model / role).glob('*.safetensors'))
                write_safetensors(file, {name: tensor for name, tensor in read_weights(source / role).items() if not name.startswith(prefix)})
                self.fail_with(self.generate('-o', 'a.mp4', *self.options(model, *FIRST)), 2, f'{model.name}/{role}', gone)
        self.video(self.folder / 'pipeline_5b-vae')  # this model works without the encoder if no picture is given

    def test_encoding_shows_its_progress(self):
        process, terminal = self.start_program('generate', '-p', PROMPT, '--device', 'cpu', '--steps', 1, '-o', 'a.mp4', *self.options(ONE, *FIRST, frames=9))
        shown = self.read_until(terminal, None)
        self.assertEqual(process.wait(), 0)
        for text in ('image [', ' 1/3', ' 3/3'):
            self.assertIn(text, shown)
        self.assertLess(shown.index('image ['), shown.index('text'))

    def test_seeds_of_a_set_with_one_image_give_the_frames_of_single_runs(self):
        rows = [{'prompt': PROMPT, 'output': f'{seed}.safetensors', 'seed': seed, 'image': 'warm.ppm', 'last_image': 'cold.ppm'} for seed in (3, 4)]
        (self.folder / 'set.jsonl').write_text('\n'.join(map(json.dumps, rows)) + '\n')
        self.succeed(self.run_program('batch', 'set.jsonl', '-o', 'out', '--device', 'cpu', '--steps', 2, '--quiet', *self.options(TWO)))
        for row in rows:
            made = floats(read_safetensors(self.folder / 'out' / row['output'])['frames'])
            self.assertEqual(made, self.video(TWO, *FIRST, *LAST, '--seed', row['seed']))

    def test_killed_run_resumes_to_the_same_video(self):
        options = [*self.options(EXPERTS, *FIRST, *LAST), '--steps', '300', '--threads', '1']
        self.succeed(self.generate(*options, '-o', 'whole.mp4'))
        self.run_to_step(10, '--checkpoint-every', '5', *options)
        report = self.report(*options, '--checkpoint-every', '5', '-o', 'clip.mp4')
        self.assertGreaterEqual(report['resumed_at_step'], 10)
        self.assertEqual((self.folder / 'clip.mp4').read_bytes(), (self.folder / 'whole.mp4').read_bytes())

    def test_caches_and_8_bit_weights_work_with_pictures(self):
        for model, pictures in ((ONE, FIRST), (KNOWN, FIRST)):
            usual = self.video(model, *pictures, '--steps', 4)

            def fidelity(*options):
                return psnr(self.video(model, *pictures, '--steps', 4, *options), usual)
            for options in (['--cache', 'first-block:0.9'], ['--cache', 'steps:2'], ['--weights', 'fp8']):
                self.assertTrue(30 < fidelity(*options) < math.inf, options)
            self.assertLess(fidelity('--cache', 'steps:2'), fidelity('--cache', 'steps:3'))
            self.assertGreater(fidelity('--guidance-passes', 'in-turn'), 90)

    def test_knows_the_published_models(self):
        for name, lines in CONFIGS.items():
            shown = self.succeed(self.run_program('config', 'show', '--random-weights', ROOT / 'configs' / f'{name}.yaml', '--device', 'cpu')).stdout
            for line in lines + (f'{name}.yaml',):
                self.assertIn(line, shown, name)
        large = self.succeed(self.run_program('config', 'show', '--random-weights', ROOT / 'configs' / 'wan-2.1-i2v-14b.yaml', '--device', 'cpu', '--size', '1280x720')).stdout
        self.assertIn('flow_shift: 5.0 ', large)

    def test_area_leaves_the_shape_to_the_picture(self):
        (self.folder / 'high.ppm').write_bytes(b'P6 9 16 255\n' + bytes(9 * 16 * 3))

        def shown(*arguments):
            return self.succeed(self.run_program('config', 'show', '--random-weights', ROOT / 'configs' / 'wan-2.1-i2v-14b.yaml', '--device', 'cpu', *arguments)).stdout

        def sides(text):
            return [next(line.split()[1] for line in text.splitlines() if line.startswith(f'{side}:')) for side in ('width', 'height')]
        portrait = shown('--size', '720p', '--image', 'high.ppm')
        self.assertEqual(sides(portrait), ['720', '1280'])
        self.assertIn('# size 720p of command line, in the shape of high.ppm', portrait)
        self.assertIn('flow_shift: 5.0 ', portrait)
        self.assertEqual(sides(shown('--size', '480p', '--image', 'high.ppm')), ['480', '832'])
        self.assertEqual(sides(shown('--size', '720p')), ['1280', '720'])
        (self.folder / 'set.csv').write_text(f'prompt,size,image\n{PROMPT},48p,high.ppm\n{PROMPT},64x48,high.ppm\n')
        self.succeed(self.run_program('batch', 'set.csv', '-o', 'out', '--device', 'cpu', '--steps', 1, '--frames', 1, '-m', ONE, '--quiet'))
        manifest, = (self.folder / 'out').glob('manifest.*.jsonl')
        recipes = [json.loads(line)['recipe'] for line in manifest.read_text().splitlines()]
        self.assertEqual([(recipe['width'], recipe['height'], 'size' in recipe) for recipe in recipes], [(48, 64, False), (64, 48, False)])

    def test_bench_invents_pictures_for_random_weights(self):
        def small(folder):
            parts = {role: json.loads((folder / role / 'config.json').read_text()) for role in ('transformer', 'vae', 'text_encoder', 'image_encoder')}
            return {'match': {'class': 'WanTransformer3DModel'}, 'architecture': {**parts, 'scheduler': json.loads((folder / 'scheduler' / 'scheduler_config.json').read_text())}}
        (self.folder / 'small.yaml').write_text(json.dumps(small(TWO)))
        rows = json.loads(self.succeed(self.run_program('bench', 'pipeline', '--random-weights', 'small.yaml', '--device', 'cpu', '--steps', 2, '--size', '48x80', '--frames', 5, '--modes',
                                                        'full', '--warmup', 0, '--quiet', '--json')).stdout)['rows']
        self.assertEqual([row['stage'] for row in rows if row['stage'] != 'encode'], ['load text_encoder', 'text', 'image', 'load transformer', 'step', 'load vae', 'decode'])
        report = json.loads(self.succeed(self.run_program('bench', 'pipeline', '--random-weights', 'small.yaml', '--device', 'cpu', '--steps', 1, '--size', '48x80', '--frames', 5, '--modes',
                                                          'full', '--warmup', 0, '--no-decode', '--quiet', '--json')).stdout)
        self.assertEqual((report['settings']['image'], report['settings']['last_image']), ('made up', 'made up'))
        self.succeed(self.run_program('generate', '--random-weights', 'small.yaml', '--device', 'cpu', '--steps', 1, '--size', '48x80', '--frames', 5, '-o', 'a.mp4', '--quiet'))

    def test_bench_names_the_picture(self):
        report = json.loads(self.succeed(self.run_program('bench', 'pipeline', '--device', 'cpu', '--steps', 1, '--modes', 'full', '--warmup', 0, '--no-decode', *FIRST, *LAST, '--resize', 'stretch',
                                                          *self.options(TWO)[:-2], '--quiet', '--json')).stdout)
        settings = report['settings']
        self.assertEqual([settings[key] for key in ('image', 'last_image', 'resize')], ['warm.ppm', 'cold.ppm', 'stretch'])
        for key, file in (('image_sha256', 'warm.ppm'), ('last_image_sha256', 'cold.ppm')):
            self.assertEqual(settings[key], hashlib.sha256((self.folder / file).read_bytes()).hexdigest())

    def test_config_show_lists_the_pictures_that_a_model_uses(self):
        for model, takes in ((ONE, '# takes image (needed)\n'), (TWO, '# takes image (needed) and last_image (needed)\n'), (EXPERTS, '# takes image (needed) and last_image\n'),
                             (KNOWN, '# takes image\n'), (TEXT, '')):
            for given in ([], FIRST, LAST) if model is TWO else ([],):
                shown = self.succeed(self.run_program('config', 'show', '-m', model, '--device', 'cpu', *given)).stdout
                self.assertEqual(''.join(line + '\n' for line in shown.splitlines() if 'takes' in line), takes, model.name)
                self.assertNotIn('made up', shown)

    def test_inspect_names_the_task(self):
        for model, task in ((ONE, '2.1 layout, image to video'), (TWO, '2.1 layout, first and last frame to video'), (EXPERTS, '2.2 layout (two experts), image to video')):
            summary = json.loads(self.succeed(self.run_program('inspect', model, '--json')).stdout)
            self.assertEqual((summary['pipeline_class'], summary['family'], summary['variant']), ('WanImageToVideoPipeline', 'Wan', task))


if __name__ == '__main__':
    unittest.main()
