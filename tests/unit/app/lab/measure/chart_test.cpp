// Tests charts: which input is refused, what gnuplot draws, and that names of reports cannot become gnuplot commands.
#include "app/lab/measure/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using test::names_in;
using test::read_text;
using test::TemporaryFolder;
using test::throws_error;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool has_gnuplot() {
  return std::system("command -v gnuplot > /dev/null") == 0;
}

CurvesData curves(const std::string& name) {
  return {.title = "tiny, fp16, NVIDIA H200",
          .x = "seconds of denoising",
          .y = "PSNR dB",
          .curves = {{.name = name, .points = {{.label = "0.3", .x = 2, .y = 30}, {.label = "0.5", .x = 3, .y = 40}}}},
          .joined = false,
          .frontier = {{.label = {}, .x = 2, .y = 30}, {.label = {}, .x = 3, .y = 40}},
          .mark = 6,
          .mark_name = "full attention"};
}

TEST(Chart, ShowsUnitsTheMachineAndFullAttention) {
  if (!has_gnuplot()) GTEST_SKIP() << "needs gnuplot (package gnuplot-nox)";
  const TemporaryFolder folder;
  write_curves(folder / "a.svg", {curves("dropped mean"), curves("dropped none")});
  const std::string text = read_text(folder / "a.svg");
  for (const char* shown :
       {"NVIDIA H200", "seconds of denoising", "PSNR dB", "dropped mean", "dropped none", "full attention"})
    EXPECT_THAT(text, HasSubstr(shown));
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.svg"});
}

TEST(Chart, ChoosesTheFormatByTheFileExtension) {
  if (!has_gnuplot()) GTEST_SKIP() << "needs gnuplot (package gnuplot-nox)";
  const TemporaryFolder folder;
  const PlotData bars{.title = "tiny",
                      .unit = "ms a step",
                      .quality = "PSNR dB",
                      .parts = {"matmul", "attention", "rest"},
                      .rows = {{.name = "full", .parts = {1, 2, 3}, .total = 6, .speedup = 1, .quality = {}},
                               {.name = "sparse 0.5", .parts = {}, .total = 3, .speedup = 2, .quality = 40}}};
  const std::vector<HeatMap> maps = {
      {.title = "a", .rows = "layer", .columns = "step", .values = {{0, 1}, {std::nan(""), 0.5}}},
      {.title = "b", .rows = "layer", .columns = "step", .values = {{0}}}};
  for (const auto& [ending, start] : {std::pair("png", "\x89PNG"), {"svg", "<?xml"}, {"pdf", "%PDF"}}) {
    const auto path = folder / (std::string("a.") + ending);
    write_plot(path, bars);
    EXPECT_THAT(read_text(path), StartsWith(start));
    write_heat_maps(path, "tiny", maps);
    EXPECT_THAT(read_text(path), StartsWith(start));
    write_curves(path, {curves("a")});
    EXPECT_THAT(read_text(path), StartsWith(start));
  }
}

TEST(Chart, DoesNotRunNamesOfReportsAsCommands) {
  if (!has_gnuplot()) GTEST_SKIP() << "needs gnuplot (package gnuplot-nox)";
  const TemporaryFolder folder;
  const std::string file = (folder / "made").string();
  CurvesData data = curves("`touch " + file + "` \" ; system 'touch " + file + "' \\");
  data.title = data.curves.front().name + std::string(200, ' ') + "a";
  write_curves(folder / "a.svg", {data});
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.svg"});
}

TEST(Chart, RefusesOtherFileExtensionsAndReportsWithoutRows) {
  const TemporaryFolder folder;
  EXPECT_TRUE(throws_error([&] { check_chart("--plot", folder / "a.jpg"); }, {"--plot", "a.jpg", ".svg"}));
  EXPECT_TRUE(throws_error([&] { check_chart("--plot", folder / "none" / "a.png"); }, {"none"}));
  EXPECT_TRUE(throws_error([&] { write_curves(folder / "a.jpg", {curves("a")}); }, {"a.jpg"}));
  EXPECT_TRUE(throws_error([&] { write_heat_maps(folder / "a.png", "", {}); }, {"a.png", "no row"}));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Chart, WritesNothingWithoutGnuplot) {
  const TemporaryFolder folder;
  const std::string before = std::getenv("PATH");
  setenv("PATH", folder.path().c_str(), 1);
  try {
    write_curves(folder / "a.png", {curves("a")});
    ADD_FAILURE() << "drawn";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.png is not drawn: gnuplot is not installed"));
    EXPECT_THAT(error.remedy(), HasSubstr("apt-get install gnuplot-nox"));
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
  }
  setenv("PATH", before.c_str(), 1);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

}  // namespace
}  // namespace sparsereel::app
