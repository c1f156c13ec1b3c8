// Lines of JSON go over the sockets: {"rows": [..]} and {"stop": true} there; {"ready": true}, {"failed": ..} and,
// again and again, {"alive": true} back.
#include "app/jobs/batch/cards.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "app/counted.h"
#include "app/jobs/batch/row_queue.h"
#include "app/jobs/denoising_checkpoint.h"
#include "app/jobs/interrupt.h"
#include "app/jobs/report.h"
#include "app/json_fields.h"
#include "app/options/text_file.h"
#include "app/ranks/team.h"
#include "app/ranks/world.h"
#include "models/engine/failure.h"
#include "models/files/atomic_file.h"
#include "models/files/json_text.h"
#include "models/files/temporary.h"
#include "models/layers/cpu_threads.h"
#include "models/parallel/patience.h"
#include "models/parallel/socket_group.h"
#include "models/request/run.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Lines over a socket. Any thread may send.
class LineSocket {
 public:
  explicit LineSocket(int socket) : socket_(socket) {}

  bool send(const nlohmann::json& message) {
    const std::string line = dump(message) + "\n";
    const std::lock_guard lock(*sending_);
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t count = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
    }
    return true;
  }
  /// Null where the other one is gone.
  nlohmann::json receive() {
    for (;;) {
      if (const size_t end = text_.find('\n'); end != std::string::npos) {
        nlohmann::json message = models::parse_json_if_valid(std::string_view(text_).substr(0, end));
        text_.erase(0, end + 1);
        return message;
      }
      std::array<char, 4096> bytes{};
      const ssize_t count = recv(socket_, bytes.data(), bytes.size(), 0);
      if (count <= 0) return nullptr;
      text_.append(bytes.data(), static_cast<size_t>(count));
    }
  }
  /// A line is here already: it is received without a wait.
  bool has_line() const { return text_.find('\n') != std::string::npos; }
  /// Something has come, or the other one is gone.
  bool is_ready() const {
    pollfd ready = {.fd = socket_, .events = POLLIN, .revents = 0};
    return !text_.empty() || poll(&ready, 1, 0) > 0;
  }
  int number() const { return socket_; }

 private:
  int socket_;
  std::string text_;
  std::unique_ptr<std::mutex> sending_ = std::make_unique<std::mutex>();
};

/// Tells the other end, while this lives, that this process runs.
class Heartbeat {
 public:
  Heartbeat(LineSocket& line, std::chrono::milliseconds every)
      : thread_([this, &line, every] {
          std::unique_lock lock(mutex_);
          while (!woken_.wait_for(lock, every, [this] { return quit_; })) line.send({{"alive", true}});
        }) {}
  ~Heartbeat() {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    woken_.notify_all();
    thread_.join();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool quit_ = false;
  std::thread thread_;  // last: the rest is there while it runs
};

/// A manifest that a card's process writes, held open: it is the same file wherever it is moved.
class ManifestReader {
 public:
  explicit ManifestReader(fs::path path) : path_(std::move(path)) {}
  ~ManifestReader() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  ManifestReader(ManifestReader&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), read_(other.read_) {}
  ManifestReader& operator=(ManifestReader&&) = delete;

  const fs::path& path() const { return path_; }

  /// Once the card has the file and before it writes: what stands there is of earlier runs. Throws Error.
  void begin() {
    if (descriptor_ >= 0) return;
    descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);  // NOLINT(cppcoreguidelines-pro-type-vararg): of C
    if (descriptor_ < 0) throw changed("was moved or removed");
    read_ = size();
  }
  /// The whole lines that are new. Throws Error where the file became shorter.
  std::string new_lines() {
    if (descriptor_ < 0) return {};
    const off_t now = size();
    if (now < read_) throw changed("became shorter");
    std::string text(static_cast<size_t>(now - read_), '\0');
    const ssize_t count = pread(descriptor_, text.data(), text.size(), read_);
    text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    text.resize(text.find_last_of('\n') + 1);
    read_ += static_cast<off_t>(text.size());
    return text;
  }
  Error changed(const std::string& what) const {
    return run_failure(path_.string() + ": " + what + " while the set was made",
                       "leave the folder as it is, and run the same command again: what it still tells of stays");
  }

 private:
  off_t size() const {
    struct stat status {};
    return fstat(descriptor_, &status) == 0 ? status.st_size : 0;
  }

