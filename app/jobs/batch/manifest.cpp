// Reads manifests and appends lines to them.
#include "app/jobs/batch/manifest.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <system_error>

#include "app/jobs/batch/names.h"
#include "hilbert/error.h"
#include "models/files/atomic_file.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;

/// Returns the error for a manifest that cannot be written. It ends the run of the whole set.
models::DiskError failure(const fs::path& path, int error) {
  const Error plain = models::write_failure(path, error);
  return {plain.kind(), plain.what(), plain.remedy() + ", then run the same command again: finished videos stay"};
}

models::DiskError changed(const fs::path& path, const std::string& what) {
  return {ErrorKind::failed, path.string() + ": " + what + " during the run",
          "run the same command again, and leave the folder alone meanwhile: videos that the manifest still lists are "
          "kept"};
}

std::string text_field(const nlohmann::json& line, const char* name) {
  const auto field = line.find(name);
  return field != line.end() && field->is_string() ? field->get<std::string>() : "";
}

template <typename Number>
Number number_field(const nlohmann::json& line, const char* name) {
  const auto field = line.find(name);
  return field != line.end() && field->is_number_unsigned() ? field->get<Number>() : Number{0};
}

/// Parses a line. Throws Error if a field that the program relies on is missing or invalid.
ManifestEntry parse_line(std::string_view text, const std::string& place) {
  constexpr const char* kRemedy = "the row's video is made again";
  const nlohmann::json line = models::parse_json(text, place, kRemedy);
  ManifestEntry entry;
  if (line.is_object()) {
    entry = {.row = number_field<int64_t>(line, "row"),
             .rows = number_field<int64_t>(line, "rows"),
             .output = text_field(line, "output"),
             .state = text_field(line, "state"),
             .identity = text_field(line, "identity"),
             .sha256 = text_field(line, "sha256"),
             .bytes = number_field<uint64_t>(line, "bytes"),
             .finished = text_field(line, "finished"),
             .cause = text_field(line, "cause"),
             .seed = number_field<uint64_t>(line, "seed"),
             .seed_offset = number_field<int64_t>(line, line.contains("seed_offset") ? "seed_offset" : "row"),
             .place = text_field(line, "place"),
             .prompt = line.contains("recipe") ? text_field(line.at("recipe"), "prompt") : "",
             .seconds = {},
             .line = line};
    if (const auto seconds = line.find("seconds"); seconds != line.end() && seconds->is_object()) {
      for (const auto& [stage, value] : seconds->items())
        if (value.is_number()) entry.seconds[stage] = value.get<double>();
    }
  }
  const bool known = entry.state == "done" || entry.state == "failed";
  if (!known || !is_plain_name(entry.output) || entry.row < 0 || entry.row >= entry.rows)
    throw bad_input(place + ": this is not a line of a manifest", kRemedy);
  return entry;
}

/// Returns the number of bytes up to the end of the last whole line.
off_t whole_lines(int descriptor, off_t size) {
  std::array<char, 4096> buffer{};
  while (size > 0) {
    const off_t start = std::max<off_t>(0, size - static_cast<off_t>(buffer.size()));
    const ssize_t count = ::pread(descriptor, buffer.data(), static_cast<size_t>(size - start), start);
    if (count <= 0) return size;
    for (ssize_t i = count; i > 0; --i)
      if (buffer.at(static_cast<size_t>(i - 1)) == '\n') return start + i;
    size = start;
  }
  return 0;
}

}  // namespace

std::vector<ManifestEntry> parse_manifest(std::string_view text, const std::string& file,
                                          std::vector<std::string>& warnings) {
  std::vector<ManifestEntry> entries;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string place = file + ":" + std::to_string(number);
    try {
      if (end == std::string_view::npos) throw bad_input(place + ": the line is incomplete", "");
      entries.push_back(parse_line(text.substr(0, end), place));
    } catch (const Error& error) {
      warnings.push_back(std::string(error.what()) + "; the line is ignored");
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return entries;
}

std::vector<fs::path> manifests_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("manifest.") && name.ends_with(".jsonl")) files.push_back(entry.path());
  }
  if (error) throw bad_input(folder.string() + " cannot be read: " + error.message(), "name the folder of a set");
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<ManifestEntry> read_manifests(const fs::path& folder, std::vector<std::string>& warnings) {
  std::vector<ManifestEntry> entries;
  for (const fs::path& file : manifests_in(folder)) {
    constexpr uint64_t kMost = 1 << 30;  // bytes: the lines of about a million videos
    const std::string text = models::read_regular_file(file, kMost, "move it elsewhere");
    const auto lines = parse_manifest(text, file.string(), warnings);
    entries.insert(entries.end(), lines.begin(), lines.end());
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const ManifestEntry& a, const ManifestEntry& b) { return a.finished < b.finished; });
  return entries;
}

fs::path manifest_path(const fs::path& folder, int64_t rank) {
  return folder / ("manifest." + std::to_string(rank) + ".jsonl");
}

ManifestWriter::ManifestWriter(const fs::path& folder, int64_t rank) : path_(manifest_path(folder, rank)) {
  models::check_target(path_);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw failure(path_, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(descriptor_);
    if (error != EWOULDBLOCK) throw failure(path_, error);
    throw bad_input(path_.string() + " is being written by another process",
                    "wait until that process ends, or give each process a share of its own (--share i/n)");
  }
  struct stat status {};
  const off_t size = ::fstat(descriptor_, &status) == 0 ? status.st_size : 0;
  const off_t kept = whole_lines(descriptor_, size);
  if (kept < size && ::ftruncate(descriptor_, kept) != 0) {
    const int error = errno;
    ::close(descriptor_);
    throw failure(path_, error);
  }
  size_ = kept;
}

ManifestWriter::~ManifestWriter() {
  ::close(descriptor_);
}

void ManifestWriter::append(const nlohmann::json& line) {
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);
  if (const int error = models::write_all(descriptor_, text.data(), text.size())) {
    // Ignore a failure here, because readers skip half lines.
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, before);
    throw failure(path_, error);
  }
  if (const int error = models::flush_to_disk(descriptor_)) throw failure(path_, error);
  if (before < size_) throw changed(path_, "became shorter");
  size_ = before + static_cast<off_t>(text.size());
  check_place();
}

void ManifestWriter::check_place() const {
  struct stat own {
  }, there{};
  if (::fstat(descriptor_, &own) != 0) throw failure(path_, errno);
  const bool is_missing = ::stat(path_.c_str(), &there) != 0;
  if (is_missing && errno != ENOENT && errno != ENOTDIR) return;  // stat() says nothing about the file
  if (is_missing || own.st_dev != there.st_dev || own.st_ino != there.st_ino)
    throw changed(path_, "was moved, removed or replaced");
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto whole = std::chrono::floor<std::chrono::seconds>(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now - whole).count();
  const std::time_t time = std::chrono::system_clock::to_time_t(whole);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return std::string(date.data()) + "." + std::to_string(1000 + milliseconds).substr(1) + "Z";
}

}  // namespace sparsereel::app::sets
