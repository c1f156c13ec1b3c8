// Unigram tokenisation (arXiv:1804.10959): the most probable split of a word into pieces of a vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sparsereel::models {

/// A vocabulary entry and its log probability.
struct ScoredPiece {
  std::string text;
  double score = 0;
};

class Unigram {
 public:
  /// Ids are positions in `vocabulary`, which is not empty; unknown_id is one of them.
  Unigram(std::vector<ScoredPiece> vocabulary, int64_t unknown_id);

  /// Appends the ids of the best split of `word` (well-formed UTF-8). Scores add up in double precision and of equal
  /// splits the one whose last piece starts earliest wins, as in transformers; SentencePiece adds in single precision
  /// and so decides ties by rounding ("-------"). Neighbouring unknown characters become one unknown id.
  void encode(std::string_view word, std::vector<int64_t>& ids) const;
  /// Id of a piece, -1 where the vocabulary lacks it.
  int64_t find(std::string_view piece) const;
  int64_t size() const { return static_cast<int64_t>(vocabulary_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::vector<ScoredPiece> vocabulary_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> ids_;
  int64_t unknown_id_;
  double unknown_score_;
  size_t longest_piece_ = 0;  // bytes
};

}  // namespace sparsereel::models
