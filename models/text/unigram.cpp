// Viterbi search over the positions of a word.
#include "models/text/unigram.h"

#include <algorithm>

#include "models/text/unicode.h"

namespace sparsereel::models {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the least probable piece
constexpr size_t kNowhere = static_cast<size_t>(-1);

/// The best way to reach a position: the piece that ends there.
struct Arrival {
  double score = 0;
  size_t start = kNowhere;
  int64_t id = 0;

  void improve(double new_score, size_t new_start, int64_t new_id) {
    if (start == kNowhere || new_score > score) *this = {new_score, new_start, new_id};
  }
};

}  // namespace

Unigram::Unigram(std::vector<ScoredPiece> vocabulary, int64_t unknown_id)
    : vocabulary_(std::move(vocabulary)), unknown_id_(unknown_id) {
  double least = vocabulary_.front().score;
  for (size_t id = 0; id < vocabulary_.size(); ++id) {
    const ScoredPiece& piece = vocabulary_[id];
    ids_.insert_or_assign(piece.text, static_cast<int64_t>(id));
    least = std::min(least, piece.score);
    longest_piece_ = std::max(longest_piece_, piece.text.size());
  }
  unknown_score_ = least - kUnknownPenalty;
}

int64_t Unigram::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? -1 : found->second;
}

void Unigram::encode(std::string_view word, std::vector<int64_t>& ids) const {
  std::vector<Arrival> best(word.size() + 1);
  for (size_t start = 0; start < word.size();) {
    const std::string_view rest = word.substr(start);
    const size_t character = character_length(rest);
    bool character_known = false;
    for (size_t length = 1; length <= std::min(rest.size(), longest_piece_); ++length) {
      const int64_t id = find(rest.substr(0, length));
      if (id < 0) continue;
      best[start + length].improve(best[start].score + vocabulary_[id].score, start, id);
      character_known = character_known || length == character;
    }
    if (!character_known) best[start + character].improve(best[start].score + unknown_score_, start, unknown_id_);
    start += character;
  }
  const auto first = static_cast<std::ptrdiff_t>(ids.size());
  bool after_unknown = false;
  for (size_t end = word.size(); end > 0; end = best[end].start) {
    const bool unknown = best[end].id == unknown_id_;
    if (!(unknown && after_unknown)) ids.push_back(best[end].id);
    after_unknown = unknown;
  }
  std::reverse(ids.begin() + first, ids.end());
}

}  // namespace sparsereel::models
