// Records points in time around each section, on a GPU as events of its stream.
#include "app/lab/bench/sections.h"

#include "models/request/attention_run.h"

#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

namespace sparsereel::app::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// A point in time; on a GPU, a point in the device's stream.
class Mark {
 public:
  explicit Mark(c10::Device device) : time_(Clock::now()) {
    if (device.is_cpu()) return;
    event_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  double milliseconds_until(const Mark& end) const {
    if (!event_) return std::chrono::duration<double, std::milli>(end.time_ - time_).count();
    end.event_->synchronize();
    return event_->elapsedTime(*end.event_);
  }

 private:
  Clock::time_point time_;
  std::optional<c10::Event> event_;
};

/// Collects the sections of a call. The time of a section inside another counts for the outer section.
class Sections {
 public:
  explicit Sections(c10::Device device) : device_(device) {}

  void begin() {
    if (depth_++ == 0) start_.emplace(device_);
  }
  void end(double Split::*section) {
    if (--depth_ == 0) spans_.push_back({section, std::move(*start_), Mark(device_)});
  }
  Split add_up(const Mark& before, const Mark& after) const {
    Split split;
    for (const Span& span : spans_) split.*span.section += span.begin.milliseconds_until(span.end);
    split.rest = before.milliseconds_until(after) - split.matmul - split.attention;
    return split;
  }

 private:
  struct Span {
    double Split::*section;
    Mark begin, end;
  };
  c10::Device device_;
  int depth_ = 0;
  std::optional<Mark> start_;
  std::deque<Span> spans_;
};

/// The measurement that runs in this thread. libtorch's hooks are plain functions without state, so they find the
/// measurement in this variable.
thread_local Sections* measured = nullptr;

bool is_matmul(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kNames = {"linear", "addmm", "::mm",      "bmm",
                                                             "matmul", "::mv",  "_scaled_mm"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [name](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

struct MatmulContext : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  if (measured == nullptr || !is_matmul(function.name())) return nullptr;
  measured->begin();
  return std::make_unique<MatmulContext>();
}

void leave(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  if (context != nullptr) measured->end(&Split::matmul);
}

/// Installs the hooks, and removes them when it is destroyed.
class Hooks {
 public:
  Hooks(Sections& sections, models::AttentionRun& run) : run_(run) {
    measured = &sections;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}));
    run.watcher = [&sections](const models::AttentionCall&) { sections.begin(); };
    run.attended = [&sections] { sections.end(&Split::attention); };
  }
  ~Hooks() {
    run_.watcher = nullptr;
    run_.attended = nullptr;
    at::removeCallback(handle_);
    measured = nullptr;
  }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

 private:
  models::AttentionRun& run_;
  at::CallbackHandle handle_ = 0;
};

}  // namespace

Split measure_split(c10::Device device, models::AttentionRun& run, const std::function<void()>& call) {
  Sections sections(device);
  const Hooks hooks(sections, run);
  const Mark before(device);
  call();
  const Mark after(device);
  return sections.add_up(before, after);
}

Split parts_of(double milliseconds, const std::vector<Split>& calls) {
  Split parts;
  for (const Split& call : calls) {
    const double share = milliseconds / static_cast<double>(calls.size()) / call.total();
    parts.matmul += call.matmul * share;
    parts.attention += call.attention * share;
    parts.rest += call.rest * share;
  }
  return parts;
}

nlohmann::json part_fields(const Split& parts) {
  return {{"matmul_ms", parts.matmul}, {"attention_ms", parts.attention}, {"rest_ms", parts.rest}};
}

}  // namespace sparsereel::app::bench
