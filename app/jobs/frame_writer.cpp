// The thread that writes a video, and how it treats each piece.
#include "app/jobs/frame_writer.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <vector>

#include "app/jobs/write.h"
#include "app/media/png.h"
#include "app/media/writers.h"

namespace sparsereel::app {
namespace {

/// The limit on bytes that wait to be written. If encoding is slower than decoding, decoding waits at this limit. A
/// whole video of 81 frames at 1280x720 fits.
constexpr uint64_t kMostBytes = uint64_t{256} << 20;

std::span<const uint8_t> bytes_of(const at::Tensor& frame) {
  return {static_cast<const uint8_t*>(frame.const_data_ptr()), frame.nbytes()};
}

std::vector<uint8_t> rgb_of(const at::Tensor& frame) {
  if (frame.scalar_type() == at::kFloat)
    return rgb8({frame.const_data_ptr<float>(), static_cast<size_t>(frame.numel())});
  const std::span<const uint8_t> bytes = bytes_of(frame);
  return {bytes.begin(), bytes.end()};
}

/// Collects the frames that a contact sheet shows.
class Sheet {
 public:
  Sheet(bool wanted, const models::VideoShape& shape) : shape_(shape) {
    if (wanted) shown_ = frames_on_sheet(shape.frames);
  }
  void add(const at::Tensor& frame, int64_t index) {
    if (std::ranges::binary_search(shown_, index)) frames_.push_back(rgb_of(frame));
  }
  void write(const std::filesystem::path& path, const std::string& caption) const {
    if (!shown_.empty()) write_contact_sheet(path, shape_, frames_, caption);
  }

 private:
  models::VideoShape shape_;
  std::vector<int64_t> shown_;
  std::vector<std::vector<uint8_t>> frames_;
};

}  // namespace

at::ScalarType FrameWriter::dtype() const {
  return takes_floats(run_.output) ? at::kFloat : at::kByte;
}

void FrameWriter::take_sound(const models::Sound& sound) {
  sound_ = {};
  if (run_.no_audio || !sound.samples.defined()) return;
  sound_ = {.samples = sound.samples.contiguous(), .sampling_rate = sound.sampling_rate};
}

void FrameWriter::begin(const models::VideoShape& shape, bool tiled) {
  abandon();
  queue_ = std::make_unique<PieceQueue>(kMostBytes);
  thread_ = std::thread([this, start = Start{shape, sound_, text_.recipe(tiled)}] { work(start); });
}

void FrameWriter::take(const at::Tensor& frames) {
  if (queue_->put(frames)) return;
  thread_.join();
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

WrittenVideo FrameWriter::finish() {
  queue_->close();
  thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return written_;
}

void FrameWriter::abandon() {
  if (!thread_.joinable()) return;
  queue_->stop();
  thread_.join();
  failure_ = nullptr;
}

void FrameWriter::work(const Start& start) {
  const c10::InferenceMode guard;
  try {
    write(start);
  } catch (...) {
    failure_ = std::current_exception();
    queue_->stop();
  }
}

void FrameWriter::write(const Start& start) {
  const models::VideoShape& shape = start.shape;
  VideoOptions options = run_.video;
  if (run_.metadata) options.recipe = start.recipe;
  options.sound = sound_view(start.sound);
  const std::unique_ptr<VideoWriter> video = open_video(run_.output, shape, options);
  Sheet sheet(!run_.contact_sheet.empty(), shape);
  std::vector<uint8_t> first;
  int64_t index = 0;
  while (const auto piece = queue_->take()) {
    for (int64_t i = 0; i < piece->size(0); ++i) {
      const at::Tensor frame = piece->select(0, i);
      video->add(bytes_of(frame));
      if (index == 0 && !run_.thumbnail.empty()) first = rgb_of(frame);
      sheet.add(frame, index++);
    }
  }
  if (queue_->stopped()) return;
  if (!first.empty()) write_png(run_.thumbnail, static_cast<int>(shape.width), static_cast<int>(shape.height), first);
  written_ = video->finish();
  sheet.write(run_.contact_sheet, text_.caption);
}

}  // namespace sparsereel::app
