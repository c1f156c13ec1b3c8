// Chooses the dtype from the checkpoint's files, and the attention mode from what the device supports.
#include "models/engine/device_choices.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "attention/call_policy.h"
#include "hilbert/error.h"
#include "models/store/weights/tensor_source.h"

namespace sparsereel::models {

at::ScalarType stored_dtype(const Checkpoint& model, const ModelSpec& spec,
                            const std::map<std::string, std::string>& files) {
  const bool packed = std::ranges::any_of(files, [&](const auto& file) {
    return !file.second.empty() && file.first != "tokenizer" && has_small(model.component(file.first));
  });
  return packed ? at::kBFloat16 : stored_dtype(model.component(spec.experts.front().role));
}

attention::Mode choose_attention_mode(std::optional<attention::Mode> asked, at::Device device, at::ScalarType dtype) {
  using attention::Mode;
  const bool sparse_runs = attention::unsupported_reason(Mode::sparse, device, dtype).empty();
  const Mode mode = asked.value_or(sparse_runs ? Mode::sparse : Mode::full);
  if (const std::string reason = attention::unsupported_reason(mode, device, dtype); !reason.empty())
    throw bad_option("attention", std::string(attention::name(mode)) + " cannot run on " + device.str() + ": " + reason,
                     "use attention full, or device cpu");
  return mode;
}

}  // namespace sparsereel::models
