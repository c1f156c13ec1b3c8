"""Tests Open-Sora-Plan: the words that it adds around a prompt, the bounds of tuning, folders as its authors publish them, and faulty model folders."""
import json
import shutil
import unittest
from pathlib import Path

from model_files import install
from quantized import write_pth
from support import FAMILY, MODEL, ROOT, CommandLineTest, read_weights

CONFIG = ROOT / 'configs' / 'open-sora-plan-1.2.yaml'
WAN = ROOT / 'tests' / 'parity' / 'data' / 'wan' / 'pipeline'


class OpenSoraPlan(CommandLineTest):
    def test_guidance_passes_in_turn_make_the_same_video(self):
        batched, in_turn = (self.frames(f'{name}.safetensors', '--attention', 'full', '-n', 'a blurry grey square to the left', '--guidance-passes', name) for name in ('batched', 'in-turn'))
        self.assertLess(max(abs(a - b) for a, b in zip(batched, in_turn)), 1e-4)

    def test_cleans_prompts_as_the_authors_do(self):
        """The authors' cleaning of text also applies to the words that the model adds around a prompt. The words after the prompt begin with a full stop."""
        prompts = ('a green star', '\n A Green  STAR', 'a green star. ', 'a green star.', 'a green star \n', 'a green square')
        whole, spaced, stopped_and_spaced, stopped, behind, other = (self.frames(f'{i}.safetensors', '--attention', 'full', '-p', prompt) for i, prompt in enumerate(prompts))
        self.assertEqual(whole, spaced)
        self.assertEqual(whole, stopped_and_spaced)
        self.assertEqual(stopped, behind)
        self.assertNotEqual(whole, stopped)
        self.assertNotEqual(whole, other)

    def test_uses_the_negative_prompt_of_its_authors_by_default(self):
        shown = self.succeed(self.run_program('config', 'show', '-m', MODEL, '--device', 'cpu')).stdout
        self.assertIn('negative_prompt: "nsfw, lowres, bad anatomy', shown)

    def test_inspect_names_the_model(self):
        summary = json.loads(self.succeed(self.run_program('inspect', MODEL, '--json')).stdout)
        self.assertEqual([summary[key] for key in ('family', 'width', 'height', 'frames')], ['Open-Sora-Plan', 64, 64, 13])

    def test_knows_the_published_size_without_weights(self):
        shown = self.succeed(self.run_program('config', 'show', '--random-weights', CONFIG, '--device', 'cpu')).stdout
        for line in ('width: 1280 ', 'height: 720 ', 'frames: 93 ', 'steps: 100 ', 'fps: 24.0 ', 'guidance_passes: "in-turn" ', 'topk: 0.5 '):
            self.assertIn(line, shown)

    def test_bench_pipeline_measures_every_stage(self):
        report = json.loads(self.succeed(self.run_program('bench', 'pipeline', '-m', MODEL, '--device', 'cpu', '--steps', 2, *FAMILY.size, '--modes', 'full,sparse',
                                                          '--warmup', 0, '--quiet', '--json')).stdout)
        self.assertEqual([row['stage'] for row in report['rows'] if row['stage'] != 'encode'],
                         ['load text_encoder', 'text', 'load transformer', 'step', 'step', 'load vae', 'decode'])

    def test_published_bounds_of_tuning_hold_when_measured_again(self):
        """Tests the bounds of SpargeAttn's tuning on each head's relative L1 error: l1 with only the block selection, and l2 (SpargeAttn's pv_l1) if the head also skips
        P.V products."""
        l1, l2 = 0.03, 0.035
        usual = ['-m', MODEL, '--size', '256x256', '--frames', 13, '--steps', 4, '--device', 'cpu', '-p', 'a green star', '--quiet', '--json']
        for dropped in ('mean', 'none'):
            with self.subTest(dropped=dropped):
                tuned = self.run_program('tune', *usual, '--videos', 0, '--samples', 2, '--l1', l1, '--l2', l2, '--dropped', dropped, '--budget', '10m', '-o', 'p.yaml')
                tune = json.loads(self.succeed(tuned).stdout)['tune']
                self.assertTrue(tune['complete'])
                self.assertLessEqual(max(max(layer) for layer in tune['head_relative_l1']), l2)
                self.assertGreater(tune['sparsity'], 0.05)
                run = self.run_program('generate', *usual, '--profile', 'p.yaml', '--attention', 'check', '-o', 'a.y4m')
                attention = json.loads(self.succeed(run).stdout)['attention']
                for step in (1, 3):  # `tune` measured the heads in these steps
                    self.assertLessEqual(max(attention['step_layer_relative_l1'][step]), l2)
                self.assertAlmostEqual(attention['sparsity'], tune['sparsity'], delta=0.02)


