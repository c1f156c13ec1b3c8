"""Writes small models as other programs store them, as folders of single files. Also makes an installation of the program whose configs/ describe these models."""
import json
import math
import os
import shutil
import sys
from pathlib import Path

from support import PROGRAM, ROOT, write_safetensors


def install(folder, models):
    """Installs the program in this folder, with configs/ that describe the diffusers folders of `models` {name: folder}. Returns the program's path."""
    (folder / 'build').mkdir(parents=True)
    shutil.copy(PROGRAM, folder / 'build' / 'sparsereel')
    (folder / 'assets').symlink_to(ROOT / 'assets')
    (folder / 'configs').mkdir()
    shutil.copy(ROOT / 'configs' / 'tiny.yaml', folder / 'configs')
    for name, model in models.items():
        index = json.loads((model / 'model_index.json').read_text())
        architecture = {key: index[key] for key in ('boundary_ratio', 'expand_timesteps', 'force_zeros_for_empty_prompt') if key in index}
        for role in ('transformer', 'transformer_2', 'vae', 'audio_vae', 'text_encoder', 'image_encoder'):
            if (model / role).is_dir():
                architecture[role] = json.loads((model / role / 'config.json').read_text())
        architecture['scheduler'] = json.loads((model / 'scheduler' / 'scheduler_config.json').read_text())
        if (model / 'audio_scheduler').is_dir():
            architecture['audio_scheduler'] = json.loads((model / 'audio_scheduler' / 'scheduler_config.json').read_text())
        if (model / 'image_processor').is_dir():
            architecture['image_processor'] = json.loads((model / 'image_processor' / 'preprocessor_config.json').read_text())
        config = architecture['transformer']
        match = {'class': config['_class_name'], 'layers': config['num_layers'], 'heads': config['num_attention_heads']}
        if 'Wan' in config['_class_name']:
            match |= {'boundary_ratio': index.get('boundary_ratio')} | {key: config.get(key) for key in ('in_channels', 'image_dim', 'pos_embed_seq_len')}
        (folder / 'configs' / f'{name}.yaml').write_text(json.dumps({'match': match, 'architecture': architecture}))
    return os.path.abspath(folder / 'build' / 'sparsereel')


def write_shards(folder, tensors, count=2):
    """Writes a transformer as Wan's authors publish theirs: `count` shards and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    names, weight_map = sorted(tensors), {}
    for i in range(count):
        shard = f'diffusion_pytorch_model-{i + 1:05}-of-{count:05}.safetensors'
        write_safetensors(folder / shard, {name: tensors[name] for name in names[i::count]})
        weight_map |= dict.fromkeys(names[i::count], shard)
    (folder / 'diffusion_pytorch_model.safetensors.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': weight_map}))
    return Path(folder)
