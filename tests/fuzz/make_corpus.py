#!/usr/bin/env python3
"""Writes the fuzzers' corpus of malformed inputs into a folder, as the build does: make_corpus.py FOLDER. It needs no packages. corpus/ holds inputs written by hand."""
import json
import pathlib
import struct
import sys

from torch_files import torch_zip_files


def safetensors(header, data=b"", length=None):
    """Returns a file's bytes. The header is JSON text, bytes or a value. If length is given, it replaces the right length of the header."""
    if not isinstance(header, bytes):
        header = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def safetensors_files():
    two = {"a": tensor(), "b": tensor(offsets=(4, 8))}
    yield "valid", safetensors({**two, "__metadata__": {"format": "pt"}}, bytes(8))
    yield "valid_empty", safetensors("{}")
    yield "valid_padding", safetensors(json.dumps({"a": tensor()}) + " " * 13, bytes(4))
    yield "valid_zero_size", safetensors({"a": tensor("F32", (0, 7), (0, 0)), "b": tensor()}, bytes(4))
    yield "empty", b""
    yield "short", b"\x01\x02\x03"
    for exponent in (31, 32, 40, 63):
        yield f"length_2_{exponent}", safetensors({"a": tensor()}, bytes(4), 2**exponent)
    yield "length_max", safetensors({"a": tensor()}, bytes(4), 2**64 - 1)
    yield "length_one_too_many", safetensors("{}", length=3)
    yield "length_zero", safetensors("{}", length=0)
    yield "lfs_pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 11000000000\n"
    yield "html", b"<!DOCTYPE html><html><body>404</body></html>"
    yield "truncated_data", safetensors(two, bytes(7))
    yield "surplus_data", safetensors(two, bytes(9))
    yield "overlap", safetensors({"a": tensor(), "b": tensor(offsets=(2, 6))}, bytes(6))
    yield "same_place", safetensors({"a": tensor(), "b": tensor()}, bytes(4))
    yield "hole", safetensors({"a": tensor(), "b": tensor(offsets=(5, 9))}, bytes(9))
    yield "backwards", safetensors({"a": tensor(offsets=(4, 0))}, bytes(4))
    yield "offsets_huge", safetensors({"a": tensor(offsets=(2**63 - 5, 2**63 - 1))}, bytes(4))
    yield "offsets_wrap", safetensors({"a": tensor(offsets=(2**64 - 4, 2**64))}, bytes(4))
    yield "offsets_three", safetensors({"a": tensor(offsets=(0, 4, 8))}, bytes(4))
    yield "offsets_negative", safetensors({"a": tensor(offsets=(-4, 0))}, bytes(4))
    yield "offsets_float", safetensors({"a": tensor(offsets=(0.0, 4.0))}, bytes(4))
    yield "shape_negative", safetensors({"a": tensor(shape=(-4,))}, bytes(4))
    yield "shape_overflow", safetensors({"a": tensor(shape=(2**32, 2**32), offsets=(0, 0))})
    yield "shape_overflow_wraps", safetensors({"a": tensor("F32", (2**62 + 1, 4), (0, 16))}, bytes(16))
    yield "shape_overflow_by_dtype", safetensors({"a": tensor("F64", (2**61,), (0, 0))})
    yield "shape_zero_hides_overflow", safetensors({"a": tensor(shape=(2**40, 2**40, 0), offsets=(0, 0))})
    yield "shape_many", safetensors({"a": tensor(shape=[1] * 200, offsets=(0, 1))}, bytes(1))
    yield "shape_string", safetensors({"a": {**tensor(), "shape": "4"}}, bytes(4))
    dtypes = {"unknown": "F4", "lower_case": "f32", "empty": "", "space": "U8 ", "number": 8, "null": None, "array": ["U8"]}
    for name, dtype in dtypes.items():
        yield f"dtype_{name}", safetensors({"a": tensor(dtype)}, bytes(4))
    yield "entry_null", safetensors({"a": None})
    yield "entry_array", safetensors({"a": [1, 2]})
    yield "entry_without_fields", safetensors({"a": {}})
    yield "header_array", safetensors("[]")
    yield "header_number", safetensors("7")
    yield "header_string", safetensors('"{}"')
    yield "header_cut", safetensors('{"a":{"dtype":"U8","sha')
    yield "header_two_values", safetensors("{}{}")
    yield "header_comment", safetensors("{/* */}")
    yield "header_nan", safetensors('{"a":NaN}')
    yield "header_huge_number", safetensors('{"a":1e999}')
    yield "header_bom", safetensors(b"\xef\xbb\xbf{}")
    yield "header_nul", safetensors(b"\0{}")
    yield "deep_objects", safetensors('{"a":' * 2000)
    yield "deep_arrays", safetensors("[" * 4000 + "]" * 4000)
    yield "deep_balanced", safetensors('{"a":' + "[" * 31 + "]" * 31 + "}")
    one = json.dumps(tensor())
    yield "duplicate_tensor", safetensors('{"a":%s,"a":%s}' % (one, one), bytes(4))
    yield "duplicate_field", safetensors('{"a":{"dtype":"U8","dtype":"F32","shape":[4],"data_offsets":[0,4]}}', bytes(4))
    yield "duplicate_by_escape", safetensors('{"a":%s,"\\u0061":%s}' % (one, one), bytes(4))
    yield "name_not_utf8", safetensors(b'{"\xff\xfe":{}}')
    yield "name_surrogate", safetensors('{"\\ud800":{}}')
    yield "name_control", safetensors('{"\\u0000\\u001b[31m":%s}' % one, bytes(4))
    yield "name_empty", safetensors({"": tensor()}, bytes(4))
    yield "name_long", safetensors({"n" * 3000: tensor()}, bytes(4))
    yield "metadata_array", safetensors({"__metadata__": []})
    yield "metadata_number", safetensors({"__metadata__": {"step": 1}})
    yield "metadata_nested", safetensors({"__metadata__": {"a": {"b": "c"}}})


