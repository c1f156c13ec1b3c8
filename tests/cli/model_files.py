"""Small models written as other programs have them: an installation whose configs/ describe them, torch's zip files, folders of single files."""
import json
import math
import os
import shutil
import sys
from pathlib import Path

from support import PROGRAM, ROOT, write_safetensors

sys.path.append(str(ROOT / 'tests' / 'fuzz'))
import make_corpus  # noqa: E402

T5_LAYERS = {'0.SelfAttention.q': 'attn.q', '0.SelfAttention.k': 'attn.k', '0.SelfAttention.v': 'attn.v', '0.SelfAttention.o': 'attn.o',
             '0.SelfAttention.relative_attention_bias': 'pos_embedding.embedding', '0.layer_norm': 'norm1', '1.layer_norm': 'norm2',
             '1.DenseReluDense.wi_0': 'ffn.gate.0', '1.DenseReluDense.wi_1': 'ffn.fc1', '1.DenseReluDense.wo': 'ffn.fc2'}


def authors_t5_name(name):
    for ours, theirs in {'shared': 'token_embedding', 'encoder.final_layer_norm': 'norm'}.items():
        if name == f'{ours}.weight':
            return f'{theirs}.weight'
    block, _, rest = name.removeprefix('encoder.block.').partition('.layer.')
    return f'blocks.{block}.{T5_LAYERS[rest.removesuffix(".weight")]}.weight'


def install(folder, models):
    """The program in a folder of its own, whose configs/ describe these diffusers folders {name: folder}. Returns it."""
    (folder / 'build').mkdir(parents=True)
    shutil.copy(PROGRAM, folder / 'build' / 'sparsereel')
    (folder / 'assets').symlink_to(ROOT / 'assets')
    (folder / 'configs').mkdir()
    shutil.copy(ROOT / 'configs' / 'tiny.yaml', folder / 'configs')
    for name, model in models.items():
        index = json.loads((model / 'model_index.json').read_text())
        architecture = {key: index[key] for key in ('boundary_ratio', 'expand_timesteps') if key in index}
        for role in ('transformer', 'transformer_2', 'vae', 'text_encoder'):
            if (model / role).is_dir():
                architecture[role] = json.loads((model / role / 'config.json').read_text())
        architecture['scheduler'] = json.loads((model / 'scheduler' / 'scheduler_config.json').read_text())
        config = architecture['transformer']
        match = {'class': config['_class_name'], 'layers': config['num_layers'], 'heads': config['num_attention_heads']}
        if 'Wan' in config['_class_name']:
            match['boundary_ratio'] = index.get('boundary_ratio')
        (folder / 'configs' / f'{name}.yaml').write_text(json.dumps({'match': match, 'architecture': architecture}))
    return os.path.abspath(folder / 'build' / 'sparsereel')


def write_pth(path, tensors):
    """As torch.save() writes a dictionary of F16 tensors {name: (dtype, shape, bytes)}."""
    saved, storages = {}, {}
    for key, (name, (dtype, shape, data)) in enumerate(tensors.items()):
        assert dtype == 'F16', dtype
        strides = [math.prod(shape[axis + 1:]) for axis in range(len(shape))]
        saved[name] = make_corpus.torch_tensor(make_corpus.Stored('HalfStorage', str(key), len(data) // 2), 0, tuple(shape), tuple(strides))
        storages[str(key)] = data
    path.write_bytes(make_corpus.torch_zip(saved, storages))
    return path


def write_shards(folder, tensors, count=2):
    """As Wan's authors have a transformer: shards and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    names, weight_map = sorted(tensors), {}
    for i in range(count):
        shard = f'diffusion_pytorch_model-{i + 1:05}-of-{count:05}.safetensors'
        write_safetensors(folder / shard, {name: tensors[name] for name in names[i::count]})
        weight_map |= dict.fromkeys(names[i::count], shard)
    (folder / 'diffusion_pytorch_model.safetensors.index.json').write_text(json.dumps({'metadata': {}, 'weight_map': weight_map}))
    return Path(folder)
