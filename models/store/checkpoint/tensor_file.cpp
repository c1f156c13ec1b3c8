// Maps a file, recognizes its format and finds tensors in it.
#include "models/store/checkpoint/tensor_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>

#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/gguf.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/store/checkpoint/torch_zip.h"

namespace sparsereel::models {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are little-endian and used as they lie in the file");

/// A format of files that are not weights but may have such names, and the bytes `mark` at offset `place` that show it.
/// A file with a brace at byte 8 is never compared with these marks, because every .safetensors file has the opening
/// brace of its header there.
struct OtherFormat {
  size_t place;
  std::string_view mark;
  const char *what, *remedy;
};
constexpr const char* kUnpack = "unpack it, and give the file of weights in it";
constexpr const char* kDownloadFile = "download the file itself: a web page or a server's answer was saved instead";
constexpr const char* kSaveTensors =
    "load it with torch.load(path, weights_only=True), and save the tensors with safetensors.torch.save_file()";
constexpr OtherFormat kOtherFormats[] = {
    {0, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9", "is a torch.save() file in the format from before version 1.6",
     kSaveTensors},
    {0, "\x80\x02", "is a pickle of Python, not a file of torch.save()", kSaveTensors},
    {0, "\x80\x03", "is a pickle of Python, not a file of torch.save()", kSaveTensors},
    {0, "\x80\x04\x95", "is a pickle of Python, not a file of torch.save()", kSaveTensors},
    {0, "\x80\x05\x95", "is a pickle of Python, not a file of torch.save()", kSaveTensors},
    {0, "<!", "is a web page, not weights", kDownloadFile},
    {0, "<html", "is a web page, not weights", kDownloadFile},
    {0, "<?xml", "is XML text, not weights", kDownloadFile},
    {0, "{\"", "is JSON text, not weights", kDownloadFile},
    {0, "\x1f\x8b", "is a compressed archive (gzip)", kUnpack},
    {0, "BZh", "is a compressed archive (bzip2)", kUnpack},
    {0,
     "\xfd"
     "7zXZ",
     "is a compressed archive (xz)", kUnpack},
    {0, "7z\xbc\xaf", "is a compressed archive (7z)", kUnpack},
    {0, "Rar!", "is a compressed archive (rar)", kUnpack},
    {0, "\x28\xb5\x2f\xfd", "is a compressed archive (zstd)", kUnpack},
    {257, "ustar", "is an archive (tar)", kUnpack},
    {0, "\x89HDF", "is an HDF5 file (Keras)", "give the weights as safetensors"},
    {0, "\x93NUMPY", "is a numpy array", "give the weights as safetensors"},
    {0, "lmgg", "is a ggml file from before GGUF", "convert the model to GGUF again"},
    {0, "tjgg", "is a ggml file from before GGUF", "convert the model to GGUF again"},
};

void refuse_other_format(std::span<const std::byte> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.size() > 8 && text[8] == '{') return;
  for (const auto& [place, mark, what, remedy] : kOtherFormats)
    if (text.size() >= place && text.substr(place).starts_with(mark)) throw bad_file(path, what, remedy);
}

TensorList parse_tensors(std::span<const std::byte> file, const std::string& path) {
  if (is_git_lfs_pointer({reinterpret_cast<const char*>(file.data()), file.size()}))
    throw bad_file(path, "is a Git LFS pointer: the weights themselves were not downloaded",
                   "run 'git lfs pull' in that folder");
  if (is_gguf(file)) return parse_gguf(file, path);
  if (is_zip(file)) return parse_torch_zip(file, path);
  refuse_other_format(file, path);
  return parse_safetensors_header(file, file.size(), path);
}

/// Calls madvise on the pages that a tensor touches. Pages of a read-only mapping can be read again, so it does no harm
/// that pages are shared with neighboring tensors. Errors are ignored, because this is only a hint.
void advise(const std::byte* mapping, const TensorEntry& entry, int advice) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = entry.offset / page * page;
  ::madvise(const_cast<std::byte*>(mapping) + begin, entry.offset + entry.bytes - begin, advice);
}

}  // namespace

TensorFile::TensorFile(const std::filesystem::path& path)
    : path_(path), mapping_(std::make_shared<const MappedFile>(path)) {
  try {
    list_ = parse_tensors(mapping_->bytes(), path.string());
  } catch (const Error&) {
    mapping_->check_whole();  // throws a better error if the file became shorter, so that its end reads as zeros
    throw;
  }
  mapping_->check_whole();
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(list_.entries.begin(), list_.entries.end(), name,
                       [](const TensorEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != list_.entries.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> TensorFile::data(const TensorEntry& entry) const {
  if (!entry.strides.empty() || entry.group_rows > 0)
    throw bad_file(path_, "tensor " + in_quotes(entry.name) + " is not contiguous", "save it with .contiguous()");
  return covered(entry);
}

void TensorFile::read(const TensorEntry& entry, size_t first, std::span<std::byte> to) const {
  const std::span<const std::byte> part = data(entry).subspan(first, to.size());
  const auto begin = static_cast<size_t>(part.data() - mapping_->bytes().data());
  mapping_->read(begin, to, entry.offset + entry.bytes);
}

void TensorFile::prefetch(const TensorEntry& entry) const {
  advise(mapping_->bytes().data(), entry, MADV_WILLNEED);
}
void TensorFile::release(const TensorEntry& entry) const {
  advise(mapping_->bytes().data(), entry, MADV_DONTNEED);
}

}  // namespace sparsereel::models
