// Maps a LoRA's layers to the tensors that they change.
#include "models/store/checkpoint/lora.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/files/config_fields.h"
#include "models/files/json_text.h"
#include "models/files/sha256.h"
#include "models/store/checkpoint/expert_name.h"
#include "models/store/checkpoint/foreign_model.h"
#include "models/store/checkpoint/lora_layers.h"
#include "models/store/checkpoint/lora_names.h"
#include "models/store/checkpoint/lora_settings.h"

namespace sparsereel::models {
namespace {

constexpr const char* kTextEncoder = "text_encoder";

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// Returns the number of a layer's block, and replaces it by 0 in `name`. Returns nullopt if the layer is in no block.
std::optional<int64_t> take_block(std::string& name, const std::string& blocks) {
  if (!name.starts_with(blocks)) return std::nullopt;
  int64_t number = 0;
  const char* start = name.data() + blocks.size();
  const auto [end, error] = std::from_chars(start, name.data() + name.size(), number);
  if (error != std::errc{} || number < 0 || number >= kMaxLayers) return std::nullopt;
  name.replace(blocks.size(), static_cast<size_t>(end - start), "0");
  return number;
}

/// Maps every spelling of the names of the first block's layers to the layer's index in LoraNames::layers, and to the
/// name of the spelling ("kohya").
using Spelled = std::map<std::string, std::pair<size_t, const char*>>;

Spelled spelled_layers(const Family& family) {
  const LoraNames& names = family.lora;
  Spelled all;
  for (size_t i = 0; i < names.layers.size(); ++i) {
    const std::vector<PlacedName> forms = spellings(names.blocks + "0." + names.layers[i], family.part("transformer"));
    for (size_t form = 0; form < forms.size(); ++form) {
      all.emplace(forms[form].name, std::pair(i, form == 0 ? "diffusers" : "original"));
      all.emplace(underscored(forms[form].name), std::pair(i, "kohya"));
    }
  }
  return all;
}

/// Counts the file's layers that the family has, and fills `origin` from them.
size_t count_known(const LoraFile& lora, const Family& family, LoraOrigin& origin) {
  const Spelled known = spelled_layers(family);
  origin.family = &family;
  size_t count = 0;
  for (const LoraLayer& layer : lora.layers) {
    std::string name = layer.name;
    const auto take = [&](const std::string& blocks) {
      return blocks.empty() ? std::nullopt : take_block(name, layer.underscores ? underscored(blocks) : blocks);
    };
    auto block = take(family.lora.blocks);
    if (!block) block = take(family.lora.other_blocks);
    const auto found = block ? known.find(name) : known.end();
    if (found == known.end()) continue;
    ++count;
    origin.naming = found->second.second;
    origin.blocks = std::max(origin.blocks, *block + 1);
    if (found->second.first == 0 && layer.down != nullptr) origin.width = layer.down->shape[1];
  }
  return count;
}

using Shape = std::vector<int64_t>;

/// Returns the product of the sizes from `axis` on; 0 if it does not fit into 63 bits.
int64_t product(const Shape& shape, size_t axis) {
  int64_t result = 1;
  for (size_t i = axis; i < shape.size(); ++i)
    if (__builtin_mul_overflow(result, shape[i], &result)) return 0;
  return result;
}

/// Returns true if `shape`, the shape of B times A, fits a weight of shape `wanted` with `rows` rows. A convolution's
/// weight [out, in, kernel] counts as a matrix with in * kernel columns: files store its A in either shape, and a GGUF
/// stores the weight as [out * in, kernel].
bool product_fits(const Shape& shape, const Shape& wanted, int64_t rows) {
  if (shape.size() == wanted.size()) return shape == wanted;
  return shape[0] == rows && product(shape, 0) > 0 && product(shape, 0) == product(wanted, 0);
}

/// Returns true if two weights of convolutions differ only in the number of input channels. A model that takes an image
/// besides the video has more of them.
bool takes_other_channels(Shape shape, const Shape& wanted) {
  if (wanted.size() < 3) return false;
  const int64_t kernel = product(wanted, 2);
  if (shape.size() == 2) return shape[0] == wanted[0] && kernel > 0 && shape[1] % kernel == 0;
  if (shape.size() != wanted.size()) return false;
  shape[1] = wanted[1];
  return shape == wanted;
}

/// Returns the entry reshaped to a matrix with the same number of rows.
std::shared_ptr<const TensorEntry> as_matrix(TensorEntry entry) {
  entry.shape = {entry.shape[0], product(entry.shape, 1)};
  return std::make_shared<TensorEntry>(std::move(entry));
}

/// Collects everything in a file that cannot be added, for one message.
struct Complaints {
  std::vector<std::string> unknown, strangers, other_channels, pruned, convolutions, misshaped;

