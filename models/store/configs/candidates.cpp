// Matches the files that were found with the parts of the known models.
#include "models/store/configs/candidates.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "hilbert/error.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/expert_partner.h"
#include "models/store/configs/expert_pairs.h"
#include "models/store/configs/part_choice.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using Models = std::vector<std::shared_ptr<const KnownModel>>;

const FoundPart* named_part(const Offered& offered, const std::string& role) {
  const auto found = offered.named.find(role);
  return found == offered.named.end() ? nullptr : &found->second.front();
}

/// Finds the candidates of one model. `is_only_model` is false if another known model has the same transformer; then
/// only a file's name can tell which of the two it is for.
class Matching {
 public:
  Matching(const Offered& offered, std::shared_ptr<const KnownModel> known, bool is_only_model)
      : offered_(offered), known_(std::move(known)), takes_unnamed_(is_only_model) {}

  std::vector<Candidate> all() const {
    std::vector<Candidate> candidates;
    if (known_->has_experts()) return of_two_experts();
    if (offered_.named.contains(kSecondTransformer)) return {};
    for (const FoundPart& part : transformers(kTransformer))
      if (part.expert.empty() || takes_unnamed_) candidates.push_back(with_rest({{kTransformer, part}}));
    return candidates;
  }

 private:
  std::vector<Candidate> of_two_experts() const {
    const FoundPart *high = named_part(offered_, kTransformer), *low = named_part(offered_, kSecondTransformer);
    if (high != nullptr && low != nullptr) {
      if (!fits(*high) || !fits(*low)) return {};
      return {with_rest({{kTransformer, *high}, {kSecondTransformer, *low}})};
    }
    if (high != nullptr) return of_one_expert(transformers(kTransformer), high->expert);
    if (low != nullptr) return of_one_expert(transformers(kSecondTransformer), "low");
    std::vector<Candidate> candidates;
    ExpertPairs pairs = pair_experts(found_for("high"), found_for("low"));
    if (takes_unnamed_) std::ranges::move(found_for(""), std::back_inserter(pairs.alone));
    for (const auto& [first, second] : pairs.pairs)
      candidates.push_back(with_rest({{kTransformer, first}, {kSecondTransformer, second}}));
    for (const FoundPart& part : pairs.alone) candidates.push_back(alone(part));
    return candidates;
  }

  /// Returns candidates for an expert that the user named: each pairs it with a file of the other expert.
  std::vector<Candidate> of_one_expert(const std::vector<FoundPart>& named, const std::string& expert) const {
    std::vector<Candidate> candidates;
    for (const FoundPart& part : named) {
      if (expert.empty() && !takes_unnamed_) continue;
      const auto partners =
          expert.empty() ? std::vector<FoundPart>{} : partners_of(part, found_for(other_expert(expert)));
      for (const FoundPart& other : partners)
        candidates.push_back(expert == "low" ? with_rest({{kTransformer, other}, {kSecondTransformer, part}})
                                             : with_rest({{kTransformer, part}, {kSecondTransformer, other}}));
      if (partners.empty()) candidates.push_back(alone(part));
    }
    return candidates;
  }

  Candidate alone(const FoundPart& part) const {
    return with_rest({{part.expert == "low" ? kSecondTransformer : kTransformer, part}});
  }

  bool fits(const FoundPart& part) const { return known_->fits(part); }

  /// Returns the fitting files among those that the user named for the role; if the user named none, among all found
  /// files.
  std::vector<FoundPart> transformers(const char* role) const {
    const auto named = offered_.named.find(role);
    const std::vector<FoundPart>& all = named == offered_.named.end() ? offered_.found.parts : named->second;
    std::vector<FoundPart> fitting;
    for (const FoundPart& part : all)
      if (part.role == kTransformer && fits(part)) fitting.push_back(part);
    return fitting;
  }

  std::vector<FoundPart> found_for(const std::string& expert) const {
    std::vector<FoundPart> fitting;
    for (const FoundPart& part : offered_.found.parts)
      if (part.role == kTransformer && part.expert == expert && fits(part)) fitting.push_back(part);
    return fitting;
  }

  Candidate with_rest(std::map<std::string, FoundPart> transformers) const {
    Candidate candidate{.known = known_, .model = known_->name(), .images = known_->images()};
    const FoundPart main = transformers.begin()->second;
    for (const auto& [role, part] : transformers) {
      if (part.format.name == candidate.format) continue;
      candidate.format += (candidate.format.empty() ? "" : " and ") + part.format.name;
    }
    candidate.parts = std::move(transformers);
    for (const auto& [role, sizes] : known_->sizes)
      if (role != kTransformer && role != kSecondTransformer) choose(role, main, candidate);
    choose_tokenizer(candidate);
    for (const auto& [role, part] : candidate.parts) candidate.bytes += part.bytes;
    for (const Part& part : known_->family->parts)
      if (known_->sizes.contains(part.role) && !candidate.parts.contains(part.role))
        candidate.missing.push_back(part.role);
    return candidate;
  }

