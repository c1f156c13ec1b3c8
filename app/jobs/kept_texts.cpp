// Drops the texts whose last use is longest ago.
#include "app/jobs/kept_texts.h"

#include <algorithm>
#include <utility>

namespace sparsereel::app {

bool KeptTexts::has(const std::string& key) const {
  return std::ranges::find(texts_, key, &Text::key) != texts_.end();
}

const KeptTexts::Text* KeptTexts::find(const std::string& key) {
  const auto found = std::ranges::find(texts_, key, &Text::key);
  if (found == texts_.end()) return nullptr;
  texts_.splice(texts_.begin(), texts_, found);
  return &texts_.front();
}

void KeptTexts::keep(Text text) {
  if (text.conditioning.nbytes() > most_bytes_) return;
  texts_.push_front(std::move(text));
  uint64_t bytes = 0;
  const auto is_beyond = [&](const Text& each) { return (bytes += each.conditioning.nbytes()) > most_bytes_; };
  texts_.erase(std::ranges::find_if(texts_, is_beyond), texts_.end());
}

}  // namespace sparsereel::app
