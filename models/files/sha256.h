// SHA-256 (FIPS 180-4) and its keyed form (HMAC, RFC 2104). No torch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace sparsereel::models {

using Sha256Digest = std::array<uint8_t, 32>;

/// Hashes bytes piece by piece. digest() or hex() finishes the hash; call only one of them, once.
class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  Sha256Digest digest();
  /// Returns the digest as 64 hexadecimal digits.
  std::string hex();

 private:
  void compress();

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  size_t filled_ = 0;   // bytes in block_
  uint64_t bytes_ = 0;  // message length so far, in bytes
};

std::string sha256(std::string_view text);
/// Returns the HMAC-SHA-256 of the text, which nobody can compute without the key.
Sha256Digest hmac_sha256(std::string_view key, std::string_view text);
/// Returns the SHA-256 of a file's content as hexadecimal digits. Throws Error naming the file if it cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace sparsereel::models
