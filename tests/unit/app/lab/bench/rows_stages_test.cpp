// Tests how rows of `bench pipeline` become tables, JSON and charts, alone and beside the rows of a baseline.
#include "app/lab/bench/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "app/commands/bench.h"
#include "app/lab/bench/sections.h"
#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;
using test::TemporaryFolder;
using test::throws_error;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Row shared(const std::string& stage, double ms) {
  Row row = stage_row(stage);
  row.update(time_fields(spread({ms})));
  return row;
}

Row step(attention::Mode mode, double ms, const std::string& cache = "0") {
  Row row = step_row({.mode = mode, .cache = models::parse_cache_rule(cache)});
  row.update(time_fields(spread({ms})));
  row.update({{"sparsity", 0.0}, {"layer_sparsity", {0.0, 0.0}}});
  if (cache == "0") row.update(part_fields({.matmul = ms / 4, .attention = ms / 2, .rest = ms / 4}));
  return row;
}

/// Returns the row of a sparse step with these selection options. `ms` is the time of the step.
Row sparse(const nlohmann::json& selection, double ms = 300) {
  Row row = step(Mode::sparse, ms);
  row.update(selection_fields(nullptr));
  row.update(selection);
  return row;
}

Rows rows() {
  Rows rows = {shared("text", 20), step(Mode::full, 600), sparse({{"topk", 0.5}}), shared("decode", 1980)};
  rows[2].update({{"psnr", 31.25}, {"ssim", 0.9}, {"rel_l1", 0.05}});
  return rows;
}

TEST(CompareSteps, AddsSpeedAndTheTimeOfAWholeVideo) {
  Rows all = rows();
  compare_steps(all, 50);
  EXPECT_DOUBLE_EQ(number_of(all[1], "speedup").value(), 1);
  EXPECT_DOUBLE_EQ(number_of(all[2], "speedup").value(), 2);
  EXPECT_DOUBLE_EQ(number_of(all[2], "video_seconds").value(), 0.02 + 15 + 1.98);
  EXPECT_FALSE(number_of(all[0], "speedup").has_value());
  all.push_back(shared("sound", 500));
  compare_steps(all, 50);
  EXPECT_DOUBLE_EQ(number_of(all[2], "video_seconds").value(), 0.02 + 15 + 1.98 + 0.5);
}

TEST(CompareSteps, GivesNoVideoSecondsWithoutADecodingTime) {
  Rows all = {shared("text", 20), step(Mode::full, 600)};
  compare_steps(all, 50);
  EXPECT_FALSE(number_of(all[1], "video_seconds").has_value());
}

