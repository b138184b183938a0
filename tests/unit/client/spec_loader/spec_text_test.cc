// Tests where the text of specs may come from, and how much of it is read.
#include "client/spec_loader/spec_text.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/spec_loader/yaml_tree.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::spec_loader {
namespace {

using ::testing::HasSubstr;
using ::trainyard::testing::TempDir;

TEST(SpecText, FilesWithoutAnEndAreRefusedAtTheLimitOfASpec) {
  TempDir dir;
  const std::string fifo = dir.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::signal(SIGPIPE, SIG_IGN);  // the reader closes its end
  size_t written = 0;
  std::thread writer([&] {
    const UniqueFd end(open(fifo.c_str(), O_WRONLY | O_CLOEXEC));
    // A text that never ends, but for the reader's sake.
    const std::string block(64 << 10, 'x');
    while (written < 64 * kFileBytesMax && write(end.get(), block.data(), block.size()) > 0) {
      written += block.size();
    }
  });
  const auto texts = ReadSpecTexts(fifo);
  writer.join();
  EXPECT_EQ(texts.status().code(), absl::StatusCode::kInvalidArgument) << texts.status();
  EXPECT_THAT(std::string(texts.status().message()), HasSubstr("line 1 is over 256 KiB"));
  EXPECT_LT(written, 4 * kFileBytesMax);
}

TEST(SpecText, OneLongDocumentIsNamedAmongOthers) {
  TempDir dir;
  const std::string path =
      dir.Write("many.yaml", absl::StrCat("name: a\n---\n", std::string(kFileBytesMax, 'x')));
  EXPECT_EQ(ReadSpecTexts(path)->size(), 2u);
  dir.Write("many.yaml", absl::StrCat("name: a\n---\n", std::string(kFileBytesMax + 1, 'x')));
  EXPECT_THAT(std::string(ReadSpecTexts(path).status().message()),
              HasSubstr("many.yaml': the document that begins in line 3 is over 256 KiB"));
}

TEST(SpecText, ManyDocumentsTogetherMayBeLongerThanOne) {
  TempDir dir;
  const std::string one =
      absl::StrCat("name: a\n#", std::string(kFileBytesMax / 2, 'x'), "\n---\n");
  const auto texts = ReadSpecTexts(dir.Write("many.yaml", absl::StrCat(one, one, one, one)));
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_EQ(texts->size(), 4u);
}

TEST(SpecText, APipeIsReadToItsEnd) {
  TempDir dir;
  const std::string fifo = dir.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] {
    const UniqueFd end(open(fifo.c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_TRUE(WriteFully(end.get(), "name: a\n", fifo).ok());
    EXPECT_TRUE(WriteFully(end.get(), "---\nname: b\n", fifo).ok());
  });
  const auto texts = ReadSpecTexts(fifo);
  writer.join();
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_EQ(texts->size(), 2u);
}

TEST(SpecText, DevicesAndFoldersAreNoFiles) {
  TempDir dir;
  for (const std::string& path : {std::string("/dev/zero"), std::string("/dev/null")}) {
    for (const absl::Status& status : {ReadSpecTexts(path).status(), ReadSpecText(path).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("is a device; expected a file"));
    }
  }
  EXPECT_THAT(std::string(ReadSpecTexts(dir.path()).status().message()),
              HasSubstr("is a folder; expected a file"));
}

}  // namespace
}  // namespace trainyard::spec_loader
