// A set on several cards, a video on each or on some of them together: processes of this program that take rows from a
// queue, and the one that has the queue. What is done is what the cards' manifests say, whatever becomes of a card. Of
// cards that make a video together the first one's process speaks for all.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/jobs/batch/plan.h"
#include "app/jobs/batch/render.h"
#include "app/ranks/children.h"

namespace sparsereel::app::sets {

/// Rows of one pipeline each, resolved, that are left to render.
using RowGroups = std::vector<std::vector<Video*>>;

/// The devices that make a video together.
using CardsOfAVideo = std::vector<std::string>;

/// Of --gpus and --gpus-per-video, for as many videos at a time. Throws Error where the one does not divide the other,
/// and as devices_of_ranks_here().
std::vector<CardsOfAVideo> cards_of_videos(const Settings& settings, const BatchOptions& options);

/// Started early, since processes take a while to come up; they wait for rows.
class Cards {
 public:
  /// A process for each video at a time, which gets this one's command line and its set.
  Cards(const std::vector<CardsOfAVideo>& cards, const BatchOptions& options);
  ~Cards();
  Cards(const Cards&) = delete;
  Cards& operator=(const Cards&) = delete;

  /// Renders the rows and adds to the tally what came of them. Throws Error where no card is left or the disk takes no
  /// more, and models::Cancelled.
  void render(const RowGroups& groups, ManifestWriter& manifest, Progress& progress, Tally& tally);

 private:
  class Run;

  BatchOptions options_;
  std::vector<std::string> names_;   // of card i + 1, or of those that it speaks for
  std::vector<models::Link> links_;  // to card i + 1
  std::vector<std::string> ends_;    // how card i + 1 ended
  std::mutex mutex_;                 // of these
  std::unique_ptr<Children> children_;
};

/// Copies standard input to where each card's process can read it anew, before anybody reads it here.
void keep_standard_input();

}  // namespace sparsereel::app::sets