def gguf_text(text):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text)) + text


def gguf_value(key, kind, content):
    return gguf_text(key) + struct.pack("<I", kind) + content


def gguf_tensor(name, dims, kind=0, offset=0):
    return gguf_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(values=(), tensors=(), data=b"", version=3, counts=None, alignment=32):
    """Returns a file's bytes. If counts is given, it replaces the right counts of tensors and keys."""
    start = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(values)))) + b"".join(values) + b"".join(tensors)
    return start + bytes(-len(start) % alignment) + data


def gguf_files():
    u8, u32, f32, boolean, text, array, u64 = 0, 4, 6, 7, 8, 9, 10
    architecture = gguf_value("general.architecture", text, gguf_text("wan"))
    one = gguf_tensor("a", [4])
    valid = gguf([architecture, gguf_value("tokenizer.ggml.tokens", array, struct.pack("<IQ", text, 2) + gguf_text("a") + gguf_text("")),
                  gguf_value("tokenizer.ggml.scores", array, struct.pack("<IQff", f32, 2, 1, -float("inf"))), gguf_value("flag", boolean, b"\1"),
                  gguf_value("general.size", u64, bytes(8)), gguf_value("comfy.gguf.orig_shape.a", array, struct.pack("<IQII", u32, 2, 2, 2))],
                 [one, gguf_tensor("five", [1, 2, 1, 1, 2], 1, 32), gguf_tensor("packed", [256, 2], 14, 64)], bytes(64 + 420))
    yield "valid", valid
    yield "valid_empty", gguf()
    yield "valid_version_2", gguf([], [one], bytes(16), version=2)
    yield "valid_alignment", gguf([gguf_value("general.alignment", u32, struct.pack("<I", 64))], [gguf_tensor("a", [4])], bytes(16), alignment=64)
    yield "valid_zero_size", gguf([], [gguf_tensor("a", [0, 7])])
    yield "valid_scalar", gguf([], [gguf_tensor("a", [])], bytes(4))
    for length in (0, 3, 4, 8, 23, 30, 60, 100, 200, 300, 400, 500, len(valid) - 1):
        yield f"cut_{length}", valid[:length]
    pieces = ["<pad>", "</s>", "<unk>", "a", "[PAD4]"]
    tokenizer = {"tokens": struct.pack("<IQ", text, 5) + b"".join(map(gguf_text, pieces)), "scores": struct.pack("<IQ5f", f32, 5, 0, 0, 0, -1, -10000),
                 "token_type": struct.pack("<IQ5I", u32, 5, 3, 3, 2, 1, 5), "precompiled_charsmap": struct.pack("<IQ", u8, 0)}
    flags = [gguf_value(f"tokenizer.ggml.{name}", boolean, b"\1") for name in ("add_space_prefix", "remove_extra_whitespaces")]
    for name, content in (("valid_tokenizer", {}), ("tokenizer_types", {"token_type": struct.pack("<IQ5I", u32, 5, 9, 0, 2, 255, 6)}), ("tokenizer_no_scores", {"scores": b""}),
                          ("tokenizer_nan", {"scores": struct.pack("<IQ5f", f32, 5, *[float("nan")] * 5)}), ("tokenizer_table", {"precompiled_charsmap": struct.pack("<IQ", u8, 9) + b"\xff" * 9}),
                          ("tokenizer_few", {"scores": struct.pack("<IQf", f32, 1, 0)}), ("tokenizer_bytes", {"token_type": struct.pack("<IQ5I", u32, 5, 3, 3, 2, 6, 6)})):
        keys = [gguf_value(f"tokenizer.ggml.{key}", array, each) for key, each in {**tokenizer, **content}.items() if each]
        yield name, gguf(keys + flags)
    for version in (0, 1, 4, 3 << 24):
        yield f"version_{version}", gguf(version=version)
    yield "tensors_many", gguf(counts=(2**60, 0))
    yield "tensors_negative", gguf(counts=(2**64 - 1, 0))
    yield "values_many", gguf(counts=(0, 2**61))
    yield "name_long", gguf(counts=(1, 0))[:24] + struct.pack("<Q", 2**63)
    yield "name_not_utf8", gguf([], [gguf_tensor(b"\xff\xfe", [4])], bytes(16))
    yield "key_not_utf8", gguf([gguf_value(b"\xc3\x28", u8, b"\0")])
    yield "architecture_not_utf8", gguf([gguf_value("general.architecture", text, gguf_text(b"\xff"))])
    yield "key_twice", gguf([architecture, architecture])
    yield "tensor_twice", gguf([], [one, gguf_tensor("a", [4], 0, 32)], bytes(64))
    for kind in (11, 13, 2**31):
        yield f"value_type_{kind}", gguf([gguf_value("a", kind, bytes(8))])
    for kind in (9, 13, 2**32 - 1):
        yield f"array_type_{kind}", gguf([gguf_value("a", array, struct.pack("<IQ", kind, 1) + bytes(12))])
    for count in (2, 2**61, 2**64 - 1):
        yield f"array_count_{count}", gguf([gguf_value("tokenizer.ggml.tokens", array, struct.pack("<IQ", text, count) + gguf_text(""))])
        yield f"array_unused_{count}", gguf([gguf_value("a", array, struct.pack("<IQ", u64, count) + bytes(8))])
    for alignment in (0, 3, 2**31):
        yield f"alignment_{alignment}", gguf([gguf_value("general.alignment", u32, struct.pack("<I", alignment))], [one], bytes(16))
    yield "alignment_text", gguf([gguf_value("general.alignment", text, gguf_text("32"))], [one], bytes(16))
    yield "rank_6", gguf([], [gguf_tensor("a", [1] * 6)], bytes(16))
    yield "rank_max", gguf([], [gguf_text("a") + struct.pack("<I", 2**32 - 1)], bytes(16))
    yield "shape_overflow", gguf([], [gguf_tensor("a", [2**32, 2**32])])
    yield "shape_overflow_by_type", gguf([], [gguf_tensor("a", [2**62])])
    yield "shape_zero_hides_overflow", gguf([], [gguf_tensor("a", [2**40, 2**40, 0])])
    yield "shape_negative", gguf([], [gguf_tensor("a", [2**64 - 4])], bytes(16))
    yield "blocks_not_whole", gguf([], [gguf_tensor("a", [48, 2], 8)], bytes(102))
    yield "blocks_of_a_scalar", gguf([], [gguf_tensor("a", [], 8)], bytes(34))
    for kind in (4, 5, 9, 16, 20, 24, 29, 35, 39, 40, 2**32 - 1):
        yield f"type_{kind}", gguf([], [gguf_tensor("a", [256], kind)], bytes(256))
    yield "offset_uneven", gguf([], [gguf_tensor("a", [4], 0, 8)], bytes(64))
    yield "offset_huge", gguf([], [gguf_tensor("a", [4], 0, 2**64 - 32)], bytes(64))
    yield "overlap", gguf([], [gguf_tensor("a", [16]), gguf_tensor("b", [4], 0, 32)], bytes(64))
    yield "same_place", gguf([], [one, gguf_tensor("b", [4])], bytes(16))
    yield "orig_shape_size", gguf([gguf_value("comfy.gguf.orig_shape.a", array, struct.pack("<IQI", u32, 1, 5))], [one], bytes(16))
    yield "orig_shape_text", gguf([gguf_value("comfy.gguf.orig_shape.a", text, gguf_text("4"))], [one], bytes(16))
    yield "orig_shape_overflow", gguf([gguf_value("comfy.gguf.orig_shape.a", array, struct.pack("<IQ3I", u32, 3, *[2**31 - 1] * 3))], [one], bytes(16))


