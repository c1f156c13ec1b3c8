// Takes from a recipe only options that change the frames, because the recipe may come from a stranger's file.
#include "app/options/recipe.h"

#include <algorithm>
#include <map>
#include <set>

#include "app/json_fields.h"
#include "app/media/video.h"
#include "attention/policies/policy.h"
#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/request/request.h"
#include "models/store/configs/data_folder.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRandomWeights = "random weights of ";

/// Returns true for options that a recipe may set: those that change the frames. The author of the file must not
/// choose, for example, which files are written.
bool is_value(const std::string& key) {
  const OptionSpec* option = find_option(key);
  return option != nullptr && option->key() == key && option->recipe == InRecipe::value;
}

/// Returns true for fields of a recipe that set no option. `threads` is an option, but does not change the video; older
/// recipes hold it.
bool is_fact(const std::string& key) {
  static const std::set<std::string, std::less<>> facts = {"version", "sparsity", "model",
                                                           "threads", "files",    "attribution"};
  const OptionSpec* option = find_option(key);
  return facts.contains(key) || (option != nullptr && option->recipe == InRecipe::file);
}

/// The recipe's fields with hashes of files, and what recipe_mismatches() calls each file.
const std::map<std::string, const char*, std::less<>> kHashes = {
    {"model_sha256", "model"},     {"init_latents_sha256", "file of --init-latents"},
    {"image_sha256", "image"},     {"last_image_sha256", "last image"},
    {"profile_sha256", "profile"}, {"lora_sha256", "LoRA"}};

nlohmann::json read_fields(const fs::path& video) {
  const std::string text = read_recipe(video);
  nlohmann::json recipe = models::parse_json_if_valid(text);
  if (recipe.is_discarded() && text.starts_with('{'))
    throw bad_option("from", video.string() + ": its recipe is not valid JSON, so it was cut off or changed",
                     "give the options one by one");
  if (is_recipe(recipe) && !text_of(recipe, "model").empty()) return recipe;
  throw bad_option("from", video.string() + " carries no recipe", kNoRecipeRemedy);
}

Error unknown_field(const std::string& key, const nlohmann::json& recipe, const fs::path& video) {
  const std::string version = text_of(recipe, "version"), remedy = "give the options one by one";
  if (version == SPARSEREEL_VERSION)
    return bad_option(
        "from", video.string() + ": its recipe holds " + key + ", which this program never writes, so it was changed",
        remedy);
  return bad_option("from", video.string() + ": this version does not know the recipe's " + key,
                    "use version " + version + " of the program, or " + remedy);
}

