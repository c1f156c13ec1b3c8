// Tables of wrappers and prefixes of tensors' names.
#include "models/store/checkpoint/wrapped_name.h"

#include <algorithm>
#include <array>

namespace sparsereel::models {
namespace {

/// The names of wrapping modules. The dot at the end of each stands for the character that separates words in the name.
/// If a wrapper's name ends with another wrapper's name, the longer one comes first.
constexpr std::array<std::string_view, 6> kWrappers = {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.",
                                                       "_forward_module.",      "_orig_mod.",
                                                       "base_model.model.",     "module."};

bool begins_with(std::string_view name, std::string_view wrapper, char separator) {
  return name.size() >= wrapper.size() && std::ranges::equal(name.substr(0, wrapper.size()), wrapper, {}, {},
                                                             [&](char c) { return c == '.' ? separator : c; });
}

}  // namespace

std::string without_wrappers(std::string_view name, char separator) {
  std::string bare;
  for (std::string_view rest = name; !rest.empty();) {
    const auto begins = [&](std::string_view wrapper) { return begins_with(rest, wrapper, separator); };
    if (const auto* const found = std::ranges::find_if(kWrappers, begins); found != kWrappers.end()) {
      rest.remove_prefix(found->size());
      continue;
    }
    const std::string_view part = rest.substr(0, std::min(rest.find(separator), rest.size() - 1) + 1);
    bare += part;
    rest.remove_prefix(part.size());
  }
  return bare;
}

const std::vector<std::string>& transformer_prefixes() {
  // "generator_ema." comes before "generator.", because a trainer's average of the weights is preferred to the weights.
  static const std::vector<std::string> kPrefixes = {"model.diffusion_model.",
                                                     "diffusion_model.",
                                                     "generator_ema.",
                                                     "generator.",
                                                     "model.",
                                                     "net.",
                                                     "pipe.",
                                                     "dit.",
                                                     "unet.",
                                                     "transformer.",
                                                     "transformer_2."};
  return kPrefixes;
}

}  // namespace sparsereel::models
