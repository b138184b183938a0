// Tests which names files of checkpoints and outputs may have.
#include "common/base/checkpoint_file.h"

#include <gtest/gtest.h>

#include <string>

namespace trainyard {
namespace {

TEST(CheckpointFileNames, StayInTheFolder) {
  for (const char* name : {"model.pt", "a/b/c.bin", "epoch=3-step=100.ckpt", "Größe 1.txt",
                           "dcp/.metadata", "a/MANIFEST"}) {
    EXPECT_TRUE(IsCheckpointFileName(name)) << name;
  }
  for (const char* name : {"", ".", "..", "/a", "a/", "a//b", "a/../b", "../a", "./a", ".bashrc",
                           "a/.ssh/b", "MANIFEST", "a\nb", "a\x1b[31m", "\xff"}) {
    EXPECT_FALSE(IsCheckpointFileName(name)) << name;
  }
  EXPECT_FALSE(IsCheckpointFileName(absl::string_view("a\0b", 3)));
}

TEST(CheckpointFileNames, HaveLimits) {
  EXPECT_TRUE(IsCheckpointFileName(std::string(255, 'a')));
  EXPECT_FALSE(IsCheckpointFileName(std::string(256, 'a')));
  const std::string part(200, 'a');
  EXPECT_TRUE(IsCheckpointFileName(part + "/" + part));
  EXPECT_FALSE(IsCheckpointFileName(part + "/" + part + "/" + part));
  std::string deep = "a";
  for (int i = 1; i < 16; ++i) deep += "/a";
  EXPECT_TRUE(IsCheckpointFileName(deep));
  EXPECT_FALSE(IsCheckpointFileName(deep + "/a"));
}

}  // namespace
}  // namespace trainyard
