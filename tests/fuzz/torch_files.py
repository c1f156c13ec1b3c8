"""Makes files like those of torch.save() without torch, valid and malformed ones."""
import collections
import io
import os
import pickle
import struct
import sys
import types
import zipfile


class TorchStandIn(types.ModuleType):
    """Imitates a module of torch with the members that pickles refer to."""
    def __init__(self, name, **members):
        super().__init__(name)
        for key, member in members.items():
            member.__module__, member.__qualname__ = name, key
            setattr(self, key, member)


STORAGES = {name: type(name, (), {}) for name in ("FloatStorage", "HalfStorage", "BFloat16Storage", "LongStorage", "ComplexFloatStorage")}
VALUES = {name: type(name, (), {}) for name in ("Size", "float8_e4m3fn", "Tensor")}
UNTYPED = type("UntypedStorage", (), {})
sys.modules["torch"] = TorchStandIn("torch", **STORAGES, **VALUES)
sys.modules["torch.storage"] = TorchStandIn("torch.storage", UntypedStorage=UNTYPED)
UTILS = sys.modules["torch._utils"] = TorchStandIn("torch._utils", _rebuild_tensor_v2=lambda: 0, _rebuild_tensor_v3=lambda: 0, _rebuild_parameter=lambda: 0,
                                                   _rebuild_parameter_with_state=lambda: 0)
FROM_TYPE = (sys.modules.setdefault("torch._tensor", TorchStandIn("torch._tensor", _rebuild_from_type_v2=lambda: 0)))._rebuild_from_type_v2


class Stored:
    def __init__(self, kind="FloatStorage", key="0", count=6, id=None):
        self.id = id or ("storage", STORAGES[kind], key, "cpu", count)


class Call:
    """An object whose pickle is the call function(*arguments)."""
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def torch_tensor(storage=None, offset=0, shape=(2, 3), strides=(3, 1)):
    return Call(sys.modules["torch._utils"]._rebuild_tensor_v2, storage or Stored(), offset, shape, strides, False, collections.OrderedDict())


def torch_pickle(value, protocol=2):
    class Pickler(pickle.Pickler):
        def persistent_id(self, each):
            return each.id if isinstance(each, Stored) else None
    file = io.BytesIO()
    Pickler(file, protocol).dump(value)
    return file.getvalue()


def torch_zip(value=None, storages=None, text=None, others=(), root="archive/", **info):
    """Returns the bytes of a file that holds `value`. If `text` is given, it replaces the pickle of `value`. `info` sets fields of every zip entry."""
    entries = {"data.pkl": torch_pickle(value) if text is None else text, "byteorder": b"little"}
    entries |= {f"data/{key}": content for key, content in (storages or {"0": struct.pack("<6f", *range(6))}).items()} | dict(others)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(root + name)
            for key, setting in info.items():
                setattr(entry, key, setting)
            archive.writestr(entry, content)
    return file.getvalue()


