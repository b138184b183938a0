#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "server/rpc/limits.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class JobServiceTest : public RpcTest {
 protected:
  absl::StatusOr<v1::Job> Create(const v1::CreateJobRequest& request) {
    v1::Job job;
    const grpc::Status status = jobs_->CreateJob(Context().get(), request, &job);
    if (!status.ok()) return FromGrpcStatus(status);
    return job;
  }
  v1::CreateJobRequest Request(const std::string& name) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = Spec(name);
    return request;
  }
  absl::StatusOr<v1::CloneJobResponse> Clone(const v1::CloneJobRequest& request) {
    v1::CloneJobResponse response;
    const grpc::Status status = jobs_->CloneJob(Context().get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }
  absl::StatusOr<v1::Job> Cancel(const std::string& name) {
    v1::CancelJobRequest request;
    request.set_name(name);
    request.set_reason("wrong data");
    v1::Job job;
    const grpc::Status status = jobs_->CancelJob(Context().get(), request, &job);
    if (!status.ok()) return FromGrpcStatus(status);
    return job;
  }
};

TEST_F(JobServiceTest, CreateAnswersWithTheResolvedJob) {
  const auto job = Create(Request("first"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "jobs/1");
  EXPECT_EQ(job->uid().size(), 36u);
  EXPECT_EQ(job->user(), "anna");
  EXPECT_EQ(job->state(), v1::JOB_STATE_QUEUED);
  EXPECT_FALSE(job->spec().train().has_global_batch());
  EXPECT_EQ(job->resolved_spec().train().global_batch(), 64);
  EXPECT_EQ(job->resolved_spec().train().replicas(), 1);
  EXPECT_EQ(job->provenance().server_version(), "1.2.3");
  EXPECT_TRUE(job->has_create_time());
  EXPECT_FALSE(job->has_start_time());
  EXPECT_GT(job->queue_reasons_size(), 0);  // no worker is there
  v1::Job stored = *job;
  stored.clear_warnings();  // only the answer has them
  EXPECT_EQ(GetJob("jobs/1").SerializeAsString(), stored.SerializeAsString());
}

TEST_F(JobServiceTest, AnInvalidSpecComesBackWithAllItsViolations) {
  v1::CreateJobRequest request = Request("a b");
  request.mutable_spec()->mutable_train()->set_global_batch(0);
  request.mutable_spec()->mutable_data()->set_dataset("fashion_mnist");
  request.set_request_id(std::string(65, 'x'));
  const auto job = Create(request);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(job.status()), error::kInvalidSpec);
  std::vector<std::string> fields;
  for (const auto& violation : GetFieldViolations(job.status())) fields.push_back(violation.field);
  EXPECT_THAT(fields, UnorderedElementsAre("request_id", "spec.name", "spec.data.dataset",
                                           "spec.train.global_batch"));
}

TEST_F(JobServiceTest, ValidateOnlyResolvesAndStoresNothing) {
  v1::CreateJobRequest request = Request("dry");
  request.set_validate_only(true);
  const auto job = Create(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "");
  EXPECT_EQ(job->resolved_spec().train().global_batch(), 64);
  EXPECT_THAT(job->queue_reasons(), ::testing::Contains("no worker has registered"));
  EXPECT_EQ(CreateJob("real").name(), "jobs/1");
}

TEST_F(JobServiceTest, TheSameRequestSentAgainIsTheSameJob) {
  v1::CreateJobRequest request = Request("once");
  request.set_request_id("r-1");
  EXPECT_EQ(Create(request)->name(), "jobs/1");
  EXPECT_EQ(Create(request)->name(), "jobs/1");
  request.mutable_spec()->set_name("another");
  EXPECT_EQ(ErrorReason(Create(request).status()), "REQUEST_ID_REUSED");
  request.set_request_id("r-2");
  EXPECT_EQ(Create(request)->name(), "jobs/2");
}

