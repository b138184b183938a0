// Tests of the places in a stream, which clients send back.
#include "server/http/event_resume.h"

#include <gmock/gmock.h>

#include "common/spec/interval.h"
#include "server/http/limits.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::http {
namespace {

using ::testing::ElementsAre;

const RpcMethod& Method(const std::string& name) {
  static const auto* methods = new std::vector<RpcMethod>(RpcMethods());
  for (const RpcMethod& method : *methods) {
    if (method.descriptor->name() == name) return method;
  }
  static const RpcMethod none;
  return none;
}

v1::TailLogsResponse Chunk(int attempt, int rank, int64_t offset, const std::string& data) {
  v1::TailLogsResponse chunk;
  chunk.set_attempt(attempt);
  chunk.set_rank(rank);
  chunk.set_offset(offset);
  chunk.set_data(data);
  return chunk;
}

v1::TailLogsRequest AsTail(const std::unique_ptr<google::protobuf::Message>& message) {
  return message == nullptr ? v1::TailLogsRequest()
                            : static_cast<const v1::TailLogsRequest&>(*message);
}

class LogCursorTest : public ::testing::Test {
 protected:
  LogCursorTest() {
    request_.set_name("jobs/7");
    request_.set_follow(true);
  }
  std::unique_ptr<Cursor> Make() { return MakeCursor(Method("TailLogs"), request_); }

