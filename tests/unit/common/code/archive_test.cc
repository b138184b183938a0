// Tests archives of code: what is written is read again, and nothing of a hostile one gets out of
// its folder.
#include "common/code/archive.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::code {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One member of a tar file, as POSIX has it, which need not make sense.
std::string Member(const std::string& name, char type, const std::string& content = "",
                   const std::string& target = "", int64_t size = -1) {
  std::string header(512, '\0');
  const auto put = [&header](size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name.substr(0, 100));
  put(100, "0000755");
  put(108, "0000000");
  put(116, "0000000");
  const int64_t told = size < 0 ? static_cast<int64_t>(content.size()) : size;
  put(124, absl::StrFormat("%011o", told));
  put(136, "00000000000");
  put(148, "        ");
  header[156] = type;
  put(157, target.substr(0, 100));
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, absl::StrFormat("%06o", sum));
  header[154] = '\0';
  std::string member = header + content;
  member.resize((member.size() + 511) / 512 * 512);
  return member;
}

class Archive : public ::testing::Test {
 protected:
  Archive() { (void)mkdir(Out().c_str(), 0700); }

  std::string Out() const { return dir_.File("out"); }

  // Writes an archive of these files, whose content is their path.
  std::string Write(const std::vector<Entry>& entries, const Limits& limits = {}) {
    const auto writer = ArchiveWriter::Create(dir_.File("a.tar"), limits);
    for (const Entry& entry : entries) {
      const std::string file = dir_.Write("content", entry.path);
      const UniqueFd fd = *OpenFile(file, O_RDONLY);
      if (const absl::Status added = (*writer)->Add(entry, fd.get()); !added.ok()) {
        return std::string(added.message());
      }
    }
    return *(*writer)->Finish();
  }
  static Entry File(const std::string& path, bool is_executable = false) {
    return {Entry::Kind::kFile, path, is_executable, static_cast<int64_t>(path.size()), ""};
  }

  absl::Status UnpackFile(const std::string& path, const Limits& limits = {}) {
    const UniqueFd fd = *OpenFile(path, O_RDONLY);
    return Unpack(fd.get(), Out(), limits);
  }
  absl::Status UnpackBytes(const std::string& bytes, const Limits& limits = {}) {
    return UnpackFile(dir_.Write("bytes.tar", bytes + std::string(1024, '\0')), limits);
  }

  testing::TempDir dir_;
};

