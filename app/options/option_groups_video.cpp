// Declares the options of the video's size and length, and of its images.
#include "app/options/option_groups.h"

namespace sparsereel::app::groups {
namespace {

std::vector<OptionSpec> size() {
  constexpr const char* kPixels = "pixels; usually a multiple of 16 (default: the model's)";
  return {
      {.names = "-W,--width",
       .help = kPixels,
       .manual = R"(Sets the width in pixels. Most models want a multiple of 16; an impossible width is an error that
           names possible ones. Time and memory grow with the number of pixels, and the time of attention grows with
           their square. Models give their best at the size that they were trained on, which is the default.)",
       .example = "sparsereel generate -p \"a panda\" --width 256 --height 256",
       .in_help = InHelp::generate,
       .commands = that_denoise()},
      {.names = "-H,--height",
       .help = kPixels,
       .manual = R"(Sets the height in pixels, under the same rules as --width. With an image and without a size, the
           video takes the image's shape, within the area of the model's own size.)",
       .example = "sparsereel generate -p \"a panda\" --width 256 --height 256",
       .in_help = InHelp::generate,
       .commands = that_denoise()},
      {.names = "--size",
       .help = "720x480; or 480p: that area in the image's shape, else 16:9",
       .manual = R"(Sets width and height together. An area such as 480p or 720p leaves the shape open: the video
           takes that of the image, and without an image it is 16:9. A model with a single size
           refuses an area.)",
       .example = "sparsereel generate -m MODEL -i panda.jpg -p \"a panda waves\" --size 480p",
       .commands = that_denoise()},
      {.names = "--frames,--num-frames,--frame-num",
       .help = "number of frames (default: the model's)",
       .manual = R"(Sets the number of frames. A model can make only certain numbers, such as 4k + 1 (1, 5, 9 and so
           on). An error offers the two nearest. Time grows faster than the number of
           frames.)",
       .example = "sparsereel generate -p \"a panda\" --frames 33",
       .commands = that_denoise()},
      {.names = "--seconds,--duration",
       .help = "length in seconds, in place of a number of frames",
       .manual = R"(Sets the length in seconds. The video gets the nearest number of frames that the model can make,
           at the frame rate of --fps or of the model.)",
       .example = "sparsereel generate -p \"a red circle growing on a blue background\" --seconds 4 -o long.mp4",
       .in_help = InHelp::all,
       .commands = that_denoise()},
  };
}

std::vector<OptionSpec> images() {
  return {
      {.names = "-i,--image,--init-img,--first-frame",
       .help = "picture that the video begins with",
       .manual = R"(Names the first frame, for image-to-video models. PNG, JPEG, WebP and other pictures are read. If
           the file is a video, its last frame is taken, so this continues a clip. Without a size the video takes the
           picture's shape. 'sparsereel config show' says which images a model takes.)",
       .example = "sparsereel generate -m MODEL -i panda.jpg -p \"a panda waves\" --size 480p",
       .commands = that_denoise(),
       .serve = InServe::nothing},
      {.names = "--last-image,--end-img,--last-frame",
       .help = "picture that the video ends with, if the model takes one",
       .manual = R"(Names the picture of the last frame. Only some image-to-video models take one. A few need it, and
           a few take it without a first image.)",
       .example = "sparsereel generate -m MODEL -i first.jpg --last-image last.jpg -p \"a panda waves\"",
       .in_help = InHelp::all,
       .commands = that_denoise(),
       .serve = InServe::nothing},
      {.names = "--resize",
       .help = "how an image of another shape is fitted (default cover)",
       .manual = R"(Decides how an image of another shape than the video is fitted. The default, cover, scales it
           until it covers the frame and crops it at the center. stretch scales width and height separately, as
           diffusers does, which distorts the image.)",
       .example = "sparsereel generate -m MODEL -i panda.jpg --resize stretch -p \"a panda waves\"",
       .in_help = InHelp::all,
       .commands = that_denoise()},
  };
}

std::vector<OptionSpec> frame_rate() {
  return {
      {.names = "--fps",
       .option = {.kind = ValueKind::number, .no_effect = {NoEffect::one_frame_rate, NoEffect::no_frame_rate}},
       .help = "frames per second (default: the model's)",
       .manual = R"(Sets how many frames are shown in a second. The frames themselves stay the same, so a higher rate
           makes a shorter and faster video. With --seconds it also decides how many frames are made.)",
       .example = "sparsereel generate -p \"a panda\" --fps 16",
       .in_help = InHelp::all,
       .commands = {Command::decode, Command::bench_pipeline},
       .recipe = InRecipe::value},
  };
}

}  // namespace

std::vector<OptionSpec> video() {
  return joined({size(), images(), frame_rate()});
}

}  // namespace sparsereel::app::groups
