// Computes the sizes of the parts of known models.
#include "models/store/configs/known_models.h"

#include <algorithm>
#include <utility>

#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"

namespace sparsereel::models {

bool KnownModel::fits(const FoundPart& part) const {
  const auto own = sizes.find(part.role);
  return part.family == family && part.other_model.empty() && own != sizes.end() &&
         std::ranges::includes(own->second, part.sizes);
}

ImageSpec KnownModel::images() const {
  return describe(Checkpoint::with_random_weights(architecture.config.file, architecture.transformer_class,
                                                  architecture.components))
      .image;
}

std::vector<KnownModel> known_models(const std::filesystem::path& configs) {
  std::vector<KnownModel> all;
  for (Architecture& architecture : architectures_in(configs)) {
    const auto has_class = [&](const Family& family) {
      return std::ranges::count(family.part("transformer").classes, architecture.transformer_class) > 0;
    };
    const auto family = std::ranges::find_if(families(), has_class);
    if (family == families().end()) continue;
    KnownModel known{.architecture = std::move(architecture), .family = &*family};
    for (const Part& part : family->parts) {
      const auto config = known.architecture.components.find(part.role);
      if (part.sizes_by_config != nullptr && config != known.architecture.components.end())
        known.sizes[part.role] = part.sizes_by_config(*config, known.architecture.config.file.string());
    }
    all.push_back(std::move(known));
  }
  return all;
}

}  // namespace sparsereel::models