T5 = {"model_type": "t5", "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "is_gated_act": True, "vocab_size": 119, "d_model": 32,
      "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
      "layer_norm_epsilon": 1e-6}
TRANSFORMER = {"_class_name": "CogVideoXTransformer3DModel", "activation_fn": "gelu-approximate", "num_attention_heads": 2, "attention_head_dim": 16,
       "in_channels": 4, "out_channels": 4, "freq_shift": 0, "ofs_embed_dim": None, "patch_size": 2, "patch_size_t": None, "num_layers": 2,
       "spatial_interpolation_scale": 1.875, "use_rotary_positional_embeddings": True}
VAE = {"_class_name": "AutoencoderKLCogVideoX", "act_fn": "silu", "block_out_channels": [8, 8, 8, 8], "norm_num_groups": 4, "latent_channels": 4,
       "up_block_types": ["CogVideoXUpBlock3D"] * 4, "temporal_compression_ratio": 4, "scaling_factor": 0.7, "latents_mean": None}
WAN_VAE = {"_class_name": "AutoencoderKLWan", "base_dim": 2, "decoder_base_dim": 4, "z_dim": 2, "dim_mult": [1, 2, 4], "num_res_blocks": 1, "attn_scales": [],
           "temperal_downsample": [False, True], "latents_mean": [0.5, -0.5], "latents_std": [1.5, 2.5], "is_residual": True, "in_channels": 12,
           "out_channels": 12, "patch_size": 2, "scale_factor_spatial": 8, "scale_factor_temporal": 2}
