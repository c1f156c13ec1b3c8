// The search for the steps and layers at a video's start that stay dense; like head_search.h it only asks and
// concludes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sparsereel::attention {

/// Steps and layers at the start that keep every block.
struct DenseStart {
  int64_t steps = 0;
  int64_t layers = 0;
  bool operator==(const DenseStart&) const = default;
};

/// The search for dense_steps and dense_layers on whole videos: the least work that passes the quality floor, which
/// none may exceed `most_work` for. Asks for the bare profile first; where that fails, it bisects over dense_steps, and
/// then sees whether dense layers in place of some steps do with less.
class DenseSearch {
 public:
  /// layers: layer_work(); steps: of a video.
  DenseSearch(std::vector<double> layers, int64_t steps, double most_work);

  double work(const DenseStart& start) const;
  /// The videos to make next; nothing: the search is over.
  std::optional<DenseStart> wanted() const;
  /// `psnr` decides only among those that fail.
  void report(bool passed, double psnr);
  /// The best so far: of those that pass the one with the least work, else the one with the highest PSNR.
  DenseStart found() const { return found_; }
  bool passed() const { return passed_; }

 private:
  std::optional<DenseStart> with_layers(int64_t layers) const;

  std::vector<double> layers_;
  int64_t steps_;
  double most_work_;
  std::vector<int64_t> ladder_;  // of dense_steps, fewest first, each within most_work_
  std::optional<DenseStart> wanted_ = DenseStart{};
  size_t low_ = 0, high_ = 0;  // of the bisection over ladder_
  DenseStart found_;
  bool passed_ = false;
  double psnr_ = -1;
};

}  // namespace sparsereel::attention
