// The program's fields, and one more by its row alone: help, YAML, prompt rows, recipes and resume know it from here.
#include "models/video/fields.h"

#include <nlohmann/json.hpp>

namespace sparsereel::models {
namespace {

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

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> fields = usual_fields();
    fields.push_back(draft());
    return fields;
  }();
  return all;
}

}  // namespace sparsereel::models
