// Tests arrays, dependencies and the other fields that go with a spec, and cancelling many jobs at
// once.
#include <gmock/gmock.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "server/rpc/limits.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class ArraysTest : public RpcTest {
 protected:
  absl::StatusOr<v1::Job> Create(const v1::CreateJobRequest& request,
                                 const std::string& user = "anna") {
    v1::Job job;
    const grpc::Status status = jobs_->CreateJob(Context(user).get(), request, &job);
    if (!status.ok()) return FromGrpcStatus(status);
    return job;
  }
  static v1::CreateJobRequest Request(const std::string& name, int32_t array_size = 0) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = Spec(name);
    request.mutable_options()->set_array_size(array_size);
    return request;
  }
  absl::StatusOr<v1::CancelJobsResponse> Cancel(const v1::CancelJobsRequest& request) {
    v1::CancelJobsResponse response;
    const grpc::Status status = jobs_->CancelJobs(Context().get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }
  v1::ListJobsResponse List(const v1::ListJobsRequest& request) {
    v1::ListJobsResponse response;
    const grpc::Status status = jobs_->ListJobs(Context().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  static std::vector<std::string> Names(const v1::ListJobsResponse& response) {
    std::vector<std::string> names;
    for (const v1::Job& job : response.jobs()) names.push_back(job.name());
    return names;
  }
  static std::vector<std::string> Fields(const absl::Status& status) {
    std::vector<std::string> fields;
    for (const auto& violation : GetFieldViolations(status)) fields.push_back(violation.field);
    return fields;
  }
};

TEST_F(ArraysTest, EveryElementHasANameASeedAndAUidOfItsOwn) {
  v1::CreateJobRequest request = Request("sweep", 3);
  request.mutable_spec()->mutable_train()->set_seed(40);
  request.mutable_options()->set_array_parallel(2);
  CreateJob("before");
  const auto first = Create(request);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->name(), "jobs/2");
  std::set<std::string> uids;
  for (int i = 0; i < 3; ++i) {
    const v1::Job job = GetJob(absl::StrCat("jobs/", 2 + i));
    EXPECT_EQ(job.array(), "jobs/2");
    EXPECT_EQ(job.array_index(), i);
    EXPECT_EQ(job.array_size(), 3);
    EXPECT_EQ(job.array_parallel(), 2);
    EXPECT_EQ(job.resolved_spec().name(), absl::StrCat("sweep-", i));
    EXPECT_EQ(job.resolved_spec().train().seed(), 40u + static_cast<uint64_t>(i));
    EXPECT_EQ(job.spec().name(), "sweep");  // what the user wrote
    EXPECT_EQ(job.uid().size(), 36u);
    EXPECT_EQ(job.uid()[14], '8');  // a UUID in another form
    uids.insert(job.uid());
  }
  EXPECT_EQ(uids.size(), 3u);
  EXPECT_EQ(GetJob("jobs/3").uid(), GetJob("jobs/3").uid());
}

TEST_F(ArraysTest, TheWorkerAndACloneGetTheElementsSpec) {
  ASSERT_TRUE(Create(Request("sweep", 2)).ok());
  Register();
  const v1::SyncWorkerResponse desired = Sync({});
  ASSERT_EQ(desired.attempts_size(), 2);
  std::vector<std::string> names;
  for (const auto& attempt : desired.attempts()) names.push_back(attempt.spec().name());
  EXPECT_THAT(names, UnorderedElementsAre("sweep-0", "sweep-1"));
  v1::CloneJobRequest clone;
  clone.set_name("jobs/2");
  v1::CloneJobResponse response;
  ASSERT_TRUE(jobs_->CloneJob(Context().get(), clone, &response).ok());
  EXPECT_EQ(response.job().resolved_spec().name(), "sweep-1");
  EXPECT_EQ(response.job().resolved_spec().train().seed(), 2u);
  EXPECT_EQ(response.job().array(), "");
  v1::DiffJobsRequest diff;
  diff.set_left("jobs/1");
  diff.set_right("jobs/2");
  v1::DiffJobsResponse differences;
  ASSERT_TRUE(jobs_->DiffJobs(Context().get(), diff, &differences).ok());
  ASSERT_EQ(differences.differences_size(), 2);
  EXPECT_EQ(differences.differences(0).path(), "name");
  EXPECT_EQ(differences.differences(1).path(), "train.seed");
}

TEST_F(ArraysTest, TheHistoryOfAnElementStartsWithTheSubmissionOfItsArray) {
  ASSERT_TRUE(Create(Request("sweep", 3)).ok());
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/3");
  v1::Job job;
  ASSERT_TRUE(jobs_->CancelJob(Context().get(), cancel, &job).ok());
  for (const int page_size : {1, 100}) {
    v1::ListEventsRequest request;
    request.set_parent("jobs/3");
    request.set_page_size(page_size);
    std::vector<std::string> types;
    do {
      v1::ListEventsResponse response;
      ASSERT_TRUE(jobs_->ListEvents(Context().get(), request, &response).ok());
      EXPECT_LE(response.events_size(), page_size);
      for (const auto& event : response.events()) types.push_back(event.type());
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    ASSERT_GE(types.size(), 2u);
    EXPECT_EQ(types.front(), "JOB_QUEUED");
    EXPECT_EQ(types.back(), "JOB_CANCELLED");
  }
}

TEST_F(ArraysTest, AllThatIsWrongBesideTheSpecIsToldWithTheSpec) {
  v1::CreateJobRequest request = Request("a b", kArrayJobsMax + 1);
  request.mutable_options()->set_array_parallel(-1);
  request.mutable_options()->set_reservation("?");
  request.mutable_options()->add_after("7");
  request.mutable_options()->add_after_ok("jobs/x");
  request.mutable_options()->mutable_begin_time()->set_seconds(-1);
  EXPECT_THAT(
      Fields(Create(request).status()),
      UnorderedElementsAre("spec.name", "options.array_size", "options.reservation",
                           "options.after[0]", "options.after_ok[0]", "options.begin_time"));
  request = Request("fine");
  request.mutable_options()->set_array_parallel(2);
  EXPECT_THAT(Fields(Create(request).status()), ElementsAre("options.array_parallel"));
}

TEST_F(ArraysTest, NamesAndSeedsMustDoForTheLastElement) {
  v1::CreateJobRequest request = Request(std::string(61, 'x'), 10);
  EXPECT_TRUE(Create(request).ok());
  request.mutable_options()->set_array_size(11);  // the last one is called x...x-10
  request.mutable_spec()->mutable_train()->set_seed(SeedMax());
  EXPECT_THAT(Fields(Create(request).status()),
              UnorderedElementsAre("spec.name", "spec.train.seed"));
}

TEST_F(ArraysTest, AJobMayWaitForOthersAndForATime) {
  CreateJob("first");
  v1::CreateJobRequest request = Request("second");
  request.mutable_options()->add_after("jobs/1");
  request.mutable_options()->add_after_ok("jobs/1");
  request.mutable_options()->mutable_begin_time()->set_seconds(4'000'000'000);
  const auto job = Create(request);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->dependencies_size(), 2);
  EXPECT_EQ(job->dependencies(0).job(), "jobs/1");
  EXPECT_FALSE(job->dependencies(0).ok());
  EXPECT_TRUE(job->dependencies(1).ok());
  EXPECT_EQ(job->begin_time().seconds(), 4'000'000'000);
  request.mutable_options()->add_after("jobs/9");
  const absl::Status missing = Create(request).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("jobs/9"));
}

TEST_F(ArraysTest, AValidationShowsWhatWouldHoldTheJobBack) {
  CreateJob("first");
  v1::CreateJobRequest request = Request("second");
  request.set_validate_only(true);
  request.mutable_options()->add_after("jobs/1");
  const auto job = Create(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "");
  EXPECT_THAT(job->explanation().reasons(),
              ::testing::Contains(HasSubstr("waits for job jobs/1 to end")));
  EXPECT_EQ(job->queue_reasons_size(), job->explanation().reasons_size());
}

TEST_F(ArraysTest, AJobAndASpecAreExplained) {
  CreateJob("first");
  v1::ExplainJobRequest request;
  request.set_name("jobs/1");
  v1::Explanation explanation;
  ASSERT_TRUE(jobs_->ExplainJob(Context().get(), request, &explanation).ok());
  EXPECT_THAT(explanation.reasons(), ::testing::Contains("no worker has registered"));
  *request.mutable_spec() = Spec("other");
  ASSERT_TRUE(jobs_->ExplainJob(Context().get(), request, &explanation).ok());
  EXPECT_THAT(explanation.reasons(), ::testing::Contains("no worker has registered"));
  request.mutable_spec()->set_name("");
  EXPECT_THAT(Fields(FromGrpcStatus(jobs_->ExplainJob(Context().get(), request, &explanation))),
              ElementsAre("spec.name"));
  request.set_name("jobs/9");
  EXPECT_EQ(jobs_->ExplainJob(Context().get(), request, &explanation).error_code(),
            grpc::StatusCode::NOT_FOUND);
  request.clear_subject();
  EXPECT_THAT(Fields(FromGrpcStatus(jobs_->ExplainJob(Context().get(), request, &explanation))),
              ElementsAre("name"));
}

TEST_F(ArraysTest, ListsGroupAnArrayIntoOneWithItsStates) {
  CreateJob("before");
  ASSERT_TRUE(Create(Request("sweep", 5)).ok());
  CreateJob("after");
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/4");
  v1::Job job;
  ASSERT_TRUE(jobs_->CancelJob(Context().get(), cancel, &job).ok());
  v1::ListJobsRequest request;
  request.set_group_arrays(true);
  const v1::ListJobsResponse all = List(request);
  EXPECT_THAT(Names(all), ElementsAre("jobs/7", "jobs/2", "jobs/1"));
  ASSERT_EQ(all.jobs(1).array_states_size(), 2);
  EXPECT_EQ(all.jobs(1).array_states(0).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(all.jobs(1).array_states(0).jobs(), 4);
  EXPECT_EQ(all.jobs(1).array_states(1).jobs(), 1);
  // Only jobs that match are counted. The first job represents them, though it does not match
  // itself.
  request.add_states(v1::JOB_STATE_CANCELLED);
  const v1::ListJobsResponse cancelled = List(request);
  EXPECT_THAT(Names(cancelled), ElementsAre("jobs/2"));
  EXPECT_EQ(cancelled.jobs(0).array_states_size(), 1);
}

TEST_F(ArraysTest, PagesOfGroupedJobsAreWhole) {
  CreateJob("before");
  ASSERT_TRUE(Create(Request("one", 3)).ok());
  ASSERT_TRUE(Create(Request("two", 3)).ok());
  v1::ListJobsRequest request;
  request.set_group_arrays(true);
  request.set_page_size(1);
  std::vector<std::string> names;
  do {
    const v1::ListJobsResponse page = List(request);
    for (const std::string& name : Names(page)) names.push_back(name);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names, ElementsAre("jobs/5", "jobs/2", "jobs/1"));
}

TEST_F(ArraysTest, ListsAreFilteredByUserProjectAndArray) {
  v1::CreateJobRequest request = Request("job");
  request.mutable_spec()->set_project("vision");
  ASSERT_TRUE(Create(request, "anna").ok());
  ASSERT_TRUE(Create(request, "ben").ok());
  ASSERT_TRUE(Create(Request("sweep", 2), "ben").ok());
  v1::ListJobsRequest list;
  list.set_user("ben");
  EXPECT_THAT(Names(List(list)), ElementsAre("jobs/4", "jobs/3", "jobs/2"));
  list.set_project("vision");
  EXPECT_THAT(Names(List(list)), ElementsAre("jobs/2"));
  list.Clear();
  list.set_array("jobs/4");  // any job of an array identifies it
  EXPECT_THAT(Names(List(list)), ElementsAre("jobs/4", "jobs/3"));
  list.set_array("jobs/1");
  EXPECT_EQ(List(list).jobs_size(), 0);
}

TEST_F(ArraysTest, ManyJobsAreCancelledAtOnceAndErrorsAreToldOneByOne) {
  for (int i = 0; i < 3; ++i) CreateJob("job");
  v1::CancelJobsRequest request;
  for (const char* name : {"jobs/1", "jobs/3", "jobs/9"}) request.add_names(name);
  const auto response = Cancel(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->cancelled(), 2);
  EXPECT_EQ(response->failed(), 1);
  ASSERT_EQ(response->errors_size(), 1);
  EXPECT_EQ(response->errors(0).name(), "jobs/9");
  EXPECT_EQ(response->errors(0).error().code(), 5);
  EXPECT_EQ(GetJob("jobs/2").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(GetJob("jobs/3").state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(ArraysTest, AnArrayIsCancelledByAnyOfItsJobsInMoreThanOneBatch) {
  constexpr int kSize = 2 * static_cast<int>(kCancelBatch) + 1;
  CreateJob("stays");
  ASSERT_TRUE(Create(Request("sweep", kSize)).ok());
  CreateJob("stays");
  Register();
  Sync({});  // placed: the job that stays, and one of the array
  v1::CancelJobsRequest request;
  request.set_array("jobs/17");
  const auto response = Cancel(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->cancelled() + response->stopping(), kSize);
  EXPECT_GT(response->stopping(), 0);
  EXPECT_EQ(GetJob(absl::StrCat("jobs/", kSize + 2)).state(), v1::JOB_STATE_QUEUED);
}

TEST_F(ArraysTest, TheQueueOfAUserIsCancelled) {
  ASSERT_TRUE(Create(Request("mine"), "anna").ok());
  ASSERT_TRUE(Create(Request("hers"), "berta").ok());
  v1::CancelJobsRequest request;
  request.set_user("");  // the caller: anna
  request.add_states(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Cancel(request)->cancelled(), 1);
  EXPECT_EQ(GetJob("jobs/2").state(), v1::JOB_STATE_QUEUED);
  request.set_user("berta");
  request.clear_states();
  request.add_states(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Cancel(request)->cancelled(), 0);
}

TEST_F(ArraysTest, CancelJobsNeedsToKnowWhich) {
  v1::CancelJobsRequest request;
  EXPECT_THAT(Fields(Cancel(request).status()), ElementsAre("names"));
  request.add_names("jobs/1");
  request.set_array("jobs/1");
  request.set_reason(std::string(kReasonBytesMax + 1, 'x'));
  EXPECT_THAT(Fields(Cancel(request).status()), UnorderedElementsAre("names", "reason"));
  request.Clear();
  request.set_array("jobs/1");
  EXPECT_EQ(Cancel(request).status().code(), absl::StatusCode::kNotFound);
  CreateJob("alone");
  EXPECT_THAT(Fields(Cancel(request).status()), ElementsAre("array"));
}

TEST_F(ArraysTest, TheFrontOfTheQueueComesInItsOrder) {
  for (int i = 0; i < 3; ++i) CreateJob("job");
  v1::CreateJobRequest urgent = Request("urgent");
  urgent.mutable_spec()->set_priority(5);
  ASSERT_TRUE(Create(urgent).ok());
  v1::ListQueueRequest request;
  request.set_page_size(2);
  v1::ListQueueResponse response;
  ASSERT_TRUE(jobs_->ListQueue(Context().get(), request, &response).ok());
  ASSERT_EQ(response.jobs_size(), 2);
  EXPECT_EQ(response.jobs(0).name(), "jobs/4");
  EXPECT_EQ(response.jobs(1).name(), "jobs/1");
  EXPECT_EQ(response.queued_jobs(), 4);
  request.set_page_size(-1);
  EXPECT_THAT(Fields(FromGrpcStatus(jobs_->ListQueue(Context().get(), request, &response))),
              ElementsAre("page_size"));
}

TEST_F(ArraysTest, AHeldJobShowsItsFailure) {
  CreateJob("fine");
  v1::SuspendJobRequest request;
  request.set_name("jobs/1");
  v1::Job job;
  ASSERT_TRUE(jobs_->SuspendJob(Context().get(), request, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUSPENDED);
  EXPECT_FALSE(job.has_failure());  // a suspension on request is no failure
}

}  // namespace
}  // namespace trainyard::rpc
