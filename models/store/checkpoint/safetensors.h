// The safetensors format (https://github.com/huggingface/safetensors, "Format"): parser and writer. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/files/atomic_file.h"
#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

/// Parses and checks the header at the start of a file of `file_size` bytes. `file` holds at least its first
/// min(file_size, 8 + header length) bytes. Every offset, dtype and shape is checked: in range, no overlap, no hole,
/// size = product of the shape. Throws Error naming `path` and the tensor. The fuzzer calls it.
TensorList parse_safetensors_header(std::span<const std::byte> file, uint64_t file_size, const std::string& path);

/// A tensor to write; its data is contiguous, row-major and little-endian.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

/// Writes a file atomically (temporary file beside it, fsync, rename): the file appears completely or not at all.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Writes a file of one tensor whose data comes in pieces. The file appears only after commit().
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::string& name, Dtype dtype,
                    const std::vector<int64_t>& shape);
  /// Writes the next bytes.
  void append(std::span<const std::byte> data);
  /// Flushes the file and returns its size in bytes. The caller must have written the whole tensor.
  uint64_t complete();
  /// Puts the file in place.
  void commit() { file_.commit(); }

 private:
  AtomicFile file_;
  uint64_t bytes_ = 0;
};

}  // namespace sparsereel::models
