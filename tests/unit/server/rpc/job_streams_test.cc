#include <gmock/gmock.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/testing/raw_call.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/rpc/rpc_fixture.h"
#include "tests/unit/server/runtime/flag.h"

namespace trainyard::rpc {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobStreamsTest : public RpcTest {
 protected:
  void Cancel(const std::string& name) {
    v1::CancelJobRequest request;
    request.set_name(name);
    v1::Job job;
    ASSERT_TRUE(jobs_->CancelJob(Context().get(), request, &job).ok());
  }
  // All bytes of rank 0 that the stream brings until it ends.
  std::string Tail(const v1::TailLogsRequest& request) {
    const auto context = Context();
    const auto stream = jobs_->TailLogs(context.get(), request);
    std::string bytes;
    v1::TailLogsResponse response;
    while (stream->Read(&response)) bytes += response.data();
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return bytes;
  }
  std::vector<int64_t> Steps(const v1::WatchMetricsRequest& request, int64_t* cursor = nullptr) {
    const auto context = Context();
    const auto stream = jobs_->WatchMetrics(context.get(), request);
    std::vector<int64_t> steps;
    v1::WatchMetricsResponse response;
    while (stream->Read(&response)) {
      for (const auto& point : response.points()) steps.push_back(point.step());
      if (cursor != nullptr) *cursor = response.cursor();
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return steps;
  }
};

TEST_F(JobStreamsTest, AWatchShowsWhatIsThereAndThenWhatChanges) {
  CreateJob("a");
  CreateJob("b");
  const auto context = Context();
  const auto stream = jobs_->WatchJobs(context.get(), v1::WatchJobsRequest());
  v1::WatchJobsResponse first, second, third;
  ASSERT_TRUE(stream->Read(&first));
  ASSERT_TRUE(stream->Read(&second));
  EXPECT_EQ(first.job().name(), "jobs/1");
  EXPECT_EQ(second.job().name(), "jobs/2");
  EXPECT_LT(first.revision(), second.revision());
  Cancel("jobs/1");
  ASSERT_TRUE(stream->Read(&third));
  while (third.job().state() != v1::JOB_STATE_CANCELLED) ASSERT_TRUE(stream->Read(&third));
  EXPECT_EQ(third.job().name(), "jobs/1");
  EXPECT_GT(third.revision(), second.revision());
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(JobStreamsTest, AWatchResumesAfterItsRevision) {
  CreateJob("a");
  const int64_t revision = board_.revision();
  CreateJob("b");
  const auto context = Context();
  v1::WatchJobsRequest request;
  request.set_start_revision(revision);
  const auto stream = jobs_->WatchJobs(context.get(), request);
  v1::WatchJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.job().name(), "jobs/2");
}

// The jobs of an array are queued by one commit. The connection may break between any two of them.
TEST_F(JobStreamsTest, AWatchThatBreaksWithinACommitResumesWithTheRestOfIt) {
  constexpr int kJobs = 3;
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("a");
  create.mutable_options()->set_array_size(kJobs);
  v1::Job first;
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), create, &first).ok());
  for (int broken_after = 1; broken_after <= kJobs; ++broken_after) {
    std::set<std::string> seen;
    v1::WatchJobsRequest request;
    v1::WatchJobsResponse response;
    {
      const auto context = Context();
      const auto stream = jobs_->WatchJobs(context.get(), request);
      for (int i = 0; i < broken_after; ++i) {
        ASSERT_TRUE(stream->Read(&response));
        seen.insert(response.job().name());
      }
      context->TryCancel();
    }
    CreateJob(absl::StrCat("last-", broken_after));
    request.set_start_revision(response.revision());
    const auto context = Context();
    const auto stream = jobs_->WatchJobs(context.get(), request);
    const std::string last = absl::StrCat("jobs/", kJobs + broken_after);
    while (response.job().name() != last) {
      ASSERT_TRUE(stream->Read(&response));
      seen.insert(response.job().name());
    }
    for (int job = 1; job <= kJobs; ++job) {
      EXPECT_TRUE(seen.contains(absl::StrCat("jobs/", job))) << "broken after " << broken_after;
    }
  }
}

TEST_F(JobStreamsTest, AWatchOfSomeJobsShowsOnlyThose) {
  CreateJob("a");
  CreateJob("b");
  const auto context = Context();
  v1::WatchJobsRequest request;
  request.add_names("jobs/2");
  const auto stream = jobs_->WatchJobs(context.get(), request);
  v1::WatchJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.job().name(), "jobs/2");
  Cancel("jobs/1");
  Cancel("jobs/2");
  while (response.job().state() != v1::JOB_STATE_CANCELLED) {
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.job().name(), "jobs/2");
  }
}

