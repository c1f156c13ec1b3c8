// Reads numbers (little-endian) and texts from the bytes of a file, one after the other. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hilbert/error.h"

namespace sparsereel::models {

/// Reads from the front of `bytes`, which must outlive the reader. A read beyond the end throws Error naming `source`,
/// with the remedy `remedy`.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string source, std::string remedy)
      : bytes_(bytes), source_(std::move(source)), remedy_(std::move(remedy)) {}

  size_t place() const { return place_; }
  size_t left() const { return bytes_.size() - place_; }

  std::span<const std::byte> take(uint64_t count) {
    if (count > left())
      throw bad_file(source_,
                     "truncated: " + std::to_string(count) + " bytes should follow at byte " + std::to_string(place_) +
                         ", but only " + std::to_string(left()) + " do",
                     remedy_);
    const std::span<const std::byte> taken = bytes_.subspan(place_, count);
    place_ += count;
    return taken;
  }
  std::string_view text(uint64_t count) {
    const std::span<const std::byte> taken = take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  template <typename Number>
  Number number() {
    static_assert(std::is_arithmetic_v<Number>);
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  std::string source_, remedy_;
  size_t place_ = 0;
};

}  // namespace sparsereel::models