class Published(CommandLineTest):
    """Tests models whose transformer, VAE and text encoder are in three separate folders, as the authors publish them."""

    def setUp(self):
        super().setUp()
        model = Path(MODEL)
        self.program = install(self.folder / 'installed', {'open-sora-plan': model, 'wan': WAN})
        shutil.copytree(model / 'transformer', self.folder / '93x720p')
        shutil.copytree(model / 'vae', self.folder / 'vae')
        shutil.copytree(model / 'text_encoder', self.folder / 'mt5-xxl')
        shutil.copy(model / 'tokenizer' / 'spiece.model', self.folder / 'mt5-xxl')

    def run_program(self, *arguments, **options):
        return super().run_program(*arguments, program=self.program, **options)

    def test_separate_folders_for_each_part_make_the_same_video(self):
        usual = self.frames('a.safetensors', '--attention', 'full')
        apart = self.frames('b.safetensors', '--attention', 'full', '-m', '93x720p', '--vae', 'vae', '--text-encoder', 'mt5-xxl')
        self.assertEqual(usual, apart)

    def test_uses_the_config_in_the_folder_of_each_part(self):
        apart = ('--attention', 'full', '-m', '93x720p', '--vae', 'vae', '--text-encoder', 'mt5-xxl')
        before = self.frames('a.safetensors', *apart)
        model = Path(shutil.copytree(MODEL, self.folder / 'model'))
        for file in (model / 'transformer' / 'config.json', self.folder / '93x720p' / 'config.json'):
            file.write_text(json.dumps(json.loads(file.read_text()) | {'interpolation_scale_h': 1.5, 'interpolation_scale_w': 2.0}))
        after = self.frames('b.safetensors', *apart)
        self.assertNotEqual(before, after)
        self.assertEqual(after, self.frames('c.safetensors', '--attention', 'full', '-m', model))

    def test_reads_torch_files_if_a_folder_has_nothing_else(self):
        usual = self.frames('a.safetensors', '--attention', 'full')
        for folder, old, new, prefix in (('vae', 'diffusion_pytorch_model.safetensors', 'checkpoint.ckpt', 'module.'), ('mt5-xxl', 'model.safetensors', 'pytorch_model.bin', '')):
            tensors = read_weights(self.folder / folder)
            write_pth(self.folder / folder / new, {prefix + name: tensor for name, tensor in tensors.items()})
            (self.folder / folder / old).unlink()
        saved = self.frames('b.safetensors', '--attention', 'full', '-m', '93x720p', '--vae', 'vae', '--text-encoder', 'mt5-xxl')
        self.assertEqual(usual, saved)

    def test_names_a_folder_without_the_part(self):
        self.fail_with(self.generate('-m', '93x720p', '--vae', 'mt5-xxl', '-o', 'c.gif'), 2, 'vae mt5-xxl', 'holds no vae')
        self.fail_with(self.generate('-m', '93x720p', '-o', 'c.gif'), 2, 'text_encoder and vae are missing')


class BadFolders(CommandLineTest):
    def test_names_the_field_that_does_not_fit(self):
        for name, changes, words in (('transformer/config.json', {'use_rope': False}, 'transformer/config.json: use_rope'),
                                     ('vae/config.json', {'decoder_attention': 'AttnBlock3D'}, 'vae/config.json: decoder_attention'),
                                     ('text_encoder/config.json', {'model_type': 't5'}, 'text_encoder/config.json: model_type'),
                                     ('text_encoder/config.json', {'d_model': 48}, "text_encoder/config.json: d_model 48 does not fit the transformer's caption_channels 32"),
                                     ('scheduler/scheduler_config.json', {'rescale_betas_zero_snr': True}, 'scheduler_config.json: rescale_betas_zero_snr')):
            with self.subTest(name=name, changes=changes):
                model = Path(shutil.copytree(MODEL, self.folder / 'model'))
                file = model / name
                file.write_text(json.dumps(json.loads(file.read_text()) | changes))
                self.fail_with(self.generate('-m', model, '-o', 'clip.mp4'), 2, words)
                self.assertEqual(self.names(), ['model'])
                shutil.rmtree(model)


if __name__ == '__main__':
    unittest.main()