CLIP = {"model_type": "clip_vision_model", "hidden_act": "gelu", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 24,
        "patch_size": 6, "layer_norm_eps": 1e-5}
IMAGES = {"do_resize": True, "resample": 3, "size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}, "rescale_factor": 0.004, "image_mean": [0.5, 0.5, 0.5],
          "image_std": [0.25, 0.25, 0.25]}
SCHEDULER = {"_class_name": "CogVideoXDDIMScheduler", "num_train_timesteps": 4, "beta_schedule": "scaled_linear", "trained_betas": [0.1, 0.2, 0.3, 0.4],
             "prediction_type": "v_prediction", "timestep_spacing": "trailing", "snr_shift_scale": 3.0}
INDEX = {"_class_name": "CogVideoXPipeline", "scheduler": ["diffusers", "CogVideoXDDIMScheduler"], "text_encoder": ["transformers", "T5EncoderModel"],
         "tokenizer": ["transformers", "T5Tokenizer"], "transformer": ["diffusers", "CogVideoXTransformer3DModel"],
         "vae": ["diffusers", "AutoencoderKLCogVideoX"]}
SHARDS = {"metadata": {"total_size": 8}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}


def config_files():
    for name, config in (("t5", T5), ("transformer", TRANSFORMER), ("vae", VAE), ("wan_vae", WAN_VAE), ("clip", CLIP), ("images", IMAGES), ("scheduler", SCHEDULER), ("model_index", INDEX),
                         ("shards", SHARDS)):
        yield name, json.dumps(config)
    yield "t5_relu", json.dumps({**T5, "feed_forward_proj": "relu"})
    yield "t5_buckets_odd", json.dumps({**T5, "relative_attention_num_buckets": 5})
    yield "t5_huge", json.dumps({**T5, "num_heads": 2**20, "d_kv": 2**20})
    yield "transformer_zero_heads", json.dumps({**TRANSFORMER, "num_attention_heads": 0})
    yield "transformer_patch_huge", json.dumps({**TRANSFORMER, "patch_size": 2**40})
    yield "transformer_null", json.dumps({**TRANSFORMER, "num_layers": None})
    yield "transformer_float", json.dumps({**TRANSFORMER, "num_layers": 2.5})
    yield "transformer_number_2_64", json.dumps({**TRANSFORMER, "num_layers": 2**64})
    yield "vae_no_blocks", json.dumps({**VAE, "block_out_channels": [], "up_block_types": []})
    yield "vae_many_blocks", json.dumps({**VAE, "block_out_channels": [8] * 80, "up_block_types": ["CogVideoXUpBlock3D"] * 80})
    yield "vae_means", json.dumps({**VAE, "latents_mean": [0.0]})
    yield "vae_ratio", json.dumps({**VAE, "temporal_compression_ratio": 3})
    yield "wan_vae_levels", json.dumps({**WAN_VAE, "dim_mult": [2**20] * 80})
    yield "wan_vae_means", json.dumps({**WAN_VAE, "latents_mean": [1e300, 0]})
    yield "wan_vae_patch", json.dumps({**WAN_VAE, "patch_size": 64})
    yield "scheduler_betas", json.dumps({**SCHEDULER, "trained_betas": [2]})
    yield "scheduler_steps", json.dumps({**SCHEDULER, "num_train_timesteps": -1})
    yield "index_other_pipeline", json.dumps({**INDEX, "_class_name": "WanPipeline"})
    yield "index_null_pair", json.dumps({**INDEX, "vae": [None, None]})
    yield "index_class_list", json.dumps({**INDEX, "_class_name": ["CogVideoXPipeline"]})
    yield "shards_escape", json.dumps({"weight_map": {"a": "../../etc/passwd"}})
    yield "shards_nul", json.dumps({"weight_map": {"a": "x\0y"}})
    yield "shards_number", json.dumps({"weight_map": {"a": 1}})
    yield "tokenizer", json.dumps({**tokenizer_json(), "normalizer": None})
    yield "tokenizer_table", json.dumps(tokenizer_json())
    yield "array", "[]"
    yield "empty", ""
    yield "deep", '{"a":' * 2000
    yield "duplicate", '{"d_model":1,"d_model":2}'
    yield "not_utf8", b'{"_class_name":"\xc3\x28"}'
    yield "infinity", '{"scaling_factor":Infinity}'