TEST_F(JobStreamsTest, AWatchThatGathersGetsManyChangesInAMessage) {
  constexpr int kJobs = 500;
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("a");
  create.mutable_options()->set_array_size(kJobs);
  v1::Job first;
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), create, &first).ok());
  const auto context = Context();
  v1::WatchJobsRequest request;
  request.mutable_gather_interval()->set_nanos(50'000'000);
  const auto stream = jobs_->WatchJobs(context.get(), request);
  v1::WatchJobsResponse response;
  std::map<std::string, v1::JobState> seen;
  int64_t revision = 0;
  int messages = 0;
  const auto read = [&] {
    ASSERT_TRUE(stream->Read(&response));
    ++messages;
    // The changes that came alone would have come in the same order.
    const auto take = [&](const v1::WatchJobsResponse& change) {
      EXPECT_LE(revision, change.revision());
      EXPECT_EQ(&change == &response ? 0 : change.more_size(), 0);
      revision = change.revision();
      seen[change.job().name()] = change.job().state();
    };
    take(response);
    for (const v1::WatchJobsResponse& change : response.more()) take(change);
  };
  while (seen.size() < kJobs) ASSERT_NO_FATAL_FAILURE(read());
  EXPECT_LT(messages, kJobs / 10);
  Cancel("jobs/1");
  Cancel("jobs/2");
  while (seen["jobs/1"] != v1::JOB_STATE_CANCELLED || seen["jobs/2"] != v1::JOB_STATE_CANCELLED) {
    ASSERT_NO_FATAL_FAILURE(read());
  }
}

TEST_F(JobStreamsTest, AWatchThatGathersEndsWithItsJobs) {
  CreateJob("a");
  CreateJob("b");
  Cancel("jobs/1");
  Cancel("jobs/2");
  const auto context = Context();
  v1::WatchJobsRequest request;
  request.mutable_gather_interval()->set_nanos(10'000'000);
  request.add_names("jobs/1");
  request.add_names("jobs/2");
  const auto stream = jobs_->WatchJobs(context.get(), request);
  v1::WatchJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  ASSERT_EQ(response.more_size(), 1);
  for (const char* name : {"jobs/1", "jobs/2"}) {
    v1::DeleteJobRequest deleting;
    deleting.set_name(name);
    v1::DeleteJobResponse deleted;
    ASSERT_TRUE(jobs_->DeleteJob(Context().get(), deleting, &deleted).ok());
  }
  std::set<std::string> gone;
  while (stream->Read(&response)) {
    if (response.deleted()) gone.insert(response.job().name());
    for (const v1::WatchJobsResponse& change : response.more()) {
      if (change.deleted()) gone.insert(change.job().name());
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_THAT(gone, ElementsAre("jobs/1", "jobs/2"));
}

TEST_F(JobStreamsTest, ChangesWaitForEachOtherAtMostASecond) {
  v1::WatchJobsRequest request;
  request.mutable_gather_interval()->set_seconds(2);
  v1::WatchJobsResponse response;
  const auto context = Context();
  const auto stream = jobs_->WatchJobs(context.get(), request);
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("gather_interval"), HasSubstr("is 2 s; expected at most 1 s")));
}

TEST_F(JobStreamsTest, BytesThatAreNoRequestAreRefused) {
  const auto channel = Connect(User("anna"));
  const std::string method = "/trainyard.v1.JobService/WatchJobs";
  const grpc::Status refused = testing::RawCall(channel, method, "\x0a\xff");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(), "the bytes of the request are no WatchJobsRequest");
  CreateJob("a");
  EXPECT_EQ(testing::RawCall(channel, method, "").error_code(), grpc::StatusCode::CANCELLED)
      << "an empty request is about all jobs";
}

TEST_F(JobStreamsTest, AWatchOfAJobThatIsNotThereIsRefused) {
  const auto context = Context();
  v1::WatchJobsRequest request;
  request.add_names("jobs/5");
  const auto stream = jobs_->WatchJobs(context.get(), request);
  v1::WatchJobsResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobStreamsTest, StreamsEndWithUnavailableWhenTheServerGoes) {
  CreateJob("a");
  const auto context = Context();
  const auto stream = jobs_->WatchJobs(context.get(), v1::WatchJobsRequest());
  v1::WatchJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  open_streams_.EndAll(absl::UnavailableError("the server is shutting down"));
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(JobStreamsTest, LogsAreReadFromAnOffset) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  ASSERT_EQ(*AppendLog(attempt, 0, "hello world"), 11);
  v1::TailLogsRequest request;
  request.set_name("jobs/1");
  EXPECT_EQ(Tail(request), "hello world");
  request.set_offset(6);
  EXPECT_EQ(Tail(request), "world");
  request.set_offset(-3);
  EXPECT_EQ(Tail(request), "rld");
  request.set_offset(-100);
  EXPECT_EQ(Tail(request), "hello world");
  request.set_rank(5);
  EXPECT_EQ(Tail(request), "");
}

