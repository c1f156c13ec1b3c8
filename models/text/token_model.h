// The interface of an algorithm that splits text into tokens, with its vocabulary and special tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace sparsereel::models {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  /// Returns the ids of `text`, which must be well-formed UTF-8, without an end token.
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;
  /// Returns the id that ends every text; nothing if texts have no end token.
  virtual std::optional<int64_t> end_id() const = 0;
  virtual int64_t padding_id() const = 0;
  /// Returns the number of ids, which run from 0, including tokens that were added to the vocabulary.
  virtual int64_t size() const = 0;
  /// Returns the size of the vocabulary without added tokens.
  virtual int64_t pieces() const = 0;
};

}  // namespace sparsereel::models
