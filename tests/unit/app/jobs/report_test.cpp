// Tests the report of a video that begins with an image.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "app/jobs/report.h"
#include "app/lab/measure/quality.h"
#include "models/engine/frames.h"
#include "models/request/outcome.h"

namespace sparsereel::app {
namespace {

/// Returns a video of three frames, each of a single color. Its image is the first frame, darker by 5/255.
models::Outcome fading() {
  models::Outcome result;
  const at::Tensor frames = at::full({3, 2, 2, 3}, 0.5);
  result.image = frames.narrow(0, 0, 1) - 5.0 / 255;
  frames.select(0, 1).select(2, 0) += 20.0 / 255;  // red
  frames.select(0, 2).select(2, 2) -= 8.0 / 255;   // blue
  models::FrameWatch watch;
  for (const at::Tensor& piece : frames.split(2)) watch.add(piece);
  result.facts = watch.facts();
  return result;
}

TEST(ImageReport, MeasuresTheFirstFrameAgainstTheImageAndTheDriftOfColors) {
  const nlohmann::json report = image_report(fading());
  EXPECT_NEAR(report["first_frame_psnr"], -20 * std::log10(5.0 / 255), 1e-3);
  EXPECT_NEAR(report["first_frame_difference"], 5, 1e-4);
  EXPECT_NEAR(report["colour_drift"][0], 0, 1e-4) << "that of the last frame";
  EXPECT_NEAR(report["colour_drift"][2], -8, 1e-4);
  EXPECT_NEAR(report["colour_drift_most"], 20, 1e-4);
}

TEST(ImageReport, ReportsTheHighestPsnrForAFrameThatEqualsTheImage) {
  models::Outcome result = fading();
  result.image = result.facts.first;
  EXPECT_EQ(image_report(result)["first_frame_psnr"], kEqualPsnr);
}

}  // namespace
}  // namespace sparsereel::app
