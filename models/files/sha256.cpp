// The compression function, its padding, and the two nested hashes of HMAC.
#include "models/files/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/// Returns the message schedule of a block.
std::array<uint32_t, 64> schedule(const std::array<uint8_t, 64>& block) {
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 16; ++i) {
    const uint8_t* at = &block[4 * i];
    w[i] = static_cast<uint32_t>(at[0]) << 24 | static_cast<uint32_t>(at[1]) << 16 | static_cast<uint32_t>(at[2]) << 8 |
           at[3];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  return w;
}

}  // namespace

void Sha256::compress() {
  const std::array<uint32_t, 64> w = schedule(block_);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

void Sha256::update(const void* data, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  bytes_ += bytes;
  while (bytes > 0) {
    const size_t part = std::min(bytes, block_.size() - filled_);
    std::memcpy(&block_[filled_], from, part);
    from += part;
    bytes -= part;
    filled_ += part;
    if (filled_ < block_.size()) return;
    compress();
    filled_ = 0;
  }
}

Sha256Digest Sha256::digest() {
  const uint64_t bits = bytes_ * 8;
  constexpr std::array<uint8_t, 64> padding = {0x80};
  update(padding.data(), filled_ < 56 ? 56 - filled_ : 120 - filled_);
  std::array<uint8_t, 8> length{};
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update(length.data(), length.size());
  Sha256Digest bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return bytes;
}

std::string Sha256::hex() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest()) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

Sha256Digest hmac_sha256(std::string_view key, std::string_view text) {
  // The key, padded with zeros to the length of a block of the hash. RFC 2104 hashes a longer key first.
  std::array<uint8_t, 64> block{};
  if (key.size() <= block.size()) {
    std::ranges::copy(key, block.begin());
  } else {
    Sha256 hash;
    hash.update(key);
    std::ranges::copy(hash.digest(), block.begin());
  }
  const auto masked = [&](uint8_t mask) {
    Sha256 hash;
    std::array<uint8_t, 64> pad = block;
    for (uint8_t& byte : pad) byte ^= mask;
    hash.update(pad.data(), pad.size());
    return hash;
  };
  Sha256 inner = masked(0x36), outer = masked(0x5c);
  inner.update(text);
  const Sha256Digest digest = inner.digest();
  outer.update(digest.data(), digest.size());
  return outer.digest();
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  Sha256 hash;
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0)
    hash.update(buffer.data(), static_cast<size_t>(file.gcount()));
  if (!file.eof()) throw bad_file(path, "cannot be read", "check the path and its permissions");
  return hash.hex();
}

}  // namespace sparsereel::models