  void choose(const std::string& role, const FoundPart& transformer, Candidate& candidate) const {
    if (const FoundPart* named = named_part(offered_, role)) {
      candidate.parts.emplace(role, *named);
      return;
    }
    std::vector<FoundPart> fitting;
    for (const FoundPart& part : offered_.found.parts)
      if (part.role == role && fits(part)) fitting.push_back(part);
    if (fitting.empty()) return;
    candidate.parts.emplace(role, best_part(fitting, transformer, offered_.found.tokenizers.empty()));
    for (const FoundPart& part : fitting) candidate.fitting[role].push_back(part.file);
  }

  void choose_tokenizer(Candidate& candidate) const {
    const auto encoder = candidate.parts.find("text_encoder");
    if (offered_.names_tokenizer || encoder == candidate.parts.end() || encoder->second.has_tokenizer) return;
    std::vector<fs::path> fitting = fitting_tokenizers(offered_.found.tokenizers, encoder->second.sizes);
    candidate.lacks_tokenizer = fitting.empty();
    if (fitting.size() == 1)
      candidate.tokenizer = fitting.front();
    else
      candidate.tokenizers = std::move(fitting);
  }

  const Offered& offered_;
  const std::shared_ptr<const KnownModel> known_;
  const bool takes_unnamed_;
};

/// Returns the candidate for a folder in diffusers' layout. Throws Error if no family runs its model, or if it is
/// damaged.
Candidate of_pipeline(const fs::path& folder, const fs::path& configs) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const ModelSpec spec = describe(checkpoint);
  const auto config = find_model_config(configs, spec);
  Candidate candidate{.pipeline = folder,
                      .model = config ? config->file.stem().string() : find_family(checkpoint.pipeline_class())->name,
                      .images = spec.image};
  for (const std::string& role : checkpoint.roles()) {
    if (!has_weights(role)) continue;
    const Component& component = checkpoint.component(role);
    candidate.bytes += component.bytes();
    if (role == kTransformer) candidate.format = format_of(component).name;
  }
  return candidate;
}

}  // namespace

bool Candidate::is(const Candidate& other) const {
  return model == other.model && values_of(*this) == values_of(other);
}

std::vector<std::string> Candidate::roles() const {
  std::vector<std::string> roles;
  for (const auto& [role, part] : parts) roles.push_back(role);
  std::stable_partition(roles.begin(), roles.end(),
                        [](const std::string& role) { return role == kTransformer || role == kSecondTransformer; });
  return roles;
}

std::vector<Candidate> candidates_of(Offered& offered, const fs::path& configs) {
  Models models;
  for (KnownModel& known : known_models(configs)) models.push_back(std::make_shared<KnownModel>(std::move(known)));
  std::vector<Candidate> candidates;
  for (const auto& model : models) {
    // A transformer may be the only one of a model, or one of two experts. If configs/ has both models with equal
    // sizes, only the file's name tells which one it is.
    const auto is_twin = [&](const auto& other) {
      return other->family == model->family && other->has_experts() != model->has_experts() &&
             other->sizes.at(kTransformer) == model->sizes.at(kTransformer);
    };
    std::ranges::move(Matching(offered, model, std::ranges::none_of(models, is_twin)).all(),
                      std::back_inserter(candidates));
  }
  if (offered.named.contains(kTransformer) || offered.named.contains(kSecondTransformer)) return candidates;
  for (const fs::path& folder : offered.found.pipelines) {
    try {
      candidates.push_back(of_pipeline(folder, configs));
    } catch (const Error& error) {
      offered.found.unread.emplace_back(error.what());
    }
  }
  return candidates;
}

std::vector<std::pair<std::string, std::string>> values_of(const Candidate& candidate) {
  if (candidate.known == nullptr) return {{"model", candidate.pipeline.string()}};
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto& [role, part] : candidate.parts)
    if (role == kTransformer || role == kSecondTransformer) values.emplace_back(role, part.file.string());
  if (!candidate.tokenizers.empty()) values.emplace_back("tokenizer", candidate.tokenizers.front().string());
  return values;
}

std::string in_gigabytes(uint64_t bytes) {
  std::array<char, 32> text{};
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const char* format = gigabytes < 0.1 ? "%.1f MB" : gigabytes < 10 ? "%.2f GB" : "%.1f GB";
  std::snprintf(text.data(), text.size(), format, gigabytes < 0.1 ? gigabytes * 1000 : gigabytes);
  return text.data();
}

}  // namespace sparsereel::models
