"""Writes weight files with the tensor names, shapes and dtypes of published files. Their data are zeros (holes that take no disk space) or random numbers.

python3 tests/cli/published.py FOLDER FILE... writes these files with random numbers. FILES lists the names. Without a FILE, it writes all of them."""
import json
import os
import random
import re
import struct
import sys
from math import prod
from pathlib import Path

DATA = Path(__file__).parents[1] / 'parity/data'
BITS = {'F32': 32, 'F16': 16, 'BF16': 16, 'F8_E4M3': 8, 'U8': 8}
# For each GGUF type: ggml's number of the type, elements per block, bytes per block, and the offsets of the 16-bit scales in a block.
GGML = {'F32': (0, 1, 4, ()), 'F16': (1, 1, 2, ()), 'Q8_0': (8, 32, 34, (0,)), 'Q4_K': (12, 256, 144, (0, 2)), 'Q6_K': (14, 256, 210, (208,))}
SPIECE_BYTES = 4548313  # size of spiece.model in google/umt5-xxl


def lists(file, model):
    return json.loads((DATA / file).read_text())[model]


def renamed(name, rules):
    for pattern, theirs in rules.items():
        name = re.sub(pattern, theirs, name)
    return name


TRANSFORMER = {r'attn(1|2)\.to_out\.0': r'attn\1.o', r'attn(1|2)\.to_': r'attn\1.', 'attn1': 'self_attn', 'attn2': 'cross_attn', r'norm2\.': 'norm3.',
               r'ffn\.net\.0\.proj': 'ffn.0', r'ffn\.net\.2': 'ffn.2', '^scale_shift_table': 'head.modulation', 'scale_shift_table': 'modulation',
               '^proj_out': 'head.head', r'^condition_embedder\.time_proj': 'time_projection.1', r'^condition_embedder\.(text|time)_embedder\.linear_1': r'\1_embedding.0',
               r'^condition_embedder\.(text|time)_embedder\.linear_2': r'\1_embedding.2', r'cross_attn\.add_(k|v)_proj': r'cross_attn.\1_img', 'norm_added_k': 'norm_k_img',
               r'^condition_embedder\.image_embedder\.norm1': 'img_emb.proj.0', r'^condition_embedder\.image_embedder\.norm3': 'img_emb.proj.4',
               r'^condition_embedder\.image_embedder\.ff\.net\.0\.proj': 'img_emb.proj.1', r'^condition_embedder\.image_embedder\.ff\.net\.2': 'img_emb.proj.3',
               r'^condition_embedder\.image_embedder\.pos_embed': 'img_emb.emb_pos'}
VAE = {r'mid_block\.resnets\.0': 'middle.0', r'mid_block\.resnets\.1': 'middle.2', r'mid_block\.attentions\.0': 'middle.1',
       r'\.norm1\.gamma': '.residual.0.gamma', r'\.conv1\.(weight|bias)$': r'.residual.2.\1', r'\.norm2\.gamma': '.residual.3.gamma', r'\.conv2\.': '.residual.6.', 'conv_shortcut': 'shortcut',
       '^quant_conv': 'conv1', '^post_quant_conv': 'conv2', r'coder\.conv_in': 'coder.conv1', r'coder\.norm_out': 'coder.head.0', r'coder\.conv_out': 'coder.head.2'}
VAE_2_1 = {r'up_blocks\.(\d)\.resnets\.(\d)': lambda at: f'upsamples.{4 * int(at[1]) + int(at[2])}', r'up_blocks\.(\d)\.upsamplers\.0': lambda at: f'upsamples.{4 * int(at[1]) + 3}',
           'down_blocks': 'downsamples'}
VAE_2_2 = {r'up_blocks\.(\d)\.resnets': r'upsamples.\1.upsamples', r'up_blocks\.(\d)\.upsampler\.': r'upsamples.\1.upsamples.3.',
           r'down_blocks\.(\d)\.resnets': r'downsamples.\1.downsamples', r'down_blocks\.(\d)\.downsampler\.': r'downsamples.\1.downsamples.2.'}
