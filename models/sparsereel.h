// The only public header of libsparsereel, a library that makes videos from text. It needs C++17 and no libtorch
// headers. app/docs/glossary.md explains its words, such as block, query tile, mean and cell.
//
// On a CPU, libtorch's threads spin while they wait for each other. If other processes keep the cores busy, a video
// then takes several times as long. To prevent that, set OMP_WAIT_POLICY=passive in the environment before the program
// starts: the variable is read while the library is loaded. The command-line program sets it for itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#define SPARSEREEL_API __attribute__((visibility("default")))

// The library's soname is major.minor: the binary interface stays the same within a minor version.
#define SPARSEREEL_VERSION_MAJOR 0
#define SPARSEREEL_VERSION_MINOR 1
#define SPARSEREEL_VERSION_PATCH 0

namespace sparsereel {

/// The only exception that the library throws. Exceptions of libtorch and of the standard library are converted to it.
/// what() holds the cause and the remedy. They name an option by its member of ModelOptions or VideoRequest.
class SPARSEREEL_API Failure : public std::runtime_error {
 public:
  Failure(int code, std::string cause, std::string remedy, std::string field = {});
  Failure(const Failure&) = default;
  Failure& operator=(const Failure&) = default;
  ~Failure() override;

  int code() const { return code_; }  // 1: the run failed; 2: bad arguments or input; 130: cancelled
  const std::string& cause() const { return cause_; }
  const std::string& remedy() const { return remedy_; }
  const std::string& field() const { return field_; }  // name of the member at fault, such as "steps"; empty if none is

 private:
  int code_;
  std::string cause_, remedy_, field_;
};

/// Options of an opened model. Each accepts the same values as the command line's option of the same name.
struct ModelOptions {
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  std::string dtype = "auto";   // auto, fp32, bf16, fp16
  /// auto, fp8, int8: number format of the large matrices of the transformer (`weights`) and of the text encoder
  /// (`text_weights`). auto: the run's dtype, or int8 where the transformer's file holds int8.
  std::string weights = "auto", text_weights = "auto";
  /// true: weights stay in host memory, and each block is copied to the GPU when it is needed. false: all weights stay
  /// on the GPU. If unset, as many of the transformer's blocks stay on the GPU as fit into its free memory.
  std::optional<bool> offload = {};
  std::optional<double> max_vram = {};  // GiB of GPU memory that may be used; if unset, all that is free
  /// Files of weights (safetensors, GGUF, .pth) that replace weights of the model, one file for each component. Tensors
  /// have the names of diffusers or of the model's authors. transformer_2 is the second transformer of models that have
  /// two.
  std::string transformer = {}, transformer_2 = {}, vae = {}, text_encoder = {}, image_encoder = {};
  /// A spiece.model or tokenizer.json file, or a folder that holds one of them. It replaces the model's tokenizer, even
  /// one in or beside the text encoder's file.
  std::string tokenizer = {};
  std::string lora = {};  // LoRAs with factors, separated by commas: "a.safetensors:0.8,b.safetensors"
  /// Folder with the YAML files of known models; it must exist. If empty, the folder of the installation or of the
  /// source tree is used.
  std::string configs = {};
  /// CPU threads of the whole process. 0 keeps the current number, which is at first the number of cores.
  int threads = 0;
  /// Number of GPUs that make each video together. They are cuda:0, cuda:1 and so on, among the GPUs that
  /// CUDA_VISIBLE_DEVICES shows. Each GPU holds the whole transformer and decoder, and one thread of this process
  /// drives it while a video is made. If a GPU fails, the video fails, and the next video starts afresh; a broken GPU
  /// stays unusable until the process ends. With device cpu, this many threads share the cores (for tests). Only the
  /// command line uses GPUs of several hosts.
  int gpus = 1;
};

/// An RGB picture of 8 bits per value, gamma-encoded: [height, width, 3] without gaps, already rotated upright. The
/// caller owns the pixels; the library only reads them. `pixels` is null if there is no picture.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0;
};

