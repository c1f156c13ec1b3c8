// Tests the reader of torch.save()'s files. Python's pickle and zipfile wrote the files (tests/fuzz/torch_files.py).
// Errors about damaged files must name the file.
#include "models/store/checkpoint/torch_zip.h"

#include <cstring>

#include "models/store/checkpoint/tensor_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::read_text;
using test::throws_error;

std::string corpus_file(const std::string& name) {
  return std::string(SPARSEREEL_FUZZ_CORPUS) + "/torch_zip/" + name + ".pth";
}

TEST(TorchZip, LocatesTensorsInTheirStorages) {
  const TensorFile file(corpus_file("valid"));
  ASSERT_EQ(file.entries().size(), 4U);
  const TensorEntry &none = file.entries()[0], &one = file.entries()[1], &tail = file.entries()[2],
                    &w = file.entries()[3];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.dtype, Dtype::f32);
  EXPECT_EQ(w.shape, (std::vector<int64_t>{2, 3}));
  const float numbers[] = {0, 1, 2, 3, 4, 5};
  ASSERT_EQ(file.data(w).size(), sizeof numbers);
  EXPECT_EQ(std::memcmp(file.data(w).data(), numbers, sizeof numbers), 0);
  EXPECT_EQ(tail.offset, w.offset + 16) << "of one storage, from its element 4 on";
  EXPECT_EQ(tail.shape, std::vector<int64_t>{2});
  EXPECT_EQ(one.dtype, Dtype::f16);
  EXPECT_TRUE(one.shape.empty());
  EXPECT_EQ(one.bytes, 2U);
  EXPECT_EQ(none.dtype, Dtype::bf16);
  EXPECT_EQ(none.shape, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(none.bytes, 0U);
}

TEST(TorchZip, ReadsEveryWayToSaveADictionary) {
  for (const char* name : {"valid_state_dict", "valid_inside", "valid_averaged", "valid_generator",
                           "valid_averaged_generator", "valid_averaged_model", "valid_two_models", "valid_ones",
                           "valid_other_root", "valid_comment", "valid_zip64", "valid_beside", "valid_parameter",
                           "valid_attributes", "valid_of_type", "valid_pairs", "valid_complex_beside"}) {
    SCOPED_TRACE(name);
    const TensorFile file(corpus_file(name));
    ASSERT_EQ(file.entries().size(), 1U);
    EXPECT_EQ(file.entries()[0].name, "w");
    EXPECT_EQ(file.entries()[0].bytes, 24U);
    EXPECT_GT(file.entries()[0].shape.size(), 1U);  // not the "w" of the other model, which has one dimension
    const float two = 2;
    EXPECT_EQ(std::memcmp(file.data(file.entries()[0]).data() + 8, &two, sizeof two), 0);
  }
}

