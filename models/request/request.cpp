// Converts the choices of a request to texts and back.
#include "models/request/request.h"

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"

namespace sparsereel::models {

std::string_view name(GuidancePasses passes) {
  return passes == GuidancePasses::batched ? "batched" : "in-turn";
}

GuidancePasses parse_guidance_passes(const std::string& text) {
  for (const auto passes : {GuidancePasses::batched, GuidancePasses::in_turn})
    if (text == name(passes)) return passes;
  throw bad_option("guidance_passes", text + ": one of batched, in-turn is needed", "use one of these");
}

std::string_view name(VaeTiling tiling) {
  return tiling == VaeTiling::automatic ? "auto" : tiling == VaeTiling::on ? "on" : "off";
}

VaeTiling parse_vae_tiling(const std::string& text) {
  for (const auto tiling : {VaeTiling::automatic, VaeTiling::on, VaeTiling::off})
    if (text == name(tiling)) return tiling;
  throw bad_option("vae_tiling", text + ": one of auto, on, off is needed", "use one of these");
}

std::string_view name(ResizeRule rule) {
  return rule == ResizeRule::cover ? "cover" : "stretch";
}

ResizeRule parse_resize_rule(const std::string& text) {
  for (const auto rule : {ResizeRule::cover, ResizeRule::stretch})
    if (text == name(rule)) return rule;
  throw bad_option("resize", text + ": one of cover, stretch is needed", "use one of these");
}

}  // namespace sparsereel::models