/// Options of one video. They mean the same as on the command line. An unset member takes its value from the first of
/// these sources that gives one: the profile or preset, the YAML file in ModelOptions::configs that describes the
/// model, the checkpoint. If none gives one, the default named below applies. Options in the YAML file that a request
/// cannot set are ignored. If ModelOptions::configs holds no files of models, a warning says so. Values that are
/// impossible, out of range or contradict each other are refused before anything is computed. A member that can have no
/// effect causes a warning.
struct VideoRequest {
  std::string prompt = {};                          // UTF-8; must contain more than white space
  std::optional<std::string> negative_prompt = {};  // UTF-8
  uint64_t seed = 42;
  std::optional<int64_t> steps = {};                            // number of denoising steps
  std::optional<int64_t> width = {}, height = {}, frames = {};  // in pixels and frames; each model restricts them
  /// 480p, 720p: an area in place of width and height. The video has the shape of `image`, or 16:9 without an image.
  std::string size = {};
  /// Length in seconds, in place of `frames`: the video has the nearest possible number of frames at the model's frame
  /// rate.
  std::optional<double> seconds = {};
  /// Pictures of any size for the first and the last frame of the video, for models that take them. If width and height
  /// are both unset, the video has the first image's shape, and the area of `size` or of the model's default.
  ImageView image = {}, last_image = {};
  std::string resize = {};                                 // cover (scale and crop), stretch; if empty, cover
  std::optional<int64_t> max_sequence_length = {};         // longer prompts are cut to this many tokens
  std::optional<double> cfg_scale = {}, cfg_scale_2 = {};  // guidance scales; cfg_scale_2 is for a second transformer
  std::string guidance_passes = {};                        // batched, in-turn (takes less memory); if empty, batched
  std::optional<bool> dynamic_cfg = {};                    // true: the guidance scale changes over the steps
  std::string scheduler = {};                              // name of a sampler; if empty, the checkpoint's sampler
  std::optional<double> flow_shift = {};                   // for flow-matching samplers
  /// Noise levels before the shift, such as {1, 0.75, 0.5}, for flow-matching samplers. Cannot be combined with
  /// `steps`.
  std::vector<double> sigmas = {};
  std::string attention = {};  // full, quantized, sparse, check; if empty, sparse if the device supports it, else full
  /// Set at most one of topk, cdf, error and block_error. They choose the blocks that attention computes: topk is the
  /// share of blocks that is computed, cdf the share that the computed blocks hold of what `select` ranks blocks by,
  /// and error a bound on the predicted error of each query tile. Blocks with a predicted error above block_error are
  /// computed. Blocks whose tokens have a mean cosine similarity below `similarity` are always computed. The product
  /// with V is skipped for a block if all its scores lie `pv_threshold` log2 units or more below the largest score of
  /// their query.
  std::optional<double> topk = {}, cdf = {}, error = {}, block_error = {}, similarity = {}, pv_threshold = {};
  std::string dropped = {};  // what replaces blocks that are not computed: mean, none; if empty, mean
  /// How blocks are ranked: error, mass; if empty, error if `dropped` is mean, mass if it is none.
  std::string select = {};
  std::optional<int64_t> cell = {};  // number of tokens that share one mean: 16, 32, 64; if unset, 16
  /// Bits of the numbers that a GPU multiplies in sparse attention: 8, 16; if unset, 8.
  std::optional<int64_t> arithmetic = {};
  std::optional<std::string> dense_steps = {};  // first steps that compute every block: "5", or "20%" of all
  std::optional<std::string> exact_steps = {};  // first steps with full attention, in 16 bits: "2", or "4%" of all
  std::optional<int64_t> dense_layers = {};     // first layers that compute every block
  std::string token_order = {};                 // hilbert, native, time-major, morton, random; if empty, hilbert
  /// "0.1": a step repeats results of the last computed step if what the transformer's first block adds to the tokens
  /// has changed since then by less than this fraction. "forecast:0.1": the same, but results are extrapolated from the
  /// last two computed steps. "forecast:0.1:20%:1": in addition, the first 20% of the steps and the last step are
  /// always computed. "measured:0.2:20%:1": each computed step also measures the error of extrapolating, and steps are
  /// extrapolated until the errors expected of them add up to 0.2. "steps:20": 20 evenly spaced steps are computed, and
  /// the results of the others are extrapolated. If empty, every step is computed.
  std::string cache = {};
  std::string vae_tiling = {};        // auto, on, off; if empty, auto
  std::optional<bool> no_audio = {};  // true: a model that makes sound does not decode it
  /// exact, near, balanced or fast, if the model's YAML file has it. If empty, exact if `attention` is full, else
  /// balanced.
  std::string preset = {};
  /// Number of steps of a distilled model, 4 or 8: sets sampler, noise levels, shift and guidance as the model's YAML
  /// file says. Members that you set take precedence. The model needs a distilled transformer or LoRA.
  std::optional<int64_t> distilled = {};
  /// File of a profile that `sparsereel tune` made for this model. It replaces the preset and has no effect with
  /// attention full.
  std::string profile = {};
  /// More options of the video, under the command line's long names with _ or -: {{"cell", "32"}}. An option must not
  /// also be set as a member.
  std::map<std::string, std::string> options = {};
};