TEST(StageTables, ShowContendersFirst) {
  Rows all = rows();
  compare_steps(all, 50);
  const std::string text = stage_markdown(all, 50);
  EXPECT_THAT(text,
              HasSubstr("| mode | topk | order | ms a step | matmul | attention | rest | x full | 50-step video, s |"));
  EXPECT_LT(text.find("sparse"), text.find("decode"));
  EXPECT_THAT(text, Not(HasSubstr("peak GiB"))) << "an empty column";
  const std::string table = csv(stage_columns(), all);
  EXPECT_THAT(
      table,
      HasSubstr(
          "mode,topk,cdf,error_bound,block_error,dropped,select,cell,token_order,cache,computed_steps,stage,ms,"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 5);
}

Rows rows_with_caches() {
  Rows all = rows();
  for (const Mode mode : {Mode::full, Mode::sparse}) {
    all.push_back(step(mode, mode == Mode::full ? 240 : 120, "steps:20"));
    all.back().update(selection_fields(nullptr));
    all.back()["computed_steps"] = 20;
  }
  compare_steps(all, 50);
  return all;
}

TEST(StageTables, ShowCachesIfThereAreAny) {
  const Rows all = rows_with_caches();
  const std::string text = stage_markdown(all, 50);
  EXPECT_THAT(text, HasSubstr("| order | cache | computed | ms a step |"));
  EXPECT_THAT(text, HasSubstr("| hilbert | steps:20 | 20 | 120.0 |"));
  EXPECT_THAT(stage_markdown(rows(), 50), Not(HasSubstr("cache")));
  EXPECT_THAT(csv(stage_columns(), all), HasSubstr(",token_order,cache,computed_steps,stage,ms,"));
  EXPECT_EQ(all[5]["cache"], "steps:20");
  EXPECT_EQ(all[5]["computed_steps"], 20);
  EXPECT_TRUE(all[5]["matmul_ms"].is_null());
  EXPECT_TRUE(all[1]["cache"].is_null());
}

TEST(CompareSteps, DoesNotCompareWithFullAttentionWithACache) {
  Rows all = rows_with_caches();
  EXPECT_DOUBLE_EQ(number_of(all[4], "speedup").value(), 2.5);
  EXPECT_DOUBLE_EQ(number_of(all[5], "speedup").value(), 5);
  EXPECT_DOUBLE_EQ(number_of(all[5], "video_seconds").value(), 0.02 + 50 * 0.12 + 1.98);
  all.erase(all.begin() + 1);
  for (Row& row : all) row["speedup"] = nullptr;
  compare_steps(all, 50);
  EXPECT_TRUE(all.back()["speedup"].is_null());
}

TEST(StageJson, HasTheDocumentedKeys) {
  const Rows json = rows();
  for (const Row& row : json)
    for (const char* key : {"mode", "stage", "ms", "sparsity", "psnr", "ssim", "peak_gib"})
      EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_TRUE(json[0]["mode"].is_null());
  EXPECT_EQ(json[2]["matmul_ms"], 75);
  EXPECT_EQ(json[2]["layer_sparsity"].size(), 2U);
}

nlohmann::json settings() {
  return {{"layers", 30},    {"heads", 30},  {"head_dim", 64}, {"tokens", 17776}, {"text_tokens", 226}, {"batch", 2},
          {"dtype", "bf16"}, {"width", 720}, {"height", 480},  {"frames", 49},    {"seed", 42}};
}

TEST(Baseline, ReadsTheTimesOfAReport) {
  const TemporaryFolder folder;
  write_text(folder / "rival.json", R"({"settings": )" + settings().dump() + R"(, "rows": [
    {"mode": "diffusers eager", "stage": "decode", "ms": 3000}, {"mode": "diffusers eager", "stage": "text", "ms": 1000},
    {"mode": "diffusers compiled", "stage": "step", "ms": 900, "ms_min": 890, "matmul_ms": 1, "attention_ms": 2, "rest_ms": 3, "peak_gib": 12.5}]})");
  Rows all = rows();
  for (const Row& row : read_baseline((folder / "rival.json").string(), settings())) all.push_back(row);
  compare_steps(all, 50);
  const Row& compiled = all.back();
  EXPECT_EQ(compiled["mode"], "diffusers compiled");
  EXPECT_DOUBLE_EQ(number_of(compiled, "video_seconds").value(), 1 + 45 + 3) << "text and decode are not compiled";
  EXPECT_EQ(compiled["ms_min"], 890);
  EXPECT_NEAR(number_of(compiled, "attention_ms").value(), 300, 1e-9)
      << "a part of 900, not of what a profiler made of it";
  EXPECT_NEAR(number_of(compiled, "speedup").value(), 2.0 / 3, 1e-9);
  EXPECT_EQ(compiled["token_order"], "");
}

/// Returns the number in the last row of a Markdown table, in the column with this title.
double number_in(const std::string& table, const std::string& title) {
  const auto cells = [](const std::string& line) {
    std::vector<std::string> texts;
    std::istringstream stream(line);
    for (std::string text; std::getline(stream, text, '|');) texts.push_back(text);
    return texts;
  };
  std::istringstream lines(table);
  std::string head, line, last;
  std::getline(lines, head);
  while (std::getline(lines, line) && !line.empty()) last = line;
  const std::vector<std::string> titles = cells(head);
  const auto found = std::ranges::find(titles, " " + title + " ");
  return std::stod(cells(last).at(static_cast<size_t>(found - titles.begin())));
}

TEST(StageParts, AddUpToTheStepInTablesReportsAndPlots) {
  Rows all = {step(Mode::full, 66.9)};
  all[0].update(part_fields(parts_of(66.9, {{.matmul = 62.8, .attention = 15.9, .rest = 7.3}})));
  const std::string table = stage_markdown(all, 50);
  EXPECT_EQ(number_in(table, "ms a step"), 66.9);
  EXPECT_NEAR(number_in(table, "matmul") + number_in(table, "attention") + number_in(table, "rest"), 66.9, 0.1);
  const Row& row = all[0];
  EXPECT_NEAR(row["matmul_ms"].get<double>() + row["attention_ms"].get<double>() + row["rest_ms"].get<double>(),
              row["ms"].get<double>(), 1e-9);
  const PlotRow drawn = plot_of({{"rows", all}}, "r.json").rows.at(0);
  EXPECT_EQ(drawn.total, row["ms"]);
  EXPECT_NEAR(std::accumulate(drawn.parts.begin(), drawn.parts.end(), 0.0), drawn.total, 1e-9);
}

TEST(Baseline, NamesTheReportThatIsWrong) {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "rows"},
      {"{\"rows\": 1}", "rows"},
      {"{\"rows\": []}", "rows"},
      {"{\"rows\": [1]}", "rows[0]"},
      {"{\"rows\": [{\"stage\": \"step\", \"ms\": 1}]}", "mode"},
      {"{\"rows\": [{\"mode\": \"full\", \"stage\": \"step\", \"ms\": 1}]}", "mode"},
      {"{\"rows\": [{\"mode\": \"a\", \"stage\": \"step\"}]}", "ms"},
      {"{\"rows\": [{\"mode\": \"a\", \"stage\": \"s\", \"ms\": 0}]}", "ms"}};
  for (const auto& [text, word] : cases) {
    nlohmann::json report = nlohmann::json::parse(text);
    if (report.is_object()) report["settings"] = settings();
    write_text(folder / "rival.json", report.dump());
    EXPECT_TRUE(
        throws_error([&] { read_baseline((folder / "rival.json").string(), settings()); }, {"rival.json", word}))
        << text;
  }
}

