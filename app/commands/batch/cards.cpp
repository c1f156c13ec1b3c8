// Lines of JSON go over the sockets: {"rows": [..]} and {"stop": true} there, {"ready": true} and {"failed": ..} back.
#include "app/commands/batch/cards.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "app/commands/batch/row_queue.h"
#include "app/counted.h"
#include "app/job/denoising_checkpoint.h"
#include "app/job/interrupt.h"
#include "app/job/report.h"
#include "app/json_fields.h"
#include "app/ranks/team.h"
#include "app/ranks/world.h"
#include "models/engine/failure.h"
#include "models/files/atomic_file.h"
#include "models/files/json_text.h"
#include "models/files/temporary.h"
#include "models/layers/cpu_threads.h"
#include "models/parallel/socket_group.h"
#include "models/weights/device.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Lines over a socket.
class LineSocket {
 public:
  explicit LineSocket(int socket) : socket_(socket) {}

  bool send(const nlohmann::json& message) const {
    const std::string line = dump(message) + "\n";
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
  /// Something has come, or the other one is gone.
  bool is_ready() const {
    pollfd ready = {.fd = socket_, .events = POLLIN, .revents = 0};
    return !text_.empty() || poll(&ready, 1, 0) > 0;
  }
  int number() const { return socket_; }

 private:
  int socket_;
  std::string text_;
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
  const int kept = memfd_create("standard input", MFD_CLOEXEC);
  std::array<char, 1 << 16> bytes{};
  for (ssize_t count = 0; (count = read(STDIN_FILENO, bytes.data(), bytes.size())) > 0;)
    if (models::write_all(kept, bytes.data(), static_cast<size_t>(count)) != 0)
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
    for (size_t i = 0; i < cards_.links_.size(); ++i) {
      Card card(cards_.links_[i].data);
      card.manifest = manifest_path(cards_.options_.folder, static_cast<int64_t>(i) + 1);
      std::error_code none;
      const auto size = fs::file_size(card.manifest, none);
      card.read = none ? 0 : size;
      cards_of_run_.push_back(std::move(card));
    }
    for (const std::vector<Video*>& group : groups)
      for (Video* row : group) rows_[row->index] = row;
  }

  void run() {
    while (!queue_.is_done()) {
      if (living() == 0)
        throw run_failure("no card is left: " + last_end_, "see what ended them, then run the same command again");
      wait();
      if (interrupted()) stop(std::make_exception_ptr(models::Cancelled{}));
      if (fatal_) stop(std::make_exception_ptr(Error(*fatal_)));
    }
    for (Card& card : cards_of_run_)
      if (card.lives) card.socket.send({{"stop", true}});
    tally_.seconds["render"] += std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  struct Card {
    explicit Card(int link) : socket(link) {}
    LineSocket socket;
    fs::path manifest;
    uintmax_t read = 0;  // bytes of the manifest that count already
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
      read_manifest(i);
    }
    for (size_t i = 0; i < cards_of_run_.size(); ++i) give_rows(i);
  }

  void hear(size_t i) {
    Card& card = cards_of_run_[i];
    const nlohmann::json message = card.socket.receive();
    if (message.is_null()) return bury(i);
    if (message.contains("ready")) card.idle = true;
    if (const auto failed = message.find("failed"); failed != message.end())
      fatal_ = run_failure(text_of(*failed, "cause"), text_of(*failed, "remedy"));
  }

  void give_rows(size_t i) {
    Card& card = cards_of_run_[i];
    if (!card.lives || !card.idle || fatal_) return;
    const std::vector<int64_t> rows = queue_.take(static_cast<int64_t>(i), living());
    if (rows.empty()) return;
    card.idle = false;
    card.socket.send({{"rows", rows}});
  }

  /// Its rows go to the others, but for those that its manifest has.
  void bury(size_t i) {
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

  /// The whole lines that are new.
  void read_manifest(size_t i) {
    Card& card = cards_of_run_[i];
    std::ifstream file(card.manifest, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(card.read));
    std::string text((std::istreambuf_iterator<char>(file)), {});
    text.resize(text.find_last_of('\n') + 1);
    card.read += text.size();
    for (const ManifestEntry& entry : parse_manifest(text, card.manifest.string(), tally_.warnings)) count(i, entry);
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

  Cards& cards_;
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

/// A card's side of the line.
class CardWork {
 public:
  CardWork(const StartedRank& card, Team& team, SetPlan& plan, ManifestWriter& manifest, int64_t rows)
      : device_(card.device),
        line_(card.links.front().data),
        team_(team),
        plan_(plan),
        progress_(/*wanted=*/false),
        manifest_(manifest) {
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
  LineSocket line_;
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
  const std::vector<CardsOfAVideo> cards = cards_of_videos(set.merged, options);
  if (const auto threads = set.merged.whole("threads"))
    models::set_threads(static_cast<int>(*threads));
  else if (card.device == "cpu")
    models::set_threads(threads_of_each(std::ssize(cards) * options.gpus_per_video));
  Team team(cards.at(static_cast<size_t>(card.rank - 1)), at::get_num_threads(), options.gpus_per_video > 1);
  SetPlan plan = plan_rows(rows, set, options, {});
  ManifestWriter manifest(options.folder, card.rank);
  CardWork(card, team, plan, manifest, static_cast<int64_t>(rows.size())).run();
  team.finish();
}

}  // namespace sparsereel::app::sets
