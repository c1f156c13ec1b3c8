// Collects the layers and the last words of known names.
#include "models/store/weights/known_names.h"

namespace sparsereel::models {
namespace {

std::string last_of(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

std::string layer_of(const std::string& name) {
  return name.substr(0, name.rfind('.') + 1);
}

/// Returns the text before the first number between dots: "blocks." for "blocks.0.attn1.to_q.weight". Empty if there is
/// no such number.
std::string list_of_blocks(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const size_t end = name.find_first_not_of("0123456789", dot + 1);
    if (end != dot + 1 && end != std::string::npos && name[end] == '.') return name.substr(0, dot + 1);
  }
  return {};
}

}  // namespace

KnownNames::KnownNames(const std::set<std::string>& used) {
  for (const std::string& name : used) {
    last_.insert(last_of(name));
    layers_.insert(layer_of(name));
    if (const std::string list = list_of_blocks(name); !list.empty()) layers_.insert(list);
  }
}

bool KnownNames::has_place_for(const std::string& name) const {
  const std::string layer = layer_of(name), list = list_of_blocks(name);
  const auto is_known = [&](const std::string& place) { return !place.empty() && layers_.contains(place); };
  return last_.contains(last_of(name)) && (is_known(layer) || is_known(list));
}

}  // namespace sparsereel::models