  std::string text() const {
    std::string all;
    const auto add = [&](const std::vector<std::string>& list, const char* kind) {
      if (list.empty()) return;
      all += (all.empty() ? "" : "; ") + std::to_string(list.size()) + kind + first_of(list);
    };
    add(unknown,
        unknown.size() == 1 ? " layer that this model does not have: " : " layers that this model does not have: ");
    add(strangers,
        strangers.size() == 1 ? " tensor that is not part of a LoRA: " : " tensors that are not part of a LoRA: ");
    add(other_channels, " with other input channels: ");
    add(pruned, " for layers that either the LoRA or the checkpoint has in a pruned form: ");
    add(convolutions, " for convolutions with a kernel in B, which are not supported: ");
    add(misshaped, " with another shape: ");
    return all;
  }
};

/// Says how the LoRA's model differs from this one: "it was made for inner width 5120, but this transformer has 1536".
/// Empty if no difference is known.
std::string difference(const LoraOrigin& origin, const Family& family, const ModelSpec& spec) {
  if (origin.family == nullptr) return "its layers belong to no model that this program knows";
  if (origin.family->name != family.name)
    return "it seems to be made for " + origin.family->name + ", but this checkpoint is " + family.name;
  const auto differs = [](const std::string& there, int64_t here) {
    return "it was made for " + there + ", but this transformer has " + std::to_string(here);
  };
  const int64_t width = spec.heads * spec.head_dim;
  if (origin.width != 0 && origin.width != width) return differs("inner width " + std::to_string(origin.width), width);
  if (origin.blocks > spec.layers) return differs(std::to_string(origin.blocks) + " blocks", spec.layers);
  return {};
}

bool names_experts(const LoraFile& lora, const ModelSpec& spec) {
  return lora.numbers_transformers || std::ranges::any_of(lora.layers, [&](const LoraLayer& layer) {
           const auto is_of = [&](const ExpertSpec& expert) { return layer.part == expert.role; };
           return std::any_of(spec.experts.begin() + 1, spec.experts.end(), is_of);
         });
}

/// Adds one file to the checkpoint.
class Adding {
 public:
  Adding(Checkpoint& checkpoint, const ModelSpec& spec, const LoraChoice& choice, bool strict)
      : checkpoint_(checkpoint),
        family_(*find_family(checkpoint.pipeline_class())),
        spec_(spec),
        choice_(choice),
        lora_(read_lora(choice.file)),
        strict_(strict),
        names_experts_(names_experts(lora_, spec)) {}

  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Adds the file's changes, or none if the scale is 0. Returns true if the text encoder changes.
  bool run() {
    if (!choice_.expert.empty() && names_experts_)
      throw bad_option("lora", text_of({choice_}, true) + ": its layers already name the transformer that they are for",
                       "leave @" + choice_.expert + " out");
    for (const LoraLayer& layer : lora_.layers) {
      const std::vector<std::string> roles = roles_of(layer);
      if (roles.empty()) complaints_.unknown.push_back(in_quotes(layer.part + "." + layer.name));
      for (const std::string& role : roles) add(layer, role);
    }
    refuse_or_warn();
    if (choice_.scale == 0) return false;
    for (const auto& [role, deltas] : deltas_) checkpoint_.add(role, deltas);
    return deltas_.contains(kTextEncoder);
  }

 private:
  /// Returns the components that the layer changes.
  std::vector<std::string> roles_of(const LoraLayer& layer) const {
    std::vector<std::string> roles;
    for (const ExpertSpec& expert : spec_.experts) {
      const bool chosen = choice_.expert.empty() || choice_.expert == expert.name;
      // If a file names only the first transformer, this does not mean that its layers are for that transformer alone:
      // trainers write this name for every expert.
      const bool of_all = layer.part.empty() || (layer.part == spec_.experts.front().role && !names_experts_);
      const bool named = of_all || layer.part == expert.role;
      if (chosen && named) roles.push_back(expert.role);
    }
    if (layer.part == kTextEncoder) roles.push_back(kTextEncoder);  // all experts share it
    return roles;
  }