def tokenizer_json():
    pieces = [["<pad>", 0], ["</s>", 0], ["<unk>", 0], ["\u2581", -2], ["\u2581red", -3.5]]
    tokens = [{"id": i, "content": content} for i, content in enumerate(("<pad>", "</s>", "<unk>"))] + [{"id": 5, "content": "<s>", "lstrip": True}]
    return {"added_tokens": tokens, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAAABAgMEBQYHYQA="},
            "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces}}


def field(number, content):
    """Returns a protobuf field of bytes."""
    key, length = bytes([number << 3 | 2]), len(content)
    while length > 127:
        key += bytes([length & 127 | 128])
        length >>= 7
    return key + bytes([length]) + content


def piece(text, score=-1.0, kind=1):
    return field(1, field(1, text) + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind]))


def charsmap(units, replacements):
    return field(3, field(2, struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + replacements))


def units_that_replace_a(place=0):
    """Returns a trie of the letter a (see tests/unit/models/text/spiece_bytes.h)."""
    units = [1 << 31] * 512
    units[0], units[256 ^ 97], units[256 ^ 96] = 256 << 10, 1 << 10 | 1 << 8 | 97, 1 << 31 | place
    return units


def replace_a(replacements, place=0):
    return charsmap(units_that_replace_a(place), replacements)


def changed(units, changes):
    return [changes.get(i, unit) for i, unit in enumerate(units)]


def tokenizer_files():
    head = piece(b"<pad>", 0, 3) + piece(b"</s>", 0, 3) + piece(b"<unk>", 0, 2)
    words = head + piece("\u2581".encode()) + piece("\u2581red".encode(), -3) + piece("\u00e9".encode(), -4)
    yield "valid", words + replace_a("\u00e9\0".encode())
    yield "valid_no_table", words
    yield "valid_white_space", words + replace_a("\u3000\0".encode())
    yield "valid_word_starts", words + replace_a("\u2581\u2581\0".encode())
    yield "table_to_nothing", words + replace_a(b"\0")
    yield "table_without_end", words + replace_a(b"b")
    for length in (1, 2, 3):
        yield f"table_cut_{length}", words + replace_a("\U0001f600".encode()[:length] + b"\0")
        yield f"table_middle_{length}", words + replace_a("\U0001f600\0".encode(), length)
    yield "table_continuation", words + replace_a(b"\x80\0")
    yield "table_overlong", words + replace_a(b"\xc0\x80\0")
    yield "table_place_beyond", words + replace_a(b"b\0", 2**31 - 1)
    whole = units_that_replace_a()
    for name, changes in (("root", {0: 512 << 10}), ("root_far", {0: 0xFFFFFC00}), ("node", {256 ^ 97: 2**29 | 1 << 9 | 1 << 8 | 97}), ("circle", {256 ^ 98: 98 << 10 | 1 << 8 | 98})):
        yield f"trie_{name}", words + charsmap(changed(whole, changes), b"b\0")
    yield "trie_cut", words + charsmap(whole[:-1], b"b\0")
    yield "table_short", words + field(3, field(2, b"\x08\0\0\0abcd"))
    yield "table_odd", words + field(3, field(2, b"\x03\0\0\0abcdefgh"))
    yield "piece_cut", words + piece(b"\xf0")
    yield "piece_continuation", words + piece(b"\x80", kind=4)
    yield "piece_empty", words + piece(b"")
    yield "piece_user_defined", words + piece(b"re", kind=4)
    yield "piece_long", words + piece(b"a" * 3000)
    yield "piece_score_nan", words + piece(b"a", float("nan"))
    yield "piece_score_huge", words + piece(b"a", 3e38) + piece(b"b", -3e38)
    yield "piece_nul", words + piece(b"a\0b")
    yield "piece_type", words + piece(b"a", kind=7)
    yield "pieces_nested", words + b"".join(piece(b"x" * i, kind=4) for i in range(1, 90))
    yield "flags", words + field(3, b"\x18\x00\x20\x00\x28\x00") + field(2, b"\xc0\x01\x01")
    yield "byte_fallback", words + b"".join(piece(b"<0x%02X>" % i, kind=6) for i in range(256)) + field(2, b"\x98\x02\x01")
    yield "byte_alone", words + piece(b"<0x41>", kind=6)
    yield "self_test", words + field(4, field(1, field(1, b"a") + field(2, b"b"))) + field(5, field(2, b"\xff\xff\xff\x7f"))
    yield "piece_twice", words + piece(b"a") * 3
    yield "unknown_elsewhere", piece(b"<unk>", 0, 2) + head
    yield "bpe", words + field(2, b"\x18\x02")
    yield "cut", words[:-3]
    yield "varint_long", b"\x0a" + b"\xff" * 11
    yield "empty", b""


