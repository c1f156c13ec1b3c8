// Previews of a video while it is denoised: small pictures of what each step predicts the result to be.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "models/request/run.h"
#include "models/vae/latent_preview.h"

namespace sparsereel::app {

/// Draws previews and passes them to a receiver in a separate thread, so that denoising waits neither for the device
/// nor for the receiver. It draws the first and the last step; drawn steps between these are at least three steps and
/// half a second apart. If a preview is still waiting when the next one is drawn, the next one replaces it. Previews do
/// not change the video's bytes.
class Previews final : public models::RunObserver {
 public:
  /// Takes bytes [F, H, W, 3] in RGB: CPU, contiguous, a frame for each latent frame. `step` counts from 1.
  using Take = std::function<void(int64_t step, const at::Tensor& frames)>;

  Previews(models::LatentPreview preview, Take take) : preview_(std::move(preview)), take_(std::move(take)) {}
  /// Waits until the last preview is taken.
  ~Previews() override { finish(); }
  Previews(const Previews&) = delete;
  Previews& operator=(const Previews&) = delete;

  void step(const models::StepDone& step) override;
  /// Waits until the last preview is taken. Returns the first error of drawing or taking one, or null. There is no
  /// preview after an error.
  std::exception_ptr finish();

 private:
  struct Drawn;

  bool is_due(const models::StepDone& step) const;
  void hand_over(std::shared_ptr<Drawn> drawn);
  void fail(std::exception_ptr error);
  bool failed();
  void work();

  const models::LatentPreview preview_;
  const Take take_;
  int64_t last_step_ = 0;  // the last step that was drawn; 0 if none was
  std::chrono::steady_clock::time_point last_time_;
  std::mutex mutex_;  // guards the members below, up to failure_
  std::condition_variable changed_;
  std::shared_ptr<Drawn> waiting_;  // null if no preview waits
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

/// Throws Error unless previews can be written to this file: it must be a .png or .gif in a writable folder.
void check_preview(const std::filesystem::path& path);

/// Returns the bytes of a PNG of the middle frame. `frames` are as Previews::Take gets them.
std::vector<uint8_t> preview_png(const at::Tensor& frames);

/// Writes the middle frame as a .png, or all frames as a .gif that is `seconds` long. The file appears whole or not at
/// all. `frames` are as Previews::Take gets them. Throws Error if the file cannot be written.
void write_preview(const std::filesystem::path& path, const at::Tensor& frames, double seconds);

}  // namespace sparsereel::app