  void add(const LoraLayer& layer, const std::string& role) {
    if (layer.up != nullptr && product(layer.up->shape, 2) != 1)
      return note(complaints_.convolutions, in_quotes(layer.up->name));
    const LayerSpellings& layers = layers_of(role);
    std::vector<PlacedName> changed = layers.find(layer);
    if (changed.empty()) changed.push_back({});  // so that take() reports each of the layer's tensors as unknown
    for (const PlacedName& place : changed) {
      take(layers, {role, place}, layer.up, layer.down, ".weight", layer.strength);
      take(layers, {role, place}, layer.bias, nullptr, ".bias", layer.strength);
      take(layers, {role, place}, layer.diff, nullptr, ".weight", 1);
      take(layers, {role, place}, layer.diff_bias, nullptr, ".bias", 1);
    }
  }

  const LayerSpellings& layers_of(const std::string& role) {
    const auto with_adapter = role == kTextEncoder ? std::nullopt : family_.lora.names_with_adapter;
    return layers_.try_emplace(role, checkpoint_.component(role), family_.part(role), with_adapter).first->second;
  }

  struct PlacedLayer {
    const std::string& role;
    const PlacedName& layer;
  };
  void take(const LayerSpellings& layers, const PlacedLayer& place, const TensorEntry* entry, const TensorEntry* down,
            const char* kind, double strength) {
    if (entry == nullptr) return;
    const std::string tensor = layers.tensor(place.layer.name, kind);
    if (tensor.empty()) return note(complaints_.unknown, in_quotes(entry->name));
    WeightDelta delta = {.file = lora_.file, .up = entry, .down = down, .scale = choice_.scale * strength};
    Shape shape = entry->shape;
    if (const auto part =
            place.layer.rows == nullptr ? std::nullopt : part_of(*entry, *place.layer.rows, spec_.head_dim)) {
      delta.up = delta.made.emplace_back(std::make_shared<TensorEntry>(*part)).get();
      shape = part->shape;
    }
    const Shape wanted = layers.shape_for(tensor, down == nullptr ? shape : down->shape);
    if (down != nullptr) {
      shape = down->shape;
      shape[0] = delta.up->shape[0];
      delta.up = delta.made.emplace_back(as_matrix(*delta.up)).get();
      delta.down = delta.made.emplace_back(as_matrix(*down)).get();
    }
    if (down == nullptr ? shape != wanted : !product_fits(shape, wanted, layers.rows(place.layer.name)))
      return note(is_pruned(place.layer.name, shape, wanted) ? complaints_.pruned
                  : takes_other_channels(shape, wanted)      ? complaints_.other_channels
                                                             : complaints_.misshaped,
                  in_quotes(entry->name) + " is for " + shape_text(shape) + ", but " + in_quotes(tensor) + " is " +
                      shape_text(wanted));
    if (!fits_float(delta.scale))
      throw bad_option("lora",
                       text_of({choice_}, true) + ": with the file's alpha the scale of " + in_quotes(entry->name) +
                           " is " + exact_text(delta.scale) + ", more than a float holds",
                       "give a smaller scale");
    deltas_[place.role][tensor].push_back(std::move(delta));
  }

  /// Returns true if the shapes differ because either the checkpoint or the LoRA's model is pruned. A pruned model has
  /// fewer inputs of this layer.
  bool is_pruned(const std::string& layer, const Shape& shape, const Shape& wanted) const {
    const auto is_end = [&](const std::string& end) { return layer.ends_with(end); };
    return std::ranges::any_of(family_.lora.pruned, is_end) && shape.size() == 2 && wanted.size() == 2 &&
           shape[0] == wanted[0] && shape[1] != wanted[1];
  }

  /// Adds a complaint once, even if two experts have it.
  static void note(std::vector<std::string>& list, const std::string& complaint) {
    if (std::ranges::find(list, complaint) == list.end()) list.push_back(complaint);
  }

  /// Warns about layers that do not fit, or throws if the file seems to be for another model.
  void refuse_or_warn() {
    complaints_.strangers = lora_.strangers;
    const std::string listed = complaints_.text(), file = choice_.file.string();
    if (lora_.guesses_alpha)
      warnings_.push_back(file + ": has PEFT's names but no alpha, so alpha is taken to be the rank");
    if (listed.empty()) return;
    const LoraOrigin origin = origin_of(lora_);
    const std::string why = difference(origin, family_, spec_);
    const bool other_model = origin.family != nullptr && !why.empty();
    if (!strict_ && !deltas_.empty() && complaints_.misshaped.empty() && !other_model) {
      warnings_.push_back(file + ": left out: " + listed);
      return;
    }
    if (const std::string what = foreign_model(choice_.file); !what.empty()) throw foreign_file(choice_.file, what);
    throw bad_file(choice_.file, (why.empty() ? "does not fit this model" : why) + ": " + listed,
                   "use a LoRA that was trained on this model; 'sparsereel inspect' shows what one is for");
  }

