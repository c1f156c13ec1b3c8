// Converts frames on their device, finds defects, and writes the warnings about a video's size and number of frames.
#include "models/engine/frames.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "hilbert/error.h"
#include "models/request/frame_count.h"

namespace sparsereel::models {

void FrameWatch::add(const at::Tensor& frames) {
  if (!first_.defined()) first_ = frames.narrow(0, 0, 1).clone();
  shape_ = {.frames = shape_.frames + frames.size(0), .height = frames.size(1), .width = frames.size(2)};
  largest_.push_back(frames.max());
  colors_.push_back(frames.mean({1, 2}));
}

FrameFacts FrameWatch::facts() const {
  return {.shape = shape_,
          .largest = at::stack(largest_).max().item<float>(),
          .colors = at::cat(colors_).to(at::kCPU),
          .first = first_.to(at::kCPU)};
}

at::Tensor shown_frames(const at::Tensor& frames) {
  return frames[0].permute({1, 2, 3, 0}).to(at::kFloat).mul(0.5).add_(0.5).clamp_(0, 1).contiguous();
}

at::Tensor host_memory(const at::Tensor& like) {
  const auto options = like.options().device(at::kCPU);
  try {
    return at::empty(like.sizes(), options.pinned_memory(true));
  } catch (const c10::Error&) {
    return at::empty(like.sizes(), options);
  }
}

void FrameDelivery::add(const at::Tensor& frames) {
  at::Tensor shown = shown_frames(frames);
  watch_.add(shown);
  if (sink_.dtype() == at::kByte) shown = shown.mul_(255).add_(0.5).to(at::kByte);
  if (shown.is_cpu()) return sink_.take(shown);
  at::Tensor copy = host_memory(shown);
  copy.copy_(shown, /*non_blocking=*/true);
  c10::Event there(shown.device().type());
  there.record(c10::impl::VirtualGuardImpl(shown.device().type()).getStream(shown.device()));
  deliver();
  copied_ = std::move(copy);
  there_.emplace(std::move(there));
}

void FrameDelivery::deliver() {
  if (!copied_.defined()) return;
  there_->synchronize();
  sink_.take(std::exchange(copied_, {}));
}

FrameFacts FrameDelivery::finish() {
  deliver();
  return watch_.facts();
}

std::string nan_remedy(at::ScalarType dtype) {
  std::string damaged = "check that the checkpoint's weights are complete";
  if (dtype == at::kFloat) return damaged;
  return std::string("try dtype fp32") + (dtype == at::kHalf ? " or bf16" : "") + ", or " + damaged;
}

void check_numbers(const FrameFacts& frames, at::ScalarType dtype) {
  if (!std::isfinite(frames.largest)) throw run_failure("the decoder's frames hold NaN", nan_remedy(dtype));
}

std::string defect(const FrameFacts& frames) {
  return frames.largest < 2.0F / 255 ? "is black" : "";
}

std::string frame_count_warning(const Plan& plan, const ModelSpec& spec) {
  if (plan.decoded_frames == plan.num_frames) return {};
  const auto [below, above] = nearest_frames(spec, plan.num_frames);
  return "the decoder makes " + std::to_string(plan.decoded_frames) + " frames instead of " +
         std::to_string(plan.num_frames) + ", because the number of latent frames is even: ask for " +
         std::to_string(below) + " or " + std::to_string(above) + " to get exactly as many";
}

std::string unusual_size_warning(const Plan& plan, const ModelSpec& spec) {
  const UsualSizes& usual = spec.usual_sizes;
  if (!usual.any()) return {};
  const auto [shorter, longer] = std::minmax(plan.height, plan.width);
  const double most_long = usual.most_ratio * static_cast<double>(shorter);
  const bool fits_size =
      shorter >= usual.least_edge && shorter <= usual.most_edge && static_cast<double>(longer) <= most_long;
  const bool fits_length = plan.num_frames >= usual.least_frames && plan.num_frames <= usual.most_frames;
  if (fits_size && fits_length) return {};
  std::ostringstream not_for, made_for;
  if (!fits_size) {
    not_for << plan.width << "x" << plan.height;
    made_for << "shorter sides of " << usual.least_edge << " to " << usual.most_edge
             << " pixels and longer sides of at most " << usual.most_ratio << " times that";
  }
  if (!fits_length) {
    not_for << (fits_size ? "" : " and ") << plan.num_frames << " frames";
    made_for << (fits_size ? "" : ", and for ") << usual.least_frames << " to " << usual.most_frames << " frames";
  }
  return "the model was not made for " + not_for.str() + ", so the video may look poor: the model was made for " +
         made_for.str();
}

}  // namespace sparsereel::models
