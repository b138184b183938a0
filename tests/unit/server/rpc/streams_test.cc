// Tests who may have how many streams open, and whose streams end with which rights.
#include "server/rpc/streams.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {
namespace {

class OpenStream : public StreamBase {
 public:
  void End(const absl::Status& status) override { ended = status; }

  absl::Status ended;
};

class StreamsTest : public ::testing::Test {
 protected:
  absl::Status Open(absl::string_view owner) {
    StreamOwner of{std::string(owner)};
    of.revision = streams_.revision();
    return Open(of);
  }
  absl::Status Open(const StreamOwner& owner) {
    auto stream = std::make_shared<OpenStream>();
    const absl::Status added = streams_.Add(stream, owner);
    if (added.ok()) open_.push_back(stream.get());
    return added;
  }
  void OpenAll(absl::string_view owner, size_t count) {
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(Open(owner).ok()) << owner << " " << i;
  }

  Streams streams_;
  std::vector<OpenStream*> open_;
};

TEST_F(StreamsTest, OneUserLeavesPlacesToTheOthers) {
  OpenAll("user:anna", kStreamsOfUserMax);
  const absl::Status refused = Open("user:anna");
  EXPECT_EQ(ErrorReason(refused), "SERVER_BUSY") << refused;
  EXPECT_NE(refused.message().find("user:anna"), absl::string_view::npos) << refused;
  EXPECT_TRUE(Open("user:ben").ok());
  streams_.Remove(open_.front());
  EXPECT_TRUE(Open("user:anna").ok());
}

TEST_F(StreamsTest, UsersNeverTakeThePlacesOfWorkers) {
  for (size_t user = 0; user < kStreamsOfUsersMax / kStreamsOfUserMax; ++user) {
    OpenAll(absl::StrCat("user:", user), kStreamsOfUserMax);
  }
  EXPECT_EQ(ErrorReason(Open("user:late")), "SERVER_BUSY");
  OpenAll(Streams::kWorkers, kStreamsOfWorkersMax);
  EXPECT_EQ(ErrorReason(Open(Streams::kWorkers)), "SERVER_BUSY");
}

TEST_F(StreamsTest, ATokenTakesItsOwnStreamsWithItAndNoOthers) {
  ASSERT_TRUE(Open({.name = "user:anna", .token = "laptop"}).ok());
  ASSERT_TRUE(Open({.name = "user:anna", .token = "robot"}).ok());
  ASSERT_TRUE(Open({.name = "user:anna"}).ok());
  ASSERT_TRUE(Open({.name = "user:bert", .opened_by = "user:anna", .token = "laptop"}).ok());
  ASSERT_TRUE(Open(Streams::kWorkers).ok());
  streams_.EndOfToken("laptop", absl::UnauthenticatedError("revoked"));
  EXPECT_EQ(open_[0]->ended, absl::UnauthenticatedError("revoked"));
  EXPECT_TRUE(open_[1]->ended.ok());
  EXPECT_TRUE(open_[2]->ended.ok());
  EXPECT_EQ(open_[3]->ended, absl::UnauthenticatedError("revoked"));
  EXPECT_TRUE(open_[4]->ended.ok());
}

TEST_F(StreamsTest, AUserTakesWhatWasOpenedForOthersAlong) {
  ASSERT_TRUE(Open({.name = "user:bert", .opened_by = "user:anna"}).ok());
  ASSERT_TRUE(Open({.name = "user:anna"}).ok());
  ASSERT_TRUE(Open({.name = "user:bert"}).ok());
  ASSERT_TRUE(Open(Streams::kWorkers).ok());
  streams_.EndOfUsers("user:anna", absl::UnavailableError("changed"));
  EXPECT_FALSE(open_[0]->ended.ok());
  EXPECT_FALSE(open_[1]->ended.ok());
  EXPECT_TRUE(open_[2]->ended.ok());
  streams_.EndOfUsers("", absl::UnavailableError("changed"));
  EXPECT_FALSE(open_[2]->ended.ok());
  EXPECT_TRUE(open_[3]->ended.ok());
}

TEST_F(StreamsTest, AStreamWhoseRightsWereLookedUpTooEarlyIsNotOpened) {
  const uint64_t before = streams_.revision();
  streams_.EndOfToken("laptop", absl::UnauthenticatedError("revoked"));
  const StreamOwner late = {.name = "user:anna", .token = "laptop", .revision = before};
  EXPECT_TRUE(absl::IsUnavailable(Open(late)));
  EXPECT_TRUE(Open("user:anna").ok());
}

}  // namespace
}  // namespace trainyard::rpc
