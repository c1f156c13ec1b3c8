"""Tests that recipes and identities stay those of identities.json, because users' videos and unfinished prompt sets depend on them. An identity is the hash by which
a resumed run recognizes its own videos and checkpoints. identities.json has a request for each option, with its identity and its recipe. All recipes but the first
are stored as differences from the first.

`identity_test.py --record` writes identities.json anew.
"""
import json
import shutil
import sys
import unittest
from pathlib import Path

from batch_support import BatchTest
from support import PROMPT, ROOT, read_weights, write_safetensors

GOLDEN = Path(__file__).with_name('identities.json')
DATA = ROOT / 'tests' / 'parity' / 'data'
MODELS = {'plain': DATA / 'pipeline', 'two_experts': DATA / 'wan' / 'pipeline_two_experts', 'image': DATA / 'wan_i2v' / 'pipeline',
          'two_images': DATA / 'wan_i2v' / 'pipeline_two_images'}
PROFILE = """model: {name: pipeline, sha256: 686884aaf7977dd1adf7d4907c04343aedb0af38a816b162152172978d165298}
made_with: {width: 64, height: 64, frames: 1, steps: 1, token_order: hilbert, device: cpu, dtype: fp32}
bounds: {l1: 0.2, l2: 0.2}
measured: {error: 0.1, sparsity: 0.2}
untuned: {sparsity: 0.2}
dropped: mean
select: error
cell: 16
selection_rows: 64
dense_steps: 0
dense_layers: 0
layers:
  - [{topk: 0.12, similarity: -0.1, pv_threshold: 50, error: 0.1, sparsity: 0.2}, {dense: true, error: 0, sparsity: 0}]
  - [{topk: 0.3, similarity: -0.1, pv_threshold: 50, error: 0.1, sparsity: 0.2}, {cdf: 0.9, similarity: -0.1, pv_threshold: 50, error: 0.1, sparsity: 0.2}]
"""
# The options of each request. A request that does not give or exclude them also has a prompt (unless it has "from"), one frame, one step and the size 64x64. "model"
# is one of MODELS, "output" a file extension.
ROWS = [
    {}, {'prompt': 'ein grüner Stern'}, {'prompt_file': 'prompt.txt'}, {'negative_prompt': 'blurry'}, {'negative_prompt': 'blurry', 'cfg_scale': 1},
    {'max_sequence_length': 8}, {'width': 48, 'height': 32}, {'size': '32x48'}, {'frames': 5}, {'fps': 12.5}, {'seed': 18446744073709551615}, {'steps': 2},
    {'cfg_scale': 3.7}, {'cfg_scale': 0.5}, {'dynamic_cfg': True}, {'guidance_passes': 'in-turn'}, {'scheduler': 'dpm'},
    {'scheduler': 'CogVideoXDPMScheduler'}, {'steps': 3, 'cache': 0.1}, {'steps': 3, 'cache': 'forecast:0.25'}, {'steps': 3, 'cache': 'steps:2'},
    {'cache': '0'}, {'device': 'auto'}, {'dtype': 'bf16', 'attention': 'full'}, {'dtype': 'fp16', 'attention': 'full'}, {'vae_dtype': 'bf16'},
    {'weights': 'fp8'}, {'text_weights': 'fp8'}, {'vae_tiling': 'on'}, {'vae_tiling': 'off'}, {'offload': True}, {'checkpoint_every': 1},
    {'init_latents': 'latents.safetensors', 'frames': 1}, {'crf': 30}, {'crf': 30, 'output': 'gif'}, {'codec': 'mpeg4'}, {'no_metadata': True},
    {'output': 'gif'}, {'output': 'y4m'}, {'output': 'safetensors'}, {'attention': 'full'}, {'attention': 'quantized'}, {'attention': 'check'},
    {'attention': 'full', 'topk': 0.5}, {'topk': 0.5}, {'cdf': 0.83}, {'error': 0.2}, {'dropped': 'none'}, {'dropped': 'none', 'cell': 32},
    {'dropped': 'none', 'cdf': 0.5}, {'select': 'mass'}, {'select': 'error', 'dropped': 'mean'}, {'cell': 32}, {'similarity': 0.1}, {'pv_threshold': 20},
    {'profile': 'profile.yaml'}, {'profile': 'profile.yaml', 'dense_steps': 1}, {'dense_steps': 1}, {'dense_layers': 1}, {'token_order': 'morton'},
    {'lora': 'style.safetensors:0.8'}, {'from': 'recipe.json'}, {'model': 'two_experts'}, {'model': 'two_experts', 'cfg_scale_2': 2.5},
    {'model': 'two_experts', 'flow_shift': 7}, {'model': 'two_experts', 'sigmas': '1,0.75,0.5'},
    {'model': 'two_experts', 'scheduler': 'euler', 'cfg_scale': 1},
    {'model': 'two_experts', 'transformer': 'one.safetensors'}, {'model': 'two_experts', 'transformer_2': 'one.safetensors'},
    {'model': 'two_experts', 'vae': 'vae.safetensors'},
    {'model': 'two_experts', 'text_encoder': 'text.safetensors'}, {'model': 'two_experts', 'tokenizer': 'spiece.model'},
    {'lora': 'style.safetensors:0.8', 'strict_lora': True},
    {'model': 'image', 'image': 'first.ppm'}, {'model': 'image', 'image': 'first.ppm', 'resize': 'stretch'},
    {'model': 'image', 'image': 'first.ppm', 'image_encoder': 'clip.safetensors'},
    {'model': 'two_images', 'image': 'first.ppm', 'last_image': 'last.ppm', 'frames': 5}, {'arithmetic': 16}, {'block_error': 0.01}, {'seconds': 1}, {'max_vram': 12},
    {'exact_steps': 1}, {'no_audio': True},
]
# Options without a request in identities.json, because a prompt set's row cannot set them or a recipe has another name for them.
NO_ROW = {'batch_count', 'dry_run', 'preset', 'distilled', 'threads', 'gpus', 'report', 'quiet', 'verbose', 'json', 'random_weights', 'save_latents', 'contact_sheet', 'preview', 'help', 'diffusion_model', 'high_noise_diffusion_model'}