def prompt_set_files():
    yield "lines", "# two prompts\na red ball\n\n  a blue star  \r\n"
    yield "lines_bom", b"\xef\xbb\xbfa red ball\n"
    yield "lines_not_utf8", b"a \xff\xfe ball\n\0\n"
    yield "jsonl", '{"prompt": "a", "seed": 7, "topk": 0.5, "dynamic_cfg": true}\n\n{"prompt": "b", "steps": null}\n'
    yield "jsonl_unknown", '{"stpes": 3}\n'
    yield "jsonl_array", '[1, 2]\n"text"\n7\n'
    yield "jsonl_nested", '{"prompt": {"a": 1}}\n'
    yield "jsonl_twice", '{"frames": 5, "num_frames": 9}\n'
    yield "jsonl_deep", '{"a":' * 2000
    yield "jsonl_escape", '{"output": "../\\u0000a", "prompt": "\\ud800"}\n'
    yield "jsonl_huge", '{"seed": 1e999, "width": 99999999999999999999}\n'
    yield "csv", 'prompt,seed\r\n"a ""b"", c\nd",7\r\ne,\r\n'
    yield "csv_open", 'prompt\n"a'
    yield "csv_stray", 'prompt\na"b\n'
    yield "csv_after", 'prompt\n"a"b\n'
    yield "csv_wide", "prompt,seed\na,b,c\n"
    yield "csv_twice", "prompt,prompt\na,b\n"
    yield "csv_no_name", ",\n,\n"
    yield "csv_return", "prompt\r\r\na\r"
    yield "yaml", "- a\n- prompt: b\n  seed: 7\n- {prompt: c, steps: ~}\n"
    yield "yaml_map", "prompt: a\n"
    yield "yaml_anchor", "- &a {prompt: a, negative_prompt: *a}\n- *a\n- *b\n"
    yield "yaml_merge", "- &a {prompt: a}\n- <<: *a\n"
    yield "yaml_list", "- [a, b]\n- ? a\n"
    yield "yaml_key", "- {[a]: b}\n- {? {a: b} : c}\n"
    yield "yaml_tag", "- !!binary a\n- ! b\n- !<x> {prompt: !!int c}\n"
    yield "yaml_documents", "- a\n---\n- b\n...\n"
    yield "yaml_block", "- |\n  a\n  b\n- >-\n  c\n- prompt: |2\n   d\n"
    yield "yaml_deep", "[" * 3000
    yield "yaml_deep_map", "{a: " * 600 + "}" * 600
    yield "yaml_tab", "-\ta\n\t- b\n"
    yield "empty", ""


