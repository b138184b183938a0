// Tests tar archives: what is listed, and which archives are refused at which position.
#include "worker/data/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/data/tar_files.h"

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TarRefusal(absl::string_view archive) {
  const absl::Status status = ListTar(archive).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  return std::string(status.message());
}

TEST(Tar, ListsRegularFilesInTheirOrder) {
  const std::string archive = TarBytes(
      {{"b/", "", '5'}, {"b/2.jpg", std::string(513, 'x')}, {"a/1.jpg", "one"}, {"empty", ""}});
  const auto members = ListTar(archive);
  ASSERT_TRUE(members.ok()) << members.status();
  EXPECT_THAT(*members, ElementsAre(TarMember{"b/2.jpg", 1024, 513}, TarMember{"a/1.jpg", 2560, 3},
                                    TarMember{"empty", 3584, 0}));
  EXPECT_EQ(archive.substr(2560, 3), "one");
}

TEST(Tar, ReadsLongNamesOfGnuAndOfPax) {
  const std::string gnu = "g/" + std::string(150, 'n');
  const std::string pax = "p/" + std::string(150, 'n');
  const std::string record = absl::StrCat(" path=", pax, "\n");
  const auto members = ListTar(TarBytes({{"././@LongLink", gnu + '\0', 'L'},
                                         {gnu, "1"},
                                         {"header", absl::StrCat(record.size() + 3, record), 'x'},
                                         {pax, "2"},
                                         {"short", "3"}}));
  ASSERT_TRUE(members.ok()) << members.status();
  ASSERT_EQ(members->size(), 3u);
  EXPECT_EQ((*members)[0].name, gnu);
  EXPECT_EQ((*members)[1].name, pax);
  EXPECT_EQ((*members)[2].name, "short");
}

TEST(Tar, RefusesAnArchiveThatIsCutOff) {
  const std::string archive = TarBytes({{"a", std::string(1000, 'a')}, {"b", "b"}});
  EXPECT_THAT(
      TarRefusal(archive.substr(0, 700)),
      HasSubstr("byte 700: the archive ends inside 'a', which has 1000 bytes from byte 512"));
  // The archive is cut where a member ends, so that all members are complete, and yet some are
  // missing.
  EXPECT_THAT(TarRefusal(archive.substr(0, 1536)),
              HasSubstr("byte 1536: the archive ends without its end mark"));
  EXPECT_THAT(TarRefusal(""), HasSubstr("byte 0: the archive ends without its end mark"));
}

TEST(Tar, RefusesADamagedHeader) {
  std::string archive = TarBytes({{"a", "a"}, {"b", "b"}});
  archive[1024] = 'c';
  EXPECT_THAT(TarRefusal(archive), HasSubstr("byte 1172: checksum"));
  EXPECT_THAT(TarRefusal(std::string(1024, 'x')), HasSubstr("byte 148: checksum"));
}

}  // namespace
}  // namespace trainyard::data
