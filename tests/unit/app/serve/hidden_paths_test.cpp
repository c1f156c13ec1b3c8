#include "app/serve/hidden_paths.h"

#include <gtest/gtest.h>

namespace sparsereel::app::serve {
namespace {

TEST(HiddenPaths, LeaveTheNamesOfFilesAlone) {
  const HiddenPaths hidden({"/srv/videos"}, Settings());
  EXPECT_EQ(hidden.for_clients("cannot write /srv/videos/video_1.mp4: disk full"),
            "cannot write video_1.mp4: disk full");
  EXPECT_EQ(hidden.for_clients("/srv/videos/a, then '/srv/videos/b'"), "a, then 'b'");
  // The folder's own path is shortened, too.
  EXPECT_EQ(hidden.for_clients("no model in /srv/videos"), "no model in videos");
}

TEST(HiddenPaths, CutOffTheLongestFolder) {
  const HiddenPaths hidden({"/srv/a", "/srv/a/loras/b"}, Settings());
  EXPECT_EQ(hidden.for_clients("/srv/a/loras/b/style.safetensors and /srv/a/c"), "style.safetensors and c");
}

TEST(HiddenPaths, ChangeNoOtherWords) {
  const HiddenPaths hidden({"/srv/videos", "out/served"}, Settings());
  EXPECT_EQ(hidden.for_clients("out/served/x.mp4 but not layout/served/x.mp4"), "x.mp4 but not layout/served/x.mp4");
  for (const char* text : {"", "/", "1/2 of ./a", "/opt/srv/videos/x", "https://srv/videos/x"})
    EXPECT_EQ(hidden.for_clients(text), text);
}

TEST(HiddenPaths, HideTheFilesOfTheServersOptions) {
  Settings settings;
  settings.add(Source::command_line,
               {{"model", "/data/models/wan"}, {"lora", "/data/l/a.safetensors:0.5,/data/m/b.safetensors"}}, "");
  const HiddenPaths hidden({}, settings);
  EXPECT_EQ(hidden.for_clients("/data/models/wan/vae/x.safetensors: /data/l/a.safetensors, /data/m/b.safetensors"),
            "vae/x.safetensors: a.safetensors, b.safetensors");
}

TEST(HiddenPaths, KeepTheKindTheFieldAndTheRemedyOfAnError) {
  const HiddenPaths hidden({"/srv/videos"}, Settings());
  const Error error = hidden.for_clients(bad_option("image", "/srv/videos/a.png is no image", "see /srv/videos/b"));
  EXPECT_EQ(error.kind(), ErrorKind::bad_input);
  EXPECT_EQ(error.field(), "image");
  EXPECT_STREQ(error.what(), "image a.png is no image");
  EXPECT_EQ(error.remedy(), "see b");
}

}  // namespace
}  // namespace sparsereel::app::serve
