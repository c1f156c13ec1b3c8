// Maps a file and finds tensors in it.
#include "models/checkpoint/tensor_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <limits>
#include <system_error>

#include "hilbert/error.h"
#include "models/checkpoint/gguf.h"
#include "models/checkpoint/safetensors.h"
#include "models/checkpoint/torch_zip.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian and used as they lie in the file");

struct DtypeInfo {
  Dtype dtype;
  std::string_view name;
  Block block;
};
constexpr std::array kDtypes = {
    DtypeInfo{Dtype::f64, "F64", {1, 8}},         DtypeInfo{Dtype::f32, "F32", {1, 4}},
    DtypeInfo{Dtype::f16, "F16", {1, 2}},         DtypeInfo{Dtype::bf16, "BF16", {1, 2}},
    DtypeInfo{Dtype::i64, "I64", {1, 8}},         DtypeInfo{Dtype::i32, "I32", {1, 4}},
    DtypeInfo{Dtype::i16, "I16", {1, 2}},         DtypeInfo{Dtype::i8, "I8", {1, 1}},
    DtypeInfo{Dtype::u8, "U8", {1, 1}},           DtypeInfo{Dtype::boolean, "BOOL", {1, 1}},
    DtypeInfo{Dtype::f8_e4m3, "F8_E4M3", {1, 1}}, DtypeInfo{Dtype::f8_e5m2, "F8_E5M2", {1, 1}},
    DtypeInfo{Dtype::q4_0, "Q4_0", {32, 18}},     DtypeInfo{Dtype::q4_1, "Q4_1", {32, 20}},
    DtypeInfo{Dtype::q5_0, "Q5_0", {32, 22}},     DtypeInfo{Dtype::q5_1, "Q5_1", {32, 24}},
    DtypeInfo{Dtype::q8_0, "Q8_0", {32, 34}},     DtypeInfo{Dtype::q2_k, "Q2_K", {256, 84}},
    DtypeInfo{Dtype::q3_k, "Q3_K", {256, 110}},   DtypeInfo{Dtype::q4_k, "Q4_K", {256, 144}},
    DtypeInfo{Dtype::q5_k, "Q5_K", {256, 176}},   DtypeInfo{Dtype::q6_k, "Q6_K", {256, 210}},
};
static_assert([] {
  for (size_t i = 0; i < kDtypes.size(); ++i)
    if (static_cast<size_t>(kDtypes[i].dtype) != i) return false;
  return kDtypes.back().dtype == Dtype::q6_k;
}());

const DtypeInfo& info(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)];
}

/// a * b, or nothing where it does not fit into an int64.
std::optional<uint64_t> multiply(uint64_t a, uint64_t b) {
  if (b != 0 && a > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / b) return std::nullopt;
  return a * b;
}

/// Of any format.
TensorList parse_tensors(std::span<const std::byte> file, const std::string& path) {
  if (is_git_lfs_pointer({reinterpret_cast<const char*>(file.data()), file.size()}))
    throw bad_file(path, "is a Git LFS pointer, the weights themselves were not downloaded",
                   "run 'git lfs pull' in that folder");
  if (is_gguf(file)) return parse_gguf(file, path);
  if (is_zip(file)) return parse_torch_zip(file, path);
  return parse_safetensors_header(file, file.size(), path);
}

/// madvise on the pages that a tensor touches. The pages are clean, so that giving up a neighbour's is harmless;
/// failure of a hint too.
void advise(const void* mapping, const TensorEntry& entry, int advice) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = entry.offset / page * page;
  ::madvise(static_cast<std::byte*>(const_cast<void*>(mapping)) + begin, entry.offset + entry.bytes - begin, advice);
}

}  // namespace

Block block_of(Dtype dtype) {
  return info(dtype).block;
}
size_t size_of(Dtype dtype) {
  return info(dtype).block.bytes;
}
std::string_view name(Dtype dtype) {
  return info(dtype).name;
}
std::optional<uint64_t> byte_count(const std::vector<int64_t>& shape, Dtype dtype) {
  const auto [elements, size] = block_of(dtype);
  std::optional<uint64_t> count = 1;
  bool empty = false;
  for (const int64_t dimension : shape) {
    empty = empty || dimension == 0;
    count = multiply(*count, static_cast<uint64_t>(std::max<int64_t>(dimension, 1)));
    if (!count) return std::nullopt;
  }
  const auto whole = static_cast<uint64_t>(elements);
  if (empty) return multiply(*count, size) ? std::optional<uint64_t>(0) : std::nullopt;
  return *count % whole == 0 ? multiply(*count / whole, size) : std::nullopt;
}

TensorFile::TensorFile(const std::filesystem::path& path) : path_(path) {
  const auto fail = [&](int error) -> Error {
    return bad_file(path, "cannot be opened: " + std::generic_category().message(error),
                    "check the path and that you may read it");
  };
  const int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: a FIFO must not hang us
  if (descriptor < 0) throw fail(errno);
  struct stat status = {};
  const int error = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  const bool readable = error == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
  void* address = MAP_FAILED;
  if (readable) address = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int map_error = errno;
  ::close(descriptor);
  if (error != 0) throw fail(error);
  if (!S_ISREG(status.st_mode)) throw bad_file(path, "is not an ordinary file", "give a file of weights");
  if (status.st_size == 0) throw bad_file(path, "truncated: the file is empty", "download or export the file again");
  if (address == MAP_FAILED) throw fail(map_error);
  const size_t size = static_cast<size_t>(status.st_size);
  mapping_ =
      std::shared_ptr<const void>(address, [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); });
  list_ = parse_tensors({static_cast<const std::byte*>(address), size}, path.string());
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(list_.entries.begin(), list_.entries.end(), name,
                       [](const TensorEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != list_.entries.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> TensorFile::data(const TensorEntry& entry) const {
  return {static_cast<const std::byte*>(mapping_.get()) + entry.offset, entry.bytes};
}

void TensorFile::prefetch(const TensorEntry& entry) const {
  advise(mapping_.get(), entry, MADV_WILLNEED);
}
void TensorFile::release(const TensorEntry& entry) const {
  advise(mapping_.get(), entry, MADV_DONTNEED);
}

}  // namespace sparsereel::models