LLAMA = {r'^shared\.': 'token_embd.', r'^encoder\.block\.(\d+)\.layer\.0\.layer_norm': r'enc.blk.\1.attn_norm', r'^encoder\.block\.(\d+)\.layer\.1\.layer_norm': r'enc.blk.\1.ffn_norm',
         r'^encoder\.block\.(\d+)\.layer\.\d\.': r'enc.blk.\1.', r'SelfAttention\.relative_attention_bias': 'attn_rel_b', r'SelfAttention\.': 'attn_',
         r'DenseReluDense\.wi_0': 'ffn_gate', r'DenseReluDense\.wi_1': 'ffn_up', r'DenseReluDense\.wo': 'ffn_down', r'^encoder\.final_layer_norm': 'enc.output_norm'}
AUTHORS_T5 = {r'^shared\.': 'token_embedding.', r'^encoder\.block\.(\d+)\.layer\.0\.layer_norm': r'blocks.\1.norm1', r'^encoder\.block\.(\d+)\.layer\.1\.layer_norm': r'blocks.\1.norm2',
              r'^encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.relative_attention_bias': r'blocks.\1.pos_embedding.embedding', r'^encoder\.block\.(\d+)\.layer\.0\.SelfAttention': r'blocks.\1.attn',
              r'^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_0': r'blocks.\1.ffn.gate.0', r'^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_1': r'blocks.\1.ffn.fc1',
              r'^encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wo': r'blocks.\1.ffn.fc2', r'^encoder\.final_layer_norm': 'norm'}

CLIP = {r'^vision_model\.embeddings\.class_embedding': 'visual.cls_embedding', r'^vision_model\.embeddings\.position_embedding\.weight': 'visual.pos_embedding',
        r'^vision_model\.embeddings\.patch_embedding': 'visual.patch_embedding', r'^vision_model\.pre_layrnorm': 'visual.pre_norm', r'^vision_model\.post_layernorm': 'visual.post_norm',
        r'^vision_model\.encoder\.layers\.(\d+)\.layer_norm': r'visual.transformer.\1.norm', r'^vision_model\.encoder\.layers\.(\d+)\.self_attn\.out_proj': r'visual.transformer.\1.attn.proj',
        r'^vision_model\.encoder\.layers\.(\d+)\.mlp\.fc1': r'visual.transformer.\1.mlp.0', r'^vision_model\.encoder\.layers\.(\d+)\.mlp\.fc2': r'visual.transformer.\1.mlp.2',
        r'^visual_projection\.weight': 'visual.head'}


MOCHI = {r'^transformer_blocks\.': 'blocks.', r'norm1\.linear': 'mod_x', r'norm1_context\.linear(_1)?': 'mod_y', r'attn1\.norm_added_(q|k)': r'attn.\1_norm_y',
         r'attn1\.norm_(q|k)': r'attn.\1_norm_x', r'attn1\.to_out\.0': 'attn.proj_x', r'attn1\.to_add_out': 'attn.proj_y', r'attn1\.to_q': 'attn.qkv_x', r'attn1\.add_q_proj': 'attn.qkv_y',
         r'ff\.net\.0\.proj': 'mlp_x.w1', r'ff\.net\.2': 'mlp_x.w2', r'ff_context\.net\.0\.proj': 'mlp_y.w1', r'ff_context\.net\.2': 'mlp_y.w2', r'^patch_embed\.': 'x_embedder.',
         r'^time_embed\.timestep_embedder\.linear_1': 't_embedder.mlp.0', r'^time_embed\.timestep_embedder\.linear_2': 't_embedder.mlp.2', r'^time_embed\.pooler': 't5_y_embedder',
         r'^time_embed\.caption_proj': 't5_yproj', r'^norm_out\.linear': 'final_layer.mod', r'^proj_out': 'final_layer.linear'}