def torch_zip_files():
    shared = Stored()
    valid = torch_zip({"w": torch_tensor(shared), "tail": torch_tensor(shared, 4, (2,), (1,)), "one": torch_tensor(Stored("HalfStorage", "1", 3), 2, (), ()),
                       "none": torch_tensor(Stored("BFloat16Storage", "1", 3), 0, (0, 5), (5, 1))}, {"0": struct.pack("<6f", *range(6)), "1": bytes(6)},
                      extra=b"FB\x05\0" + bytes(5))
    yield "valid", valid
    state = collections.OrderedDict(w=torch_tensor())
    state._metadata = {"version": 1}
    yield "valid_state_dict", torch_zip(state)
    yield "valid_inside", torch_zip({"state_dict": state, "step": 300000, "epoch": 7, "seed": 2**40, "names": ["a"], "best": None, "ema": True})
    other = {"w": torch_tensor(None, 0, (6,), (1,))}
    yield "valid_averaged", torch_zip({"state_dict": {"gen_model": other, "dics_model": other}, "ema_state_dict": state, "optimizer_state": {"state": {0: other}}})
    yield "valid_generator", torch_zip({"state_dict": {"gen_model": state, "dics_model": other}, "ema_state_dict": {}, "epoch": 1})
    yield "valid_averaged_generator", torch_zip({"critic": other, "generator": other, "generator_ema": state, "step": 600})
    yield "valid_averaged_model", torch_zip({"model": other, "ema": state, "epoch": 1})
    yield "valid_two_models", torch_zip({"critic": other, "generator": state})
    yield "valid_beside", torch_zip({"state_dict": state, "lr": 1e-4, "args": {"eps": 1e-8}, "big": 2**100, "set": {1, 2}, "raw": b"ab", "i": 1j, "count": collections.Counter("aab"),
                                     "step": torch_tensor(Stored("LongStorage", "1", 1), 0, (), ())}, {"0": struct.pack("<6f", *range(6)), "1": bytes(8)})
    parameter = Call(UTILS._rebuild_parameter, torch_tensor(None, 0, Call(VALUES["Size"], (2, 3))), True, collections.OrderedDict())
    yield "valid_parameter", torch_zip({"w": parameter})
    yield "valid_attributes", torch_zip({"w": Call(UTILS._rebuild_parameter_with_state, torch_tensor(), True, collections.OrderedDict(), {"tag": 1})})
    yield "valid_of_type", torch_zip({"w": Call(FROM_TYPE, UTILS._rebuild_tensor_v2, VALUES["Tensor"], (Stored(), 0, (2, 3), (3, 1), False, collections.OrderedDict()), {})})
    yield "valid_pairs", torch_zip({"model": Call(collections.OrderedDict, [["w", torch_tensor()]])})
    yield "valid_complex_beside", torch_zip({"w": torch_tensor(), "freqs": torch_tensor(Stored("ComplexFloatStorage", "1", 2), 0, (2,), (1,))}, {"0": struct.pack("<6f", *range(6)), "1": bytes(16)})
    yield "strided", torch_zip({"across": torch_tensor(None, 0, (2, 3), (1, 2)), "same": torch_tensor(None, 1, (2, 3), (0, 1)), "slice": torch_tensor(None, 1, (2, 2), (3, 1)),
                                "none": torch_tensor(None, 0, (0, 3), (7, 7))})
    float8 = Call(UTILS._rebuild_tensor_v3, Stored(id=("storage", UNTYPED, "0", "cpu", 24)), 4, (2, 3), (3, 1), False, collections.OrderedDict(), VALUES["float8_e4m3fn"])
    yield "float8", torch_zip({"w": float8})
    yield "untyped", torch_zip({"w": torch_tensor(Stored(id=("storage", UNTYPED, "0", "cpu", 24)))})
    yield "valid_ones", torch_zip({"w": torch_tensor(None, 0, (1, 6, 1), (77, 1, 5))})
    yield "valid_other_root", torch_zip({"w": torch_tensor()}, root="Wan2.1_VAE/")
    yield "valid_comment", torch_zip({"w": torch_tensor()})[:-2] + b"\5\0PK\5\6!"
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 10
    yield "valid_zip64", torch_zip({"w": torch_tensor()})
    zipfile.ZIP64_LIMIT = limit
    for length in (4, 22, 40, 100, 300, 500, len(valid) - 1):
        yield f"cut_{length}", valid[:length]
    end = valid.rindex(b"PK\5\6")
    for name, place, number in (("offset", 16, 2**32 - 2), ("bytes", 12, 2**32 - 2), ("less", 16, 1)):
        damaged = bytearray(valid)
        struct.pack_into("<I", damaged, end + place, number)
        yield f"directory_{name}", bytes(damaged)
    entry = valid.index(b"PK\1\2")
    for name, place, layout, number in (("mark", 0, "<I", 1), ("local", 42, "<I", 2**31), ("local_inside", 42, "<I", 1), ("size", 24, "<I", 2**31), ("name", 28, "<H", 65535),
                                        ("extra", 30, "<H", 65535), ("encrypted", 8, "<H", 1), ("zip64", 42, "<I", 2**32 - 1)):
        damaged = bytearray(valid)
        struct.pack_into(layout, damaged, entry + place, number)
        if name == "size":
            struct.pack_into(layout, damaged, entry + 20, number)
        yield f"entry_{name}", bytes(damaged)
    yield "deflated", torch_zip({"w": torch_tensor()}, compress_type=zipfile.ZIP_DEFLATED)
    yield "no_pickle", torch_zip(others=[("data.pkl", b"")], root="")
    yield "big_endian", torch_zip({"w": torch_tensor()}, others=[("byteorder", b"big")])
    yield "calls_system", torch_zip({"w": Call(os.system, "true")})
    yield "calls_eval", torch_zip({"w": Call(eval, "1")})
    yield "calls_of_type", torch_zip({"w": Call(FROM_TYPE, os.system, VALUES["Tensor"], ("true",), {})})
    yield "calls_of_type_twice", torch_zip({"w": Call(FROM_TYPE, FROM_TYPE, VALUES["Tensor"], (FROM_TYPE, VALUES["Tensor"], (), {}), {})})
    yield "calls_dictionary_of", torch_zip({"w": Call(collections.OrderedDict, [("a", 1)])})
    yield "calls_storage", torch_zip({"w": Call(STORAGES["FloatStorage"], 1)})
    yield "calls_text", torch_zip(text=b"\x80\x02X\1\0\0\0a)R.")
    yield "long_storage", torch_zip({"w": torch_tensor(Stored("LongStorage"))})
    yield "protocol_4", torch_zip(text=torch_pickle({"w": torch_tensor()}, 4))
    yield "list", torch_zip([torch_tensor()])
    yield "no_tensors", torch_zip({"a": 1})
    yield "two_inside", torch_zip({"a": state, "b": state})
    yield "name_number", torch_zip({1: torch_tensor()})
    yield "name_not_utf8", torch_zip(text=torch_pickle({"w": torch_tensor()}).replace(b"X\1\0\0\0w", b"X\1\0\0\0\xff"))
    yield "name_twice", torch_zip(text=torch_pickle({"w": torch_tensor(), "v": torch_tensor()}).replace(b"X\1\0\0\0v", b"X\1\0\0\0w"))
    for name, arguments in {"offset": (None, 1), "offset_negative": (None, -1), "offset_huge": (None, 2**62), "shape": (None, 0, (7,), (1,)), "shape_text": (None, 0, ("6",), (1,)),
                            "shape_negative": (None, 0, (-6,), (1,)), "shape_overflow": (None, 0, (2**32, 2**32), (2**32, 1)), "shape_long": (None, 0, (1,) * 65, (1,) * 65),
                            "strides_beyond": (None, 0, (2, 3), (1, 3)), "strides_overflow": (None, 0, (3, 3), (2**62, 1)), "strides_negative": (None, 0, (2, 3), (-1, 1)), "strides_few": (None, 0, (2, 3), (1,)),
                            "storage_short": (Stored(count=7),), "storage_huge": (Stored(count=2**61),), "storage_missing": (Stored(key="9"),),
                            "storage_path": (Stored(key="../data.pkl"),), "storage_tensor": (torch_tensor(),), "storage_kind": (Stored(id=("storage", "a", "0", "cpu", 6)),),
                            "storage_class": (Stored(id=("storage", collections.OrderedDict, "0", "cpu", 6)),), "storage_module": (Stored(id=("module", 1, 2, 3, 4)),),
                            "storage_few": (Stored(id=("storage",)),), "storage_text": (Stored(id="0"),)}.items():
        yield name, torch_zip({"w": torch_tensor(*arguments)})
    itself = {"w": torch_tensor()}
    itself["itself"] = itself
    yield "itself", torch_zip(itself)
    for name, text in {"empty": b"", "stop": b".", "mark_stop": b"(.", "no_mark": b"t.", "pop_mark": b"(\x85.", "get_nothing": b"h\0.", "put_mark": b"(q\0h\0.", "put_nothing": b"q\0.",
                       "set_none": b"NNNs.", "set_odd": b"}(Nu.", "set_list": b"]NNs.", "append_dictionary": b"}Na.", "build_none": b"NNb.", "persistent_none": b"NQ.",
                       "inst": b"(ios\nsystem\n.", "stack_global": b"\x8c\2os\x8c\6system\x93.", "global_cut": b"cos", "global_long": b"c" + b"a" * 4000 + b"\n",
                       "text_huge": b"X\xff\xff\xff\xff.", "long_huge": b"\x8a\xff" + bytes(255) + b".", "long_none": b"\x8a\0.", "long_negative": b"\x8a\1\xff.",
                       "float": b"G" + bytes(8) + b".", "deep": b"(" * 2000 + b"t" * 2000 + b".", "repeats": b"ctorch\nSize\nq\0(" + b"N" * 2000 + b"tq\1" + b"h\0h\1\x85R" * 2000 + b".", "no_stop": b"N" * 100}.items():
        yield f"pickle_{name}", torch_zip(text=text)
