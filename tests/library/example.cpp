// example MODEL PROMPT STEPS OUTPUT [PROFILE]: makes a video and writes its frames to one file as consecutive PPM
// images.
#include <sparsereel.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return 2;
  try {
    sparsereel::TextToVideo model(argv[1], {});
    sparsereel::VideoRequest request;
    request.prompt = argv[2];
    request.steps = std::stoi(argv[3]);
    if (argc == 6) request.profile = argv[5];
    const sparsereel::Video video = model.generate(request, [](int64_t step, int64_t steps) {
      std::cerr << "step " << step << " of " << steps << "\n";
      return true;  // false would cancel the run
    });
    for (const std::string& warning : video.warnings) std::cerr << "warning: " << warning << "\n";
    std::ofstream file(argv[4], std::ios::binary);
    for (int64_t i = 0, size = video.height * video.width * 3; i < video.frames; ++i) {
      file << "P6\n" << video.width << " " << video.height << "\n255\n";
      for (int64_t j = 0; j < size; ++j) file.put(static_cast<char>(std::lround(video.pixels[i * size + j] * 255)));
    }
    return file.flush() ? 0 : 1;
  } catch (const sparsereel::Failure& failure) {
    std::cerr << "error: " << failure.what() << "\n";
    return failure.code();
  }
}