MOCHI_RESIDUAL = {r'\.norm1\.norm_layer': '.stack.0', r'\.conv1\.conv': '.stack.2', r'\.norm2\.norm_layer': '.stack.3', r'\.conv2\.conv': '.stack.5'}
MOCHI_VAE = MOCHI_RESIDUAL | {
    r'^decoder\.conv_in': 'decoder.blocks.0.0', r'^decoder\.block_in\.resnets\.(\d)': lambda at: f'decoder.blocks.0.{int(at[1]) + 1}',
    r'^decoder\.up_blocks\.(\d)\.resnets': lambda at: f'decoder.blocks.{int(at[1]) + 1}.blocks', r'^decoder\.up_blocks\.(\d)\.proj': lambda at: f'decoder.blocks.{int(at[1]) + 1}.proj',
    r'^decoder\.block_out\.resnets': 'decoder.blocks.4', r'coder\.proj_out': 'coder.output_proj', r'^encoder\.norm_out\.norm_layer': 'encoder.output_norm', r'^encoder\.proj_in': 'encoder.layers.0',
    r'^encoder\.block_in\.resnets\.(\d)': lambda at: f'encoder.layers.{int(at[1]) + 1}', r'^encoder\.down_blocks\.(\d)\.conv_in\.conv': lambda at: f'encoder.layers.{int(at[1]) + 4}.layers.0',
    r'^encoder\.down_blocks\.(\d)\.(resnets|attentions|norms)\.(\d)': lambda at: f'encoder.layers.{int(at[1]) + 4}.layers.{int(at[3]) + 1}' + MOCHI_ATTENTION[at[2]],
    r'^encoder\.block_out\.(resnets|attentions|norms)\.(\d)': lambda at: f'encoder.layers.{int(at[2]) + 7}' + MOCHI_ATTENTION[at[1]],
    r'attn\.to_q': 'attn.qkv', r'attn\.to_out\.0': 'attn.out', r'attn_block\.norm\.norm_layer': 'attn_block.norm'}
MOCHI_ATTENTION = {'resnets': '', 'attentions': '.attn_block.attn', 'norms': '.attn_block.norm'}
# Mochi's authors store some matrices as one, below each other and under the name of the first. MOCHI_JOINED maps the first one to the others. They store the two
# halves of the matrices of MOCHI_SWAPPED in the other order.
MOCHI_JOINED = {r'attn1\.to_q\.': ('to_k.', 'to_v.'), r'attn1\.add_q_proj\.': ('add_k_proj.', 'add_v_proj.'), r'attentions\.\d\.to_q\.': ('to_k.', 'to_v.')}
MOCHI_SWAPPED = r'^norm_out\.linear|ff(_context)?\.net\.0\.proj'


def authors_name(name):
    """Returns the name that Wan's authors give to a tensor of the transformer. `name` is diffusers' name."""
    return renamed(name, TRANSFORMER)


def authors_vae_name(name):
    return renamed(renamed(name, VAE), VAE_2_1)


def authors_vae_name_5b(name):
    return renamed(renamed(name, VAE), VAE_2_2)


def authors_t5_name(name):
    return renamed(name, AUTHORS_T5)


def llama_t5_name(name):
    return renamed(name, LLAMA)


def transformer(model):
    """Returns the shapes of a Wan transformer's tensors: {authors' name: shape}."""
    names = lists('wan_i2v/dit_names.json' if 'i2v' in model or 'flf2v' in model else 'wan/dit_names.json', model)
    shapes = dict(names['rest'])
    for layer in range(names['config']['num_layers']):
        shapes.update({f'blocks.{layer}.{name}': shape for name, shape in names['block'].items()})
    return {authors_name(name): shape for name, shape in shapes.items()}


def vae(model, spelling):
    return {spelling(name): shape for name, shape in lists('wan/vae_names.json', model)['rest'].items()}


def text_encoder(spelling):
    tensors = json.loads((DATA / 'umt5_names.json').read_text())['tensors']
    return {spelling(name): shape for name, shape in tensors.items()}


def clip_vision():
    """Returns the shapes of CLIP's ViT-H 14 for pictures of 224 pixels: {name in transformers' CLIPVisionModelWithProjection: shape}."""
    channels, inner = 1280, 5120
    shapes = {'embeddings.class_embedding': [channels], 'embeddings.position_embedding.weight': [257, channels], 'embeddings.patch_embedding.weight': [channels, 3, 14, 14]}
    for norm in ['pre_layrnorm', 'post_layernorm'] + [f'encoder.layers.{i}.layer_norm{j}' for i in range(32) for j in (1, 2)]:
        shapes |= {f'{norm}.weight': [channels], f'{norm}.bias': [channels]}
    for i in range(32):
        for name, size in {'self_attn.q_proj': (channels, channels), 'self_attn.k_proj': (channels, channels), 'self_attn.v_proj': (channels, channels),
                           'self_attn.out_proj': (channels, channels), 'mlp.fc1': (inner, channels), 'mlp.fc2': (channels, inner)}.items():
            shapes |= {f'encoder.layers.{i}.{name}.weight': list(size), f'encoder.layers.{i}.{name}.bias': [size[0]]}
    return {f'vision_model.{name}': shape for name, shape in shapes.items()} | {'visual_projection.weight': [1024, channels]}