  Checkpoint& checkpoint_;
  const Family& family_;
  const ModelSpec& spec_;
  const LoraChoice& choice_;
  LoraFile lora_;
  bool strict_;
  // True if the layers' names tell which of several transformers they belong to.
  bool names_experts_;
  std::map<std::string, LayerSpellings> layers_;  // by role
  std::map<std::string, WeightDeltas> deltas_;    // by role
  Complaints complaints_;
  std::vector<std::string> warnings_;
};

/// Returns a warning that says which files are added to which expert because of their names; empty if there are none.
std::string chosen_by_name(const std::vector<LoraChoice>& given, const std::vector<LoraChoice>& chosen) {
  std::string files;
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].expert != chosen[i].expert)
      files += (files.empty() ? "" : ", ") + chosen[i].file.string() + " to the transformer for " + chosen[i].expert +
               " noise";
  return files.empty() ? files
                       : "the names of LoRAs decide to which transformer they are added: " + files +
                             "; FILE@high or FILE@low overrides that";
}

void check_expert(const LoraChoice& choice, const ModelSpec& spec) {
  if (choice.expert.empty()) return;
  std::vector<std::string> names;
  for (const ExpertSpec& expert : spec.experts) names.push_back(expert.name);
  if (std::ranges::find(names, choice.expert) != names.end()) return;
  const std::string given = text_of({choice}, true);
  if (names.size() == 1)
    throw bad_option("lora", given + ": this model has only one transformer", "leave @" + choice.expert + " out");
  throw bad_option("lora", given + ": no transformer is called " + choice.expert, "use " + list_of(names));
}

}  // namespace

std::string hash_of(const std::vector<LoraChoice>& loras) {
  std::string hashes;
  for (const LoraChoice& lora : loras) {
    const std::filesystem::path config = adapter_config_of(lora.file);
    const std::string own = sha256_of_file(lora.file);
    hashes += (hashes.empty() ? "" : ",") + (config.empty() ? own : sha256(own + sha256_of_file(config)));
  }
  return hashes;
}

LoraOrigin origin_of(const LoraFile& lora) {
  LoraOrigin best;
  size_t most = 0;
  for (const Family& family : families()) {
    LoraOrigin origin;
    const size_t known = count_known(lora, family, origin);
    if (known > most) best = origin;
    most = std::max(most, known);
  }
  best.expert = expert_of_file(lora.file->path());
  if (best.naming.empty()) best.naming = lora.layers.front().underscores ? "kohya" : "diffusers";
  return best;
}

std::vector<LoraChoice> with_experts(std::vector<LoraChoice> loras, const ModelSpec& spec) {
  if (spec.experts.size() < 2) return loras;
  for (LoraChoice& lora : loras) {
    const std::string expert = lora.expert.empty() ? expert_of_file(lora.file) : "";
    const bool known = std::ranges::find(spec.experts, expert, &ExpertSpec::name) != spec.experts.end();
    if (known && !names_experts(read_lora(lora.file), spec)) lora.expert = expert;
  }
  return loras;
}

std::vector<std::string> add_loras(Checkpoint& checkpoint, const ModelSpec& spec, const std::vector<LoraChoice>& given,
                                   bool strict) {
  std::vector<std::string> warnings;
  if (given.empty()) return warnings;
  if (checkpoint.component(spec.experts.front().role).random_seed)
    throw bad_option("lora", "has no effect on random weights, for which no LoRA was trained", "name a checkpoint");
  const std::vector<LoraChoice> loras = with_experts(given, spec);
  if (const std::string chosen = chosen_by_name(given, loras); !chosen.empty()) warnings.push_back(chosen);
  // The files that have changed the text encoder so far, each with the expert for which it was given first.
  std::map<std::filesystem::path, std::string> experts;
  for (const LoraChoice& choice : loras) {
    check_expert(choice, spec);
    Adding adding(checkpoint, spec, choice, strict);
    const bool changes_text = adding.run();
    warnings.insert(warnings.end(), adding.warnings().begin(), adding.warnings().end());
    if (!changes_text) continue;
    const auto [before, is_new] = experts.emplace(std::filesystem::weakly_canonical(choice.file), choice.expert);
    if (!is_new && before->second + choice.expert != "")
      throw bad_option("lora",
                       text_of({choice}, true) + ": its layers of the text encoder, which all transformers share, " +
                           "would be added twice",
                       "give the file once; without @high or @low it changes all transformers");
  }
  return warnings;
}

}  // namespace sparsereel::models