TEST(Baseline, NamesTheFieldThatDiffersFromThisRun) {
  const TemporaryFolder folder;
  const nlohmann::json rows = {{{"mode", "a"}, {"stage", "step"}, {"ms", 1}}};
  const auto refused = [&](const nlohmann::json& theirs, const std::string& what) {
    write_text(folder / "rival.json", nlohmann::json{{"rows", rows}, {"settings", theirs}}.dump());
    return throws_error([&] { read_baseline((folder / "rival.json").string(), settings()); }, {"rival.json", what});
  };
  for (const char* field :
       {"layers", "heads", "head_dim", "tokens", "text_tokens", "batch", "width", "height", "frames"}) {
    nlohmann::json other = settings();
    other[field] = 7;
    EXPECT_TRUE(refused(other, std::string("settings.") + field + " is 7"));
  }
  nlohmann::json other = settings();
  other["dtype"] = "fp32";
  EXPECT_TRUE(refused(other, "settings.dtype is \"fp32\", but in this run it is \"bf16\""));
  EXPECT_TRUE(refused(nullptr, "settings.layers is null"));
  other = settings();
  other["seed"] = 7;  // another seed is allowed, because times do not depend on it
  EXPECT_FALSE(refused(other, ""));
}

TEST(Plot, DrawsTheStepsOfAPipeline) {
  Rows all = rows();
  compare_steps(all, 50);
  const nlohmann::json report = {{"rows", all}, {"settings", {{"model", "2b"}, {"dtype", "bf16"}}}};
  const PlotData data = plot_of(report, "r.json");
  EXPECT_EQ(data.title, "2b, bf16");
  EXPECT_EQ(data.quality, "PSNR dB against full attention");
  EXPECT_THAT(data.parts, ElementsAre("matmul", "attention", "rest"));
  ASSERT_EQ(data.rows.size(), 2U);
  EXPECT_EQ(data.rows[1].name, "sparse 0.5");
  EXPECT_THAT(data.rows[1].parts, ElementsAre(75, 150, 75));
  EXPECT_EQ(data.rows[1].quality, 31.25);
}

TEST(Plot, NamesWhatReplacedDroppedBlocks) {
  Rows all = rows();
  all[2].update({{"dropped", "mean"}, {"select", "error"}, {"cell", 16}});
  all.push_back(sparse({{"error_bound", 0.05}, {"dropped", "mean"}, {"select", "error"}, {"cell", 64}}));
  all.push_back(sparse({{"topk", 0.5}, {"dropped", "none"}, {"select", "mass"}}));
  const PlotData data = plot_of({{"rows", all}}, "r.json");
  ASSERT_EQ(data.rows.size(), 4U);
  EXPECT_EQ(data.rows[1].name, "sparse 0.5 means of 16 by error");
  EXPECT_EQ(data.rows[2].name, "sparse error 0.05 means of 64 by error");
  EXPECT_EQ(data.rows[3].name, "sparse 0.5");
}

TEST(Plot, NamesCaches) {
  const PlotData data = plot_of({{"rows", rows_with_caches()}}, "r.json");
  ASSERT_EQ(data.rows.size(), 4U);
  EXPECT_EQ(data.rows[2].name, "full steps:20");
  EXPECT_TRUE(data.rows[2].parts.empty());
  EXPECT_EQ(data.rows[1].parts.size(), 3U);
}

TEST(Plot, DrawsTheRowsOfAttention) {
  const nlohmann::json report = {{"rows",
                                  {{{"mode", "full"}, {"ms", 10}, {"rel_l1", 1e-7}, {"speedup", 1}},
                                   {{"mode", "sparse"}, {"ms", nullptr}, {"note", "cannot run"}}}}};
  const PlotData data = plot_of(report, "r.json");
  ASSERT_EQ(data.rows.size(), 1U);
  EXPECT_EQ(data.unit, "ms a call");
  EXPECT_EQ(data.quality, "relative L1 (less is better)");
  EXPECT_EQ(data.rows[0].quality, 1e-7);  // relative L1, the same number as in the table
  EXPECT_TRUE(data.parts.empty());
}

TEST(Plot, NamesReportsWithoutTimes) {
  for (const char* text : {"[]", "{}", R"({"rows": []})", R"({"rows": [{"stage": "decode", "ms": 3}]})"})
    EXPECT_TRUE(throws_error([&] { plot_of(nlohmann::json::parse(text), "r.json"); }, {"r.json"})) << text;
}

}  // namespace
}  // namespace sparsereel::app::bench