def authors_clip(tensors):
    """Returns CLIP's image encoder as Wan's authors store it: with q, k and v of a layer in one matrix, and embeddings with a batch axis. `tensors` is {transformers'
    name: (dtype, shape) or (dtype, shape, data)}."""
    theirs = {}
    for name, (dtype, shape, *data) in tensors.items():
        if '.k_proj.' in name or '.v_proj.' in name:
            continue
        if '.q_proj.' in name:
            parts = [tensors[name.replace('q_proj', part)] for part in ('q_proj', 'k_proj', 'v_proj')]
            name = re.sub(r'^vision_model\.encoder\.layers\.(\d+)\.self_attn\.q_proj', r'visual.transformer.\1.attn.to_qkv', name)
            shape, data = [3 * shape[0], *shape[1:]], [b''.join(part[2] for part in parts)] if data else []
        name = renamed(name, CLIP)
        if name in ('visual.cls_embedding', 'visual.pos_embedding'):
            shape = [1] * (3 - len(shape)) + list(shape)
        theirs[name] = (dtype, shape, *data)
    return theirs


def mochi_as_authors(tensors, names=MOCHI):
    """Returns Mochi's transformer as its authors store it, or its VAE if `names` is MOCHI_VAE. `tensors` is {diffusers' name: (dtype, shape) or (dtype, shape, data)}."""
    theirs = {}
    for name, (dtype, shape, *data) in tensors.items():
        if re.search(r'\.(to_k|to_v|add_k_proj|add_v_proj)\.', name):
            continue  # stored in the same matrix as q
        for pattern, others in MOCHI_JOINED.items():
            if at := re.search(pattern, name):
                stem = name[:at.end()].rsplit('.', 2)[0] + '.'
                parts = [tensors[stem + other + name[at.end():]] for other in others]
                if shape:  # a scale without a shape holds for all three matrices, so it is not joined
                    shape, data = [3 * shape[0], *shape[1:]], [b''.join([*data, *(part[2] for part in parts)])] if data else []
        if shape and data and re.search(MOCHI_SWAPPED, name):
            half = len(data[0]) // 2
            data = [data[0][half:] + data[0][:half]]
        theirs[renamed(name, names)] = (dtype, shape, *data)
    return theirs


def mochi_transformer():
    """Returns the shapes of the transformer's tensors: {authors' name: shape}."""
    names = lists('mochi/dit_names.json', '1 preview')
    shapes = dict(names['rest']) | {f'transformer_blocks.{layer}.{name}': shape for layer in range(names['blocks']) for name, shape in names['block'].items()}
    return {name: shape for name, (_, shape) in mochi_as_authors(plain(shapes, '')).items()}


def mochi_vae(part=''):
    """Returns the shapes of the VAE's tensors: {authors' name: shape}. With part 'decoder.', returns only the decoder's, without this prefix, as in the authors' file."""
    theirs = mochi_as_authors(plain(lists('mochi/vae_names.json', '1 preview')['rest'], ''), MOCHI_VAE)
    return {name[len(part):]: shape for name, (_, shape) in theirs.items() if name.startswith(part)}


def t5_text_encoder():
    """Returns the shapes of T5's encoder as ComfyUI's file has them: with the embedding under both of its names."""
    tensors = json.loads((DATA / 't5_names.json').read_text())['tensors']
    return tensors | {'encoder.embed_tokens.weight': tensors['shared.weight']}


def plain(shapes, dtype, **others):
    """Returns {name: (dtype, shape)}. `others` gives other dtypes to some tensors; its keys are the names with "_" instead of "."."""
    return {name: (others.get(name.replace('.', '_'), dtype), shape) for name, shape in shapes.items()}


DIFFUSION_MODEL = 'model.diffusion_model.'


def prefixed(prefix, tensors):
    return {prefix + name: tensor for name, tensor in tensors.items()}


def is_matrix(name, shape):
    return name.endswith('.weight') and len(shape) == 2


def scaled_fp8(shapes, rest, inputs, keep=()):
    """Returns the tensors with matrices in fp8, as in older files of ComfyUI: with a scale for each matrix and, if `inputs`, one for the matrix's inputs."""
    tensors = {'scaled_fp8': ('F8_E4M3', [0])}
    for name, shape in shapes.items():
        reduced = is_matrix(name, shape) and not any(word in name for word in keep)
        tensors[name] = ('F8_E4M3' if reduced else rest, shape)
        for kind in ['scale_weight'] + ['scale_input'] * inputs if reduced else []:
            tensors[name[:-len('weight')] + kind] = ('F32', [])
    return tensors