TEST_F(JobServiceTest, WhatCanNeverRunIsRefusedByEachCallThatMakesJobs) {
  EXPECT_THAT(Create(Request("early"))->warnings(),
              ::testing::ElementsAre(::testing::HasSubstr("no worker has ever joined")));
  Register();
  v1::CreateJobRequest request = Request("wide");
  request.mutable_spec()->mutable_devices()->set_count(4);
  for (const bool validate_only : {true, false}) {
    request.set_validate_only(validate_only);
    const absl::Status refused = Create(request).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ErrorReason(refused), error::kCannotRun);
  }
  request.mutable_options()->set_wait_for_devices(true);
  const auto job = Create(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(GetJob(job->name()).wait_for_devices());
  EXPECT_EQ(job->warnings_size(), 1);
  EXPECT_EQ(GetJob(job->name()).warnings_size(), 0);
  v1::CloneJobRequest clone;
  clone.set_name(job->name());
  v1::CloneJobResponse cloned;
  EXPECT_EQ(ErrorReason(FromGrpcStatus(jobs_->CloneJob(Context().get(), clone, &cloned))),
            error::kCannotRun);
}

TEST_F(JobServiceTest, ThePlannedMemoryIsKeptAndDoesNotChangeWhatARequestMeans) {
  v1::CreateJobRequest request = Request("planned");
  request.set_request_id("r-1");
  request.mutable_options()->mutable_memory_need()->set_host_bytes(5000);
  const auto job = Create(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(GetJob(job->name()).memory_need().host_bytes(), 5000);
  request.mutable_options()->clear_memory_need();
  EXPECT_EQ(Create(request)->name(), job->name());
  request.clear_request_id();
  request.mutable_options()->mutable_memory_need()->set_gpu_bytes(-1);
  EXPECT_EQ(GetFieldViolations(Create(request).status()).at(0).field,
            "options.memory_need.gpu_bytes");
}

TEST_F(JobServiceTest, ExplainOffersOnlyWhatWouldBeAccepted) {
  Register();
  v1::CreateJobRequest request = Request("staged");
  request.mutable_spec()->mutable_model()->mutable_mlp()->add_hidden(32);
  request.mutable_spec()->mutable_model()->mutable_mlp()->add_hidden(32);
  request.mutable_spec()->mutable_stages()->set_count(3);
  request.mutable_spec()->mutable_devices()->set_count(3);
  request.mutable_options()->set_wait_for_devices(true);
  const auto job = Create(request);
  ASSERT_TRUE(job.ok()) << job.status();
  v1::ExplainJobRequest explain;
  explain.set_name(job->name());
  v1::Explanation explanation;
  ASSERT_TRUE(jobs_->ExplainJob(Context().get(), explain, &explanation).ok());
  EXPECT_TRUE(explanation.infeasible());
  EXPECT_EQ(explanation.change_size(), 0) << explanation.change_text();
  // A clone would be one more submission than the quota allows.
  Sync({});
  request.mutable_spec()->clear_stages();
  const auto plain = Create(request);
  ASSERT_TRUE(plain.ok()) << plain.status();
  explain.set_name(plain->name());
  ASSERT_TRUE(jobs_->ExplainJob(Context().get(), explain, &explanation).ok());
  ASSERT_EQ(explanation.change_size(), 1);
  EXPECT_EQ(explanation.change(0).path(), "devices.count");
  v1::SetQuotaRequest quota;
  quota.mutable_quota()->set_subject("user:anna");
  quota.mutable_quota()->set_queued_jobs(2);
  v1::Quota set;
  ASSERT_TRUE(sharing_->SetQuota(Context().get(), quota, &set).ok());
  ASSERT_TRUE(jobs_->ExplainJob(Context().get(), explain, &explanation).ok());
  EXPECT_EQ(explanation.change_size(), 0) << explanation.change_text();
}

TEST_F(JobServiceTest, ACheckpointToStartFromMustExist) {
  v1::CreateJobRequest request = Request("child");
  request.set_from_checkpoint("jobs/1/checkpoints/600");
  EXPECT_EQ(Create(request).status().code(), absl::StatusCode::kNotFound);
  request.set_from_checkpoint("step 600");
  EXPECT_EQ(GetFieldViolations(Create(request).status()).at(0).field, "from_checkpoint");
}

TEST_F(JobServiceTest, AUserNameHasAForm) {
  v1::Job job;
  const grpc::Status status = jobs_->CreateJob(Context("a b").get(), Request("x"), &job);
  EXPECT_EQ(GetFieldViolations(FromGrpcStatus(status)).at(0).field, "metadata.trainyard-as");
  ASSERT_TRUE(jobs_->CreateJob(Context("").get(), Request("x"), &job).ok());
  EXPECT_EQ(job.user(), "root");
}

TEST_F(JobServiceTest, AJobThatIsNotThereIsNotFound) {
  v1::GetJobRequest request;
  v1::Job job;
  request.set_name("jobs/7");
  EXPECT_EQ(jobs_->GetJob(Context().get(), request, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
  request.set_name("7");
  const auto status = FromGrpcStatus(jobs_->GetJob(Context().get(), request, &job));
  EXPECT_EQ(GetFieldViolations(status).at(0).field, "name");
}

TEST_F(JobServiceTest, ListsPageByPageNewestFirst) {
  for (int i = 0; i < 5; ++i) CreateJob("job");
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  int pages = 0;
  do {
    v1::ListJobsResponse response;
    ASSERT_TRUE(jobs_->ListJobs(Context().get(), request, &response).ok());
    for (const auto& job : response.jobs()) names.push_back(job.name());
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_THAT(names, ElementsAre("jobs/5", "jobs/4", "jobs/3", "jobs/2", "jobs/1"));
  EXPECT_EQ(pages, 3);
}

TEST_F(JobServiceTest, ListsOnlyTheStatesAskedFor) {
  CreateJob("stays");
  CreateJob("goes");
  ASSERT_TRUE(Cancel("jobs/2").ok());
  v1::ListJobsRequest request;
  request.add_states(v1::JOB_STATE_CANCELLED);
  v1::ListJobsResponse response;
  ASSERT_TRUE(jobs_->ListJobs(Context().get(), request, &response).ok());
  ASSERT_EQ(response.jobs_size(), 1);
  EXPECT_EQ(response.jobs(0).name(), "jobs/2");
  request.set_page_token("x");
  request.set_page_size(-1);
  const auto status = FromGrpcStatus(jobs_->ListJobs(Context().get(), request, &response));
  EXPECT_EQ(GetFieldViolations(status).size(), 2u);
}

TEST_F(JobServiceTest, CancelEndsAQueuedJobAndIsIdempotent) {
  CreateJob("a");
  EXPECT_EQ(Cancel("jobs/1")->state(), v1::JOB_STATE_CANCELLED);
  const auto again = Cancel("jobs/1");
  EXPECT_EQ(again->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(again->has_end_time());
  EXPECT_EQ(Cancel("jobs/9").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobServiceTest, AVerbThatMakesNoSenseIsAConflict) {
  CreateJob("a");
  ASSERT_TRUE(Cancel("jobs/1").ok());
  v1::ResumeJobRequest request;
  request.set_name("jobs/1");
  v1::Job job;
  const auto status = FromGrpcStatus(jobs_->ResumeJob(Context().get(), request, &job));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "JOB_STATE_CONFLICT");
}

TEST_F(JobServiceTest, SuspendAndResumeLeaveAndEnterTheQueue) {
  CreateJob("a");
  v1::SuspendJobRequest suspend;
  suspend.set_name("jobs/1");
  v1::Job job;
  ASSERT_TRUE(jobs_->SuspendJob(Context().get(), suspend, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUSPENDED);
  v1::ResumeJobRequest resume;
  resume.set_name("jobs/1");
  ASSERT_TRUE(jobs_->ResumeJob(Context().get(), resume, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
}

TEST_F(JobServiceTest, ACloneIsTheOriginalWithChanges) {
  CreateJob("original");
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  auto* change = request.add_changes();
  change->set_path("optimizer.sgd.lr");
  change->set_value_json("0.2");
  const auto clone = Clone(request);
  ASSERT_TRUE(clone.ok()) << clone.status();
  EXPECT_EQ(clone->job().name(), "jobs/2");
  EXPECT_EQ(clone->job().provenance().cloned_from(), "jobs/1");
  EXPECT_EQ(clone->job().resolved_spec().optimizer().sgd().lr(), 0.2);
  ASSERT_EQ(clone->differences_size(), 1);
  EXPECT_EQ(clone->differences(0).path(), "optimizer.sgd.lr");
  EXPECT_EQ(clone->differences(0).left_json(), "0.1");
  EXPECT_EQ(clone->differences(0).right_json(), "0.2");

  v1::DiffJobsRequest diff;
  diff.set_left("jobs/1");
  diff.set_right("jobs/2");
  v1::DiffJobsResponse differences;
  ASSERT_TRUE(jobs_->DiffJobs(Context().get(), diff, &differences).ok());
  EXPECT_EQ(differences.differences_size(), 1);
}

TEST_F(JobServiceTest, ACloneTrainsOnTheDataOfTheOriginal) {
  Register();
  CreateJob("original");
  Succeed(StartRunning());
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  request.set_validate_only(true);
  const auto clone = Clone(request);
  ASSERT_TRUE(clone.ok()) << clone.status();
  EXPECT_EQ(clone->job().name(), "");
  EXPECT_EQ(clone->job().resolved_spec().data().digest(), "glyphs-v1:abc");
  EXPECT_EQ(clone->differences_size(), 0);
  auto* change = request.add_changes();
  change->set_path("data.train_size");
  change->set_value_json("500");
  EXPECT_EQ(Clone(request)->job().resolved_spec().data().digest(), "");
}

TEST_F(JobServiceTest, ACloneOfAProgramWithoutDataIsAsTheOriginal) {
  v1::CreateJobRequest create;
  create.mutable_spec()->set_name("program");
  create.mutable_spec()->mutable_program()->add_command("true");
  v1::Job original;
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), create, &original).ok());
  v1::CloneJobRequest request;
  request.set_name(original.name());
  for (int generation = 0; generation < 2; ++generation) {
    const auto clone = Clone(request);
    ASSERT_TRUE(clone.ok()) << clone.status();
    EXPECT_FALSE(clone->job().resolved_spec().has_data());
    EXPECT_EQ(clone->differences_size(), 0);
    request.set_name(clone->job().name());
  }
}

TEST_F(JobServiceTest, APrecisionLeftToTheDevicesIsDecidedOnceAndKeptByClones) {
  CreateJob("original");
  EXPECT_EQ(GetJob("jobs/1").resolved_spec().train().precision(), v1::PRECISION_AUTO);
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  request.set_validate_only(true);
  EXPECT_EQ(Clone(request)->job().resolved_spec().train().precision(), v1::PRECISION_AUTO)
      << "nothing was decided yet";
  Register("h200", /*bf16=*/true);
  const v1::DesiredAttempt attempt = StartRunning();
  EXPECT_EQ(attempt.spec().train().precision(), v1::PRECISION_BF16);
  EXPECT_EQ(GetJob("jobs/1").resolved_spec().train().precision(), v1::PRECISION_BF16);
  Succeed(attempt);
  request.set_validate_only(false);
  const auto clone = Clone(request);
  ASSERT_TRUE(clone.ok()) << clone.status();
  EXPECT_EQ(clone->job().resolved_spec().train().precision(), v1::PRECISION_BF16);
  EXPECT_EQ(clone->differences_size(), 0);
  v1::DiffJobsRequest diff;
  diff.set_left("jobs/1");
  diff.set_right("jobs/2");
  v1::DiffJobsResponse differences;
  ASSERT_TRUE(jobs_->DiffJobs(Context().get(), diff, &differences).ok());
  ASSERT_EQ(differences.differences_size(), 1);
  EXPECT_EQ(differences.differences(0).path(), "data.digest") << "a clone writes it down";
}

TEST_F(JobServiceTest, ACloneOfABf16JobDoesNotRunWhereThereIsNone) {
  Register("h200", /*bf16=*/true);
  CreateJob("original");
  Succeed(StartRunning());
  Register("cpu");
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  EXPECT_EQ(ErrorReason(Clone(request).status()), error::kCannotRun);
  request.mutable_options()->set_wait_for_devices(true);
  ASSERT_TRUE(Clone(request).ok());
  Sync({});
  const v1::Job clone = GetJob("jobs/2");
  EXPECT_EQ(clone.state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(clone.queue_reasons(), Contains("2 devices do not compute in bf16"));
}

TEST_F(JobServiceTest, WrongChangesAreNamedWithTheNearestField) {
  CreateJob("original");
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  for (const char* path : {"optimizer.sgd.lrr", "trainn.epochs"}) {
    auto* change = request.add_changes();
    change->set_path(path);
    change->set_value_json("1");
  }
  const auto violations = GetFieldViolations(Clone(request).status());
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "spec.optimizer.sgd.lrr");
  EXPECT_THAT(violations[0].description, HasSubstr("did you mean 'lr'?"));
  EXPECT_THAT(violations[1].description, HasSubstr("did you mean 'train'?"));
}

TEST_F(JobServiceTest, EventsTellTheHistoryPageByPage) {
  CreateJob("a");
  ASSERT_TRUE(Cancel("jobs/1").ok());
  v1::ListEventsRequest request;
  request.set_parent("jobs/1");
  v1::ListEventsResponse all;
  ASSERT_TRUE(jobs_->ListEvents(Context().get(), request, &all).ok());
  ASSERT_GE(all.events_size(), 2);
  EXPECT_EQ(all.next_page_token(), "");
  EXPECT_EQ(all.events(0).actor(), "user:anna");
  EXPECT_THAT(all.events().rbegin()->message(), HasSubstr("wrong data"));
  request.set_page_size(1);
  v1::ListEventsResponse page;
  ASSERT_TRUE(jobs_->ListEvents(Context().get(), request, &page).ok());
  ASSERT_EQ(page.events_size(), 1);
  request.set_page_token(page.next_page_token());
  ASSERT_TRUE(jobs_->ListEvents(Context().get(), request, &page).ok());
  EXPECT_EQ(page.events(0).sequence(), all.events(1).sequence());
}

TEST_F(JobServiceTest, ARunningJobShowsWhereItRuns) {
  Register();
  CreateJob("a");
  StartRunning();
  const v1::Job job = GetJob("jobs/1");
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(job.progress().step(), 7);
  ASSERT_EQ(job.placement_size(), 1);
  EXPECT_EQ(job.placement(0).worker(), "workers/lab-1");
  EXPECT_THAT(job.queue_reasons(), IsEmpty());
  v1::ListAttemptsRequest request;
  request.set_parent("jobs/1");
  v1::ListAttemptsResponse attempts;
  ASSERT_TRUE(jobs_->ListAttempts(Context().get(), request, &attempts).ok());
  ASSERT_EQ(attempts.attempts_size(), 1);
  EXPECT_EQ(attempts.attempts(0).name(), "jobs/1/attempts/1");
  EXPECT_EQ(attempts.attempts(0).state(), v1::ATTEMPT_STATE_RUNNING);
}

TEST_F(JobServiceTest, JobsAreFoundByTheirTags) {
  const auto create = [&](const std::string& name, const std::vector<std::string>& tags) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = Spec(name);
    request.mutable_spec()->set_description("Why " + name + " was run.");
    request.mutable_spec()->mutable_tags()->Add(tags.begin(), tags.end());
    v1::Job job;
    return FromGrpcStatus(jobs_->CreateJob(Context().get(), request, &job));
  };
  ASSERT_TRUE(create("a", {"paper", "baseline"}).ok());
  ASSERT_TRUE(create("b", {"paper"}).ok());
  ASSERT_TRUE(create("c", {}).ok());
  EXPECT_EQ(create("d", {"two words"}).code(), absl::StatusCode::kInvalidArgument);

  const auto list = [&](const std::vector<std::string>& tags) {
    v1::ListJobsRequest request;
    request.mutable_tags()->Add(tags.begin(), tags.end());
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(Context().get(), request, &response).ok());
    std::vector<std::string> names;
    for (const v1::Job& job : response.jobs()) names.push_back(job.spec().name());
    return names;
  };
  EXPECT_THAT(list({"paper"}), ElementsAre("b", "a"));
  EXPECT_THAT(list({"paper", "baseline"}), ElementsAre("a")) << "all of them are asked for";
  EXPECT_THAT(list({"baselin"}), ElementsAre());
  EXPECT_THAT(list({}), ElementsAre("c", "b", "a"));
  const v1::Job job = GetJob("jobs/1");
  EXPECT_EQ(job.resolved_spec().description(), "Why a was run.");
  EXPECT_THAT(job.resolved_spec().tags(), ElementsAre("paper", "baseline"));
}

TEST_F(JobServiceTest, JobsAreFoundByTheirNamesAndTheRestIsCounted) {
  for (const char* name : {"sweep-1", "other", "sweep-2", "sweep-3"}) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = Spec(name);
    v1::Job job;
    ASSERT_TRUE(jobs_->CreateJob(Context().get(), request, &job).ok());
  }
  const auto list = [&](const std::string& name, int page_size, bool counts) {
    v1::ListJobsRequest request;
    request.set_job_name(name);
    request.set_page_size(page_size);
    request.set_count_more(counts);
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(Context().get(), request, &response).ok());
    return response;
  };
  const v1::ListJobsResponse sweep = list("sweep-*", 1, true);
  ASSERT_EQ(sweep.jobs_size(), 1);
  EXPECT_EQ(sweep.jobs(0).name(), "jobs/4");
  EXPECT_EQ(sweep.more_jobs(), 2);
  EXPECT_EQ(list("sweep-*", 3, true).more_jobs(), 0);
  EXPECT_EQ(list("sweep-*", 1, false).more_jobs(), 0) << "it was not asked for";
  EXPECT_EQ(list("other", 0, false).jobs(0).name(), "jobs/2");
  EXPECT_EQ(list("sweep", 0, false).jobs_size(), 0);
}

// The answer to the first request may have been lost.
TEST_F(JobServiceTest, ASubmissionThatIsRepeatedAfterWhatItRefersToWasDeletedIsTheSameJob) {
  CreateJob("original");
  v1::CloneJobRequest clone;
  clone.set_name("jobs/1");
  clone.set_request_id("c-1");
  ASSERT_TRUE(Clone(clone).ok());
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("dependent");
  create.mutable_options()->add_after("jobs/1");
  create.set_request_id("c-2");
  v1::Job job;
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), create, &job).ok());
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/1");
  ASSERT_TRUE(jobs_->CancelJob(Context().get(), cancel, &job).ok());
  v1::DeleteJobRequest remove;
  remove.set_name("jobs/1");
  v1::DeleteJobResponse removed;
  ASSERT_TRUE(jobs_->DeleteJob(Context().get(), remove, &removed).ok());

  const auto repeated = Clone(clone);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(repeated->job().name(), "jobs/2");
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), create, &job).ok());
  EXPECT_EQ(job.name(), "jobs/3");
  clone.set_request_id("c-3");
  EXPECT_EQ(Clone(clone).status().code(), absl::StatusCode::kNotFound);
  create.set_request_id("c-1");  // of another request
  EXPECT_EQ(jobs_->CreateJob(Context().get(), create, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobServiceTest, AClonesOriginalCanBeDeletedAndStillBeComparedWith) {
  CreateJob("a");
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  v1::SpecChange* change = request.add_changes();
  change->set_path("train.seed");
  change->set_value_json("7");
  v1::CloneJobResponse clone;
  ASSERT_TRUE(jobs_->CloneJob(Context().get(), request, &clone).ok());
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/1");
  v1::Job cancelled;
  ASSERT_TRUE(jobs_->CancelJob(Context().get(), cancel, &cancelled).ok());
  v1::DeleteJobRequest remove;
  remove.set_name("jobs/1");
  v1::DeleteJobResponse removed;
  ASSERT_TRUE(jobs_->DeleteJob(Context().get(), remove, &removed).ok());
  EXPECT_TRUE(removed.kept_spec());

  v1::DiffJobsRequest diff;
  diff.set_left("jobs/1");
  diff.set_right("jobs/2");
  v1::DiffJobsResponse differences;
  ASSERT_TRUE(jobs_->DiffJobs(Context().get(), diff, &differences).ok());
  ASSERT_EQ(differences.differences_size(), 1);
  EXPECT_EQ(differences.differences(0).path(), "train.seed");
  EXPECT_EQ(GetJob("jobs/2").provenance().cloned_from(), "jobs/1");
}

}  // namespace
}  // namespace trainyard::rpc
