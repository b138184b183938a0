// Tests downloads from files and from a server in this process: complete, interrupted, wrong and
// missing ones.
#include "client/fetch/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/client/fetch/http_server.h"

namespace trainyard::fetch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() {
    for (int i = 0; i < 100'000; ++i) content_ += static_cast<char>('a' + i % 26 + i / 5000 % 3);
    md5_ = *FileMd5(folder_.Write("source", content_));
  }
  absl::StatusOr<bool> Fetch(const std::string& url) const {
    return Download({.url = url,
                     .path = folder_.File("got"),
                     .md5 = md5_,
                     .first_pause = absl::Milliseconds(1)});
  }
  std::string Got() const { return ReadFile(folder_.File("got")).value_or("nothing"); }
  bool HasPart() const { return FileExists(folder_.File("got.part")); }

  const testing::TempDir folder_;
  std::string content_;
  std::string md5_;
};

TEST_F(DownloadTest, Md5IsThatOfTheStandard) {
  // RFC 1321, A.5.
  EXPECT_EQ(*FileMd5(folder_.Write("empty", "")), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(*FileMd5(folder_.Write("abc", "abc")), "900150983cd24fb0d6963f7d28e17f72");
}

TEST_F(DownloadTest, FetchesOnceFromAFolder) {
  const auto fetched = Fetch("file://" + folder_.File("source"));
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_TRUE(*fetched);
  EXPECT_EQ(Got(), content_);
  EXPECT_FALSE(HasPart());
  EXPECT_FALSE(*Fetch("file:///does/not/exist"));  // not asked for
}

TEST_F(DownloadTest, ASecureDownloadLeavesThisHostOnlyByHttps) {
  const auto fetch = [this](const std::string& url) {
    return Download({.url = url, .path = folder_.File("got"), .is_secure = true});
  };
  HttpServer server(content_, {});
  const auto fetched = fetch(server.url());
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_TRUE(*fetched) << "without a checksum it is fetched each time";
  EXPECT_EQ(Got(), content_);
  EXPECT_TRUE(*fetch(server.url()));
  for (const std::string& url :
       {std::string("http://127.0.0.2/file"), std::string("http://host.invalid/file"),
        std::string("http://127.0.0.1@host.invalid/file"),
        std::string("http://localhost.invalid/file"), "file://" + folder_.File("source")}) {
    const absl::Status refused = fetch(url).status();
    EXPECT_THAT(std::string(refused.message()), HasSubstr("rotocol")) << url;
  }
}

TEST_F(DownloadTest, AServerThatGoesAwayIsAskedForTheRest) {
  HttpServer server(content_, {.cut_after = 40'000});
  const auto fetched = Fetch(server.url());
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(Got(), content_);
  EXPECT_THAT(server.starts(), ElementsAre(0, 40'000, 80'000));
}

TEST_F(DownloadTest, TellsItsProgressWithWhatWasThereBefore) {
  folder_.Write("got.part", content_.substr(0, 30'000));
  HttpServer server(content_, {.cut_after = 40'000});
  std::vector<std::pair<int64_t, int64_t>> told;
  const auto fetched = Download(
      {.url = server.url(),
       .path = folder_.File("got"),
       .md5 = md5_,
       .on_progress = [&told](int64_t bytes, int64_t total) { told.emplace_back(bytes, total); }});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  ASSERT_FALSE(told.empty());
  EXPECT_GT(told.front().first, 30'000);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), (std::pair<int64_t, int64_t>(100'000, 100'000)));
}

TEST_F(DownloadTest, AServerThatIsBusyIsAskedAgain) {
  for (const int status : {429, 503}) {
    HttpServer server(content_, {.refuses_with = status, .refuses = 3});
    const auto fetched = Download({.url = server.url(),
                                   .path = folder_.File(absl::StrCat("got-", status)),
                                   .md5 = md5_,
                                   .first_pause = absl::Milliseconds(1)});
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    EXPECT_THAT(server.starts(), SizeIs(4));
  }
}

TEST_F(DownloadTest, ARefusalIsNotTriedAgainAndShowsNoSecret) {
  for (const int status : {401, 403, 410}) {
    HttpServer server(content_, {.refuses_with = status, .refuses = 3});
    const absl::Status refused = Fetch(server.url() + "?signature=secret").status();
    EXPECT_EQ(refused.code(),
              status == 410 ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(server.starts(), SizeIs(1));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(server.url() + "?...'"));
    EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("secret")));
  }
}

TEST_F(DownloadTest, PiecesOfTwoVersionsAreNotPutTogether) {
  // The version changes after the first answer, which is cut.
  HttpServer server(content_, {.cut_after = 40'000, .changes_after = 1});
  const auto fetched = Download(
      {.url = server.url(), .path = folder_.File("got"), .first_pause = absl::Milliseconds(1)});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_THAT(server.starts(), ElementsAre(0, 40'000, 40'000, 80'000));
  EXPECT_EQ(Got(), server.content());
  EXPECT_NE(Got(), content_);
}

TEST_F(DownloadTest, NamesOfFilesMayBeEscaped) {
  folder_.Write("a b%", content_);
  ASSERT_TRUE(Fetch("file://" + folder_.path() + "/a%20b%25").ok());
  EXPECT_EQ(Got(), content_);
}

TEST_F(DownloadTest, AnInterruptedDownloadGoesOnWhereItStopped) {
  folder_.Write("got.part", content_.substr(0, 77));
  HttpServer server(content_, {});
  ASSERT_TRUE(Fetch(server.url()).ok());
  EXPECT_EQ(Got(), content_);
  EXPECT_THAT(server.starts(), ElementsAre(77));
}

TEST_F(DownloadTest, AServerWithoutRangesIsAskedAnew) {
  folder_.Write("got.part", content_.substr(0, 77));
  HttpServer server(content_, {.knows_ranges = false});
  const auto fetched = Fetch(server.url());
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(Got(), content_);
}

TEST_F(DownloadTest, APartThatIsTooLongIsThrownAway) {
  folder_.Write("got.part", content_ + "more");
  HttpServer server(content_, {});
  const auto fetched = Fetch(server.url());
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(Got(), content_);
}

TEST_F(DownloadTest, AWholePartNeedsNoServer) {
  folder_.Write("got.part", content_);
  ASSERT_TRUE(Fetch("file:///does/not/exist").ok());
  EXPECT_EQ(Got(), content_);
}

TEST_F(DownloadTest, WrongBytesAreNotKept) {
  HttpServer server(content_ + "x", {});
  const absl::Status status = Fetch(server.url()).status();
  EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected " + md5_));
  EXPECT_EQ(Got(), "nothing");
  EXPECT_FALSE(HasPart());
}

TEST_F(DownloadTest, TellsWhatIsMissingAndWhoDoesNotAnswer) {
  std::string url;
  {
    HttpServer server(content_, {});
    url = server.url();
    EXPECT_TRUE(absl::IsNotFound(Fetch(url + "s").status()));
  }
  const absl::Status gone = Fetch(url).status();
  EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr(url));
  EXPECT_FALSE(Fetch("ftp://127.0.0.1/file").ok());
}

TEST_F(DownloadTest, AServerThatAlwaysGoesAwayIsGivenUp) {
  HttpServer server(content_, {.cut_after = 10});
  EXPECT_TRUE(absl::IsUnavailable(Fetch(server.url()).status()));
  EXPECT_EQ(server.starts().size(), 5U);
  EXPECT_TRUE(HasPart());  // for the next time
}

}  // namespace
}  // namespace trainyard::fetch
