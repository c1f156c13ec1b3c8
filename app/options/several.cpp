// Derives the seed and the file names of each of several videos.
#include "app/options/several.h"

#include <string>

#include "app/options/options.h"
#include "hilbert/error.h"

namespace sparsereel::app {

namespace fs = std::filesystem;

int64_t video_count(const Settings& settings) {
  constexpr int64_t kMost = 10'000;
  const int64_t count = settings.whole("batch_count").value_or(1);
  if (count < 1 || count > kMost)
    throw bad_option("batch_count", std::to_string(count) + " is outside 1 to " + std::to_string(kMost),
                     "give a number in that range");
  return count;
}

fs::path numbered(const fs::path& file, int64_t index, int64_t count) {
  if (count == 1 || file.empty()) return file;
  std::string number = std::to_string(index + 1);
  number.insert(0, std::to_string(count).size() - number.size(), '0');
  const fs::path name = file.has_filename() ? file.filename() : file.parent_path().filename();
  if (name.empty() || name == "." || name == "..")
    throw bad_file(file, "this has no name that --batch-count could number", "name a file or a new folder");
  if (!file.has_filename()) return (file.parent_path().string() + "-" + number) / fs::path();  // a folder
  return fs::path(file).replace_filename(file.stem().string() + "-" + number + file.extension().string());
}

std::vector<Settings> settings_of_videos(const Settings& settings) {
  const int64_t count = video_count(settings);
  if (count == 1) return {settings};
  const models::Request request =
      read_generate_options(settings).request;  // once, because standard input can be read only once
  std::vector<Settings> videos;
  for (int64_t i = 0; i < count; ++i) {
    std::map<std::string, std::string> own = {{"seed", std::to_string(request.seed + static_cast<uint64_t>(i))}};
    if (settings.has("prompt_file")) own["prompt"] = request.prompt;
    for (const OptionSpec& option : option_table())
      if (const auto file = settings.text(option.key()); file && option.scope == Scope::one_video)
        own[option.key()] = numbered(*file, i, count).string();
    videos.push_back(settings);
    videos.back().add(Source::row, own, "video " + std::to_string(i + 1));
  }
  return videos;
}

}  // namespace sparsereel::app