std::map<std::string, std::string> option_values(const nlohmann::json& recipe, const fs::path& video) {
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : recipe.items()) {
    if (is_fact(key) || kHashes.contains(key)) continue;
    if (!is_value(key)) throw unknown_field(key, recipe, video);
    if (!value.is_string() && !value.is_number() && !value.is_boolean())
      throw bad_option("from", video.string() + ": the recipe's " + key + " is not a single value",
                       "make the video again, or give the options one by one");
    values[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return values;
}

/// Returns option key and path if the name is that of a model that comes with the program; nothing for any other name.
std::optional<std::pair<std::string, fs::path>> own_model(const std::string& name) {
  const bool random = name.starts_with(kRandomWeights);
  // Use only the last part of the name, so that a stranger's recipe cannot name a file outside of these folders.
  const fs::path file = fs::path(random ? name.substr(kRandomWeights.size()) : name).filename();
  const fs::path path = models::data_folder() / (random ? "configs" : "assets") / file;
  if (file.empty() || !(random ? fs::is_regular_file(path) : fs::is_regular_file(path / "model_index.json")))
    return std::nullopt;
  return std::pair(random ? "random_weights" : "model", path);
}

/// Adds --dropped none and --select mass (SpargeAttn's method) to recipes of sparse videos that lack `dropped`. Such
/// recipes come from versions without means; the defaults of this version would make another video.
void add_published_method(std::map<std::string, std::string>& values) {
  const auto mode = values.find("attention");
  const bool drops = mode != values.end() && (mode->second == "sparse" || mode->second == "check");
  if (!drops || values.contains("dropped")) return;
  values["dropped"] = attention::name(attention::Dropped::none);
  values["select"] = attention::name(attention::Ranking::mass);
}

/// Returns a list of the model's parts whose files differ: " (vae: now a.safetensors, then b.safetensors)". If the
/// names are equal, lists only the part's role.
std::string other_files(const nlohmann::json& then, const nlohmann::json& now) {
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json before = then.value("files", none), after = now.value("files", none);
  if (!before.is_object()) return {};
  std::string text;
  for (const auto& [role, file] : after.items()) {
    const auto other = before.find(role);
    if (other == before.end() || !other->is_object() || text_of(*other, "sha256") == text_of(file, "sha256")) continue;
    const std::string name = text_of(file, "name"), old_name = text_of(*other, "name");
    text += (text.empty() ? " (" : ", ") + role + (name == old_name ? "" : ": now " + name + ", then " + old_name);
  }
  return text.empty() ? text : text + ")";
}

/// Returns true if options that stronger sources than the recipe give already decide about sparsity. The profile that
/// the recipe names is then not needed.
bool overrides_profile(const Settings& settings) {
  if (std::ranges::any_of(models::kSelectionNames, [&](const char* key) { return settings.has(key); })) return true;
  for (const models::Option& option : settings.options().all())
    if (has_no_effect(option, NoEffect::profile) && settings.has(option.key)) return true;
  const std::string attention = settings.text("attention", "");
  return attention == "full" || attention == "quantized";
}

}  // namespace

bool recipe_has_profile(const Settings& settings) {
  const auto video = settings.text("from");
  return video && read_fields(*video).contains("profile");
}

void add_recipe(Settings& settings, const fs::path& video) {
  const nlohmann::json recipe = read_fields(video);
  std::map<std::string, std::string> values = option_values(recipe, video);
  add_published_method(values);
  if (settings.has("dropped")) values.erase("select");  // then --select follows from the user's --dropped
  if (!settings.has("model") && !settings.has("random_weights")) {
    const std::string name = text_of(recipe, "model");
    const auto model = own_model(name);
    if (model) values[model->first] = model->second.string();
    if (!model && !settings.has("transformer"))
      throw bad_option("from", video.string() + ": it was made with the model " + name + ", which no option names",
                       "name that model's folder with -m" +
                           std::string(name.starts_with(kRandomWeights) ? ", or its YAML with --random-weights" : ""));
  }
  for (const OptionSpec& option : option_table()) {
    if (option.recipe != InRecipe::file || (option.key() == "profile" && overrides_profile(settings))) continue;
    if (recipe.contains(option.key()) && !settings.has(option.key()))
      throw bad_option(
          "from",
          video.string() + ": it was made with the file " + text_of(recipe, option.key()) + ", which no option names",
          "name that file with " + option_name(option.key()));
  }
  settings.add(Source::recipe, values, video.string());
}

std::vector<std::string> recipe_mismatches(const Settings& settings, const nlohmann::json& recipe) {
  const auto video = settings.text("from");
  if (!video) return {};
  const nlohmann::json then = read_fields(*video);
  std::vector<std::string> warnings;
  if (const std::string version = text_of(then, "version"); version != SPARSEREEL_VERSION)
    warnings.push_back(*video + " was made by version " + version + " of the program, and this is " +
                       SPARSEREEL_VERSION + ": the new video may differ");
  const std::string loras = text_of(then, "lora");
  if (!loras.empty() && text_of(recipe, "lora") != loras)
    warnings.push_back(*video + " was made with " + loras + ": the new video differs");
  for (const auto& [key, what] : kHashes) {
    const std::string hash = text_of(then, key), now = text_of(recipe, key);
    if (!hash.empty() && !now.empty() && hash != now)
      warnings.push_back(std::string("the ") + what + (key == "model_sha256" ? other_files(then, recipe) : "") +
                         " is not the one that " + *video + " was made with: the new video differs");
  }
  return warnings;
}

}  // namespace sparsereel::app
