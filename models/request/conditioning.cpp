// Implements the operations that apply to all defined tensors of a conditioning.
#include "models/request/conditioning.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sparsereel::models {
namespace {

constexpr at::Tensor Conditioning::*kOfPasses[] = {&Conditioning::text, &Conditioning::pooled};
constexpr at::Tensor Conditioning::*kAll[] = {
    &Conditioning::text,           &Conditioning::pooled,        &Conditioning::context,
    &Conditioning::latents,        &Conditioning::mask,          &Conditioning::deviation,
    &Conditioning::first_keyframe, &Conditioning::last_keyframe, &Conditioning::seen};

}  // namespace

std::span<at::Tensor Conditioning::*const> Conditioning::tensors() {
  return kAll;
}

std::pair<int64_t, int64_t> Conditioning::shortest_and_longest_text() const {
  if (text_lengths.empty()) return {text.size(1), text.size(1)};
  const auto [shortest, longest] = std::ranges::minmax_element(text_lengths);
  return {*shortest, *longest};
}

Conditioning Conditioning::pass(int64_t index) const {
  Conditioning one = *this;
  for (const auto member : kOfPasses)
    if ((one.*member).defined()) one.*member = (one.*member).narrow(0, index, 1);
  if (!text_lengths.empty()) one.text_lengths = {text_lengths.at(static_cast<size_t>(index))};
  return one;
}

Conditioning Conditioning::to(const at::TensorOptions& options) const {
  Conditioning there = *this;
  for (const auto member : kAll)
    if ((there.*member).defined()) there.*member = (there.*member).to(options);
  return there;
}

void Conditioning::take_video(const Conditioning& other) {
  context = other.context;
  latents = other.latents;
  mask = other.mask;
  deviation = other.deviation;
  first_keyframe = other.first_keyframe;
  last_keyframe = other.last_keyframe;
}

uint64_t Conditioning::nbytes() const {
  uint64_t bytes = 0;
  for (const auto member : kAll)
    if ((this->*member).defined()) bytes += (this->*member).nbytes();
  return bytes;
}

Conditioning join(const std::vector<Conditioning>& passes) {
  Conditioning all = passes.front();
  all.text_lengths.clear();
  for (const auto member : kOfPasses) {
    std::vector<at::Tensor> rows;
    for (const Conditioning& pass : passes)
      if ((pass.*member).defined()) rows.push_back(pass.*member);
    if (!rows.empty()) all.*member = at::cat(rows);
  }
  for (const Conditioning& pass : passes)
    all.text_lengths.insert(all.text_lengths.end(), pass.text_lengths.begin(), pass.text_lengths.end());
  return all;
}

}  // namespace sparsereel::models
