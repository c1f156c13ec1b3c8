// Declares the columns of the benchmarks' tables, except those that are options of `generate`.
#include <algorithm>

#include "app/lab/measure/table.h"
#include "app/options/option_table.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

/// A column of values that the user chose. All digits are shown, and the list below the table does not explain the
/// column.
struct Choice {
  std::string key, title, meaning;
};
const std::vector<Choice> kChoices = {
    {"workload", "workload", "the known model whose attention this is, or the file of captured calls"},
    {"shape", "B,H,N,D", "batch, heads, tokens, head_dim"},
    {"mode", "mode", "full: torch's attention; quantized: every block in 8 bits; sparse: some of the blocks"},
    {"error_bound", "error", "bound on the predicted error of each query tile"},
    {"arithmetic", "bits", "bits of the products in attention; 8 if the cell is empty"},
    {"selection_rows", "rows", "queries that share one choice of blocks"},
    {"token_order", "order", "the order of the video's tokens"},
    {"kernel", "kernel", "what computed the attention"},
    {"causal", "causal", "1: token i sees tokens up to i"},
    {"kv_heads", "heads of k and v", "heads of k and v, if q has more"},
    {"text_tokens", "text tokens", "the last tokens, which are always dense"},
    {"name", "name", "the items of the lists in which this row differs from the others"},
    {"stage", "stage", "the part of a run that is timed"},
    {"gpus", "GPUs", "GPUs that make a video together"},
    {"passes", "passes side by side", "guidance passes that different GPUs compute at the same time"},
    {"ulysses", "GPUs a pass", "GPUs that share the tokens of a guidance pass"},
    {"most_heads", "heads, at most", "attention heads of one GPU"},
    {"what", "", "the profile that was found, or a preset"},
    {"setting", "setting", "the options of the row"},
    {"prompts", "prompts", "videos that were compared"},
    {"note", "note", "why a figure is missing, or what to know about the row"}};

/// Measured values: key, title, significant digits, unit, meaning.
const std::vector<Column> kFigures = {
    {"ms", "ms", 4, "ms", "median of the rounds, or of the steps"},
    {"ms_min", "least", 4, "ms", "the shortest time"},
    {"ms_max", "most", 4, "ms", "the longest time"},
    {"tops", "TOPS", 4, "10^12 operations/s", "operations of the computed blocks, divided by the time"},
    {"effective_tops", "effective", 4, "10^12 operations/s", "operations of full attention, divided by the time"},
    {"limit_percent", "% of limit", 3, "%", "TOPS in percent of the tensor cores' limit in the data sheet"},
    {"speedup", "x full", 3, "", "how many times as fast as full attention; below 1 is slower"},
    {"prepass_ms", "pre-pass ms", 3, "ms", "the time before the first block is computed"},
    {"prepass_percent", "pre-pass %", 3, "%", "the pre-pass in percent of the time"},
    {"prediction_ms", "prediction ms", 3, "ms", "the part of the pre-pass that chooses the blocks"},
    {"sparsity", "sparsity", 3, "",
     "share of all blocks that were not computed; dense layers, dense steps and text count as computed"},
    {"skipped_pv", "P.V skipped", 3, "", "share of the computed blocks whose product with V was skipped"},
    {"mean_share", "mean share", 3, "", "work on means, as a share of the work of full attention"},
    {"predicted_error", "predicted", 3, "", "error of attention that was predicted when blocks were chosen"},
    {"rel_l1", "rel. L1", 3, "",
     "error of attention's calls, each against exact attention on the same inputs; lower is closer"},
    {"cosine", "cosine", 6, "", "cosine of the angle between the output and the output of exact attention; 1 is equal"},
    {"computed_steps", "computed", 3, "steps", "steps that the cache did not skip"},
    {"computed_dense_steps", "computed dense", 3, "steps", "computed steps that computed every block"},
    {"psnr", "PSNR dB", 3, "dB",
     "how close the frames are to the frames of full attention, mean over the prompts; higher is closer"},
    {"psnr_lowest", "lowest", 3, "dB", "PSNR of the prompt with the lowest PSNR"},
    {"psnr_difference", "paired, dB", 4, "dB",
     "PSNR minus that of the row that --against names, for the same prompt; mean ± standard error"},
    {"ssim", "SSIM", 4, "", "structural similarity of the frames to the frames of full attention; 1 is equal"},
    {"ms_ssim", "MS-SSIM", 4, "", "the same similarity over five scales"},
    {"step_ms", "ms a step", 4, "ms",
     "median time of a step; with a cache, the mean over the steps that it did not skip"},
    {"denoise_seconds", "denoising, s", 4, "s", "all steps of a video"},
    {"full_step_ms", "full, ms a step", 4, "ms", "a step with full attention"},
    {"full_denoise_seconds", "full, s", 4, "s", "all steps of a video with full attention"},
    {"beaten_by", "beaten by", 0, "",
     "a row that is both closer and faster; it counts as faster only if the quartiles of the two times do not "
     "overlap"},
    {"judge", "judge", 3, "", "prompts whose video the classifier calls right"},
    {"matmul_ms", "matmul", 3, "ms",
     "the part of the step in linear layers and other matrix products outside of attention"},
    {"attention_ms", "attention", 3, "ms", "the part of the step in attention, with its norms and rotary embedding"},
    {"rest_ms", "rest", 3, "ms", "the remainder of the step"},
    {"video_seconds", "video, s", 3, "s", "text, all steps of a whole video, frames and sound, without loading"},
    {"peak_gib", "peak GiB", 3, "GiB", "most GPU memory in use"},
    {"scaling", "x fewest", 3, "", "how many times as fast as on the first number of GPUs in the list"},
    {"exchange_ms", "exchange ms", 3, "ms",
     "the time that rank 0 spends in exchanges during a step, including waiting"},
    {"exchange_percent", "exchange %", 3, "%", "the exchanges in percent of the step"},
    {"expected_ms", "expected ms", 4, "ms",
     "estimated time of a step, from the time on one GPU and the speed of the links"},
    {"expected_exchange_ms", "expected exchange", 3, "ms", "estimated time of the exchanges in a step"},
    {"decode_seconds", "decode, s", 3, "s", "decoding the frames"},
    {"sound_seconds", "sound, s", 3, "s", "loading the decoder of the sound, and decoding the sound"},
    {"decode_scaling", "decode x fewest", 3, "",
     "how many times as fast as decoding on the first number of GPUs in the list"},
    {"megabytes", "MB sent a layer", 3, "MB", "how much a GPU sends in each layer: q, k, v and the output"}};

