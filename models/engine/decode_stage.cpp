// Passes each group of frames to the run's sink while the next one is decoded.
#include "models/engine/decode_stage.h"

#include <ATen/ATen.h>

#include <utility>

#include "models/engine/frames.h"
#include "models/engine/tile_retry.h"
#include "models/engine/unless_cancelled.h"
#include "models/parallel/share.h"
#include "models/request/frame_sink.h"
#include "models/vae/row_split.h"

namespace sparsereel::models {
namespace {

/// Collects all frames of a video in fp32, for runs without a sink.
class AllFrames final : public FrameSink {
 public:
  at::ScalarType dtype() const override { return at::kFloat; }
  void begin(const VideoShape& shape, bool /*tiled*/) override {
    frames = at::empty({shape.frames, shape.height, shape.width, 3}, at::kFloat);
    taken_ = 0;
  }
  void take(const at::Tensor& next) override {
    frames.narrow(0, taken_, next.size(0)).copy_(next);
    taken_ += next.size(0);
  }

  at::Tensor frames;

 private:
  int64_t taken_ = 0;
};

/// Returns the run's frame sink, or `all` if there is none.
FrameSink& sink_of(const Run& run, FrameSink& all) {
  FrameSink* const taker = run.tell().frames();
  return taker != nullptr ? *taker : all;
}

/// Returns a callback that reports progress, and throws Cancelled if any rank of the group is cancelled. `group` is
/// null if this rank decodes alone.
VaeProgress watched(const Run& run, Group* group, at::Device device) {
  return [&run, group, device](int64_t done, int64_t total) {
    run.tell().decoded({.done = done, .total = total});
    if (any_rank(run.is_cancelled(), group, device)) throw Cancelled{};
  };
}

FrameFacts decode_to(FrameSink& sink, const Decoder& decoder, const at::Tensor& latents, const DecodeMode& mode,
                     const VaeProgress& progress) {
  sink.begin({.frames = decoder.vae.frames_of(latents.size(2)),
              .height = latents.size(3) * decoder.pixels[0],
              .width = latents.size(4) * decoder.pixels[1]},
             mode.tiled);
  FrameDelivery delivery(sink);
  decoder.vae.decode(
      latents, mode, [&](const at::Tensor& frames) { delivery.add(frames); }, progress);
  return delivery.finish();
}

}  // namespace

void release_others(const Run& run) {
  if (run.group != nullptr && run.group->rank() == 0) run.tell().others_released();
}

Decoded decode_alone(const Decoder& decoder, const at::Tensor& latents, bool tiled, bool may_tile, const Run& run,
                     const std::function<bool()>& make_room) {
  release_others(run);
  Decoded result;
  result.tiled = tiled;
  AllFrames all;
  FrameSink& sink = sink_of(run, all);
  const auto attempt = [&](bool in_tiles) {
    do_unless_cancelled(run.cancelled, [&] {
      result.facts = decode_to(sink, decoder, latents, {.tiled = in_tiles}, watched(run, nullptr, decoder.device));
    });
  };
  if (decoder.has_tiles)
    work_or_retry_tiled(result.tiled, may_tile, attempt, make_room);
  else
    work_or_retry(
        "decoding", "choose a smaller size or fewer frames", [&] { attempt(/*in_tiles=*/false); }, make_room);
  result.frames = std::move(all.frames);
  if (result.tiled != tiled) result.warning = "decoding ran out of GPU memory and was done again in tiles";
  return result;
}

Decoded decode_together(const Decoder& decoder, const at::Tensor& latents, const Run& run, Group& decoders) {
  const RowSplit rows(decoders, latents.size(3), decoder.device);
  const VaeProgress progress = watched(run, &decoders, decoder.device);
  const DecodeMode mode = {.rows = &rows};
  Decoded result;
  if (!rows.is_first()) {
    decoder.vae.decode(latents, mode, {}, progress);
    return result;
  }
  AllFrames all;
  result.facts = decode_to(sink_of(run, all), decoder, latents, mode, progress);
  decoders.check();  // throws if a rank has failed, because its rows are then missing
  release_others(run);
  result.frames = std::move(all.frames);
  return result;
}

}  // namespace sparsereel::models
