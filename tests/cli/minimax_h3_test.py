"""Tests MiniMax-H3 on the command line: options without effect, sizes, the terms of its license, a prompt set, resumed runs, and latents with sound."""
import json
import shutil
import unittest
from pathlib import Path

from support import FAMILY, MODEL, PROMPT, ROOT, CommandLineTest, floats, read_safetensors

CONFIG = ROOT / 'configs' / 'minimax-h3.yaml'


class MiniMaxH3(CommandLineTest):
    def test_options_without_effect_warn(self):
        usual = self.frames('a.safetensors', '--attention', 'full')
        result = self.succeed(self.generate('--attention', 'full', '--cfg-scale', 4, '-n', 'blurry', '--scheduler', 'unipc', '--max-sequence-length', 3, '-o', 'b.safetensors'))
        for option, why in (('--cfg-scale 4', 'takes no guidance'), ('--negative-prompt blurry', 'takes no guidance'), ('--scheduler unipc', 'one scheduler'),
                            ('--max-sequence-length 3', 'reads the whole prompt')):
            self.assertRegex(result.stderr, rf'{option} has no effect for a model .*{why}')
        self.assertEqual(usual, floats(read_safetensors(self.folder / 'b.safetensors')['frames']))

    def test_options_of_the_vae_have_no_effect(self):
        usual = self.report('-o', 'a.gif')
        result = self.succeed(self.generate('--vae-tiling', 'on', '--vae-dtype', 'bf16', '-o', 'b.gif', '--json', '--save-latents', 'l.safetensors'))
        for option, why in (('--vae-tiling on', 'always works in tiles of one size'), ('--vae-dtype bf16', 'has its own number format')):
            self.assertEqual(result.stderr.count(f'warning: {option} has no effect for a model whose VAE {why}\n'), 1, result.stderr)
        self.assertEqual((self.folder / 'a.gif').read_bytes(), (self.folder / 'b.gif').read_bytes())
        self.assertEqual(json.loads(result.stdout)['recipe']['vae_tiling'], usual['recipe']['vae_tiling'])
        decoded = self.run_program('decode', 'l.safetensors', '-m', MODEL, '--device', 'cpu', '-o', 'c.gif', '--vae-tiling', 'on')
        self.assertIn('--vae-tiling on has no effect', self.succeed(decoded).stderr)

    def test_frame_rate_is_that_of_the_model(self):
        result = self.succeed(self.generate('--fps', 8, '-o', 'a.mp4', '--json'))
        self.assertIn('--fps 8 has no effect for a model that makes 24 frames a second', result.stderr)
        self.assertEqual(json.loads(result.stdout)['output']['fps'], 24)

    def test_sizes_and_lengths_name_the_nearest_ones(self):
        self.fail_with(self.generate('--frames', 121, '-o', 'a.mp4'), 2, '--frames 121', '5 more than a multiple of 17', 'use 107 or 124')
        self.fail_with(self.generate('--size', '100x64', '-o', 'a.mp4'), 2, '100', 'a multiple of 32', 'use 96 or 128')
        self.fail_with(self.generate('--steps', 1, '-o', 'a.mp4'), 2, '--steps 1', 'use at least 2')

    def test_half_floats_are_refused(self):
        self.fail_with(self.generate('--dtype', 'fp16', '-o', 'a.mp4'), 2, '--dtype fp16', 'use bf16 or fp32')

    def test_says_where_the_terms_of_the_license_are(self):
        line = 'MiniMax H3 Community License: read its terms at https://huggingface.co/MiniMaxAI/MiniMax-H3'
        self.assertEqual(self.succeed(self.generate('-o', 'a.mp4')).stderr.count(line), 1)
        self.assertNotIn(line, self.succeed(self.generate('-o', 'b.mp4', '--quiet')).stderr)
        self.assertIn(line, self.succeed(self.run_program('inspect', MODEL)).stdout)
        self.assertEqual(json.loads(self.succeed(self.run_program('inspect', MODEL, '--json')).stdout)['license'], line)

    def test_benchmarks_and_tune_say_where_the_terms_are_and_warn_of_the_size(self):
        (self.folder / 'p.txt').write_text('a fox\n')
        small = ('-m', MODEL, '--device', 'cpu', *FAMILY.size)
        for command in (('bench', 'pipeline', '--modes', 'full', '--steps', 2), ('bench', 'quality', 'p.txt', '--topk', 0.5, '--steps', 3),
                        ('tune', 'p.txt', '--steps', 4, '--videos', 1, '--samples', 1)):
            with self.subTest(command=command):
                for options, count in (((), 1), (('--quiet',), 0)):
                    result = self.run_program(*command, *small, *options)
                    if result.returncode != 0:  # with such a small model, `tune` may find nothing that is faster than full attention
                        self.assertEqual(result.returncode, 1, result.stderr)
                        self.assertRegex(result.stderr, 'profile.yaml is not written: .*full attention takes only')
                    self.assertEqual(result.stderr.count('terms of their own'), count, result.stderr)
                    self.assertEqual(result.stderr.count('warning: the model was not made for 64x64 and 22 frames'), 1, result.stderr)

    def test_videos_name_the_model(self):
        for name in ('a.mp4', 'a.gif'):
            self.succeed(self.generate('-o', name))
            recipe = json.loads(self.succeed(self.run_program('inspect', name, '--json')).stdout)['recipe']
            self.assertEqual(recipe['attribution'], 'MiniMax H3')
            self.succeed(self.generate('--from', name, '-o', 'again.gif'))
        self.assertIn(b'"attribution":"MiniMax H3"', (self.folder / 'a.mp4').read_bytes())

    def test_benchmarks_have_no_axis_without_effect(self):
        (self.folder / 'p.txt').write_text('a fox\na bird\n')
        small = ('-m', MODEL, '--device', 'cpu', *FAMILY.size)
        result = self.succeed(self.run_program('bench', 'quality', 'p.txt', *small, '--steps', 3, '--topk', 0.5, '--cfg-scale', 4, '--scheduler', 'unipc', '--json'))
        for option in ('--cfg-scale 4', '--scheduler unipc'):
            self.assertIn(f'{option} has no effect', result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report['settings']['batch'], 1)
        row, = report['rows']
        self.assertGreater(row['psnr'], 20)
        self.assertGreater(row['step_ms'], 0)

    def test_whole_prompts_count(self):
        long = ', '.join([PROMPT] * 40)
        first, second = (self.frames(f'{i}.safetensors', '-p', long + end) for i, end in enumerate((' a', ' b')))
        self.assertNotEqual(first, second)

    def test_latents_hold_the_sound(self):
        self.frames('a.safetensors', '--save-latents', 'latents.safetensors')
        saved = read_safetensors(self.folder / 'latents.safetensors')
        self.assertEqual(saved['sound'][1], [1, 74, 5])
        recipe = json.loads(saved['__metadata__']['recipe'])
        self.assertEqual((recipe['fps'], recipe['steps']), (24, self.report('-o', 'a.mp4')['recipe']['steps']))

    def test_recipe_makes_the_same_video_again(self):
        first = self.report('-o', 'a.gif')['recipe']
        self.assertEqual(self.report('--from', 'a.gif', '-o', 'b.gif')['recipe'], first)
        self.assertEqual((self.folder / 'a.gif').read_bytes(), (self.folder / 'b.gif').read_bytes())

    def test_cache_and_sparse_attention_work(self):
        report = self.report('-o', 'a.mp4', '--size', '256x256', '--steps', 7, '--cache', 'steps:3', '--attention', 'sparse', '--topk', 0.2)
        self.assertEqual(report['cache']['computed_steps'], 3)
        self.assertTrue(all(share > 0.2 for share in report['attention']['layer_sparsity']), report['attention'])

    def test_inspect_and_dry_run_know_the_folder(self):
        summary = json.loads(self.succeed(self.run_program('inspect', MODEL, '--json')).stdout)
        self.assertEqual([summary[key] for key in ('family', 'width', 'height', 'frames')], ['MiniMax-H3', 1344, 768, 124])
        self.assertIn('audio_vae', [component['name'] for component in summary['components']])
        planned = json.loads(self.succeed(self.generate('-o', 'a.mp4', '--dry-run', '--json')).stdout)
        self.assertEqual(planned['videos'][0]['frames'] if 'videos' in planned else planned['video']['frames'], FAMILY.frames)
        self.assertEqual(self.names(), [])

    def test_knows_the_published_size_without_weights(self):
        shown = self.succeed(self.run_program('config', 'show', '--random-weights', CONFIG, '--device', 'cpu')).stdout
        for line in ('frames: 124 ', 'steps: 50 ', 'topk: 0.5 '):
            self.assertIn(line, shown)

    def test_missing_parts_are_named(self):
        model = Path(shutil.copytree(MODEL, self.folder / 'model'))
        (model / 'audio_vae' / 'diffusion_pytorch_model.safetensors').unlink()
        self.fail_with(self.generate('-m', model, '-o', 'clip.mp4'), 2, 'audio_vae')
        self.assertEqual(self.names(), ['model'])


if __name__ == '__main__':
    unittest.main()
