// Splits the time of a forward pass into matrix products, attention and the rest.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/request/attention_run.h"

namespace sparsereel::app::bench {

/// How the milliseconds of a call divide into sections.
struct Split {
  double matmul = 0;  // linear layers and other matrix products outside of attention, with operations fused into them
  double attention = 0;  // attention::attend(), with its norms and rotary embedding
  double rest = 0;       // the rest of the call

  double total() const { return matmul + attention + rest; }
};

/// Runs the call and measures its sections: attention by the run's `watcher` and `attended`, matrix products by
/// libtorch's operator hook. On a GPU it uses events that are read at the end, so that nothing waits in between. All
/// hooks are removed afterwards. Hooks and events slow this call down. So use only the shares of its sections, and
/// apply them to the time of calls without hooks; parts_of() does so.
Split measure_split(c10::Device device, models::AttentionRun& run, const std::function<void()>& call);

/// Divides `milliseconds` into parts by the mean shares of the sections in `calls`. Needs at least one call, each with
/// a time above 0.
Split parts_of(double milliseconds, const std::vector<Split>& calls);

/// Returns the parts as a JSON object with the keys matmul_ms, attention_ms and rest_ms.
nlohmann::json part_fields(const Split& parts);

}  // namespace sparsereel::app::bench