def request_files():
    yield "usual", '{"prompt": "a", "seed": 7, "seconds": "4", "size": "64x64", "model": "tiny"}'
    yield "all_kinds", '{"prompt": "a", "cfg-scale": 1.5, "dynamic_cfg": true, "sigmas": [1, 0.5], "steps": null}'
    yield "picture", '{"prompt": "a", "input_reference": "data:image/png;base64,iVBORw0KGgo="}'
    yield "picture_object", '{"last_frame": {"image_url": "data:image/webp;base64,AAAA"}}'
    yield "picture_path", '{"input_reference": "/etc/passwd"}'
    yield "picture_url", '{"input_reference": {"image_url": "http://127.0.0.1/"}}'
    yield "picture_id", '{"input_reference": {"file_id": "x"}}'
    yield "picture_not_base64", '{"input_reference": "data:image/png;base64,\\u0000?"}'
    yield "picture_empty", '{"input_reference": "data:image/png;base64,"}'
    yield "picture_list", '{"input_reference": ["data:image/png;base64,AA"]}'
    for name in ("output", "image", "vae", "from", "device", "lora", "profile", "promt", "", "a\\nb"):
        yield "name_" + (name.replace("\\", "_") or "empty"), '{"%s": "x"}' % name
    yield "two_names", '{"steps": 1, "num_inference_steps": 2}'
    yield "nested", '{"prompt": {"a": [1]}}'
    yield "deep", '{"a":' * 2000
    yield "huge", '{"seed": 1e999, "width": 99999999999999999999}'
    yield "not_utf8", b'{"prompt": "\xff"}'
    yield "list", "[1]"
    yield "form", "prompt=a\nseed=3\n@input_reference=bytes\n"
    yield "form_lists", "sigmas[]=1\nsigmas[]=0.5\n[]=1\n"
    yield "form_twice", "prompt=a\nprompt=b\n"
    yield "form_file", "@prompt=a\n@last_frame=\n"
    yield "form_not_utf8", b"prompt=\xff\n\0=\0\n"
    yield "empty", ""


MANIFEST = {"row": 0, "rows": 2, "output": "0000-a.mp4", "state": "done", "identity": "i", "sha256": "s", "bytes": 5,
            "finished": "2026-11-21T16:35:07.123Z", "seconds": {"denoise": 1.5}}


def manifest_files():
    line = json.dumps(MANIFEST)
    yield "done", line + "\n"
    yield "failed", json.dumps({**MANIFEST, "state": "failed", "cause": "c"}) + "\n"
    yield "cut", line + "\n" + line[:40]
    yield "cut_middle", line[:40] + "\n" + line + "\n"
    yield "two_in_one", line + line + "\n"
    yield "no_end", line
    changes = {"row_negative": {"row": -1}, "row_beyond": {"row": 2}, "row_huge": {"row": 2**64}, "row_2_63": {"row": 2**63, "rows": 2**64 - 1},
               "row_text": {"row": "0"}, "row_float": {"row": 0.5}, "rows_zero": {"rows": 0}, "output_escape": {"output": "../a"},
               "output_absolute": {"output": "/a"}, "output_empty": {"output": ""}, "output_nul": {"output": "a\0b"}, "output_number": {"output": 3},
               "state_unknown": {"state": "running"}, "state_null": {"state": None}, "bytes_negative": {"bytes": -5}, "bytes_float": {"bytes": 1e300},
               "seconds_list": {"seconds": [1]}, "seconds_text": {"seconds": {"denoise": "x"}}, "seconds_huge": {"seconds": {"denoise": 2**63}}}
    for name, change in changes.items():
        yield name, json.dumps({**MANIFEST, **change}) + "\n"
    yield "infinity", line.replace("1.5", "1e999") + "\n"
    yield "twice", line[:-1] + ', "row": 1}\n'
    yield "deep", '{"row":' * 2000 + "\n"
    yield "not_utf8", b'{"output":"\xff"}\n'
    yield "nul", b"\0\0\0\0\n"
    yield "lines", "\n\n\n"
    yield "empty", ""


PROFILE = """# made by hand
model: {name: tiny, sha256: bc94}
made_with: {width: 256, height: 256, frames: 33, steps: 25, token_order: hilbert, device: cpu, dtype: fp32}
bounds: {l1: 0.06, l2: 0.065}
measured: {error: 0.05, sparsity: 0.5, psnr: 24.3, ssim: 0.9, speedup: 1.2}
untuned: {sparsity: 0.47, psnr: 19, ssim: 0.8}
selection_rows: 64
dense_steps: 2
dense_layers: 0
layers:
  -
    - {topk: 0.3, similarity: -0.1, pv_threshold: 50, error: 0.04, sparsity: 0.6}
    - {cdf: 0.9, similarity: 0.35, pv_threshold: 2, error: 0.05, sparsity: 0.4}
  -
    - {dense: true, error: 0, sparsity: 0}
    - {topk: 0.5, similarity: -0.1, pv_threshold: 15, error: 0.05, sparsity: 0.4}
"""


