// Reads and writes profiles with yaml-cpp.
#include "attention/policies/profile.h"

#include <yaml-cpp/yaml.h>

#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <set>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"

namespace sparsereel::attention {
namespace {

constexpr int64_t kMost = 1'000'000;  // largest number of pixels, frames, steps and layers
constexpr size_t kMostLayers = 512, kMostHeads = 512;
constexpr const char* kRemedy = "correct the file, or make it again with 'sparsereel tune'";

/// A map in the YAML file. The caller takes the keys one by one; finish() then rejects keys that were not taken.
class Fields {
 public:
  Fields(const YAML::Node& node, std::string file, std::string path)
      : node_(node), file_(std::move(file)), path_(std::move(path)) {
    if (!node.IsMap()) throw fail(node, path_.empty() ? "the file" : path_, "is not a map of keys to values");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) throw fail(entry.first, path_, "has a key that is not a single word");
      if (!seen.insert(entry.first.Scalar()).second)
        throw fail(entry.first, name(entry.first.Scalar()), "appears twice");
    }
    unknown_ = std::move(seen);
  }

  bool has(const std::string& key) const { return static_cast<bool>(node_[key]); }
  YAML::Node child(const std::string& key) {
    unknown_.erase(key);
    const YAML::Node child = node_[key];
    if (!child) throw fail(node_, name(key), "is missing");
    return child;
  }
  Fields map(const std::string& key) { return {child(key), file_, name(key)}; }
  std::string text(const std::string& key) {
    const YAML::Node node = child(key);
    if (!node.IsScalar()) throw fail(node, name(key), "is not a single value");
    return node.Scalar();
  }
  double number(const std::string& key, double least, double most) {
    const std::string written = text(key);
    double value = 0;
    const auto [stop, error] = std::from_chars(written.data(), written.data() + written.size(), value);
    if (error != std::errc{} || stop != written.data() + written.size() || !std::isfinite(value))
      throw fail(node_[key], name(key), "is not a number");
    if (value < least || value > most) throw fail(node_[key], name(key), "is out of range: " + written);
    return value;
  }
  int64_t whole(const std::string& key, int64_t most) {
    const double value = number(key, 0, static_cast<double>(most));
    if (value != std::floor(value)) throw fail(node_[key], name(key), "is not a whole number");
    return static_cast<int64_t>(value);
  }
  /// Throws Error if the map has a key that was not taken.
  void finish() const {
    if (!unknown_.empty()) throw fail(node_, name(*unknown_.begin()), "is unknown");
  }
  Error fail(const YAML::Node& at, const std::string& what, const std::string& wrong) const {
    return refused(at, what + " " + wrong);
  }
  Error refused(const std::string& wrong) const { return refused(node_, wrong); }