class Identity(BatchTest):
    maxDiff = None

    def recorded(self):
        """Runs all requests as one prompt set. Returns the row, identity and recipe of each request, from the manifest."""
        (self.folder / 'prompt.txt').write_text('a blue square')
        (self.folder / 'profile.yaml').write_text(PROFILE)
        shutil.copy(DATA / 'lora' / 'metadata.safetensors', self.folder / 'style.safetensors')
        header = json.dumps({'latents': {'dtype': 'F32', 'shape': [1, 1, 4, 8, 8], 'data_offsets': [0, 1024]}}).encode()
        (self.folder / 'latents.safetensors').write_bytes(len(header).to_bytes(8, 'little') + header + bytes(1024))
        recipe = {'version': '0.1.0', 'model': 'tiny', 'prompt': 'a white ring', 'seed': 7, 'steps': 1, 'cfg_scale': 2, 'frames': 1, 'fps': 8, 'topk': 0.4}
        (self.folder / 'recipe.json').write_text(json.dumps(recipe))
        write_safetensors(self.folder / 'one.safetensors', read_weights(MODELS['two_experts'] / 'transformer'))
        write_safetensors(self.folder / 'vae.safetensors', read_weights(MODELS['two_experts'] / 'vae'))
        write_safetensors(self.folder / 'text.safetensors', read_weights(MODELS['two_experts'] / 'text_encoder'))
        write_safetensors(self.folder / 'clip.safetensors', read_weights(MODELS['image'] / 'image_encoder'))
        for name, color in (('first', b'\x80\x20\xe0'), ('last', b'\x10\xc0\x30')):
            (self.folder / f'{name}.ppm').write_bytes(b'P6 30 20 255\n' + color * 600)
        (self.folder / 'spiece.model').write_bytes((MODELS['two_experts'] / 'tokenizer' / 'spiece.model').read_bytes())
        lines = []
        for i, row in enumerate(ROWS):
            row = {**({} if 'from' in row else {'prompt': PROMPT}), **row}
            if 'prompt_file' in row:
                del row['prompt']
            if row.keys().isdisjoint(('size', 'width')):
                row['size'] = '64x64'
            place = {'model': str(MODELS[row.get('model', 'plain')]), 'output': f'{i:02}.{row.get("output", "mp4")}'}
            lines.append(json.dumps({**({} if 'seconds' in row else {'frames': 1}), 'seed': 42, **({} if 'sigmas' in row else {'steps': 1}), **row, **place}))
        result = self.run_program('batch', self.write('set.jsonl', '\n'.join(lines)), '-o', 'out', '--device', 'cpu', '--quiet')
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        made = {line['row']: line for line in self.manifest()}
        for line in made.values():
            line['recipe'].pop('sparsity', None)  # a result of the run, not a setting
        first = made[0]['recipe']
        return [{'row': row, 'identity': made[i]['identity'], 'recipe': first if i == 0 else self.difference(first, made[i]['recipe'])}
                for i, row in enumerate(ROWS)]

    @staticmethod
    def difference(first, other):
        """Returns the entries of `other` that differ from `first`, and None for keys that only `first` has."""
        return {key: other.get(key) for key in first | other if first.get(key) != other.get(key)}

    def test_recipes_and_identities_do_not_change(self):
        golden = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
        self.assertEqual([line['row'] for line in golden], ROWS, 'record identities.json anew')
        for now, then in zip(self.recorded(), golden):
            with self.subTest(then['row']):
                self.assertEqual(now, then)

    def test_recorded_rows_cover_every_option(self):
        manual = ' '.join(self.succeed(self.run_program('reference')).stdout.split())
        keys = {part.split('.')[0] for part in manual.split('In YAML: ')[1:]}
        self.assertIn('topk', keys)
        self.assertEqual(keys - NO_ROW - {key for row in ROWS for key in row} - {'output', 'model'}, set())


if __name__ == '__main__':
    if sys.argv[1:] == ['--record']:
        Identity.setUp(test := Identity())
        GOLDEN.write_text(''.join(json.dumps(line, ensure_ascii=False, sort_keys=True) + '\n' for line in test.recorded()))
    else:
        unittest.main()
