// Writes the counters as text.
#include "app/serve/metrics.h"

#include <fstream>
#include <sstream>

#include "app/clock.h"

namespace sparsereel::app::serve {
namespace {

/// Returns the resident memory of this process in bytes.
uint64_t resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) << 10U;
  return 0;
}

void head(std::ostream& text, const char* name, const char* type, const char* help) {
  text << "# HELP " << name << " " << help << "\n# TYPE " << name << " " << type << "\n";
}

template <typename Value>
void metric(std::ostream& text, const char* name, const char* type, const char* help, Value value) {
  head(text, name, type, help);
  text << name << " " << value << "\n";
}

}  // namespace

void Metrics::answered(int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[status];
}

void Metrics::ended(const std::string& outcome, double seconds) {
  const std::lock_guard lock(mutex_);
  ++outcomes_[outcome];
  if (outcome == "completed") video_seconds_ += seconds;
}

void Metrics::stepped(double seconds) {
  const std::lock_guard lock(mutex_);
  ++steps_;
  step_seconds_ += seconds;
}

std::string Metrics::text(const MetricsNow& now) const {
  const std::lock_guard lock(mutex_);
  std::ostringstream text;
  head(text, "sparsereel_videos_total", "counter", "Videos that ended, by outcome.");
  for (const auto& [outcome, count] : outcomes_)
    text << "sparsereel_videos_total{outcome=\"" << outcome << "\"} " << count << "\n";
  head(text, "sparsereel_http_answers_total", "counter", "Answers, by HTTP status.");
  for (const auto& [status, count] : answers_)
    text << "sparsereel_http_answers_total{status=\"" << status << "\"} " << count << "\n";
  metric(text, "sparsereel_videos_waiting", "gauge", "Videos in the queue.", now.waiting);
  metric(text, "sparsereel_videos_running", "gauge", "Videos that are being made.", now.running);
  metric(text, "sparsereel_event_clients", "gauge", "Clients of /events.", now.event_clients);
  metric(text, "sparsereel_ready", "gauge", "1 if the model is open.", now.is_ready ? 1 : 0);
  metric(text, "sparsereel_video_seconds_total", "counter", "Seconds from start to end of completed videos.",
         video_seconds_);
  metric(text, "sparsereel_steps_total", "counter", "Denoising steps.", steps_);
  metric(text, "sparsereel_step_seconds_total", "counter", "Seconds of denoising steps.", step_seconds_);
  metric(text, "sparsereel_uptime_seconds", "gauge", "Seconds since the server began.", seconds_since(start_));
  metric(text, "process_resident_memory_bytes", "gauge", "Resident memory in bytes.", resident_bytes());
  return text.str();
}

}  // namespace sparsereel::app::serve