 private:
  Error refused(const YAML::Node& at, const std::string& wrong) const {
    return {ErrorKind::bad_input,
            file_ + ":" + std::to_string(at.Mark().line + 1) + ": " + wrong,
            kRemedy,
            {.file = file_}};
  }
  std::string name(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

  YAML::Node node_;
  std::string file_, path_;
  std::set<std::string> unknown_;
};

ProfileSetting read_setting(Fields fields) {
  ProfileSetting setting;
  setting.width = fields.whole("width", kMost);
  setting.height = fields.whole("height", kMost);
  setting.frames = fields.whole("frames", kMost);
  setting.steps = fields.whole("steps", kMost);
  setting.token_order = fields.text("token_order");
  setting.device = fields.text("device");
  setting.dtype = fields.text("dtype");
  fields.finish();
  return setting;
}

ProfileQuality read_quality(Fields& fields) {
  ProfileQuality quality;
  if (fields.has("psnr")) quality.psnr = fields.number("psnr", 0, 1000);
  if (fields.has("ssim")) quality.ssim = fields.number("ssim", -1, 1);
  if (fields.has("psnr_lowest")) quality.psnr_lowest = fields.number("psnr_lowest", 0, 1000);
  if (fields.has("speedup")) quality.speedup = fields.number("speedup", 0, 1e6);
  for (const auto& [key, field] :
       {std::pair{"seconds", &ProfileQuality::seconds}, std::pair{"full_seconds", &ProfileQuality::full_seconds}})
    if (fields.has(key)) quality.*field = fields.number(key, 0, 1e9);
  return quality;
}

std::map<std::string, std::string> read_settings(const YAML::Node& node, Fields fields) {
  std::map<std::string, std::string> settings;
  for (const auto& entry : node) settings[entry.first.Scalar()] = fields.text(entry.first.Scalar());
  return settings;
}

ProfileHead read_head(Fields fields) {
  ProfileHead head;
  head.error = fields.number("error", 0, kMostRelativeL1);
  head.sparsity = fields.number("sparsity", 0, 1);
  if (fields.has("dense")) {
    if (fields.text("dense") != "true") throw fields.refused("dense is not 'true'");
    head.policy.dense = true;
  } else {
    for (const SelectionField& each : kSelections)
      if (fields.has(each.key)) head.policy.selection = each.selection;
    const SelectionField& field = field_of(head.policy.selection);
    head.policy.*field.value = fields.number(field.key, 0, field.most);
    head.policy.similarity = fields.number("similarity", -1, 1);
    head.policy.pv_threshold = fields.number("pv_threshold", 0, 1e6);
    try {
      validate(head.policy, "");
    } catch (const Error& error) {  // the inner error names neither file nor line
      throw fields.refused(error.what());
    }
  }
  fields.finish();
  return head;
}

std::vector<std::vector<ProfileHead>> read_layers(const YAML::Node& layers, const std::string& file,
                                                  const Fields& fields) {
  if (!layers.IsSequence() || layers.size() == 0 || layers.size() > kMostLayers)
    throw fields.fail(layers, "layers", "is not a list of 1 to " + std::to_string(kMostLayers) + " layers");
  std::vector<std::vector<ProfileHead>> result;
  for (const auto& layer : layers) {
    const std::string name = "layers[" + std::to_string(result.size()) + "]";
    if (!layer.IsSequence() || layer.size() == 0 || layer.size() > kMostHeads)
      throw fields.fail(layer, name, "is not a list of 1 to " + std::to_string(kMostHeads) + " heads");
    std::vector<ProfileHead> heads;
    for (const auto& head : layer)
      heads.push_back(read_head({head, file, name + "[" + std::to_string(heads.size()) + "]"}));
    if (!result.empty() && heads.size() != result.front().size())
      throw fields.fail(
          layer, name,
          "has " + std::to_string(heads.size()) + " heads, layers[0] has " + std::to_string(result.front().size()));
    result.push_back(std::move(heads));
  }
  return result;
}

void read_measured(Fields fields, bool by_head, Profile& profile) {
  if (by_head) {
    profile.error = fields.number("error", 0, kMostRelativeL1);
    profile.sparsity = fields.number("sparsity", 0, 1);
  }
  profile.quality = read_quality(fields);
  fields.finish();
}

void read_untuned(Fields fields, Profile& profile) {
  profile.untuned_sparsity = fields.number("sparsity", 0, 1);
  profile.untuned = read_quality(fields);
  fields.finish();
}

/// Reads what replaces dropped blocks, and the ranking. Files without these keys were made with SpargeAttn's published
/// method, which uses no means.
void read_means(Fields& fields, Profile& profile) {
  profile.dropped = Dropped::none;
  profile.ranking = Ranking::mass;
  if (!fields.has("dropped") && !fields.has("select") && !fields.has("cell")) return;
  const auto choose = [&](const char* key, const auto& choices) {
    const std::string text = fields.text(key);
    for (const auto choice : choices)
      if (name(choice) == text) return choice;
    throw fields.fail(fields.child(key), key,
                      "is " + text + ", not " + std::string(name(choices[0])) + " or " + std::string(name(choices[1])));
  };
  profile.dropped = choose("dropped", std::array{Dropped::mean, Dropped::none});
  profile.ranking = choose("select", std::array{Ranking::error, Ranking::mass});
  profile.cell = fields.whole("cell", 64);
}

/// Reads the part of the file that holds a policy for each head.
void read_heads(Fields& fields, const std::string& file, Profile& profile) {
  Fields bounds = fields.map("bounds");
  profile.bounds = {.l1 = bounds.number("l1", 0, 1e9), .l2 = bounds.number("l2", 0, 1e9)};
  bounds.finish();
  read_untuned(fields.map("untuned"), profile);
  read_means(fields, profile);
  profile.selection_rows = fields.whole("selection_rows", 192);
  profile.dense = {.steps = fields.whole("dense_steps", kMost), .layers = fields.whole("dense_layers", kMost)};
  profile.heads = read_layers(fields.child("layers"), file, fields);
}

Profile read(const YAML::Node& root, const std::string& file) {
  Fields fields(root, file, "");
  Profile profile;
  Fields model = fields.map("model");
  profile.model = model.text("name");
  profile.model_sha256 = model.text("sha256");
  model.finish();
  profile.made_with = read_setting(fields.map("made_with"));
  if (fields.has("settings")) profile.settings = read_settings(fields.child("settings"), fields.map("settings"));
  const bool by_head = profile.settings.empty() || fields.has("layers");  // the oldest profiles have no settings
  read_measured(fields.map("measured"), by_head, profile);
  if (by_head) read_heads(fields, file, profile);
  fields.finish();
  try {
    validate(policy_of(profile));
  } catch (const Error& error) {
    throw fields.refused(error.what());
  }
  return profile;
}

/// Returns the shortest text that reads back as the number rounded to `digits` decimals, enough for measured figures.
std::string short_number(double value, int digits = 4) {
  std::array<char, 64> text{};
  const double scale = std::pow(10.0, digits), rounded = std::round(value * scale) / scale;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), rounded);
  return {text.data(), end};
}

