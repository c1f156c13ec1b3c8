// Describes a memory plan for people.
#include "models/request/memory_plan.h"

#include <array>
#include <cstdio>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

std::string gibibytes(uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB", static_cast<double>(bytes) / kBytesOfGibibyte);
  return text.data();
}

/// Returns "; 28 are copied to it in turn from 9.8 GiB of host memory (9.8 GiB page-locked)".
std::string streamed_text(const MemoryPlan& plan) {
  std::string text;
  const int64_t held = plan.streamed() - plan.from_file;
  if (held > 0)
    text += "; " + std::to_string(held) + " are copied to it in turn from " + gibibytes(plan.host_bytes) +
            " of host memory (" + gibibytes(plan.pinned_bytes) + " page-locked)";
  if (plan.from_file > 0) text += "; " + std::to_string(plan.from_file) + " are read from their file in each step";
  return text;
}

std::string seconds_text(double seconds) {
  if (seconds <= 0) return "the time of a step is unknown";
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), seconds < 10 ? "about %.1f s a step" : "about %.0f s a step", seconds);
  return text.data();
}

}  // namespace

std::string_view name(Offload offload) {
  switch (offload) {
    case Offload::automatic:
      return "auto";
    case Offload::on:
      return "on";
    case Offload::off:
      return "off";
  }
  return "";
}

Offload parse_offload(const std::string& text) {
  if (text == "auto") return Offload::automatic;
  for (const char* on : {"on", "true", "yes", "1"})
    if (text == on) return Offload::on;
  for (const char* off : {"off", "false", "no", "0"})
    if (text == off) return Offload::off;
  throw bad_option("offload", text + ": one of auto, on, off is needed", "use one of these");
}

std::string sentence(const MemoryPlan& plan) {
  const std::string room = gibibytes(plan.gpu_bytes) + " of the GPU", blocks = std::to_string(plan.blocks);
  std::string text;
  if (!plan.streams())
    text = "all " + blocks + " blocks of the transformer stay in " + room;
  else if (plan.resident == 0)
    text = "no block of the transformer stays in " + room + streamed_text(plan);
  else
    text = std::to_string(plan.resident) + " of " + blocks + " blocks of the transformer stay in " + room +
           streamed_text(plan);
  if (plan.streams_text) text += "; the text encoder runs layer by layer";
  if (plan.frees_vae) text += "; the decoder loads after the steps";
  if (plan.tiles) text += "; the video is decoded in tiles";
  if (plan.experts > 1) text += "; both transformers stay in memory";
  if (!plan.fits) text += "; memory may still run out";
  return text + "; " + seconds_text(plan.step_seconds);
}

}  // namespace sparsereel::models
