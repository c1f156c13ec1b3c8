"""Wan's checkpoints: two transformers, and what is wrong with a folder, said by file and field before anything is made."""
import json
import os
import shutil
import unittest
from pathlib import Path

from support import FAMILY, MODEL, PROMPT, CommandLineTest

PIPELINES = Path(MODEL).parent
TWO = PIPELINES / 'pipeline_two_experts'
LATENTS_OF_16_PIXELS = PIPELINES / 'pipeline_5b'


class Wan(CommandLineTest):
    def test_the_second_transformer_has_a_scale_of_its_own(self):
        usual, same, other = (self.frames(f'{name}.safetensors', '-m', TWO, '--steps', 4, *scale)
                              for name, scale in (('a', []), ('b', ['--guidance-scale-2', 5]), ('c', ['--guidance-scale-2', 2])))
        self.assertEqual(usual, same)
        self.assertNotEqual(usual, other)
        self.warn_with(self.generate('--cfg-scale-2', 2, '-o', 'd.y4m'), '--cfg-scale-2 2 has no effect for a model of one transformer')

    def test_names_of_the_models_own_program(self):
        usual = ['--steps', 3, '--flow-shift', 5, '--cfg-scale', 4, '--seed', 7]
        theirs = ['--sample_steps', 3, '--sample_shift', 5, '--sample_guide_scale', 4, '--base_seed', 7, '--frame_num', 9, '--size', '64*64']
        made = []
        for name, arguments in (('a', [*usual, *FAMILY.size]), ('b', theirs)):
            self.succeed(self.run_program('generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '-o', f'{name}.y4m', *arguments))
            made.append((self.folder / f'{name}.y4m').read_bytes())
        self.assertEqual(*made)

    def test_inspect_tells_the_version(self):
        for model, transformers, pixels in ((MODEL, 1, 8), (TWO, 2, 8), (LATENTS_OF_16_PIXELS, 1, 16)):
            summary = json.loads(self.succeed(self.run_program('inspect', model, '--json')).stdout)
            self.assertEqual(sum('transformer' in part['name'] for part in summary['components']), transformers)
            self.assertEqual((summary['family'], summary['frames']), ('Wan', 81 if pixels == 8 else 121))

    def test_bench_pipeline(self):
        report = json.loads(self.succeed(self.run_program('bench', 'pipeline', '-m', TWO, '--device', 'cpu', '--steps', 2, *FAMILY.size, '--modes', 'full,sparse',
                                                          '--warmup', 0, '--quiet', '--json')).stdout)
        self.assertEqual([row['stage'] for row in report['rows'] if row['stage'] != 'encode'],
                         ['load text_encoder', 'text', 'load transformer', 'step', 'step', 'load vae', 'decode'])

    def test_eight_bits_that_no_layer_takes_are_a_warning(self):
        narrow = {'transformer': {'num_attention_heads': 1, 'attention_head_dim': 24, 'ffn_dim': 24, 'num_layers': 1, 'text_dim': 24, 'freq_dim': 16},
                  'vae': {'base_dim': 4, 'z_dim': 16, 'dim_mult': [1, 2, 2, 2], 'num_res_blocks': 1},
                  'text_encoder': {'model_type': 'umt5', 'vocab_size': 99, 'd_model': 24, 'd_kv': 12, 'd_ff': 24, 'num_layers': 1, 'num_heads': 2, 'feed_forward_proj': 'gated-gelu'},
                  'scheduler': {'_class_name': 'UniPCMultistepScheduler', 'prediction_type': 'flow_prediction', 'use_flow_sigmas': True}}
        (self.folder / 'narrow.yaml').write_text(json.dumps({'match': {'class': 'WanTransformer3DModel'}, 'architecture': narrow}))
        usual = ['--random-weights', 'narrow.yaml', '--device', 'cpu', '--steps', 1, *FAMILY.size]
        warnings = ['--weights fp8 has no effect for a transformer without a block layer whose sizes are multiples of 16',
                    '--text-weights fp8 has no effect for a text encoder without a layer whose sizes are multiples of 16']
        both = ['--weights', 'fp8', '--text-weights', 'fp8']
        self.warn_with(self.run_program('generate', *usual, '-o', 'a.gif'))
        self.warn_with(self.run_program('generate', *usual, *both, '-o', 'b.gif'), *warnings)
        self.assertEqual((self.folder / 'a.gif').read_bytes(), (self.folder / 'b.gif').read_bytes())
        self.assertEqual(*(json.loads(self.succeed(self.run_program('inspect', name, '--json')).stdout)['recipe'] for name in ('a.gif', 'b.gif')))
        self.warn_with(self.run_program('generate', *usual, '--weights', 'auto', '-o', 'c.gif'))
        (self.folder / 'set.txt').write_text('a dog\na cat\n')
        self.warn_with(self.run_program('batch', 'set.txt', *usual, *both, '-o', 'out', '--format', 'gif', '--quiet'), *[f'set.txt:1 and 1 more row: {text}' for text in warnings])
        for command in (['bench', 'quality', 'set.txt', '--timed-steps', 0], ['bench', 'pipeline', '--warmup', 0, '--no-decode']):
            result = self.run_program(*command, *both, *(usual if 'quality' in command else usual[:4] + FAMILY.size + ['--steps', 1]), '--quiet', '--json')
            self.warn_with(result, *warnings)
            report = json.loads(result.stdout)
            self.assertEqual((report['warnings'], report['settings']['weights'], report['settings']['text_weights']), (warnings, 'auto', 'auto'))

    def test_a_search_makes_a_profile_that_generate_takes(self):
        self.succeed(self.run_program('tune', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--size', '96x96', '--frames', 9, '--steps', 1, '--samples', 1, '--videos', 0,
                                      '--quiet', '-o', 'p.yaml'))
        report = self.report('--profile', 'p.yaml', '--size', '96x96', '--steps', 1, '-o', 'a.y4m')
        self.assertEqual(report['recipe']['profile'], 'p.yaml')

    def test_a_recipe_makes_the_same_video(self):
        first = self.report('-m', TWO, '--guidance-scale-2', 2, '--flow-shift', 4, '--scheduler', 'euler', '--threads', 1, '-o', 'a.mp4')
        again = self.report('-m', TWO, '--from', 'a.mp4', '--steps', 2, '--threads', 1, '-o', 'b.mp4')
        self.assertEqual(again['recipe'], first['recipe'])
        self.assertEqual((self.folder / 'a.mp4').read_bytes(), (self.folder / 'b.mp4').read_bytes())


class BadFolders(CommandLineTest):
    def model(self, source=MODEL):
        shutil.rmtree(self.folder / 'model', ignore_errors=True)
        return Path(shutil.copytree(source, self.folder / 'model'))

    def edit(self, file, **changes):
        config = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({key: value for key, value in config.items() if value != 'none'}))

    def refused(self, model, *words):
        self.fail_with(self.generate('-m', model, '-o', 'clip.mp4'), 2, *words)
        self.assertEqual(self.names(), ['model'])

    def test_one_of_two_transformers_is_missing(self):
        model = self.model(TWO)
        for file in (model / 'transformer_2').glob('*.safetensors*'):
            file.unlink()
        self.refused(model, 'model/transformer_2: no diffusion_pytorch_model.safetensors', 'download')
        shutil.rmtree(model / 'transformer_2')
        self.refused(model, 'model/transformer_2/config.json: no such file', 'download')
        self.edit(model / 'model_index.json', transformer_2=[None, None])
        self.refused(model, 'model_index.json: boundary_ratio is 0.75, but transformer_2 is missing', 'a model of two experts has boundary_ratio and transformer_2')

    def test_the_boundary_is_none(self):
        model = self.model(TWO)
        for value, words in ((0, 'boundary_ratio is 0, which is no number between 0 and 1'), (1, 'boundary_ratio is 1,'), (875, 'boundary_ratio is 875'),
                             ('high', 'boundary_ratio is "high"'), (True, 'boundary_ratio is true'), ('none', 'transformer_2 is there, but boundary_ratio is missing')):
            with self.subTest(value):
                self.edit(model / 'model_index.json', boundary_ratio=value)
                self.refused(model, f'model_index.json: {words}', 'a model of two experts has')

    def test_the_vae_is_that_of_another_version(self):
        model = self.model(LATENTS_OF_16_PIXELS)
        shutil.rmtree(model / 'vae')
        shutil.copytree(Path(MODEL) / 'vae', model / 'vae')
        self.refused(model, 'model_index.json: expand_timesteps is true, but is_residual of the vae is false', 'one checkpoint')
        model = self.model()
        self.edit(model / 'vae' / 'config.json', z_dim=2, latents_mean=[0, 0], latents_std=[1, 1])
        self.refused(model, "vae/config.json: z_dim 2 does not fit the transformer's in_channels 4", 'one checkpoint')
        model = self.model()
        config = (model / 'vae' / 'config.json').read_text()
        shutil.rmtree(model / 'vae')
        shutil.copytree(LATENTS_OF_16_PIXELS / 'vae', model / 'vae')
        (model / 'vae' / 'config.json').write_text(config)
        self.refused(model, 'model/vae: the weights do not fit', 'decoder')

    def test_the_text_encoder_is_that_of_another_model(self):
        model = self.model()
        shutil.rmtree(model / 'text_encoder')
        shutil.copytree(PIPELINES.parent / 'pipeline' / 'text_encoder', model / 'text_encoder')
        self.refused(model, 'text_encoder/config.json: model_type', '"t5" is not supported', 'umt5')
        self.edit(model / 'text_encoder' / 'config.json', model_type='umt5')
        self.refused(model, 'model/text_encoder: the weights do not fit', 'relative_attention_bias')
        model = self.model()
        self.edit(model / 'model_index.json', text_encoder=['transformers', 'T5EncoderModel'])
        self.refused(model, 'model_index.json: text_encoder: "T5EncoderModel" is not supported', 'UMT5EncoderModel')
        model = self.model()
        self.edit(model / 'text_encoder' / 'config.json', d_model=48)
        self.refused(model, "text_encoder/config.json: d_model 48 does not fit the transformer's text_dim 32", 'one checkpoint')

    def test_shards_are_missing_or_cut_short(self):
        first, second = (f'diffusion_pytorch_model-0000{number}-of-00002.safetensors' for number in (1, 2))
        model = self.model()
        (model / 'transformer' / second).unlink()
        self.refused(model, 'diffusion_pytorch_model.safetensors.index.json', 'missing shards (1)', second, 'download')
        model = self.model(TWO)
        for size, words in ((60000, ['data_offsets', 'end outside of the file']), (5, ['truncated: 5 bytes']), (0, [])):
            os.truncate(model / 'transformer_2' / first, size)
            self.refused(model, f'transformer_2/{first}: ', *words, 'download')

    def test_the_tokenizer_is_missing(self):
        model = self.model()
        (model / 'tokenizer' / 'spiece.model').unlink()
        self.refused(model, 'tokenizer/spiece.model: no such file', 'tokenizer folder is complete')
        shutil.rmtree(model / 'tokenizer')
        self.refused(model, 'model/tokenizer', 'tokenizer folder is complete')
        self.edit(model / 'model_index.json', tokenizer='none')
        self.refused(model, 'model_index.json: names no component "tokenizer"', 'download')


if __name__ == '__main__':
    unittest.main()
