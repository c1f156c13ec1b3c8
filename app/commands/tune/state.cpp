// The state as a safetensors file: the heads' numbers and the latents are tensors, the rest is JSON.
#include "app/commands/tune/state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/job/outputs.h"
#include "app/tensor_file.h"
#include "hilbert/error.h"
#include "models/checkpoint/safetensors.h"

namespace sparsereel::app::tuning {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

BesideKind search_kind() {
  return {.name = "search", .ending = ""};
}

Error damaged(const fs::path& path) {
  return bad_input(path.string() + " is no search that 'sparsereel tune' left there", "delete it and tune anew");
}

json to_json(const VideoFigures& figures) {
  return {figures.psnr, figures.ssim, figures.step_seconds};
}

VideoFigures figures_of(const json& numbers) {
  return {.psnr = numbers.at(0).get<double>(),
          .ssim = numbers.at(1).get<double>(),
          .step_seconds = numbers.at(2).get<double>()};
}

json to_json(const VideoCheck& check) {
  return {{"dense_steps", check.start.steps},
          {"dense_layers", check.start.layers},
          {"figures", to_json(check.figures)},
          {"untuned_step_seconds", check.untuned_step_seconds}};
}

VideoCheck check_of(const json& entry) {
  return {.start = {.steps = entry.at("dense_steps").get<int64_t>(), .layers = entry.at("dense_layers").get<int64_t>()},
          .figures = figures_of(entry.at("figures")),
          .untuned_step_seconds = entry.at("untuned_step_seconds").get<double>()};
}

json to_json(const TuneState& state) {
  json text = {{"key", state.key},
               {"sampled", state.sampled},
               {"full_step_seconds", state.full_step_seconds},
               {"checked_samples", state.checked_samples},
               {"checked_videos", state.checked_videos},
               {"checks", json::array()}};
  if (state.untuned) text["untuned"] = to_json(*state.untuned);
  for (const VideoCheck& check : state.checks) text["checks"].push_back(to_json(check));
  return text;
}

std::vector<double> numbers_of(const models::TensorFile& file) {
  const models::TensorEntry* entry = file.find("heads");
  if (entry == nullptr || entry->dtype != models::Dtype::f64) throw damaged(file.path());
  std::vector<double> numbers(entry->bytes / sizeof(double));
  std::memcpy(numbers.data(), file.data(*entry).data(), numbers.size() * sizeof(double));
  return numbers;
}

/// Those of the first prompts, without a gap.
std::map<int64_t, at::Tensor> latents_of(const models::TensorFile& file, const SearchLimits& limits) {
  std::map<int64_t, at::Tensor> latents;
  const auto entry_of = [&](int64_t prompt) { return file.find("latents." + std::to_string(prompt)); };
  for (int64_t prompt = 0; const models::TensorEntry* entry = entry_of(prompt); ++prompt) {
    if (prompt >= limits.prompts || entry->dtype != models::Dtype::f32 || entry->shape != limits.latents)
      throw damaged(file.path());
    latents[prompt] = copy_of(file, *entry);
  }
  return latents;
}

void read_heads(const models::TensorFile& file, const attention::HeadSearch& search, const SearchLimits& limits,
                TuneState& state) {
  const std::vector<double> numbers = numbers_of(file);
  std::span<const double> left = numbers;
  state.heads.assign(limits.layers, {limits.heads, search});
  try {
    for (auto& layer : state.heads)
      for (attention::HeadSearch& head : layer) left = head.restore(left);
  } catch (const Error&) {  // it does not know the file
    throw damaged(file.path());
  }
  if (!left.empty()) throw damaged(file.path());
}

/// What was checked needs the videos and figures that it was compared with.
bool fits(const TuneState& state, const SearchLimits& limits) {
  const auto is_planned = [&](const std::pair<int64_t, int64_t>& sample) {
    return sample.first >= 0 && sample.first < limits.prompts && sample.second >= 0 && sample.second < limits.steps;
  };
  const auto videos = static_cast<int64_t>(state.latents.size());
  return !state.sampled.empty() && std::all_of(state.sampled.begin(), state.sampled.end(), is_planned) &&
         state.full_step_seconds >= 0 && state.checks.empty() == !state.untuned &&
         (state.checks.empty() ||
          (state.check_of({}) != nullptr && state.checked_videos >= 1 && state.checked_videos <= videos));
}

TuneState read(const models::TensorFile& file, const json& text, const attention::HeadSearch& search,
               const SearchLimits& limits) {
  TuneState state;
  state.key = text.at("key").get<std::string>();
  state.sampled = text.at("sampled").get<std::set<std::pair<int64_t, int64_t>>>();
  state.full_step_seconds = text.at("full_step_seconds").get<double>();
  state.checked_samples = text.at("checked_samples").get<int64_t>();
  state.checked_videos = text.at("checked_videos").get<int64_t>();
  if (text.contains("untuned")) state.untuned = figures_of(text.at("untuned"));
  for (const json& check : text.at("checks")) state.checks.push_back(check_of(check));
  state.latents = latents_of(file, limits);
  read_heads(file, search, limits, state);
  if (!fits(state, limits)) throw damaged(file.path());
  return state;
}

/// Nothing where it is of another key.
std::optional<TuneState> load(const fs::path& path, const std::string& key, const attention::HeadSearch& search,
                              const SearchLimits& limits) {
  try {
    const models::TensorFile file(path);
    const auto found = file.metadata().find("search");
    if (found == file.metadata().end()) throw damaged(path);
    const json text = json::parse(found->second);
    if (text.at("key") != key) return std::nullopt;
    return read(file, text, search, limits);
  } catch (const json::exception&) {
    throw damaged(path);
  } catch (const Error& error) {
    throw bad_input(error.what(), damaged(path).remedy());
  }
}

}  // namespace

