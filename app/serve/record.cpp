// Turns records into JSON and back.
#include "app/serve/record.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "app/json_fields.h"
#include "app/serve/body.h"
#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/files/json_text.h"

namespace sparsereel::app::serve {
namespace {

constexpr std::array<const char*, 4> kStates = {"queued", "in_progress", "completed", "failed"};

int64_t whole_of(const nlohmann::json& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_number_integer() ? field->get<int64_t>() : 0;
}

/// Returns the values under the names that clients know.
nlohmann::json values_for_clients(const VideoRecord& record) {
  nlohmann::json values = nlohmann::json::object();
  for (const auto& [key, value] : record.values)
    if (key != "prompt") values[key] = value;
  if (!record.image.empty()) values[field_name("image")] = true;
  if (!record.last_image.empty()) values[field_name("last_image")] = true;
  return values;
}

std::string seconds_text(double seconds) {
  return exact_text(std::round(seconds * 1000) / 1000);
}

}  // namespace

const char* name_of(VideoState state) {
  return kStates.at(static_cast<size_t>(state));
}

int VideoProgress::percent() const {
  constexpr double kSteps = 90;  // percent of the work that the steps are; the rest is decoding
  if (stage == "decode") return static_cast<int>(kSteps + (99 - kSteps) * std::clamp(stage_share, 0.0, 1.0));
  return steps > 0 ? static_cast<int>(kSteps * static_cast<double>(step) / static_cast<double>(steps)) : 0;
}

nlohmann::json video_object(const VideoRecord& record, const VideoPlace& place) {
  const auto prompt = record.values.find("prompt");
  nlohmann::json video = {{"id", record.id},
                          {"object", "video"},
                          {"model", record.model},
                          {"status", name_of(record.state)},
                          {"progress", record.state == VideoState::completed ? 100 : record.progress.percent()},
                          {"created_at", record.created_at},
                          {"prompt", prompt == record.values.end() ? "" : prompt->second},
                          {"seconds", seconds_text(record.seconds)},
                          {"size", std::to_string(record.width) + "x" + std::to_string(record.height)},
                          {"has_preview", record.state == VideoState::in_progress && record.preview_step > 0},
                          {"options", values_for_clients(record)}};
  if (record.started_at > 0) video["started_at"] = record.started_at;
  if (record.completed_at > 0) video["completed_at"] = record.completed_at;
  if (place.expires_at > 0) video["expires_at"] = place.expires_at;
  if (!record.error_code.empty()) video["error"] = {{"code", record.error_code}, {"message", record.error}};
  if (!record.warnings.empty()) video["warnings"] = record.warnings;
  if (place.queue_position) video["queue_position"] = *place.queue_position;
  if (!place.recipe.is_null()) video["recipe"] = place.recipe;
  if (record.state != VideoState::in_progress || record.progress.stage.empty()) return video;
  video["stage"] = record.progress.stage;
  if (record.progress.steps > 0) {
    video["step"] = record.progress.step;
    video["steps"] = record.progress.steps;
  }
  if (record.progress.eta >= 0) video["eta_seconds"] = std::round(record.progress.eta * 10) / 10;
  return video;
}

nlohmann::json record_on_disk(const VideoRecord& record, const nlohmann::json& recipe) {
  nlohmann::json json = {{"id", record.id},
                         {"model", record.model},
                         {"row", record.values},
                         {"status", name_of(record.state)},
                         {"order", record.order},
                         {"attempts", record.attempts},
                         {"created_at", record.created_at},
                         {"started_at", record.started_at},
                         {"completed_at", record.completed_at},
                         {"seconds", record.seconds},
                         {"width", record.width},
                         {"height", record.height}};
  if (!record.image.empty()) json["image"] = record.image;
  if (!record.last_image.empty()) json["last_image"] = record.last_image;
  if (!record.error_code.empty()) json["error"] = {{"code", record.error_code}, {"message", record.error}};
  if (!record.warnings.empty()) json["warnings"] = record.warnings;
  if (!recipe.is_null()) json["recipe"] = recipe;
  return json;
}

VideoRecord read_record(const std::string& text, const std::string& file) {
  constexpr const char* kRemedy = "remove the file, or restore it";
  const nlohmann::json json = models::parse_json(text, file, kRemedy);
  VideoRecord record;
  if (!json.is_object()) throw bad_file(file, "is not the record of a video", kRemedy);
  const auto state = std::ranges::find(kStates, text_of(json, "status"));
  record.id = text_of(json, "id");
  record.model = text_of(json, "model");
  const auto row = json.find("row");
  if (state == kStates.end() || record.id.empty() || row == json.end() || !row->is_object())
    throw bad_file(file, "is not the record of a video", kRemedy);
  record.state = static_cast<VideoState>(state - kStates.begin());
  for (const auto& [key, value] : row->items())
    if (value.is_string()) record.values[key] = value.get<std::string>();
  record.image = text_of(json, "image");
  record.last_image = text_of(json, "last_image");
  record.order = whole_of(json, "order");
  record.attempts = whole_of(json, "attempts");
  record.created_at = whole_of(json, "created_at");
  record.started_at = whole_of(json, "started_at");
  record.completed_at = whole_of(json, "completed_at");
  record.seconds = number_of(json, "seconds").value_or(0);
  record.width = whole_of(json, "width");
  record.height = whole_of(json, "height");
  if (const auto error = json.find("error"); error != json.end() && error->is_object()) {
    record.error_code = text_of(*error, "code");
    record.error = text_of(*error, "message");
  }
  if (const auto warnings = json.find("warnings"); warnings != json.end() && warnings->is_array())
    for (const auto& warning : *warnings)
      if (warning.is_string()) record.warnings.push_back(warning.get<std::string>());
  record.has_recipe = json.contains("recipe");
  return record;
}

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace sparsereel::app::serve