def packed(shapes, kind_of, keep):
    """Returns the tensors with the GGUF type kind_of(name) for matrices. Vectors, and matrices whose names contain a word of `keep`, have 32 bits."""
    def kind(name, shape):
        return 'F32' if len(shape) != 2 or any(word in name for word in keep) else kind_of(name)
    return {name: (kind(name, shape), shape) for name, shape in shapes.items()}


def q4_k_m(shapes, more, keep):
    """Returns the tensors with 6 bits for matrices for which more(name) is true, and 4 bits for the other matrices. `keep` is that of packed()."""
    return packed(shapes, lambda name: 'Q6_K' if more(name) else 'Q4_K', keep)


# ComfyUI-GGUF's conversion tool does not pack tensors whose names contain one of these words.
WAN_KEEPS = ('modulation', 'patch_embedding', 'text_embedding', 'time_projection', 'time_embedding', 'head.', 'img_emb.')


def wan_q4_k_m(model='2.1 14b'):
    """Returns Wan's transformer with the mix of types that ComfyUI-GGUF's tool chooses: 10.1 GB for 14B, as published."""
    return q4_k_m(transformer(model), lambda name: 'attn.v.' in name or 'ffn.2.' in name, WAN_KEEPS)


def umt5_q4_k_m():
    """Returns UMT5 with the mix of types that llama.cpp chooses, which gives half of the layers more bits: 3.66 GB, as published."""
    def more(name):
        layer = re.search(r'blk\.(\d+)\.(attn_v|ffn_down)', name)
        return name.startswith('token_embd') or layer and (not 3 <= int(layer[1]) < 21 or int(layer[1]) % 3 == 2)
    return q4_k_m(text_encoder(llama_t5_name), more, ('attn_rel_b',))


def scaled_t5():
    return scaled_fp8(t5_text_encoder(), 'F16', inputs=False, keep=('shared', 'relative_attention_bias', 'embed_tokens'))


def scaled_umt5():
    return {**scaled_fp8(text_encoder(str), 'F16', inputs=False, keep=('shared', 'relative_attention_bias')), 'spiece_model': ('U8', [SPIECE_BYTES])}


