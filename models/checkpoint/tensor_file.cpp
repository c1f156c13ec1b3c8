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
#include "models/checkpoint/safetensors.h"

namespace sparsereel::models {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian and used as they lie in the file");

struct DtypeInfo {
  Dtype dtype;
  std::string_view name;
  size_t size;
};
constexpr std::array kDtypes = {
    DtypeInfo{Dtype::f64, "F64", 8},         DtypeInfo{Dtype::f32, "F32", 4},
    DtypeInfo{Dtype::f16, "F16", 2},         DtypeInfo{Dtype::bf16, "BF16", 2},
    DtypeInfo{Dtype::i64, "I64", 8},         DtypeInfo{Dtype::i32, "I32", 4},
    DtypeInfo{Dtype::i16, "I16", 2},         DtypeInfo{Dtype::i8, "I8", 1},
    DtypeInfo{Dtype::u8, "U8", 1},           DtypeInfo{Dtype::boolean, "BOOL", 1},
    DtypeInfo{Dtype::f8_e4m3, "F8_E4M3", 1}, DtypeInfo{Dtype::f8_e5m2, "F8_E5M2", 1},
};

const DtypeInfo& info(Dtype dtype) {
  return *std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeInfo& entry) { return entry.dtype == dtype; });
}

/// a * b, or nothing where it does not fit into an int64.
std::optional<uint64_t> multiply(uint64_t a, uint64_t b) {
  if (b != 0 && a > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / b) return std::nullopt;
  return a * b;
}

/// madvise on the pages that a tensor touches. The pages are clean, so that giving up a neighbour's is harmless;
/// failure of a hint too.
void advise(const void* mapping, const TensorEntry& entry, int advice) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = entry.offset / page * page;
  ::madvise(static_cast<std::byte*>(const_cast<void*>(mapping)) + begin, entry.offset + entry.bytes - begin, advice);
}

}  // namespace

size_t size_of(Dtype dtype) {
  return info(dtype).size;
}
std::string_view name(Dtype dtype) {
  return info(dtype).name;
}
std::optional<Dtype> dtype_of(std::string_view name) {
  const auto found = std::ranges::find(kDtypes, name, &DtypeInfo::name);
  return found == kDtypes.end() ? std::nullopt : std::optional(found->dtype);
}
std::string dtype_names() {
  std::string names;
  for (const DtypeInfo& known : kDtypes) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

std::optional<uint64_t> byte_count(const std::vector<int64_t>& shape, Dtype dtype) {
  std::optional<uint64_t> bytes = size_of(dtype);
  bool empty = false;
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    bytes = multiply(*bytes, static_cast<uint64_t>(std::max<int64_t>(size, 1)));
    if (!bytes) return std::nullopt;
  }
  return empty ? 0 : bytes;
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
  if (!S_ISREG(status.st_mode)) throw bad_file(path, "is not an ordinary file", "give a .safetensors file");
  if (status.st_size == 0) throw bad_file(path, "truncated: the file is empty", "download or export the file again");
  if (address == MAP_FAILED) throw fail(map_error);
  const size_t size = static_cast<size_t>(status.st_size);
  mapping_ =
      std::shared_ptr<const void>(address, [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); });
  list_ = parse_safetensors_header({static_cast<const std::byte*>(address), size}, size, path.string());
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
