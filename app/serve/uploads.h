// The pictures that clients send.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/options/options.h"

namespace sparsereel::app::serve {

/// Pictures in files of the server's folder. The destructor removes the files unless keep() was called.
class SavedPictures {
 public:
  /// `pictures` holds the bytes by option. The files are named "ID.image.png" and so on: a client's names are not used.
  /// Reads only the headers of the pictures. Throws Error naming the field if a picture is not a still PNG, JPEG or
  /// WebP, or has too many pixels.
  SavedPictures(const std::filesystem::path& folder, const std::string& id,
                const std::map<std::string, std::string>& pictures);
  ~SavedPictures();
  SavedPictures(const SavedPictures&) = delete;
  SavedPictures& operator=(const SavedPictures&) = delete;

  /// Returns the file's name in the folder; empty if the client sent no such picture.
  std::string file(const std::string& option) const;
  void keep() { kept_ = true; }

 private:
  void remove() const;

  std::filesystem::path folder_;
  std::map<std::string, std::string> names_;  // names of the files, by option
  bool kept_ = false;
};

/// Draws a seed if the values, or else the settings, ask for a random one, and puts it into `values`. They become part
/// of the record, so a later server continues the video with the same seed.
void draw_seed(std::map<std::string, std::string>& values, const Settings& settings);

}  // namespace sparsereel::app::serve
