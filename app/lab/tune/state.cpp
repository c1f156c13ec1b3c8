// Saves the state as a safetensors file: the heads' numbers and the latents are tensors, the rest is JSON.
#include "app/lab/tune/state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/jobs/outputs.h"
#include "app/tensor_file.h"
#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/safetensors.h"

namespace sparsereel::app::tuning {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

BesideKind search_kind() {
  return {.name = "search", .ending = ""};
}

Error damaged(const fs::path& path) {
  return bad_input(path.string() + " is not a saved search of 'sparsereel tune'", "delete it and tune again");
}

json to_json(const Videos& videos) {
  json all = json::array();
  for (const auto& [prompt, seen] : videos)
    all.push_back({prompt, seen.psnr, seen.ssim, seen.computed_steps, seen.computed_dense_steps, seen.share});
  return all;
}

Videos videos_of(const json& all) {
  Videos videos;
  for (const json& each : all) {
    const auto number = [&](size_t i) { return each.at(i).get<double>(); };
    videos[each.at(0).get<size_t>()] = {.psnr = number(1),
                                        .ssim = number(2),
                                        .computed_steps = number(3),
                                        .computed_dense_steps = number(4),
                                        .share = number(5)};
  }
  return videos;
}

json to_json(const TuneState& state) {
  const HeadState& heads = state.heads;
  json text = {{"key", state.key},
               {"steps", state.steps},
               {"videos", json::object()},
               {"heads_of", heads.setting},
               {"sampled", heads.sampled},
               {"compared_samples", heads.compared_samples},
               {"head_videos", to_json(heads.videos)},
               {"head_speedup", heads.speedup}};
  if (heads.topk) text["heads_topk"] = *heads.topk;
  for (const auto& [name, videos] : state.videos) text["videos"][name] = to_json(videos);
  return text;
}

std::vector<double> numbers_of(const models::TensorFile& file) {
  const models::TensorEntry* entry = file.find("heads");
  if (entry == nullptr || entry->dtype != models::Dtype::f64) throw damaged(file.path());
  std::vector<double> numbers(entry->bytes / sizeof(double));
  std::memcpy(numbers.data(), file.data(*entry).data(), numbers.size() * sizeof(double));
  return numbers;
}

/// Returns the latents of the prompts from 0 up to the first prompt that has none.
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

void read_heads(const models::TensorFile& file, const NewHead& new_head, const SearchLimits& limits, TuneState& state) {
  const std::vector<double> numbers = numbers_of(file);
  std::span<const double> left = numbers;
  if (state.heads.sampled.empty()) return;
  state.heads.searches.assign(limits.layers, {limits.heads, new_head(state.heads.topk)});
  try {
    for (auto& layer : state.heads.searches)
      for (attention::HeadSearch& head : layer) left = head.restore(left);
  } catch (const Error&) {  // replaces an error of restore(), which does not name the file
    throw damaged(file.path());
  }
  if (!left.empty()) throw damaged(file.path());
}

/// Returns true if a search with these limits can have saved this state.
bool fits(const TuneState& state, const SearchLimits& limits) {
  const HeadState& heads = state.heads;
  const auto is_planned = [&](const std::pair<int64_t, int64_t>& sample) {
    return sample.first >= 0 && sample.first < limits.prompts && sample.second >= 0 && sample.second < limits.steps;
  };
  const auto is_seen = [&](const Videos& videos) {
    return std::ranges::all_of(videos, [&](const auto& each) {
      const Seen& seen = each.second;
      const auto steps = static_cast<double>(limits.steps);
      return state.latents.contains(static_cast<int64_t>(each.first)) && seen.computed_steps >= 1 &&
             seen.computed_steps <= steps && seen.computed_dense_steps >= 0 &&
             seen.computed_dense_steps <= seen.computed_steps && seen.share >= 0 && seen.share <= 1;
    });
  };
  const bool timed = std::ranges::all_of(
      state.steps, [](const Row& row) { return number_of(row, "ms").value_or(0) > 0 && row.contains("layers"); });
  return timed && (!heads.sampled.empty() || !state.latents.empty()) &&
         std::ranges::all_of(heads.sampled, is_planned) && is_seen(heads.videos) && heads.speedup >= 0 &&
         std::ranges::all_of(state.videos, [&](const auto& each) { return is_seen(each.second); });
}

TuneState read(const models::TensorFile& file, const json& text, const NewHead& new_head, const SearchLimits& limits) {
  TuneState state;
  state.key = text.at("key").get<std::string>();
  state.steps = text.at("steps").get<Rows>();
  for (const auto& [name, videos] : text.at("videos").items()) state.videos[name] = videos_of(videos);
  state.heads.setting = text.at("heads_of").get<std::string>();
  if (text.contains("heads_topk")) state.heads.topk = text.at("heads_topk").get<double>();
  state.heads.sampled = text.at("sampled").get<std::set<std::pair<int64_t, int64_t>>>();
  state.heads.compared_samples = text.at("compared_samples").get<int64_t>();
  state.heads.videos = videos_of(text.at("head_videos"));
  state.heads.speedup = text.at("head_speedup").get<double>();
  state.latents = latents_of(file, limits);
  read_heads(file, new_head, limits, state);
  if (!fits(state, limits)) throw damaged(file.path());
  return state;
}

/// Reads a saved search. Returns nothing if the file has another key.
std::optional<TuneState> load(const fs::path& path, const std::string& key, const NewHead& new_head,
                              const SearchLimits& limits) {
  try {
    const models::TensorFile file(path);
    const auto found = file.metadata().find("search");
    if (found == file.metadata().end()) throw damaged(path);
    const json text = models::parse_json(found->second, path.string(), "");
    if (text.at("key") != key) return std::nullopt;
    return read(file, text, new_head, limits);
  } catch (const json::exception&) {
    throw damaged(path);
  } catch (const Error& error) {
    throw bad_input(error.what(), damaged(path).remedy());
  }
}

}  // namespace

int64_t TuneState::video_count() const {
  int64_t count = static_cast<int64_t>(heads.videos.size());
  for (const auto& [name, each] : videos) count += static_cast<int64_t>(each.size());
  return count;
}

int64_t TuneState::least_calls() const {
  const HeadSearches& searches = heads.searches;
  int64_t least = searches.empty() ? 0 : searches.front().front().calls();
  for (const auto& layer : searches)
    for (const attention::HeadSearch& head : layer) least = std::min(least, head.calls());
  return least;
}

void TuneState::save(const fs::path& path) const {
  std::vector<double> numbers;
  for (const auto& layer : heads.searches)
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

OwnState find_state(const fs::path& profile, const std::string& key, const NewHead& new_head,
                    const SearchLimits& limits) {
  OwnState own;
  own.state.key = key;
  for (const fs::path& path : files_beside(profile, search_kind())) {
    if (auto state = load(path, key, new_head, limits)) {
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
