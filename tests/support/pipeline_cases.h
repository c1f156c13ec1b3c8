// Reads the cases of pipeline_cases.json: the checkpoint, the request and the images of each.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "models/engine/pipeline.h"
#include "models/image/images.h"
#include "models/image/resample.h"
#include "models/request/run.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::test {

inline models::Request request_of(const nlohmann::json& content) {
  models::Request request;
  const bool sparse = content.value("attention", "full") == "sparse";
  request.attention_mode = sparse ? attention::Mode::sparse : attention::Mode::full;
  request.token_order = sparse ? hilbert::TokenOrder::hilbert : hilbert::TokenOrder::native;
  request.resize = models::ResizeRule::stretch;
  const std::map<std::string, std::function<void(const nlohmann::json&)>> readers = {
      {"prompt", [&](const auto& value) { request.prompt = value; }},
      {"negative_prompt", [&](const auto& value) { request.negative_prompt = value; }},
      {"seed", [&](const auto& value) { request.seed = value; }},
      {"num_inference_steps", [&](const auto& value) { request.num_inference_steps = value.template get<int64_t>(); }},
      {"guidance_scale", [&](const auto& value) { request.guidance_scale = value.template get<double>(); }},
      {"use_dynamic_cfg", [&](const auto& value) { request.use_dynamic_cfg = value; }},
      {"guidance_scale_2", [&](const auto& value) { request.guidance_scale_2 = value.template get<double>(); }},
      {"scheduler", [&](const auto& value) { request.scheduler = value; }},
      {"flow_shift", [&](const auto& value) { request.flow_shift = value.template get<double>(); }},
      {"max_sequence_length", [&](const auto& value) { request.max_sequence_length = value.template get<int64_t>(); }},
      {"attention", [](const auto&) {}},  // read before this table
      {"topk", [&](const auto& value) { request.topk = value.template get<double>(); }},
      {"error", [&](const auto& value) { request.error = value.template get<double>(); }},
      {"block_error", [&](const auto& value) { request.block_error = value.template get<double>(); }},
      {"folder", [](const auto&) {}},  // read by open()
      {"lora", [](const auto&) {}},    // read by open()
      {"image", [&](const auto& value) { request.image = value; }},
      {"last_image", [&](const auto& value) { request.last_image = value; }},
      {"width", [&](const auto& value) { request.width = value.template get<int64_t>(); }},
      {"height", [&](const auto& value) { request.height = value.template get<int64_t>(); }},
      {"num_frames", [&](const auto& value) { request.num_frames = value.template get<int64_t>(); }}};
  for (const auto& [key, value] : content.items()) readers.at(key)(value);
  return request;
}

/// Opens the checkpoint of a case: "pipeline" unless the case names another folder.
inline std::shared_ptr<models::Pipeline> open(const ParityFamily& family, const nlohmann::json& content) {
  const std::string data = std::string(SPARSEREEL_TEST_DATA) + "/" + family.folder;
  models::Request request{.device = "cpu", .dtype = "fp32", .loras = models::parse_loras(content.value("lora", ""))};
  for (models::LoraChoice& lora : request.loras) lora.file = data + lora.file.string();
  return models::Pipeline::open(models::Checkpoint::open(data + content.value("folder", "pipeline")), request);
}

/// Returns the images that a case's request names, from the golden file.
inline models::Inputs inputs_of(const ParityFamily& family, const nlohmann::json& content) {
  const Golden golden(family.folder + "pipeline_golden");
  const auto picture = [&](const char* key) -> std::shared_ptr<const models::Picture> {
    if (!content.contains(key)) return nullptr;
    return std::make_shared<const models::Picture>(models::picture_of(golden[content[key].get<std::string>()]));
  };
  return {.images = {.first = picture("image"), .last = picture("last_image")}};
}

}  // namespace sparsereel::test