  v1::TailLogsRequest request_;
};

TEST_F(LogCursorTest, AnIdHasThePlaceOfEachRank) {
  const auto cursor = Make();
  EXPECT_EQ(AsTail(cursor->Request()).name(), "jobs/7");
  v1::TailLogsResponse a = Chunk(2, 0, 0, "abc");
  v1::TailLogsResponse b = Chunk(2, 3, 10, "de");
  EXPECT_TRUE(cursor->Take(a).is_new);
  EXPECT_TRUE(cursor->Take(b).is_new);
  EXPECT_EQ(cursor->Id(), "2;0=3;3=12");
  v1::TailLogsResponse next = Chunk(3, 0, 0, "x");
  EXPECT_TRUE(cursor->Take(next).is_new);
  EXPECT_EQ(cursor->Id(), "3;0=1") << "the next attempt has logs of its own";
  EXPECT_EQ(cursor->Following(absl::OkStatus()), nullptr) << "the service has followed by itself";
}

TEST_F(LogCursorTest, WhatTheClientHasIsCutOff) {
  const auto cursor = Make();
  ASSERT_TRUE(cursor->Resume("2;0=3;1=5"));
  EXPECT_EQ(AsTail(cursor->Request()).name(), "jobs/7/attempts/2");
  EXPECT_EQ(AsTail(cursor->Request()).offset(), 0) << "a rank may have been silent so far";
  v1::TailLogsResponse old = Chunk(2, 0, 0, "abc");
  EXPECT_FALSE(cursor->Take(old).is_new);
  const Taken part = cursor->Take(Chunk(2, 1, 3, "defg"));
  ASSERT_TRUE(part.is_new);
  ASSERT_NE(part.rest, nullptr);
  EXPECT_EQ(part.rest->SerializeAsString(), Chunk(2, 1, 5, "fg").SerializeAsString());
  const Taken other = cursor->Take(Chunk(2, 2, 0, "new"));
  EXPECT_TRUE(other.is_new);
  EXPECT_EQ(other.rest, nullptr) << "the client has nothing of it";
  EXPECT_EQ(cursor->Id(), "2;0=3;1=7;2=3");
}

TEST_F(LogCursorTest, AttemptsFollowUntilTheJobItselfEnds) {
  const auto cursor = Make();
  ASSERT_TRUE(cursor->Resume("2;0=3"));
  EXPECT_EQ(AsTail(cursor->Following(absl::OkStatus())).name(), "jobs/7/attempts/3");
  EXPECT_EQ(AsTail(cursor->Following(absl::OkStatus())).name(), "jobs/7/attempts/4");
  EXPECT_EQ(AsTail(cursor->Following(absl::NotFoundError("no 4"))).name(), "jobs/7");
  EXPECT_EQ(cursor->Following(absl::OkStatus()), nullptr);
}

TEST_F(LogCursorTest, OneRankGoesOnWhereItWas) {
  request_.set_rank(1);
  request_.set_offset(-100);
  const auto cursor = Make();
  ASSERT_TRUE(cursor->Resume("1;1=500"));
  EXPECT_EQ(AsTail(cursor->Request()).offset(), 500);
}

TEST_F(LogCursorTest, BytesThatAllRanksHaveSentAreNotReadAgain) {
  request_.set_offset(-100);
  const auto cursor = Make();
  EXPECT_EQ(cursor->AttemptToKnow(), std::nullopt) << "a new stream begins as it was asked";
  ASSERT_TRUE(cursor->Resume("2;0=300;1=500"));
  EXPECT_EQ(cursor->AttemptToKnow(), (AttemptId{JobId{7}, 2}));
  cursor->SetRanks(2);
  EXPECT_EQ(AsTail(cursor->Request()).offset(), 300);
  cursor->SetRanks(3);
  EXPECT_EQ(AsTail(cursor->Request()).offset(), 0) << "all of the third rank is new";
}

TEST_F(LogCursorTest, AnAttemptThatIsNamedIsTheOneOfTheId) {
  request_.set_name("jobs/7/attempts/3");
  EXPECT_FALSE(Make()->Resume("2;0=300"));
  const auto cursor = Make();
  ASSERT_TRUE(cursor->Resume("3;0=300"));
  EXPECT_EQ(cursor->AttemptToKnow(), (AttemptId{JobId{7}, 3}));
  cursor->SetRanks(1);
  EXPECT_EQ(AsTail(cursor->Request()).offset(), 300);
}

TEST_F(LogCursorTest, OtherTextsAreNoIds) {
  for (const char* id : {"", "x", "0", "-1;0=1", "1;0", "1;0=", "1;0=-1", "1;-1=0", "1;0=1;0=2",
                         "1;0=1=2", "99999999999"}) {
    EXPECT_FALSE(Make()->Resume(id)) << id;
  }
}

v1::WatchJobsResponse Changed(int64_t job, int64_t commit, int64_t revision) {
  v1::WatchJobsResponse response;
  response.mutable_job()->set_name(JobName(JobId{job}));
  response.mutable_job()->set_etag(std::to_string(commit));
  response.set_revision(revision);
  return response;
}

TEST(JobsCursor, GoesOnInTheMiddleOfACommit) {
  const auto cursor = MakeCursor(Method("WatchJobs"), v1::WatchJobsRequest());
  v1::WatchJobsResponse first = Changed(3, 7, 6);
  ASSERT_TRUE(cursor->Take(first).is_new);
  EXPECT_EQ(cursor->Id(), "6;7;3");
  v1::WatchJobsResponse last = Changed(4, 7, 7);
  ASSERT_TRUE(cursor->Take(last).is_new);
  EXPECT_EQ(cursor->Id(), "7");

  const auto again = MakeCursor(Method("WatchJobs"), v1::WatchJobsRequest());
  ASSERT_TRUE(again->Resume("6;7;3"));
  const auto request = again->Request();
  EXPECT_EQ(static_cast<const v1::WatchJobsRequest&>(*request).start_revision(), 6);
  EXPECT_FALSE(again->Take(first).is_new) << "the client has it";
  EXPECT_TRUE(again->Take(first).is_new) << "its reason for waiting has changed";
  EXPECT_EQ(again->Id(), "6;7;3");
  v1::WatchJobsResponse changed = Changed(3, 8, 7);
  EXPECT_TRUE(again->Take(changed).is_new);
  EXPECT_TRUE(again->Take(last).is_new);
  for (const char* id : {"6;7", "6;6;3", "6;7;0", "6;7;3;4", "x", "-1", "6;;3"}) {
    EXPECT_FALSE(again->Resume(id)) << id;
  }
}

TEST(JobsCursor, GoesOnInTheMiddleOfAMessageOfManyChanges) {
  const auto cursor = MakeCursor(Method("WatchJobs"), v1::WatchJobsRequest());
  ASSERT_TRUE(cursor->Resume("6;7;3"));
  v1::WatchJobsResponse message = Changed(3, 7, 6);
  *message.add_more() = Changed(4, 7, 7);
  *message.add_more() = Changed(5, 9, 9);
  std::vector<std::string> ids;
  for (const std::string& bytes :
       TakeApart(*message.GetDescriptor(), message.SerializeAsString())) {
    v1::WatchJobsResponse part;
    ASSERT_TRUE(part.ParseFromString(bytes));
    EXPECT_EQ(part.more_size(), 0);
    ids.push_back(cursor->Take(part).is_new ? cursor->Id() : "known");
  }
  EXPECT_THAT(ids, ElementsAre("known", "7", "9"));
}

TEST(TakeApart, LeavesWhatIsNoMessageOfChanges) {
  const google::protobuf::Descriptor& changes = *v1::WatchJobsResponse::descriptor();
  EXPECT_THAT(TakeApart(changes, "\xff"), ElementsAre("\xff"));
  EXPECT_THAT(TakeApart(changes, ""), ElementsAre(""));
  v1::WatchJobsResponse message = Changed(3, 7, 6);
  *message.add_more() = Changed(4, 7, 7);
  const std::string bytes = message.SerializeAsString();
  EXPECT_THAT(TakeApart(*v1::TailLogsResponse::descriptor(), bytes), ElementsAre(bytes));
  EXPECT_THAT(TakeApart(changes, bytes), ElementsAre(Changed(3, 7, 6).SerializeAsString(),
                                                     Changed(4, 7, 7).SerializeAsString()));
}

TEST(JobsCursor, GathersUnlessTheClientSaysForHowLong) {
  v1::WatchJobsRequest request;
  const auto gathered = [&request] {
    const auto asked = MakeCursor(Method("WatchJobs"), request)->Request();
    return spec::FromProto(static_cast<const v1::WatchJobsRequest&>(*asked).gather_interval());
  };
  EXPECT_EQ(gathered(), kGatherInterval);
  request.mutable_gather_interval()->set_seconds(1);
  EXPECT_EQ(gathered(), absl::Seconds(1));
  request.mutable_gather_interval()->clear_seconds();
  EXPECT_EQ(gathered(), absl::ZeroDuration());
}

TEST(JobsCursor, CountsWithTheNumbersOfTheService) {
  v1::WatchJobsRequest request;
  request.add_names("jobs/1");
  const auto cursor = MakeCursor(Method("WatchJobs"), request);
  ASSERT_NE(cursor, nullptr);
  EXPECT_FALSE(cursor->Resume("-1"));
  EXPECT_TRUE(cursor->Resume("41"));
  const auto first = cursor->Request();
  EXPECT_EQ(static_cast<const v1::WatchJobsRequest&>(*first).start_revision(), 41);
  v1::WatchJobsResponse response;
  response.set_revision(42);
  EXPECT_TRUE(cursor->Take(response).is_new);
  EXPECT_EQ(cursor->Id(), "42");
}

}  // namespace
}  // namespace trainyard::http
