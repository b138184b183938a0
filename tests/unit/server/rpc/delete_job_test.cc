// Tests what DeleteJob and DeleteJobData delete and tell, and what ListUsage shows of it.
#include <gmock/gmock.h>

#include <future>

#include "common/base/errors.h"
#include "tests/unit/server/rpc/checkpoint_fixture.h"

namespace trainyard::rpc {
namespace {

class DeleteJobTest : public CheckpointTest {};

TEST_F(DeleteJobTest, PartsOfAJobGoAndUsageFollows) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  ASSERT_EQ(*AppendLog(attempt_, 0, "hello"), 5);
  ASSERT_TRUE(AppendMetrics(attempt_, 0, {1, 2}).ok());
  std::promise<void> noted;
  runtime_->Post(core::NoteStreams{{{JobId{1}, {5, 70}}}},
                 [&noted](const auto&) { noted.set_value(); });
  noted.get_future().get();
  EXPECT_EQ(GetJob("jobs/1").stored().ShortDebugString(), "checkpoints: 2 logs: 5 metrics: 70");

  v1::ListUsageRequest list;
  list.set_largest_jobs(10);
  v1::ListUsageResponse usage;
  ASSERT_TRUE(sharing_->ListUsage(Context().get(), list, &usage).ok());
  ASSERT_EQ(usage.usage_size(), 1);
  EXPECT_EQ(usage.usage(0).subject(), "user:anna");
  EXPECT_EQ(usage.usage(0).jobs(), 1);
  EXPECT_EQ(usage.usage(0).stored().logs(), 5);
  ASSERT_EQ(usage.largest_jobs_size(), 1);
  EXPECT_EQ(usage.largest_jobs(0).job(), "jobs/1");
  EXPECT_EQ(usage.largest_jobs(0).stored().metrics(), 70);
  list.set_largest_jobs(1'000'000);
  EXPECT_EQ(sharing_->ListUsage(Context().get(), list, &usage).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);

  v1::DeleteJobDataRequest request;
  request.set_name("jobs/1");
  v1::DeleteJobResponse response;
  const auto violations =
      GetFieldViolations(FromGrpcStatus(jobs_->DeleteJobData(Context().get(), request, &response)));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "parts");
  request.add_parts(v1::JOB_PART_LOGS);
  request.add_parts(v1::JOB_PART_METRICS);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(jobs_->DeleteJobData(Context().get(), request, &response))),
            "JOB_STATE_CONFLICT");
  // The worker has not sent everything yet when the job ends, and never sends it in vain.
  Succeed(attempt_);
  ASSERT_TRUE(jobs_->DeleteJobData(Context().get(), request, &response).ok());
  EXPECT_EQ(response.log_bytes(), 5);
  EXPECT_GT(response.metric_points(), 0);
  EXPECT_GT(response.metric_bytes(), 0);
  EXPECT_EQ(response.checkpoints(), 0);
  EXPECT_EQ(response.events(), 0);
  const v1::Job job = GetJob("jobs/1");
  EXPECT_EQ(job.stored().ShortDebugString(), "checkpoints: 2");
  EXPECT_EQ(job.deleted_parts_size(), 2);
  EXPECT_EQ(*AppendLog(attempt_, 5, " again"), 11);
  EXPECT_EQ(*logs_.SizeOf(JobId{1}), 5) << "the files are the app's";
}

TEST_F(DeleteJobTest, ADeletedJobTakesWhatLiesBesideItAlong) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  ASSERT_EQ(*AppendLog(attempt_, 0, "hello"), 5);
  ASSERT_TRUE(AppendMetrics(attempt_, 0, {1, 2}).ok());
  v1::DeleteJobRequest request;
  request.set_name("jobs/1");
  v1::DeleteJobResponse response;
  auto status = jobs_->DeleteJob(Context().get(), request, &response);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(status)), "JOB_STATE_CONFLICT");
  EXPECT_NE(status.error_message().find("cancel it first"), std::string::npos);
  Succeed(attempt_);

  request.set_validate_only(true);
  status = jobs_->DeleteJob(Context().get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.checkpoints(), 1);
  EXPECT_EQ(response.checkpoint_bytes(), 2);
  EXPECT_EQ(response.log_bytes(), 5);
  EXPECT_GT(response.metric_points(), 0);
  EXPECT_GT(response.events(), 0);
  EXPECT_FALSE(response.kept_spec());
  EXPECT_EQ(GetJob("jobs/1").state(), v1::JOB_STATE_SUCCEEDED) << "it was only shown";

  v1::WatchJobsRequest watch;
  watch.add_names("jobs/1");
  const auto context = Context();
  const auto stream = jobs_->WatchJobs(context.get(), watch);
  v1::WatchJobsResponse seen;
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_FALSE(seen.deleted());

  request.set_validate_only(false);
  v1::DeleteJobResponse deleted;
  status = jobs_->DeleteJob(Context().get(), request, &deleted);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(deleted.SerializeAsString(), response.SerializeAsString());
  EXPECT_EQ(board_.FindJob(JobId{1}), nullptr);
  EXPECT_FALSE(board_.IsReferenced(file.hash()));
  ASSERT_TRUE(stream->Read(&seen));
  EXPECT_TRUE(seen.deleted());
  EXPECT_EQ(seen.job().name(), "jobs/1");
  EXPECT_FALSE(stream->Read(&seen)) << "nothing more can come";

  response.Clear();
  status = jobs_->DeleteJob(Context().get(), request, &response);
  ASSERT_TRUE(status.ok()) << "it is deleted already";
  EXPECT_EQ(response.ByteSizeLong(), 0u);
  v1::GetJobRequest get;
  get.set_name("jobs/1");
  v1::Job job;
  EXPECT_EQ(jobs_->GetJob(Context().get(), get, &job).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace trainyard::rpc
