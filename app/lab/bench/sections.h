// Where the time of a forward goes: matrix products, attention, and the rest.
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

/// Milliseconds.
struct Split {
  double matmul = 0;     // linear layers and matrix products outside of attention, with what their epilogues fuse
  double attention = 0;  // attention::attend(), its norms and rotary embedding included
  double rest = 0;       // the remainder of the call

  double total() const { return matmul + attention + rest; }
};

/// Runs the call and measures its sections: attention by the run's watcher and its `attended`, matrix products by
/// libtorch's hook for operators. On a GPU by events, read at the end, so that nothing waits in between. Nothing is
/// left in place afterwards: other calls pay nothing. This one does, by its hooks and events: take its shares, of the
/// time of calls without them.
Split measure_split(c10::Device device, models::AttentionRun& run, const std::function<void()>& call);

/// Parts that add up to `milliseconds`, by their mean shares of these calls; at least one, none of which took no time.
Split parts_of(double milliseconds, const std::vector<Split>& calls);

/// matmul_ms, attention_ms and rest_ms.
nlohmann::json part_fields(const Split& parts);

}  // namespace sparsereel::app::bench