TEST(TorchZip, KeepsStridesOfTensors) {
  const TensorFile file(corpus_file("strided"));
  ASSERT_EQ(file.entries().size(), 4U);
  const TensorEntry &across = file.entries()[0], &none = file.entries()[1], &same = file.entries()[2],
                    &slice = file.entries()[3];
  EXPECT_EQ(across.strides, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(across.bytes, 24U);
  EXPECT_EQ(across.elements(), 6U);
  EXPECT_EQ(file.covered(across).size(), 24U);
  EXPECT_TRUE(throws_error([&] { file.data(across); }, {"strided.pth", "\"across\" is not contiguous"}));
  EXPECT_EQ(same.strides, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(same.offset, across.offset + 4);
  EXPECT_EQ(same.bytes, 12U) << "one row, which all rows are";
  EXPECT_EQ(same.elements(), 6U);
  EXPECT_EQ(slice.bytes, 20U) << "to the end of its last element";
  EXPECT_TRUE(none.strides.empty());
  EXPECT_EQ(none.bytes, 0U);
}

TEST(TorchZip, ReadsADtypeStoredSeparatelyFromItsStorage) {
  const TensorFile file(corpus_file("float8"));
  ASSERT_EQ(file.entries().size(), 1U);
  EXPECT_EQ(file.entries()[0].dtype, Dtype::f8_e4m3);
  EXPECT_EQ(file.entries()[0].bytes, 6U);
}

TEST(TorchZip, RefusesTruncatedFiles) {
  const std::string whole = read_text(corpus_file("valid"));
  for (size_t length = 4; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    EXPECT_TRUE(
        throws_error([&] { parse_torch_zip(std::as_bytes(std::span(cut)), "cut.pth"); }, {"cut.pth", "truncated"}))
        << length;
  }
}

struct RefusedTorchZip {
  const char* name;
  std::vector<std::string> parts;  // texts that the cause must contain
};

const RefusedTorchZip kRefused[] = {
    {"directory_offset", {"truncated", "directory"}},
    {"directory_bytes", {"truncated", "directory"}},
    {"directory_less", {"directory is damaged"}},
    {"entry_mark", {"directory is damaged"}},
    {"entry_local", {"archive/data.pkl", "not where the directory says"}},
    {"entry_local_inside", {"archive/data.pkl", "not where the directory says"}},
    {"entry_size", {"truncated", "archive/data.pkl", "ends beyond the file"}},
    {"entry_name", {"truncated"}},
    {"entry_extra", {"truncated"}},
    {"entry_encrypted", {"archive/data.pkl", "compressed or encrypted"}},
    {"deflated", {"archive/data.pkl", "compressed or encrypted"}},
    {"no_pickle", {"without data.pkl"}},
    {"big_endian", {"not little-endian"}},
    {"calls_system", {"data.pkl", "asks for \"posix.system\""}},
    {"calls_eval", {"data.pkl", "asks for \"__builtin__.eval\""}},
    {"calls_of_type", {"asks for \"posix.system\""}},
    {"calls_of_type_twice", {"calls \"torch._tensor._rebuild_from_type_v2\""}},
    {"calls_dictionary_of", {"is neither a dictionary of tensors"}},
    {"calls_storage", {"calls \"torch.FloatStorage\""}},
    {"calls_text", {"calls something"}},
    {"long_storage", {"\"w\"", "has 24 bytes, too few for 6 elements"}},
    {"untyped", {"\"w\"", "has no dtype"}},
    {"protocol_4", {"protocol 4"}},
    {"list", {"is neither a dictionary of tensors"}},
    {"no_tensors", {"is neither a dictionary of tensors"}},
    {"two_inside", {"is neither a dictionary of tensors"}},
    {"name_number", {"name is not a text"}},
    {"name_not_utf8", {"not UTF-8"}},
    {"name_twice", {"\"w\"", "twice"}},
    {"offset", {"\"w\"", "beyond its storage of 24 bytes"}},
    {"offset_negative", {"\"w\"", "not a natural number"}},
    {"offset_huge", {"\"w\"", "beyond its storage"}},
    {"shape", {"\"w\"", "beyond its storage"}},
    {"shape_text", {"\"w\"", "not a natural number"}},
    {"shape_negative", {"\"w\"", "not a natural number"}},
    {"shape_overflow", {"\"w\"", "overflows"}},
    {"shape_long", {"\"w\"", "shape"}},
    {"strides_beyond", {"\"w\"", "beyond its storage"}},
    {"strides_overflow", {"\"w\"", "strides overflow"}},
    {"strides_negative", {"\"w\"", "not a natural number"}},
    {"strides_few", {"\"w\"", "does not have as many strides"}},
    {"storage_short", {"\"w\"", "has 24 bytes, too few for 7 elements"}},
    {"storage_huge", {"\"w\"", "too few for 2305843009213693952 elements"}},
    {"storage_missing", {"\"w\"", "storage \"9\" is not in the file"}},
    {"storage_path", {"\"w\"", "storage \"../data.pkl\" is not in the file"}},
    {"storage_tensor", {"tensor \"w\": its data is missing"}},
    {"storage_kind", {"\"w\"", "persistent id"}},
    {"storage_class", {"\"w\"", "\"collections.OrderedDict\" is not a storage"}},
    {"storage_module", {"\"w\"", "persistent id"}},
    {"storage_few", {"persistent id"}},
    {"storage_text", {"persistent id"}},
    {"pickle_empty", {"data.pkl", "truncated"}},
    {"pickle_stop", {"stack is empty"}},
    {"pickle_no_mark", {"no mark"}},
    {"pickle_pop_mark", {"mark is used as a value"}},
    {"pickle_get_nothing", {"memo entry that it never wrote"}},
    {"pickle_put_mark", {"memo entry that it never wrote"}},
    {"pickle_set_odd", {"not a dictionary"}},
    {"pickle_append_dictionary", {"is not a list"}},
    {"pickle_build_none", {"attributes"}},
    {"pickle_inst", {"operation 0x69"}},
    {"pickle_stack_global", {"operation 0x8c"}},
    {"pickle_global_long", {"more than 256 bytes"}},
    {"pickle_text_huge", {"truncated"}},
    {"pickle_long_huge", {"is neither a dictionary of tensors"}},
    {"pickle_float", {"is neither a dictionary of tensors"}},
    {"pickle_repeats", {"repeats a long list"}},
};

class RefusedTorchZips : public ::testing::TestWithParam<RefusedTorchZip> {};

TEST_P(RefusedTorchZips, AreRefusedWithFileAndReason) {
  std::vector<std::string> parts = GetParam().parts;
  parts.push_back(GetParam().name + std::string(".pth"));
  EXPECT_TRUE(throws_error([&] { TensorFile(corpus_file(GetParam().name)); }, parts));
}

INSTANTIATE_TEST_SUITE_P(TorchZip, RefusedTorchZips, ::testing::ValuesIn(kRefused),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sparsereel::models
