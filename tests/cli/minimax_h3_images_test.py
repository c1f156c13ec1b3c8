"""Tests MiniMax-H3's videos from a first image, a last image or both: prompt sets, recipes, resumed runs, ranks, and what is refused before anything is loaded."""
import json
import shutil
import unittest
from pathlib import Path

from support import MODEL, PROMPT, ROOT, CommandLineTest, floats, read_safetensors, read_weights, write_safetensors

FIRST, LAST = ['--image', 'warm.ppm'], ['--last-image', 'cold.ppm']
CHOICES = ([], FIRST, LAST, FIRST + LAST)


def given(images):
    """Returns the columns of a prompt set that ask for the same images as these options."""
    return {'image': images[images.index('--image') + 1] if '--image' in images else '',
            'last_image': images[images.index('--last-image') + 1] if '--last-image' in images else ''}


class Images(CommandLineTest):
    def setUp(self):
        super().setUp()
        for name, color in (('warm', b'\xfa\x80\x20'), ('cold', b'\x10\x50\xe0')):
            (self.folder / f'{name}.ppm').write_bytes(b'P6 30 20 255\n' + color * 300 + color[::-1] * 300)

    def test_video_depends_on_which_images_are_given(self):
        videos = [self.frames('clip.safetensors', *images) for images in CHOICES]
        videos.append(self.frames('clip.safetensors', '--image', 'cold.ppm', '--last-image', 'warm.ppm'))
        for i, video in enumerate(videos):
            self.assertNotIn(video, videos[:i], i)
        self.assertEqual(self.frames('clip.safetensors', *FIRST, *LAST), videos[3])

    def test_makes_videos_with_sound(self):
        report = self.report('-o', 'a.mp4', *FIRST, *LAST)
        self.assertEqual((report['recipe']['image'], report['recipe']['last_image']), ('warm.ppm', 'cold.ppm'))
        self.assertNotIn('max_sequence_length', report['recipe'])
        self.assertIn('sound', report['output'])

    def test_set_does_not_mix_texts_with_and_without_images(self):
        rows = [{'prompt': PROMPT, 'seed': 7, 'output': f'{i}.safetensors', **{key: file for key, file in given(images).items() if file}} for i, images in enumerate(CHOICES)]
        (self.folder / 'set.jsonl').write_text('\n'.join(map(json.dumps, rows)) + '\n')
        options = ['--size', '64x64', '--frames', 22, '--attention', 'full']
        self.succeed(self.run_program('batch', 'set.jsonl', '-o', 'out', '-m', MODEL, '--device', 'cpu', '--steps', 3, *options, '--quiet'))
        for row, images in zip(rows, CHOICES):
            made = floats(read_safetensors(self.folder / 'out' / row['output'])['frames'])
            self.assertEqual(made, self.frames('alone.safetensors', *images, '--seed', 7, '--steps', 3, *options), row)

    def test_recipe_makes_the_same_video_again(self):
        first = self.report('-o', 'a.gif', *FIRST, *LAST)['recipe']
        self.assertEqual(self.report('--from', 'a.gif', '-o', 'b.gif', *FIRST, *LAST)['recipe'], first)
        self.assertEqual((self.folder / 'a.gif').read_bytes(), (self.folder / 'b.gif').read_bytes())

    def test_latents_decode_to_the_same_frames(self):
        frames = self.frames('a.safetensors', *LAST, '--save-latents', 'latents.safetensors')
        self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '--device', 'cpu', '-o', 'b.safetensors'))
        self.assertEqual(floats(read_safetensors(self.folder / 'b.safetensors')['frames']), frames)

    def test_killed_run_resumes_to_the_same_video(self):
        options = [*FIRST, *LAST, '--attention', 'full', '--steps', '300', '--threads', '1']
        self.succeed(self.generate(*options, '-o', 'whole.mp4'))
        self.run_to_step(10, '--checkpoint-every', '5', *options)
        report = self.report(*options, '--checkpoint-every', '5', '-o', 'clip.mp4')
        self.assertGreaterEqual(report['resumed_at_step'], 10)
        self.assertEqual((self.folder / 'clip.mp4').read_bytes(), (self.folder / 'whole.mp4').read_bytes())

    def test_video_takes_the_shape_of_the_first_given_image(self):
        for images, size in ((FIRST, '1152 768'), (LAST, '1152 768'), (FIRST + ['--size', '864x480'], '864 480')):
            shown = self.succeed(self.run_program('config', 'show', '--random-weights', ROOT / 'configs' / 'minimax-h3.yaml', '--device', 'cpu', *images)).stdout
            sides = {line.split(':')[0]: line.split()[1] for line in shown.splitlines() if line.startswith(('width:', 'height:'))}
            self.assertEqual(f'{sides["width"]} {sides["height"]}', size, images)
            self.assertIn('# takes image and last_image, or one of them', shown)

    def test_fit_of_images_cannot_be_chosen(self):
        self.assertIn('--resize stretch has no effect for a model that stretches the first image', self.succeed(self.generate('-o', 'a.mp4', *FIRST, '--resize', 'stretch')).stderr)

    def test_refuses_images_that_cannot_be_used(self):
        (self.folder / 'text.png').write_text('no picture')
        (self.folder / 'long.ppm').write_bytes(b'P6 1000000 1 255\n' + bytes(3000000))
        for images, words in ((['--image', 'text.png'], ('text.png', 'cannot be read')), (LAST[:1] + ['text.png'], ('text.png', 'cannot be read')),
                              (FIRST + ['--last-image', 'long.ppm', '--size', '1344x768'], ('--last-image long.ppm of 1000000x1', 'too narrow', 'at most 169 to 1')),
                              (['--image', 'long.ppm', '--size', '1344x768', '--frames', '124', '--dry-run'], None)):
            with self.subTest(images=images):
                result = self.generate('-o', 'a.mp4', *images)
                self.succeed(result) if words is None else self.fail_with(result, 2, *words)
                self.assertFalse((self.folder / 'a.mp4').exists())

    def test_refuses_a_video_that_is_too_narrow_for_the_text_encoder(self):
        for images, field in ((FIRST + LAST, r'--image warm\.ppm'), (LAST, r'--last-image cold\.ppm')):
            for more in ([], ['--dry-run']):
                result = self.generate('-o', 'a.mp4', *images, '--size', '6432x32', *more)
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, 'error: ' + field + r'.* 6432x32: .* at most 200 to 1\n')

    def test_reads_how_images_become_patches(self):
        model = Path(shutil.copytree(MODEL, self.folder / 'model'))
        index = json.loads((model / 'model_index.json').read_text())
        (model / 'model_index.json').write_text(json.dumps(index | {'processor': ['transformers', 'Qwen3VLProcessor', {'subfolder': 'processor'}]}))
        usual = self.frames('clip.safetensors', *FIRST)
        self.assertEqual(self.frames('clip.safetensors', '-m', model, *FIRST), usual)
        (model / 'processor').mkdir()
        file = model / 'processor' / 'preprocessor_config.json'
        file.write_text('{"image_mean": [0.1, 0.2, 0.3]}')
        self.assertNotEqual(self.frames('clip.safetensors', '-m', model, *FIRST), usual)
        self.assertEqual(self.frames('clip.safetensors', '-m', model), self.frames('clip.safetensors'))
        file.write_text('{"patch_size": 14}')
        result = self.generate('-m', model, '-o', 'a.mp4', *FIRST)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r'error: .*processor/preprocessor_config\.json: patch_size 14 does not fit')
        file.write_text('{"resample": "nearest"}')
        self.fail_with(self.generate('-m', model, '-o', 'a.mp4'), 2, 'processor/preprocessor_config.json', 'resample')

    def test_names_the_text_encoder_that_does_not_look_at_images(self):
        model = Path(shutil.copytree(MODEL, self.folder / 'model'))
        language = {name: tensor for name, tensor in read_weights(model / 'text_encoder').items() if not name.startswith('model.visual.')}
        write_safetensors(model / 'text_encoder' / 'model.safetensors', language)
        for more in ([], ['--dry-run']):
            result = self.generate('-m', model, '-o', 'a.mp4', *LAST, *more)
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r'error: .*model/text_encoder.* has no tensors model\.visual\.\*.*\n.*leave the images out\n$')
        self.succeed(self.generate('-m', model, '-o', 'a.mp4'))

    def test_config_without_a_vision_model_is_enough_for_text(self):
        model = Path(shutil.copytree(MODEL, self.folder / 'model'))
        file = model / 'text_encoder' / 'config.json'
        file.write_text(json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != 'vision_config'}))
        self.succeed(self.run_program('inspect', model))
        self.succeed(self.generate('-m', model, '-o', 'a.mp4'))
        result = self.generate('-m', model, '-o', 'a.mp4', *FIRST)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r'error: .*text_encoder/config\.json: vision_config is missing')

    def test_ranks_make_the_same_video(self):
        options = ['--size', '64x64', '--frames', 22, '--attention', 'full', '--steps', 3, '--save-latents', 'latents.safetensors']

        def latents(*more):
            self.succeed(self.generate('-o', 'a.safetensors', *FIRST, *LAST, *options, *more))
            return {name: floats(tensor) for name, tensor in read_safetensors(self.folder / 'latents.safetensors').items() if name != '__metadata__'}
        alone, together = latents(), latents('--gpus', 2)
        self.assertEqual({*alone}, {*together})
        for name, numbers in alone.items():
            self.assertLess(max(abs(a - b) for a, b in zip(numbers, together[name])), 1e-3, name)


if __name__ == '__main__':
    unittest.main()