def profile_files():
    yield "valid", PROFILE  # from a version whose profiles did not say what replaces dropped blocks
    means = PROFILE.replace("selection_rows", "dropped: mean\nselect: error\ncell: 16\nselection_rows").replace("topk: 0.5", "error_bound: 0.05")
    yield "means", means
    yield "means_by_mass", means.replace("select: error", "select: mass").replace("error_bound: 0.05", "topk: 0.5")
    yield "means_none", means.replace("dropped: mean", "dropped: none").replace("select: error", "select: mass").replace("error_bound: 0.05", "topk: 0.5")
    yield "means_none_by_error", means.replace("dropped: mean", "dropped: none")
    yield "means_bound_by_mass", means.replace("select: error", "select: mass")
    yield "means_unknown", means.replace("dropped: mean", "dropped: median")
    yield "means_map", means.replace("select: error", "select: {error: mass}")
    yield "means_no_cell", means.replace("cell: 16\n", "")
    for name, number in (("odd", "48"), ("zero", "0"), ("huge", "1e400"), ("fraction", "16.5")):
        yield f"cell_{name}", means.replace("cell: 16", f"cell: {number}")
    for name, number in (("zero", "0"), ("tiny", "1e-300"), ("negative", "-1"), ("nan", ".nan"), ("huge", "1e9")):
        yield f"error_bound_{name}", means.replace("error_bound: 0.05", f"error_bound: {number}")
    for name, number in (("valid", "0.008"), ("zero", "0"), ("nan", ".nan"), ("huge", "1e9")):
        yield f"block_error_{name}", means.replace("error_bound: 0.05", f"block_error: {number}")
    setting = PROFILE[:PROFILE.index("bounds")] + "settings: {attention: sparse, topk: 0.3, cache: forecast:0.2}\nmeasured: {psnr: 40, psnr_lowest: 36, seconds: 2, full_seconds: 9}\n"
    yield "setting", setting
    yield "setting_and_heads", PROFILE.replace("bounds", "settings: {attention: sparse, cache: '0'}\nbounds")
    yield "setting_nested", setting.replace("topk: 0.3", "topk: {a: 1}")
    yield "setting_list", setting.replace("topk: 0.3", "[a]: 1")
    yield "topk_tiny", PROFILE.replace("topk: 0.3", "topk: 1e-300")
    yield "empty", ""
    yield "scalar", "7"
    yield "list", "[]"
    yield "deep", "[" * 3000
    yield "deep_maps", "{a: " * 3000
    yield "not_utf8", b"model: \xff\xfe\xc3"
    yield "tabs", PROFILE.replace("    -", "\t-")
    yield "two_documents", PROFILE + "---\n" + PROFILE
    yield "crlf", PROFILE.replace("\n", "\r\n")
    yield "alias_unknown", PROFILE.replace("topk: 0.3", "topk: *a")
    yield "alias_of_itself", PROFILE.replace("layers:\n", "layers: &a\n  - *a\n")
    yield "aliases", PROFILE.replace("layers:\n", "layers:\n  - &a [&h {dense: true, error: 0, sparsity: 0}, *h]\n" + "  - *a\n" * 300)
    yield "merge", PROFILE.replace("dense_steps: 2", "<<: {dense_steps: 2}")
    yield "tag", PROFILE.replace("0.04", "!!binary 0.04")
    yield "key_twice", PROFILE + "dense_steps: 3\n"
    yield "key_unknown", PROFILE + "dense: 3\n"
    yield "key_map", PROFILE + "? {a: b}\n: c\n"
    yield "no_layers", PROFILE[:PROFILE.index("layers:")]
    yield "layers_empty", PROFILE[:PROFILE.index("layers:")] + "layers: []\n"
    yield "layers_uneven", PROFILE[:PROFILE.rindex("    -")]
    for name, number in (("nan", ".nan"), ("huge", "1e400"), ("negative", "-1"), ("hexadecimal", "0x10"), ("text", "many"), ("null", "~")):
        yield f"number_{name}", PROFILE.replace("dense_steps: 2", f"dense_steps: {number}")
        yield f"topk_{name}", PROFILE.replace("topk: 0.3", f"topk: {number}")
    yield "name_odd", PROFILE.replace("name: tiny", 'name: "\\0\\x1b: #\\u2028"')


def main():
    for kind, suffix, files in (("safetensors", ".safetensors", safetensors_files()), ("gguf", ".gguf", gguf_files()), ("torch_zip", ".pth", torch_zip_files()), ("config", ".json", config_files()),
                                ("tokenizer", ".model", tokenizer_files()), ("prompt_set", "", prompt_set_files()),
                                ("manifest", ".jsonl", manifest_files()), ("profile", ".yaml", profile_files()),
                                ("request", ".txt", request_files())):
        folder = pathlib.Path(sys.argv[1]) / kind
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files:
            (folder / (name + suffix)).write_bytes(content if isinstance(content, bytes) else content.encode())


if __name__ == "__main__":
    main()
