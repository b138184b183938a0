// Tests who may have how many streams open.
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
  void End(const absl::Status&) override {}
};

class StreamsTest : public ::testing::Test {
 protected:
  absl::Status Open(absl::string_view owner) {
    auto stream = std::make_shared<OpenStream>();
    const absl::Status added = streams_.Add(stream, owner);
    if (added.ok()) open_.push_back(stream.get());
    return added;
  }
  void OpenAll(absl::string_view owner, size_t count) {
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(Open(owner).ok()) << owner << " " << i;
  }

  Streams streams_;
  std::vector<StreamBase*> open_;
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

}  // namespace
}  // namespace trainyard::rpc