TEST_F(JobStreamsTest, TheTimelineIsReadApartFromTheLog) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  ASSERT_TRUE(AppendLog(attempt, 0, "hello").ok());
  ASSERT_TRUE(AppendLog(attempt, 0, "{}\n", v1::RANK_STREAM_TRACE).ok());
  v1::TailLogsRequest request;
  request.set_name("jobs/1");
  EXPECT_EQ(Tail(request), "hello");
  request.set_stream(v1::RANK_STREAM_TRACE);
  EXPECT_EQ(Tail(request), "{}\n");
  request.set_offset(2);
  EXPECT_EQ(Tail(request), "\n");
  request.set_stream(static_cast<v1::RankStream>(7));
  const auto context = Context();
  v1::TailLogsResponse response;
  const auto stream = jobs_->TailLogs(context.get(), request);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(JobStreamsTest, FollowingLogsEndsWithTheJobAndBringsEverything) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  ASSERT_TRUE(AppendLog(attempt, 0, "one ").ok());
  v1::TailLogsRequest request;
  request.set_name("jobs/1");
  request.set_follow(true);
  const auto context = Context();
  const auto stream = jobs_->TailLogs(context.get(), request);
  v1::TailLogsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.data(), "one ");
  ASSERT_TRUE(AppendLog(attempt, 4, "two").ok());
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.data(), "two");
  EXPECT_EQ(response.offset(), 4);
  EXPECT_EQ(response.attempt(), 1);
  Succeed(attempt);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(GetJob("jobs/1").state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobStreamsTest, LogsOfAnAttemptThatIsNotThereAreRefused) {
  CreateJob("a");
  v1::TailLogsRequest request;
  request.set_name("jobs/1/attempts/1");
  const auto context = Context();
  v1::TailLogsResponse response;
  const auto stream = jobs_->TailLogs(context.get(), request);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobStreamsTest, MetricsResumeByCursor) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  ASSERT_EQ(*AppendMetrics(attempt, 0, {1, 2}), 20);
  v1::WatchMetricsRequest request;
  request.set_name("jobs/1");
  int64_t cursor = 0;
  EXPECT_THAT(Steps(request, &cursor), ElementsAre(1, 2));
  ASSERT_EQ(*AppendMetrics(attempt, 20, {3}), 30);
  request.set_cursor(cursor);
  EXPECT_THAT(Steps(request), ElementsAre(3));
  request.add_metrics("no.such");
  EXPECT_THAT(Steps(request), ElementsAre());
}

TEST_F(JobStreamsTest, FollowingMetricsEndsWithTheJob) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  v1::WatchMetricsRequest request;
  request.set_name("jobs/1");
  request.set_follow(true);
  const auto context = Context();
  const auto stream = jobs_->WatchMetrics(context.get(), request);
  ASSERT_TRUE(AppendMetrics(attempt, 0, {1, 2}).ok());
  v1::WatchMetricsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.points(0).attempt(), 1);
  Succeed(attempt);
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(JobStreamsTest, SeriesAreThinnedOutEvenly) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  ASSERT_TRUE(AppendMetrics(attempt, 0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}).ok());
  v1::QueryMetricsRequest request;
  request.set_name("jobs/1");
  request.set_max_points(3);
  v1::QueryMetricsResponse response;
  ASSERT_TRUE(jobs_->QueryMetrics(Context().get(), request, &response).ok());
  ASSERT_EQ(response.series_size(), 1);
  EXPECT_EQ(response.series(0).name(), "train.loss");
  std::vector<int64_t> steps;
  for (const auto& point : response.series(0).points()) steps.push_back(point.step());
  EXPECT_THAT(steps, ElementsAre(0, 5, 10));
}

// More queries than any pool of threads has are under way, and each waits for the disk.
TEST_F(JobStreamsTest, SlowQueriesOfMetricsHoldUpNothingElse) {
  Register();
  CreateJob("a");
  const v1::DesiredAttempt attempt = StartRunning();
  testing::Flag released;
  std::atomic<int> held = 0;
  metrics_.before_query = [&] {
    ++held;
    released.Await();
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 3 * runtime::Executor::kThreads; ++i) {
    clients.emplace_back([this] {
      v1::QueryMetricsRequest request;
      request.set_name("jobs/1");
      v1::QueryMetricsResponse response;
      EXPECT_TRUE(jobs_->QueryMetrics(Context().get(), request, &response).ok());
    });
  }
  EXPECT_TRUE(testing::WaitUntil([&] { return held == store::kMetricReadersMax; }));

  v1::ListEventsRequest request;
  request.set_parent("jobs/1");
  v1::ListEventsResponse response;
  EXPECT_TRUE(jobs_->ListEvents(Context().get(), request, &response).ok());
  EXPECT_TRUE(AppendLog(attempt, 0, "log").ok());
  EXPECT_TRUE(AppendMetrics(attempt, 0, {1, 2}).ok());
  released.Raise();
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace trainyard::rpc
