// Decides which steps are drawn, copies the pictures to the host while the device works on, and passes them on.
#include "app/jobs/preview.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "app/media/png.h"
#include "app/media/video.h"
#include "hilbert/error.h"
#include "models/engine/frames.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kSteps = 3;                            // denoising steps between two previews
constexpr auto kPause = std::chrono::milliseconds(500);  // the shortest time between two previews

std::span<const uint8_t> bytes_of(const at::Tensor& frame) {
  return {frame.const_data_ptr<uint8_t>(), frame.nbytes()};
}

}  // namespace

struct Previews::Drawn {
  int64_t step = 0;
  at::Tensor frames;                 // on the CPU
  std::optional<c10::Event> copied;  // reached when the copy to the CPU is done; unset if drawn on the CPU
};

bool Previews::is_due(const models::StepDone& step) const {
  if (!step.predicted_latents) return false;  // the step is an encoded text, not a denoising step
  if (last_step_ == 0 || step.step == step.steps) return true;
  return step.step - last_step_ >= kSteps && Clock::now() - last_time_ >= kPause;
}

void Previews::step(const models::StepDone& step) {
  if (!is_due(step) || failed()) return;
  last_step_ = step.step;
  last_time_ = Clock::now();
  try {
    const at::Tensor drawn = preview_.draw(step.predicted_latents());
    auto next = std::make_shared<Drawn>();
    next->step = step.step;
    next->frames = drawn;
    if (const at::Device device = drawn.device(); !device.is_cpu()) {
      next->frames = models::host_memory(drawn);
      next->frames.copy_(drawn, /*non_blocking=*/true);
      next->copied.emplace(device.type()).record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
    hand_over(std::move(next));
  } catch (const c10::OutOfMemoryError&) {  // the video needs the memory more than its preview
    fail(std::current_exception());
  }
}

void Previews::hand_over(std::shared_ptr<Drawn> drawn) {
  const std::lock_guard lock(mutex_);
  waiting_ = std::move(drawn);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_one();
}

void Previews::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
}

bool Previews::failed() {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void Previews::work() {
  const c10::InferenceMode guard;
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ != nullptr || ends_; });
    if (waiting_ == nullptr) return;
    const std::shared_ptr<Drawn> drawn = std::exchange(waiting_, nullptr);
    lock.unlock();
    try {
      if (drawn->copied) drawn->copied->synchronize();
      take_(drawn->step, drawn->frames);
    } catch (...) {
      fail(std::current_exception());
      return;
    }
  }
}

std::exception_ptr Previews::finish() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  return failure_;
}

void check_preview(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (ending != ".png" && ending != ".gif")
    throw Error(ErrorKind::bad_input, "--preview " + path.string() + " is neither a .png nor a .gif",
                "name a file that ends in .png or .gif", {.file = path.string()});
  if (ending == ".gif") return check_output(path, {});
  const models::AtomicFile probe(path);
}

std::vector<uint8_t> preview_png(const at::Tensor& frames) {
  const at::Tensor middle = frames.select(0, frames.size(0) / 2);
  return png_encoder(static_cast<int>(middle.size(1)), static_cast<int>(middle.size(0)), "preview")(bytes_of(middle));
}

void write_preview(const fs::path& path, const at::Tensor& frames, double seconds) {
  const models::VideoShape shape = {.frames = frames.size(0), .height = frames.size(1), .width = frames.size(2)};
  if (path.extension() == ".gif") {
    const auto video = open_video(path, shape, {.fps = static_cast<double>(shape.frames) / seconds});
    for (int64_t i = 0; i < shape.frames; ++i) video->add(bytes_of(frames.select(0, i)));
    video->finish();
    return;
  }
  const std::vector<uint8_t> picture = preview_png(frames);
  models::AtomicFile file(path);
  file.write(picture.data(), picture.size());
  file.commit();
}

}  // namespace sparsereel::app