using Pairs = std::initializer_list<std::pair<const char*, std::string>>;

void emit(YAML::Emitter& out, const Pairs& pairs) {
  for (const auto& [key, value] : pairs) out << YAML::Key << key << YAML::Value << value;
}

void emit_flow(YAML::Emitter& out, const char* key, const std::function<void()>& content) {
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginMap;
  content();
  out << YAML::EndMap;
}

void emit(YAML::Emitter& out, const ProfileQuality& quality) {
  if (quality.psnr > 0) emit(out, {{"psnr", short_number(quality.psnr, 2)}, {"ssim", short_number(quality.ssim)}});
  if (quality.psnr_lowest > 0) emit(out, {{"psnr_lowest", short_number(quality.psnr_lowest, 2)}});
  if (quality.speedup > 0) emit(out, {{"speedup", short_number(quality.speedup, 3)}});
  if (quality.seconds > 0)
    emit(out, {{"seconds", short_number(quality.seconds)}, {"full_seconds", short_number(quality.full_seconds)}});
}

void emit(YAML::Emitter& out, const ProfileHead& head) {
  const HeadPolicy& policy = head.policy;
  out << YAML::Flow << YAML::BeginMap;
  if (policy.dense) {
    emit(out, {{"dense", "true"}});
  } else {
    const SelectionField& field = field_of(policy.selection);
    emit(out, {{field.key, exact_text(policy.*field.value)},
               {"similarity", short_number(policy.similarity, 6)},
               {"pv_threshold", short_number(policy.pv_threshold, 6)}});
  }
  emit(out, {{"error", short_number(head.error)}, {"sparsity", short_number(head.sparsity)}});
  out << YAML::EndMap;
}

void emit_settings(YAML::Emitter& out, const Profile& profile) {
  out << YAML::Newline << YAML::Comment("options of a run; those that are given beside the profile win");
  emit_flow(out, "settings", [&] {
    for (const auto& [key, value] : profile.settings) emit(out, {{key.c_str(), value}});
  });
}

