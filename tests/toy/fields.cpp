// Two options by their rows alone: help, YAML, prompt rows, recipes and resume know them from here.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/toy/toy.h"

namespace sparsereel::test {
namespace {

using namespace models;

/// A video of one step.
Field draft() {
  return {
      .name = "draft",
      .kind = ValueKind::flag,
      .read =
          [](Request& request, const std::string& text) {
            if (text == "true") request.num_inference_steps = 1;
          },
      .text = [](const Request& request) { return request.num_inference_steps == 1 ? "true" : "false"; },
      .save = [](const Plan& plan) { return plan.num_inference_steps == 1 ? nlohmann::json(true) : nlohmann::json(); }};
}

/// A picture that the video begins with.
Field image() {
  return {.name = "image",
          .kind = ValueKind::file,
          .decides = Decides::text,
          .recipe = InRecipe::file,
          .read = [](Request& request, const std::string& text) { request.image = text; },
          .text = [](const Request& request) { return request.image; },
          .save =
              [](const Plan& plan) {
                const std::string name = std::filesystem::path(plan.image).filename().string();
                return name.empty() ? nlohmann::json() : nlohmann::json(name);
              }};
}

}  // namespace

std::vector<Field> toy_fields() {
  return {draft(), image()};
}

}  // namespace sparsereel::test