  fs::path path_;
  int descriptor_ = -1;
  off_t read_ = 0;  // bytes that count already
};

/// This process's own.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::vector<std::vector<models::Link>> links_of_cards(size_t count) {
  std::vector<std::vector<models::Link>> links(count + 1, std::vector<models::Link>(count + 1));
  for (size_t i = 1; i <= count; ++i) {
    const auto pair = models::local_links(2);
    links[0][i] = pair[0][1];
    links[i][0] = pair[1][0];
  }
  return links;
}

/// Where keep_standard_input() has put it; -1: nowhere.
int& kept_input() {
  static int descriptor = -1;
  return descriptor;
}

}  // namespace

void keep_standard_input() {
  const std::string text = read_input("-", kMostSetBytes);
  const int kept = memfd_create("standard input", MFD_CLOEXEC);
  if (kept < 0 || models::write_all(kept, text.data(), text.size()) != 0)
    throw run_failure("no memory for what comes by standard input", "name the set's file");
  lseek(kept, 0, SEEK_SET);
  dup2(kept, STDIN_FILENO);
  kept_input() = kept;
}

std::vector<CardsOfAVideo> cards_of_videos(const Settings& settings, const BatchOptions& options) {
  const int64_t count = settings.whole("gpus").value_or(1), each = options.gpus_per_video;
  if (each < 1 || count % each != 0)
    throw bad_input("--gpus-per-video " + std::to_string(each) + " does not divide --gpus " + std::to_string(count),
                    "give numbers that do, as --gpus 4 --gpus-per-video 2");
  const std::vector<std::string> devices =
      devices_of_ranks(count, settings.text("device", "auto"), find_group_choice(process_environment).sockets);
  std::vector<CardsOfAVideo> cards;
  for (auto first = devices.begin(); first != devices.end(); first += each) cards.emplace_back(first, first + each);
  return cards;
}

Cards::Cards(const std::vector<CardsOfAVideo>& cards, const BatchOptions& options)
    : options_(options), ends_(cards.size()) {
  const auto links = links_of_cards(cards.size());
  std::vector<std::string> devices_from_one = {""};
  for (const CardsOfAVideo& each : cards) {
    devices_from_one.push_back(each.front());
    names_.push_back(each.front());
    for (size_t i = 1; i < each.size(); ++i) names_.back() += "+" + each[i];
  }
  links_.assign(links[0].begin() + 1, links[0].end());
  children_ = std::make_unique<Children>(links, devices_from_one, command_line(), kept_input());
  for (size_t i = 1; i < links.size(); ++i) models::close_links(links[i]);
  children_->watch([this](int64_t rank, const std::string& how) {
    const std::lock_guard lock(mutex_);
    ends_[static_cast<size_t>(rank - 1)] = how;
  });
}

Cards::~Cards() {
  models::close_links(links_);  // those that wait for rows end by it
  children_.reset();
}

/// One rendering of rows on the cards.
class Cards::Run {
 public:
  Run(Cards& cards, const RowGroups& groups, ManifestWriter& manifest, Progress& progress, Tally& tally)
      : cards_(cards), manifest_(manifest), progress_(progress), tally_(tally), queue_(queued(groups)) {
    for (size_t i = 0; i < cards_.links_.size(); ++i)
      cards_of_run_.push_back(
          {.socket = LineSocket(cards_.links_[i].data),
           .manifest = ManifestReader(manifest_path(cards_.options_.folder, static_cast<int64_t>(i) + 1)),
           .patience = models::Patience(limits_.start)});
    for (const std::vector<Video*>& group : groups)
      for (Video* row : group) rows_[row->index] = row;
  }