TEST_F(Archive, WhatIsWrittenIsUnpacked) {
  const std::string long_name = absl::StrCat("deep/", std::string(200, 'n'), "/\xc3\xa4 b.py");
  const std::string digest = Write({{Entry::Kind::kFolder, "deep", false, 0, ""},
                                    File(long_name),
                                    File("run.sh", true),
                                    {Entry::Kind::kLink, "start", false, 0, "deep/../deep"}});
  EXPECT_THAT(digest, HasSubstr("out of the folder")) << "it would lead up behind a name";
  const std::string right = Write({{Entry::Kind::kFolder, "deep", false, 0, ""},
                                   File(long_name),
                                   {Entry::Kind::kLink, "deep/up", false, 0, "../run.sh"},
                                   File("run.sh", true)});
  EXPECT_THAT(right, HasSubstr("sha256:"));
  ASSERT_TRUE(UnpackFile(dir_.File("a.tar")).ok());
  EXPECT_EQ(*ReadFile(JoinPath(Out(), long_name)), long_name);
  EXPECT_EQ(*ReadFile(JoinPath(Out(), "deep/up")), "run.sh");
  EXPECT_EQ(access(JoinPath(Out(), "run.sh").c_str(), X_OK), 0);
  struct stat info {};
  ASSERT_EQ(stat(JoinPath(Out(), long_name).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0111, 0U);
}

TEST_F(Archive, TheSameFilesGiveTheSameBytes) {
  const std::string first = Write({File("a.py"), File("b.py", true)});
  const std::string bytes = *ReadFile(dir_.File("a.tar"));
  EXPECT_EQ(Write({File("a.py"), File("b.py", true)}), first);
  EXPECT_EQ(*ReadFile(dir_.File("a.tar")), bytes);
  EXPECT_NE(Write({File("a.py"), File("b.py")}), first) << "the right to execute counts";
  // The form is kept by digest for years, so another form would be another archive.
  EXPECT_EQ(first, "sha256:d21cb228867f68bbbbb856b6641fd2f087fb78a6d68591646445c2b717daa914");
}

TEST_F(Archive, NothingGetsOutOfTheFolder) {
  const std::string secret = dir_.Write("secret", "old");
  const std::string bad[] = {
      Member("/etc/passwd", '0', "x"),
      Member("../secret", '0', "x"),
      Member("a/../../secret", '0', "x"),
      Member("a//b", '0', "x"),
      Member("./a", '0', "x"),
      Member("link", '2', "", "/etc"),
      Member("link", '2', "", "../secret"),
      Member("a/link", '2', "", "../../secret"),
      Member("a/link", '2', "", "b/../../.."),
      Member("hard", '1', "", "../secret"),
      Member("null", '3'),
      Member("pipe", '6'),
      Member("", '0', "x"),
      Member("a", '0', "x") + Member("a/b", '0', "x"),
      Member("a", '2', "", "b") + Member("a/b", '0', "x"),
      Member("a/b", '0', "x") + Member("a", '0', "x"),
  };
  for (const std::string& member : bad) {
    (void)RemoveTree(Out());
    ASSERT_EQ(mkdir(Out().c_str(), 0700), 0);
    const absl::Status status = UnpackBytes(member);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status << "\n" << member.substr(0, 120);
  }
  EXPECT_EQ(*ReadFile(secret), "old");
  // A link to the folder's own top is harmless, but nothing may be written through it.
  EXPECT_FALSE(UnpackBytes(Member("up", '2', "", ".") + Member("up/x", '0', "x")).ok());
  EXPECT_FALSE(FileExists(JoinPath(Out(), "x")));
  EXPECT_FALSE(UnpackBytes(Member("twice", '0', "x") + Member("twice", '0', "y")).ok());
  EXPECT_TRUE(CheckPath(absl::StrCat("a/", std::string(255, 'n'))).ok());
  EXPECT_FALSE(CheckPath(absl::StrCat("a/", std::string(256, 'n'))).ok());
}

TEST_F(Archive, LimitsHold) {
  const Limits limits{.content_bytes = 100, .entries = 3};
  EXPECT_EQ(ErrorReason(UnpackBytes(Member("big", '0', std::string(101, 'x')), limits)),
            error::kCodeTooLarge);
  EXPECT_EQ(ErrorReason(UnpackBytes(Member("liar", '0', "x", "", int64_t{1} << 32), limits)),
            error::kCodeTooLarge);
  std::string many;
  for (int i = 0; i < 4; ++i) many += Member(absl::StrCat("f", i), '0', "x");
  EXPECT_EQ(ErrorReason(UnpackBytes(many, limits)), error::kCodeTooLarge);
  EXPECT_THAT(Write({File("a"), File("b"), File("c"), File("d")}, limits),
              HasSubstr("more than 3 files"));
  EXPECT_THAT(Write({File(std::string(101, 'n'))}, limits), HasSubstr("more than 100 B"));
}

TEST_F(Archive, WhatIsCutOffIsNoArchive) {
  const std::string whole = Member("a.py", '0', std::string(2000, 'x'));
  for (const size_t size : {size_t{100}, size_t{700}, whole.size() - 600}) {
    const absl::Status status = UnpackFile(dir_.Write("cut.tar", whole.substr(0, size)));
    EXPECT_TRUE(absl::IsDataLoss(status)) << size << ": " << status;
    (void)RemoveTree(Out());
    (void)mkdir(Out().c_str(), 0700);
  }
  EXPECT_FALSE(UnpackFile(dir_.Write("text.tar", "this is a text, and no tar file")).ok());
}

TEST_F(Archive, VisitorsSeeWhatIsThere) {
  (void)Write({File("a.py"), File("b.py")});
  const UniqueFd fd = *OpenFile(dir_.File("a.tar"), O_RDONLY);
  std::vector<std::string> seen;
  ASSERT_TRUE(ReadArchive(fd.get(), [&](const Entry& entry, Content&) {
                seen.push_back(entry.path);
                return absl::OkStatus();
              }).ok());
  EXPECT_THAT(seen, ElementsAre("a.py", "b.py"));
}

}  // namespace
}  // namespace trainyard::code