FILES = {
    'wan2.2_t2v_high_noise_14B_fp8_scaled.safetensors': lambda: scaled_fp8(transformer('2.1 14b'), 'F16', inputs=True),
    'wan2.2_t2v_low_noise_14B_fp8_scaled.safetensors': lambda: scaled_fp8(transformer('2.1 14b'), 'F16', inputs=True),
    'wan2.1_t2v_14B_fp16.safetensors': lambda: plain(transformer('2.1 14b'), 'F16', patch_embedding_weight='F32', patch_embedding_bias='F32'),
    'wan2.1_t2v_14B_fp8_scaled.safetensors': lambda: scaled_fp8(transformer('2.1 14b'), 'F16', inputs=True),
    'wan2.1-t2v-14b-Q8_0.gguf': lambda: packed(transformer('2.1 14b'), lambda name: 'Q8_0', WAN_KEEPS),
    'wan2.1-t2v-14b-Q4_K_M.gguf': wan_q4_k_m,
    'Wan2.2-T2V-A14B-HighNoise-Q4_K_M.gguf': wan_q4_k_m,
    'Wan2.2-T2V-A14B-LowNoise-Q4_K_M.gguf': wan_q4_k_m,
    'wan2.2_ti2v_5B_fp16.safetensors': lambda: plain(transformer('2.2 5b'), 'F16'),
    'wan2.1_i2v_480p_14B_fp16.safetensors': lambda: plain(transformer('2.1 i2v 14b'), 'F16'),
    'wan2.1_flf2v_720p_14B_fp16.safetensors': lambda: plain(transformer('2.1 flf2v 14b'), 'F16'),
    'wan2.2_i2v_high_noise_14B_fp8_scaled.safetensors': lambda: scaled_fp8(transformer('2.2 i2v a14b'), 'F16', inputs=True),
    'wan2.2_i2v_low_noise_14B_fp8_scaled.safetensors': lambda: scaled_fp8(transformer('2.2 i2v a14b'), 'F16', inputs=True),
    'wan2.1-i2v-14b-480p-Q4_K_M.gguf': lambda: wan_q4_k_m('2.1 i2v 14b'),
    'Wan2.2-I2V-A14B-HighNoise-Q4_K_M.gguf': lambda: wan_q4_k_m('2.2 i2v a14b'),
    'Wan2.2-I2V-A14B-LowNoise-Q4_K_M.gguf': lambda: wan_q4_k_m('2.2 i2v a14b'),
    'clip_vision_h.safetensors': lambda: plain(clip_vision(), 'F16'),
    'open-clip-xlm-roberta-large-vit-huge-14_visual_fp16.safetensors': lambda: authors_clip(plain(clip_vision(), 'F16')),
    'umt5_xxl_fp8_e4m3fn_scaled.safetensors': scaled_umt5,
    'umt5-xxl-encoder-Q4_K_M.gguf': umt5_q4_k_m,
    'mochi_preview_bf16.safetensors': lambda: prefixed(DIFFUSION_MODEL, plain(mochi_transformer(), 'BF16')),
    'mochi_preview_fp8_scaled.safetensors': lambda: prefixed(DIFFUSION_MODEL, scaled_fp8(mochi_transformer(), 'BF16', inputs=True)),
    'all_in_one/mochi_preview_fp8_scaled.safetensors': lambda: {
        **prefixed(DIFFUSION_MODEL, scaled_fp8(mochi_transformer(), 'BF16', inputs=True)), **prefixed('vae.', plain(mochi_vae(), 'BF16')),
        **prefixed('text_encoders.t5xxl.transformer.', scaled_t5())},
    'dit.safetensors': lambda: plain(mochi_transformer(), 'F32'),
    'decoder.safetensors': lambda: plain(mochi_vae('decoder.'), 'F32'),
    'encoder.safetensors': lambda: plain(mochi_vae('encoder.'), 'F32'),
    'mochi_vae.safetensors': lambda: plain(mochi_vae(), 'BF16'),
    't5xxl_fp16.safetensors': lambda: plain(t5_text_encoder(), 'F16'),
    't5xxl_fp8_e4m3fn_scaled.safetensors': scaled_t5,
    'wan_2.1_vae.safetensors': lambda: plain(vae('2.1', authors_vae_name), 'BF16'),
    'wan2.2_vae.safetensors': lambda: plain(vae('2.2 5b', authors_vae_name_5b), 'F16'),
}
# The sizes of files in bytes, from Hugging Face's pages.
PUBLISHED_BYTES = {'wan2.2_t2v_low_noise_14B_fp8_scaled.safetensors': 14293923632, 'wan2.1_t2v_14B_fp16.safetensors': 28577761176,
                   'umt5_xxl_fp8_e4m3fn_scaled.safetensors': 6735906897, 't5xxl_fp16.safetensors': 9787841024, 't5xxl_fp8_e4m3fn_scaled.safetensors': 5157348688,
                   'wan2.2_vae.safetensors': 1409400960}


def size_of(dtype, shape):
    if dtype in BITS:
        return prod(shape) * BITS[dtype] // 8
    _, elements, size, _ = GGML[dtype]
    return prod(shape) // elements * size


POOL = random.Random(1).randbytes(1 << 22)