  void run() {
    while (!queue_.is_done()) {
      if (living() == 0)
        throw run_failure("no card is left: " + last_end_, "see what ended them, then run the same command again");
      wait();
      end_the_silent();
      if (interrupted()) stop(std::make_exception_ptr(models::Cancelled{}));
      if (fatal_) break;
    }
    if (fatal_) stop(std::make_exception_ptr(Error(*fatal_)));
    for (Card& card : cards_of_run_)
      if (card.lives) card.socket.send({{"stop", true}});
    tally_.seconds["render"] += std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  struct Card {
    LineSocket socket;
    ManifestReader manifest;
    models::Patience patience;  // until it says something
    bool lives = true, idle = false;
    Identities made = {};  // of its rows that are done, by their videos
  };

  static std::vector<QueuedRow> queued(const RowGroups& groups) {
    std::vector<QueuedRow> rows;
    for (size_t i = 0; i < groups.size(); ++i)
      for (const Video* row : groups[i]) rows.push_back({row->index, i});
    return rows;
  }

  int64_t living() const { return std::ranges::count(cards_of_run_, true, &Card::lives); }

  /// Until a card says something, or a while has passed.
  void wait() {
    std::vector<pollfd> sockets;
    for (const Card& card : cards_of_run_)
      sockets.push_back({.fd = card.lives ? card.socket.number() : -1, .events = POLLIN, .revents = 0});
    poll(sockets.data(), sockets.size(), 200);
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (sockets[i].revents != 0) hear(i);
      while (cards_of_run_[i].lives && cards_of_run_[i].socket.has_line()) hear(i);
      read_manifest(i);
    }
    for (size_t i = 0; i < cards_of_run_.size(); ++i) give_rows(i);
  }

  void hear(size_t i) {
    Card& card = cards_of_run_[i];
    const nlohmann::json message = card.socket.receive();
    if (message.is_null()) return bury(i);
    card.patience = models::Patience(limits_.call);
    if (message.contains("ready")) take_back(i);
    if (const auto failed = message.find("failed"); failed != message.end())
      fatal_ = run_failure(text_of(*failed, "cause"), text_of(*failed, "remedy"));
  }

  /// The card has done its rows: its manifest tells what became of each, or there is no telling.
  void take_back(size_t i) {
    Card& card = cards_of_run_[i];
    card.idle = true;
    try {
      card.manifest.begin();
    } catch (const Error& error) {
      fatal_ = error;
    }
    read_manifest(i);
    if (const std::vector<int64_t> rows = queue_.rows_of(static_cast<int64_t>(i)); !rows.empty() && !fatal_)
      fatal_ = card.manifest.changed("lost the line of " + rows_.at(rows.front())->place);
  }

  /// A process that was stopped, or hangs in the system, says nothing and does not end by itself.
  void end_the_silent() {
    for (size_t i = 0; i < cards_of_run_.size(); ++i) {
      Card& card = cards_of_run_[i];
      if (!card.lives || card.patience.step().count() > 0) continue;
      cards_.children_->kill(static_cast<int64_t>(i) + 1);
      const auto seconds = std::chrono::duration<double>(card.patience.limit()).count();
      bury(i, "did not answer within " + seconds_text(seconds));
    }
  }

  void give_rows(size_t i) {
    Card& card = cards_of_run_[i];
    if (!card.lives || !card.idle || fatal_) return;
    const std::vector<int64_t> rows = queue_.take(static_cast<int64_t>(i), living());
    if (rows.empty()) return;
    card.idle = false;
    card.socket.send({{"rows", rows}});
  }