const VideoCheck* TuneState::check_of(const attention::DenseStart& start) const {
  const auto found =
      std::find_if(checks.begin(), checks.end(), [&](const VideoCheck& check) { return check.start == start; });
  return found == checks.end() ? nullptr : &*found;
}

int64_t TuneState::least_calls() const {
  int64_t least = heads.empty() ? 0 : heads.front().front().calls();
  for (const auto& layer : heads)
    for (const attention::HeadSearch& head : layer) least = std::min(least, head.calls());
  return least;
}

void TuneState::save(const fs::path& path) const {
  std::vector<double> numbers;
  for (const auto& layer : heads)
    for (const attention::HeadSearch& head : layer) head.save(numbers);
  std::vector<models::TensorView> tensors = {{.name = "heads",
                                              .dtype = models::Dtype::f64,
                                              .shape = {static_cast<int64_t>(numbers.size())},
                                              .data = std::as_bytes(std::span(numbers))}};
  for (const auto& [prompt, tensor] : latents) tensors.push_back(view_of("latents." + std::to_string(prompt), tensor));
  models::write_safetensors(path, tensors, {{"search", to_json(*this).dump()}});
}

fs::path missed_beside(const fs::path& profile) {
  return fs::path(profile).replace_filename(profile.stem().string() + ".missed" + profile.extension().string());
}

std::vector<fs::path> states_beside(const fs::path& profile) {
  std::vector<fs::path> files = files_beside(profile, search_kind());
  files.push_back(free_beside(profile, search_kind()));
  return files;
}

OwnState find_state(const fs::path& profile, const std::string& key, const attention::HeadSearch& search,
                    const SearchLimits& limits) {
  OwnState own;
  own.state.key = key;
  for (const fs::path& path : files_beside(profile, search_kind())) {
    if (auto state = load(path, key, search, limits)) {
      own.path = path;
      own.state = *std::move(state);
      return own;
    }
    own.others.push_back(path);
  }
  own.path = free_beside(profile, search_kind());
  return own;
}

}  // namespace sparsereel::app::tuning