/// Writes the policy of each head and the fields that belong to it.
void emit_heads(YAML::Emitter& out, const Profile& profile) {
  emit_flow(out, "untuned", [&] {
    emit(out, {{"sparsity", short_number(profile.untuned_sparsity)}});
    emit(out, profile.untuned);
  });
  emit(out, {{"dropped", std::string(name(profile.dropped))},
             {"select", std::string(name(profile.ranking))},
             {"cell", std::to_string(profile.cell)},
             {"selection_rows", std::to_string(profile.selection_rows)},
             {"dense_steps", std::to_string(profile.dense.steps)},
             {"dense_layers", std::to_string(profile.dense.layers)}});
  out << YAML::Key << "layers" << YAML::Value << YAML::BeginSeq;
  for (size_t layer = 0; layer < profile.heads.size(); ++layer) {
    out << YAML::Newline << YAML::Comment("layer " + std::to_string(layer)) << YAML::BeginSeq;
    for (const ProfileHead& head : profile.heads[layer]) emit(out, head);
    out << YAML::EndSeq;
  }
  out << YAML::EndSeq;
}

}  // namespace

Profile parse_profile(const std::string& text, const std::string& file) {
  YAML::Node root;
  try {  // catches yaml-cpp's exceptions, because they do not name the file
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::bad_input,
                file + ":" + std::to_string(error.mark.line + 1) + ": is not valid YAML: " + error.msg, kRemedy,
                {.file = file});
  }
  return read(root, file);
}

std::string to_yaml(const Profile& profile) {
  // Recipes hold the hash of this text, so its comments must stay as they are.
  YAML::Emitter out;
  const bool by_head = !profile.heads.empty();
  out << YAML::Comment(
      by_head ? "How sparse each head of this model runs, found by 'sparsereel tune'; use it as the profile of a run."
              : "The setting of this model that 'sparsereel tune' found; use it as the profile of a run.");
  out << YAML::Newline << YAML::BeginMap;
  emit_flow(out, "model", [&] { emit(out, {{"name", profile.model}, {"sha256", profile.model_sha256}}); });
  const ProfileSetting& setting = profile.made_with;
  emit_flow(out, "made_with", [&] {
    emit(out, {{"width", std::to_string(setting.width)},
               {"height", std::to_string(setting.height)},
               {"frames", std::to_string(setting.frames)},
               {"steps", std::to_string(setting.steps)},
               {"token_order", setting.token_order},
               {"device", setting.device},
               {"dtype", setting.dtype}});
  });
  if (!profile.settings.empty()) emit_settings(out, profile);
  if (by_head) {
    out << YAML::Newline
        << YAML::Comment("most relative L1 of a head: by its block selection, and with P.V skipped besides");
    emit_flow(out, "bounds", [&] {
      emit(out, {{"l1", short_number(profile.bounds.l1, 6)}, {"l2", short_number(profile.bounds.l2, 6)}});
    });
  }
  out << YAML::Newline << YAML::Comment("on the tuning prompts, against full attention");
  emit_flow(out, "measured", [&] {
    if (by_head) emit(out, {{"error", short_number(profile.error)}, {"sparsity", short_number(profile.sparsity)}});
    emit(out, profile.quality);
  });
  if (by_head) emit_heads(out, profile);
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Policy policy_of(const Profile& profile) {
  Policy policy;
  policy.dropped = profile.dropped;
  policy.ranking = profile.ranking;
  policy.cell = profile.cell;
  policy.selection_rows = profile.selection_rows;
  policy.dense_steps = profile.dense.steps;
  policy.dense_layers = profile.dense.layers;
  for (const auto& layer : profile.heads) {
    policy.per_head.emplace_back();
    for (const ProfileHead& head : layer) policy.per_head.back().push_back(head.policy);
  }
  return policy;
}

}  // namespace sparsereel::attention