/// A figure that is derived from another figure. Its key is the other figure's key followed by `ending`.
struct Derived {
  std::string ending, title, meaning;
};
const Derived kDerived[] = {{"_lower_quartile", ", lower quartile", "a quarter of the times lies below it"},
                            {"_upper_quartile", ", upper quartile", "a quarter of the times lies above it"},
                            {"_p5", ", 5th percentile", "95% of the prompts exceed it"},
                            {"_sd", ", deviation", "standard deviation over the prompts"},
                            {"_difference", ", paired", "minus the figure of the row of --against for the same prompt"},
                            {"_se", ", error", "standard error of the mean"}};

Column column_of(const std::string& key) {
  const auto figure = std::ranges::find(kFigures, key, &Column::key);
  if (figure != kFigures.end()) return *figure;
  const auto chosen = std::ranges::find(kChoices, key, &Choice::key);
  if (chosen != kChoices.end())
    return {.key = key, .title = chosen->title, .meaning = chosen->meaning, .is_choice = true};
  for (const Derived& derived : kDerived) {
    if (!key.ends_with(derived.ending)) continue;
    Column column = column_of(key.substr(0, key.size() - derived.ending.size()));
    column.key = key;
    column.title += derived.title;
    column.meaning = derived.meaning;
    return column;
  }
  if (const OptionSpec* option = find_option(key)) {
    std::string title = key;
    std::ranges::replace(title, '_', ' ');
    return {.key = key, .title = title, .meaning = option->help, .is_choice = true};
  }
  throw run_failure("no column " + key, "declare it in columns.cpp");
}

}  // namespace

Columns columns(const std::vector<std::string>& keys) {
  Columns chosen;
  for (const std::string& key : keys) chosen.push_back(column_of(key));
  return chosen;
}

Columns varying(const std::vector<std::string>& keys) {
  Columns chosen = columns(keys);
  for (Column& column : chosen) column.varying = true;
  return chosen;
}

Columns in_csv(const std::vector<std::string>& keys) {
  Columns chosen = columns(keys);
  for (Column& column : chosen) column.shown = Shown::in_csv;
  return chosen;
}

Column to_people(const std::string& key, std::function<std::string(const Row&)> text) {
  Column chosen = columns({key}).front();
  chosen.shown = Shown::to_people;
  chosen.text = std::move(text);
  return chosen;
}

Column titled(const std::string& key, const std::string& title, const std::string& meaning) {
  Column chosen = columns({key}).front();
  chosen.title = title;
  if (!meaning.empty()) chosen.meaning = meaning;
  return chosen;
}

}  // namespace sparsereel::app
