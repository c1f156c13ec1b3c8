"""Tests Mochi: prompts that are empty or of unequal length, guidance passes, and faulty model folders."""
import json
import shutil
import unittest
from pathlib import Path

from support import FAMILY, MODEL, ROOT, CommandLineTest

CONFIG = ROOT / 'configs' / 'mochi-1.yaml'


class Mochi(CommandLineTest):
    def test_guidance_passes_in_turn_make_the_same_video(self):
        batched, in_turn = (self.frames(f'{name}.safetensors', '--attention', 'full', '-n', 'a blurry grey square to the left', '--guidance-passes', name) for name in ('batched', 'in-turn'))
        self.assertLess(max(abs(a - b) for a, b in zip(batched, in_turn)), 1e-4)

    def test_guidance_passes_in_turn_round_to_eight_bits_alike(self):
        """If both passes are one batch, the shorter text is padded. That must not change its result, except that sums in another order may round a few values
        differently."""
        batched, in_turn = (self.frames(f'{name}.safetensors', '--attention', 'quantized', '-n', 'blurry', '--guidance-passes', name) for name in ('batched', 'in-turn'))
        self.assertLess(sum(abs(a - b) for a, b in zip(batched, in_turn)) / len(batched), 2e-4)

    def test_empty_negative_prompt_has_no_tokens_if_the_model_says_so(self):
        usual = self.frames('a.safetensors', '--attention', 'full')
        model = Path(shutil.copytree(MODEL, self.folder / 'model'))
        index = json.loads((model / 'model_index.json').read_text())
        made = []
        for name, changed in (('b', index | {'force_zeros_for_empty_prompt': False}), ('c', {key: value for key, value in index.items() if key != 'force_zeros_for_empty_prompt'})):
            (model / 'model_index.json').write_text(json.dumps(changed))
            made.append(self.frames(f'{name}.safetensors', '-m', model, '--attention', 'full'))
        self.assertNotEqual(usual, made[0])
        self.assertEqual(*made)
        (model / 'model_index.json').write_text(json.dumps(index | {'force_zeros_for_empty_prompt': 'yes'}))
        self.fail_with(self.generate('-m', model, '-o', 'd.gif'), 2, 'model_index.json: force_zeros_for_empty_prompt is "yes"', 'write true or false')

    def test_inspect_names_the_model(self):
        summary = json.loads(self.succeed(self.run_program('inspect', MODEL, '--json')).stdout)
        self.assertEqual([summary[key] for key in ('family', 'width', 'height', 'frames')], ['Mochi', 848, 480, 163])

    def test_knows_the_published_size_without_weights(self):
        shown = self.succeed(self.run_program('config', 'show', '--random-weights', CONFIG, '--device', 'cpu')).stdout
        for line in ('frames: 163 ', 'steps: 64 ', 'fps: 30.0 ', 'guidance_passes: "in-turn" ', 'topk: 0.5 '):
            self.assertIn(line, shown)

    def test_bench_pipeline_measures_every_stage(self):
        report = json.loads(self.succeed(self.run_program('bench', 'pipeline', '-m', MODEL, '--device', 'cpu', '--steps', 2, *FAMILY.size, '--modes', 'full,sparse',
                                                          '--warmup', 0, '--quiet', '--json')).stdout)
        self.assertEqual([row['stage'] for row in report['rows'] if row['stage'] != 'encode'],
                         ['load text_encoder', 'text', 'load transformer', 'step', 'step', 'load vae', 'decode'])

    def test_tune_makes_a_profile_that_generate_uses(self):
        self.succeed(self.run_program('tune', '-m', MODEL, '-p', 'a star', '--device', 'cpu', '--size', '96x96', '--frames', 13, '--steps', 1, '--samples', 1, '--videos', 0,
                                      '--quiet', '-o', 'p.yaml'))
        report = self.report('--profile', 'p.yaml', '--size', '96x96', '--steps', 1, '-o', 'a.y4m')
        self.assertEqual(report['recipe']['profile'], 'p.yaml')

    def test_lora_changes_the_video(self):
        usual, styled = (self.frames(f'{name}.safetensors', '--attention', 'full', *lora)
                         for name, lora in (('a', []), ('b', ['--lora', Path(MODEL).parent / 'lora' / 'metadata.safetensors'])))
        self.assertNotEqual(usual, styled)


class BadFolders(CommandLineTest):
    def refused(self, change, *words):
        model = Path(shutil.copytree(MODEL, self.folder / 'model'))
        change(model)
        self.fail_with(self.generate('-m', model, '-o', 'clip.mp4'), 2, *words)
        self.assertEqual(self.names(), ['model'])
        shutil.rmtree(model)

    def edit(self, name, **changes):
        def change(model):
            file = model / name
            file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        return change

    def test_names_the_field_that_does_not_fit(self):
        for name, changes, words in (('transformer/config.json', {'qk_norm': 'layer_norm'}, 'transformer/config.json: qk_norm'),
                                     ('transformer/config.json', {'in_channels': 13}, "vae/config.json: latent_channels 12 does not fit the transformer's in_channels 13"),
                                     ('text_encoder/config.json', {'d_model': 48}, "text_encoder/config.json: d_model 48 does not fit the transformer's text_embed_dim 32"),
                                     ('vae/config.json', {'spatial_expansions': [2, 2]}, 'vae/config.json: spatial_expansions has 2 entries, but decoder_block_out_channels requires 3'),
                                     ('scheduler/scheduler_config.json', {'stochastic_sampling': True}, 'scheduler_config.json: stochastic_sampling')):
            with self.subTest(name=name, changes=changes):
                self.refused(self.edit(name, **changes), words)


if __name__ == '__main__':
    unittest.main()
