// The toy program's option --draft. The Field that draft() returns is all that the command line, help, YAML, prompt
// sets, recipes and resumed runs need.
#include <nlohmann/json.hpp>

#include "tests/toy/toy.h"

namespace sparsereel::test {
namespace {

using namespace models;

/// Returns the description of --draft, an option that asks for a video of one step.
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

std::vector<Field> toy_fields() {
  return {draft()};
}

}  // namespace sparsereel::test