def repeated(unit, size):
    return (unit * (size // len(unit) + 1))[:size]


def spiece(size):
    """Returns a SentencePiece model of `size` bytes with 256,000 pieces, about as many as UMT5's. The pieces are letters and made-up words, each with a score."""
    def piece(text, kind=b''):
        message = b'\x0a' + bytes([len(text)]) + text + b'\x15' + struct.pack('<f', -10) + kind
        return b'\x0a' + bytes([len(message)]) + message
    count, control, unknown = 256000, b'\x18\x03', b'\x18\x02'
    ids = b'\xc0\x02\x02\xc8\x02' + b'\xff' * 9 + b'\x01' + b'\xd0\x02\x01\xd8\x02\x00'  # ids of special tokens: unk 2, bos -1 (none), eos 1, pad 0
    trainer = b'\x18\x01\x20\x80\xd0\x0f' + ids  # model type unigram, then the vocabulary's size and the ids
    normalizer = b'\x0a\x08identity'
    end = b'\x12' + bytes([len(trainer)]) + trainer + b'\x1a' + bytes([len(normalizer)]) + normalizer
    first = piece(b'<pad>', control) + piece(b'</s>', control) + piece(b'<unk>', unknown)
    first += b''.join(piece(text) for text in ['\u2581'.encode()] + [bytes([letter]) for letter in range(97, 123)])
    left, rest = count - 30, size - len(first) - len(end)
    longer = rest - left * 17  # number of pieces with nine letters; the others have eight
    texts = (bytes(97 + number // 26 ** digit % 26 for digit in range(8)) for number in range(left))
    return first + b''.join(piece(text + b'z' * (i < longer)) for i, text in enumerate(texts)) + end


def contents(name, dtype, shape):
    """Returns random data for a tensor. Weights are so small that activations neither vanish nor grow over the layers."""
    if name == 'spiece_model':
        return spiece(shape[0])
    size, is_norm = size_of(dtype, shape), 'norm' in name or name.endswith('gamma') or '.head.0.' in name
    if len(shape) == 0:
        return struct.pack('<f', 2e-4)
    if dtype == 'F8_E4M3':
        return repeated(POOL.replace(b'\x7f', b'\x30').replace(b'\xff', b'\xb0'), size)
    if dtype in ('Q4_K', 'Q6_K', 'Q8_0'):
        _, _, block, scales = GGML[dtype]
        unit = bytearray(POOL[:block * 4096])
        for at in scales:
            unit[at::block], unit[at + 1::block] = POOL[:4096], bytes([0x08]) * 4096  # an fp16 scale of about 1.3e-4
        return repeated(bytes(unit), size)
    high = {'F32': (0x3c, 0xbc), 'BF16': (0x3c, 0xbc), 'F16': (0x22, 0xa2)}[dtype]  # high bytes of numbers near +-0.01
    one = {'F32': b'\0\0\x80\x3f', 'BF16': b'\x80\x3f', 'F16': b'\0\x3c'}[dtype]
    if is_norm and name.endswith(('weight', 'gamma')):
        return repeated(one, size)
    width = len(one)
    unit = bytearray(POOL[:width * 65536])
    unit[width - 1::width] = bytes(high[byte & 1] for byte in unit[width - 1::width])
    return repeated(bytes(unit), size)


def safetensors_header(tensors):
    # Tensors with larger elements come first, as in files of the safetensors library.
    order = sorted(tensors, key=lambda name: (-BITS[tensors[name][0]], name))
    header, end = {}, 0
    for name in order:
        dtype, shape = tensors[name]
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [end, end + size_of(dtype, shape)]}
        end += size_of(dtype, shape)
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text, {name: header[name]['data_offsets'][0] for name in order}, end


def gguf_header(tensors, architecture):
    def text(value):
        return struct.pack('<Q', len(value.encode())) + value.encode()
    header, offsets, end = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), 1) + text('general.architecture') + struct.pack('<I', 8) + text(architecture), {}, 0
    for name, (dtype, shape) in tensors.items():
        offsets[name] = end
        header += text(name) + struct.pack(f'<I{len(shape)}QIQ', len(shape), *reversed(shape), GGML[dtype][0], end)
        end += size_of(dtype, shape) + -size_of(dtype, shape) % 32
    return header + bytes(-len(header) % 32), offsets, end


def write(path, tensors, filled=False):
    """Writes a .gguf or safetensors file. `tensors` is {name: (dtype, shape)}. If `filled`, writes random numbers. Otherwise the data, except for a tokenizer, are a
    hole that takes no disk space."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == '.gguf':
        header, offsets, size = gguf_header(tensors, 'wan' if any('attn.q' in name for name in tensors) else 't5encoder')
    else:
        header, offsets, size = safetensors_header(tensors)
    with open(path, 'wb') as file:
        file.write(header)
        file.truncate(len(header) + size)
        for name, offset in offsets.items():
            if not filled and name != 'spiece_model':
                continue
            file.seek(len(header) + offset)
            file.write(contents(name, *tensors[name]))
    return path


if __name__ == '__main__':
    if len(sys.argv) < 2 or sys.argv[1].startswith('-') or not set(sys.argv[2:]) <= set(FILES):
        sys.exit(__doc__.strip() + '\nFILES: ' + ' '.join(FILES))
    for wanted in sys.argv[2:] or FILES:
        print(write(Path(sys.argv[1]) / wanted, FILES[wanted](), filled=True), os.path.getsize(Path(sys.argv[1]) / wanted), flush=True)