  /// Its rows go to the others, but for those that its manifest has. `why`: empty where its end tells it.
  void bury(size_t i, const std::string& why = {}) {
    Card& card = cards_of_run_[i];
    card.lives = false;
    read_manifest(i);
    remove_checkpoints(card.made);  // it may have ended right after the line
    std::string how;
    for (int attempt = 0; attempt < 50 && how.empty(); ++attempt) {
      {
        const std::lock_guard lock(cards_.mutex_);
        how = cards_.ends_[i];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    remove_half_written();  // now that it holds nothing any more
    if (!why.empty()) how = why;
    last_end_ = cards_.names_[i] + " " + (how.empty() ? "ended" : how);
    tally_.warnings.push_back(last_end_ + ": its rows went to the other cards");
    for (const int64_t row : queue_.lost(static_cast<int64_t>(i))) give_up(*rows_.at(row));
  }

  /// What the living cards hold stays.
  void remove_half_written() const {
    std::vector<fs::path> targets;
    for (const auto& [index, row] : rows_)
      for (const fs::path& file : {row->options.run.output, row->options.run.contact_sheet, row->options.save_latents})
        targets.push_back(file);
    models::remove_leftovers(targets);
  }

  void give_up(Video& row) {
    row.fail(run_failure("two cards ended while they made it, the last: " + last_end_,
                         "render it alone, to see what happens"));
    tally_.failed.push_back(&row);
    manifest_.append({{"row", row.index},
                      {"rows", tally_.rows},
                      {"place", row.place},
                      {"output", name_of(row)},
                      {"state", "failed"},
                      {"identity", row.identity},
                      {"seed", row.options.request.seed},
                      {"finished", utc_now()},
                      {"version", SPARSEREEL_VERSION},
                      {"cause", row.failure->what()},
                      {"remedy", row.failure->remedy()}});
  }

  /// Counts what it tells that is new.
  void read_manifest(size_t i) {
    ManifestReader& manifest = cards_of_run_[i].manifest;
    try {
      const std::string text = manifest.new_lines();
      for (const ManifestEntry& entry : parse_manifest(text, manifest.path().string(), tally_.warnings))
        count(i, entry);
    } catch (const Error& error) {
      if (!fatal_) fatal_ = error;
    }
  }

  void count(size_t card, const ManifestEntry& entry) {
    const auto found = rows_.find(entry.row);
    if (found == rows_.end()) return;
    Video& row = *found->second;
    queue_.finished(static_cast<int64_t>(card), entry.row);
    if (entry.state == "failed") {
      row.failure = run_failure(entry.cause, text_of(entry.line, "remedy"));
      tally_.failed.push_back(&row);
    } else {
      ++tally_.rendered;
      cards_of_run_[card].made[row.options.run.output] = row.identity;
      for (const auto& [stage, seconds] : entry.seconds) tally_.seconds[stage] += seconds;
      const auto cache = entry.line.find("cache");
      const bool cached = cache != entry.line.end() && cache->contains("computed_steps");
      tally_.presets.add(row, cached ? cache->at("computed_steps").get<int64_t>() : row.plan.num_inference_steps);
    }
    tell_warnings(row, entry);
    const auto here = tally_.rendered + static_cast<int64_t>(tally_.failed.size());
    progress_.set("set", tally_.skipped + here, tally_.share, here,
                  std::chrono::duration<double>(Clock::now() - start_).count());
    progress_.stage(cards_.names_[card]);
  }

  /// But for those that were told before the work.
  void tell_warnings(const Video& row, const ManifestEntry& entry) {
    for (const auto& warning : entry.line.value("warnings", nlohmann::json::array()))
      if (warning.is_string() && std::ranges::find(row.told, warning.get<std::string>()) == row.told.end())
        tally_.warnings.push_back(row.place + ": " + warning.get<std::string>());
  }

  /// All cards end what they do as one process would; then this throws why.
  [[noreturn]] void stop(const std::exception_ptr& why) {
    for (Card& card : cards_of_run_)
      if (card.lives) card.socket.send({{"stop", true}});
    const auto end = Clock::now() + std::chrono::seconds(30);
    for (Card& card : cards_of_run_)
      while (card.lives && Clock::now() < end) {
        pollfd ready = {.fd = card.socket.number(), .events = POLLIN, .revents = 0};
        if (poll(&ready, 1, 200) > 0 && card.socket.receive().is_null()) card.lives = false;
      }
    for (size_t i = 0; i < cards_of_run_.size(); ++i) read_manifest(i);
    std::rethrow_exception(why);
  }

  static std::string seconds_text(double seconds) {
    std::ostringstream text;
    text << seconds << " s";
    return text.str();
  }

  Cards& cards_;
  const models::GroupLimits limits_ = find_group_limits(process_environment);
  ManifestWriter& manifest_;
  Progress& progress_;
  Tally& tally_;
  RowQueue queue_;
  std::vector<Card> cards_of_run_;
  std::map<int64_t, Video*> rows_;
  Clock::time_point start_ = Clock::now();
  std::string last_end_;
  std::optional<Error> fatal_;  // what would fail for all rows
};

void Cards::render(const RowGroups& groups, ManifestWriter& manifest, Progress& progress, Tally& tally) {
  Run(*this, groups, manifest, progress, tally).run();
}

namespace {

/// Some of them may come late.
std::chrono::milliseconds heartbeat_of(const models::GroupLimits& limits) {
  return std::clamp(limits.call / 20, std::chrono::milliseconds(10), std::chrono::milliseconds(5000));
}

/// A card's side of the line.
class CardWork {
 public:
  CardWork(const StartedRank& card, LineSocket& line, Team& team, SetPlan& plan, ManifestWriter& manifest, int64_t rows)
      : device_(card.device), line_(line), team_(team), plan_(plan), progress_(/*wanted=*/false), manifest_(manifest) {
    tally_.rows = rows;
    tally_.share = rows;
  }

  void run() {
    for (;;) {
      line_.send({{"ready", true}});
      const nlohmann::json message = line_.receive();
      if (message.is_null() || message.contains("stop")) return;
      std::vector<Video*> rows;
      for (const int64_t row : message.at("rows").get<std::vector<int64_t>>())
        rows.push_back(&plan_.rows.at(static_cast<size_t>(row)));
      try {
        render(rows);
      } catch (const models::DiskError& error) {  // as for every other card
        line_.send({{"failed", {{"cause", error.what()}, {"remedy", error.remedy()}}}});
        throw;
      }
    }
  }

 private:
  void render(std::vector<Video*> rows) {
    for (Video* row : rows) {
      const std::string device = row->settings.text("device", "auto");
      if (device == "auto" || device == "cuda") row->options.request.device = device_;
    }
    Renderer renderer(
        manifest_, progress_, tally_, [this] { return line_.is_ready(); }, [this] { check_card(); },
        [this] { return team_.ready(); });
    const std::string key = pipeline_key(*rows.front());
    if (key != key_ || !pipeline_) {
      pipeline_.reset();  // its weights make room
      key_.clear();       // what is opened next may fail
      const bool opened = renderer.prepare(rows, [&] {
        pipeline_ = models::Pipeline::open(open_model(rows.front()->options.run), rows.front()->options.request);
        if (team_.size() > 1) pipeline_->check_weights();  // what cannot be loaded is not the other ranks' to find
        team_.use(rows.front()->options);
      });
      if (!opened) return;
      key_ = key;
    }
    for (Video* row : rows) {
      resolve_row(*row, *pipeline_, files_, team_.size());
      check_ranks(*row);
      if (row->failure) renderer.failed(*row);
    }
    std::erase_if(rows, [](const Video* row) { return row->failure.has_value(); });
    if (!rows.empty()) renderer.render(rows, *pipeline_);
  }

  /// Before the other ranks begin with it.
  void check_ranks(Video& row) const {
    if (row.failure) return;
    const auto failure = failure_of_part([&] {
      if (team_.size() > 1 && row.options.request.device != device_)
        throw bad_option("device",
                         "of this row is " + row.options.request.device + ", but its ranks are those of --gpus",
                         "leave it out, or make this row without --gpus-per-video");
      pipeline_->check_ranks(row.plan, team_.size());
    });
    if (failure) row.fail(*failure);
  }

  /// Throws where the GPU itself is broken, or another rank: the row that failed by it is another card's then.
  void check_card() const {
    team_.after_failure();
    if (pipeline_) models::synchronize(pipeline_->device());
  }

  std::string device_, key_;
  LineSocket& line_;
  Team& team_;
  SetPlan& plan_;
  Progress progress_;
  Tally tally_;
  ManifestWriter& manifest_;
  LoadedFiles files_;
  std::shared_ptr<models::Pipeline> pipeline_;
};

}  // namespace

void render_as_card(const SetSettings& set, const BatchOptions& options, const std::vector<PromptRow>& rows,
                    const StartedRank& card) {
  for (const int link : {card.links.front().data, card.links.front().control})
    fcntl(link, F_SETFD, FD_CLOEXEC);  // that this process is gone is known by it
  LineSocket line(card.links.front().data);
  const Heartbeat heartbeat(line, heartbeat_of(find_group_limits(process_environment)));
  const std::vector<CardsOfAVideo> cards = cards_of_videos(set.merged, options);
  if (const auto threads = set.merged.whole("threads"))
    models::set_threads(static_cast<int>(*threads));
  else if (card.device == "cpu")
    models::set_threads(threads_of_each(std::ssize(cards) * options.gpus_per_video));
  Team team(cards.at(static_cast<size_t>(card.rank - 1)), at::get_num_threads(), options.gpus_per_video > 1);
  SetPlan plan = plan_rows(rows, set, options, {});
  ManifestWriter manifest(options.folder, card.rank);
  CardWork(card, line, team, plan, manifest, static_cast<int64_t>(rows.size())).run();
  team.finish();
}

}  // namespace sparsereel::app::sets
