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
/// min(file_size, 8 + header length) bytes. Checks every offset, dtype and shape: tensors must be inside of the file
/// without overlap or hole, and a tensor's bytes must fit its shape. Throws Error naming `path` and the tensor. The
/// fuzz tests call this function.
TensorList parse_safetensors_header(std::span<const std::byte> file, uint64_t file_size, const std::string& path);

/// A tensor to write. Its data is contiguous, row-major and little-endian.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

/// Writes a file with AtomicFile: it appears completely or not at all.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Writes a file of one tensor whose data comes in pieces. The file appears at commit().
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::string& name, Dtype dtype,
                    const std::vector<int64_t>& shape);
  /// Writes the next bytes.
  void append(std::span<const std::byte> data);
  /// Flushes the file and returns its size in bytes. The caller must have written the whole tensor.
  uint64_t complete();
  /// Gives the complete file its name.
  void commit() { file_.commit(); }

 private:
  AtomicFile file_;
  uint64_t bytes_ = 0;
};

}  // namespace sparsereel::models