/// A finished video. The caller owns it; it may outlive the TextToVideo that made it.
struct Video {
  int64_t frames = 0, height = 0, width = 0;
  std::vector<float> pixels = {};  // [frames, height, width, 3], gamma-encoded RGB (not linear light), 0..1
  /// Sound, -1..1: all samples of the first channel, then those of the second; channel c begins at
  /// c * sound.size() / channels. Empty if the model makes none, or with no_audio. It may be a few milliseconds longer
  /// or shorter than the frames.
  std::vector<float> sound = {};
  int64_t channels = 0, sampling_rate = 0;  // of the sound; the rate is in samples per second and channel
  double sparsity = 0;      // share of attention's work that was skipped; work on means is not subtracted
  double mean_share = 0;    // work on the means of dropped blocks, as a share of full attention's work
  std::string defect = {};  // what is wrong with the frames, such as "is black"; empty if nothing is
  /// All warnings that the command line would print: members without effect, a defect, a cut prompt, a number of frames
  /// that differs from the requested one, steps that gave NaN and were redone with full attention, and a decoding that
  /// was redone in tiles. If the weights have license terms that users must read, the first video's warnings say where.
  std::vector<std::string> warnings = {};
};

/// Called on the caller's thread after each denoising step; `step` counts from 1 to `steps`. Returning false ends the
/// run with a Failure of code 130; the model stays usable. An exception from the callback also ends the run and reaches
/// the caller unchanged. Loading, which comes before, and decoding, which comes after, are not interrupted.
using StepCallback = std::function<bool(int64_t step, int64_t steps)>;

/// An opened checkpoint. From the first video on, its transformer and decoder stay in memory until the object is
/// destroyed, unless a GPU has too little memory for that. A call that overlaps another call on the same object throws
/// a Failure of code 2. Different objects may run in different threads; they share the CPU's cores or the GPU.
class SPARSEREEL_API TextToVideo {
 public:
  /// Opens a model and reads only the headers of its files; weights are loaded while a video is made. `model` is a
  /// checkpoint in diffusers' layout, a folder of single files, or one file with all components. If it is empty, the
  /// files in `options` are used. If a folder holds several models, the Failure's remedy lists their files.
  explicit TextToVideo(const std::string& model, const ModelOptions& options = {});
  ~TextToVideo();
  TextToVideo(TextToVideo&&) noexcept;
  TextToVideo& operator=(TextToVideo&&) noexcept;
  TextToVideo(const TextToVideo&) = delete;
  TextToVideo& operator=(const TextToVideo&) = delete;

  /// Makes one video. The same request on the same machine gives the same video, bit for bit.
  Video generate(const VideoRequest& request, const StepCallback& step = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sparsereel
