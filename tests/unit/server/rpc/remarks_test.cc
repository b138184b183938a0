// Tests notes, tags, second runs of jobs, and lineages.
#include <gmock/gmock.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "tests/unit/server/rpc/checkpoint_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RemarksTest : public RpcTest {
 protected:
  absl::StatusOr<v1::Job> Annotate(const v1::AnnotateJobRequest& request,
                                   const std::string& user = "anna") {
    v1::Job job;
    const grpc::Status status = jobs_->AnnotateJob(Context(user).get(), request, &job);
    if (!status.ok()) return FromGrpcStatus(status);
    return job;
  }
  absl::StatusOr<v1::Job> Clone(const v1::CloneJobRequest& request) {
    v1::CloneJobResponse response;
    const grpc::Status status = jobs_->CloneJob(Context().get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.job();
  }
  static v1::CloneJobRequest SecondRunOf(const std::string& job) {
    v1::CloneJobRequest request;
    request.set_name(job);
    request.set_verifies(true);
    return request;
  }
  std::vector<v1::Verification> Verifications(const std::string& job) {
    v1::ListVerificationsRequest request;
    request.set_name(job);
    v1::ListVerificationsResponse response;
    const grpc::Status status = jobs_->ListVerifications(Context().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.verifications().begin(), response.verifications().end()};
  }
  // Lets the only queued job run with these steps of its loss, and succeed.
  void RunToEnd(const std::vector<int64_t>& steps) {
    const v1::DesiredAttempt attempt = StartRunning();
    ASSERT_TRUE(AppendMetrics(attempt, 0, steps).ok());
    Succeed(attempt);
    Sync({});  // the worker has removed it
  }
  void Delete(const std::string& job) {
    v1::DeleteJobRequest request;
    request.set_name(job);
    v1::DeleteJobResponse response;
    const grpc::Status status = jobs_->DeleteJob(Context().get(), request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  v1::Lineage Lineage(const std::string& job, int max_jobs = 0) {
    v1::GetLineageRequest request;
    request.set_name(job);
    request.set_max_jobs(max_jobs);
    v1::Lineage lineage;
    const grpc::Status status = jobs_->GetLineage(Context().get(), request, &lineage);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return lineage;
  }
  static std::vector<std::string> NamesIn(const v1::Lineage& lineage) {
    std::vector<std::string> names;
    for (const v1::LineageNode& node : lineage.nodes()) names.push_back(node.name());
    return names;
  }
};

TEST_F(RemarksTest, NotesAndTagsAreAddedAndTaken) {
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("a");
  create.mutable_spec()->add_tags("paper");
  v1::Job job;
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), create, &job).ok());
  v1::AnnotateJobRequest request;
  request.set_name("jobs/1");
  request.set_note("looks good");
  request.add_add_tags("good");
  request.add_add_tags("paper");
  const auto noted = Annotate(request);
  ASSERT_TRUE(noted.ok()) << noted.status();
  EXPECT_EQ(noted->note(), "looks good");
  EXPECT_THAT(noted->added_tags(), ElementsAre("good")) << "the spec has the other one";
  request.Clear();
  request.set_name("jobs/1");
  request.add_add_tags("bad");
  request.add_remove_tags("good");
  ASSERT_TRUE(Annotate(request).ok());
  EXPECT_EQ(GetJob("jobs/1").note(), "looks good") << "it was not given, and stays";
  EXPECT_THAT(GetJob("jobs/1").added_tags(), ElementsAre("bad"));
  CreateJob("b");
  v1::ListJobsRequest list;
  list.add_tags("bad");
  list.add_tags("paper");
  v1::ListJobsResponse listed;
  ASSERT_TRUE(jobs_->ListJobs(Context().get(), list, &listed).ok());
  ASSERT_EQ(listed.jobs_size(), 1);
  EXPECT_EQ(listed.jobs(0).note(), "looks good");
  request.Clear();
  request.set_name("jobs/1");
  request.set_note("");
  ASSERT_TRUE(Annotate(request).ok());
  EXPECT_EQ(GetJob("jobs/1").note(), "");
}

TEST_F(RemarksTest, MistakesInRemarksAreReportedTogether) {
  CreateJob("a");
  v1::AnnotateJobRequest request;
  request.set_name("jobs/1");
  request.set_note(std::string(5000, 'x'));
  request.add_add_tags("fine");
  request.add_add_tags("not fine");
  const auto violations = GetFieldViolations(Annotate(request).status());
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "note");
  EXPECT_EQ(violations[1].field, "add_tags[1]");
  request.Clear();
  request.set_name("jobs/1");
  for (int i = 0; i < 20; ++i) request.add_add_tags(absl::StrCat("t", i));
  ASSERT_TRUE(Annotate(request).ok());
  request.clear_add_tags();
  request.add_add_tags("one-more");
  EXPECT_THAT(std::string(Annotate(request).status().message()), HasSubstr("expected at most 20"));
  request.add_remove_tags("t7");
  EXPECT_TRUE(Annotate(request).ok()) << "one goes for one that comes";
  request.set_name("jobs/9");
  EXPECT_EQ(Annotate(request).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RemarksTest, ASecondRunIsComparedAndTheResultOutlivesIt) {
  Register();
  CreateJob("a");
  RunToEnd({1, 2, 3});
  const auto second = Clone(SecondRunOf("jobs/1"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->provenance().verifies(), "jobs/1");
  EXPECT_EQ(second->provenance().tolerance(), 0.01);
  auto results = Verifications("jobs/1");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].result(), v1::VERIFICATION_RESULT_PENDING);
  EXPECT_FALSE(GetJob("jobs/1").has_verified());
  RunToEnd({1, 2, 3});
  // Nobody has asked for the result, and yet it is kept when the run is deleted.
  Delete("jobs/2");
  results = Verifications("jobs/1");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].result(), v1::VERIFICATION_RESULT_IDENTICAL) << results[0].DebugString();
  EXPECT_EQ(results[0].job(), "jobs/2");
  EXPECT_EQ(results[0].devices(), "1 x cpu");
  EXPECT_EQ(results[0].user(), "anna");
  const v1::VerificationSummary summary = GetJob("jobs/1").verified();
  EXPECT_EQ(summary.runs(), 1);
  EXPECT_EQ(summary.reproduced(), 1);
  EXPECT_EQ(summary.last_devices(), "1 x cpu");
  // With the job itself, everything about it goes; the app does so after the commit.
  Delete("jobs/1");
  ASSERT_TRUE(remarks_->Forget(JobId{1}).ok());
  EXPECT_THAT(remarks_->ListJobs(), IsEmpty());
}

TEST_F(RemarksTest, ARunThatDiffersSaysSo) {
  Register();
  CreateJob("a");
  RunToEnd({1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(Clone(SecondRunOf("jobs/1")).ok());
  RunToEnd({1, 2, 3});
  auto results = Verifications("jobs/1");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].result(), v1::VERIFICATION_RESULT_DIFFERENT);
  EXPECT_THAT(absl::StrJoin(results[0].reasons(), "\n"),
              HasSubstr("the last values are of step 6 in jobs/1 and of step 3 in jobs/2"));
  EXPECT_EQ(GetJob("jobs/1").verified().reproduced(), 0);
}

TEST_F(RemarksTest, TheMetricsOfTheFirstRunMayGoOnceTheSecondWasCompared) {
  Register();
  CreateJob("a");
  RunToEnd({1, 2, 3});
  ASSERT_TRUE(Clone(SecondRunOf("jobs/1")).ok());
  RunToEnd({1, 2, 3});
  v1::DeleteJobDataRequest request;
  request.set_name("jobs/1");
  request.add_parts(v1::JOB_PART_METRICS);
  v1::DeleteJobResponse response;
  ASSERT_TRUE(jobs_->DeleteJobData(Context().get(), request, &response).ok());
  ASSERT_TRUE(metrics_.DeleteJob(JobId{1}).ok());
  const auto results = Verifications("jobs/1");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].result(), v1::VERIFICATION_RESULT_IDENTICAL);
  EXPECT_EQ(results[0].metrics(0).points(), 3);
}

TEST_F(RemarksTest, OnlyTheDevicesOfASecondRunMayDiffer) {
  Register();
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("a");
  create.mutable_spec()->mutable_train()->set_replicas(2);
  v1::Job made;
  ASSERT_TRUE(jobs_->CreateJob(Context().get(), create, &made).ok());
  v1::CloneJobRequest request = SecondRunOf("jobs/1");
  EXPECT_EQ(ErrorReason(Clone(request).status()), "JOB_STATE_CONFLICT") << "it has not ended";
  RunToEnd({1});
  const auto refused = [&](const v1::CloneJobRequest& asked) {
    const auto violations = GetFieldViolations(Clone(asked).status());
    return violations.size() == 1 ? violations[0].field : "";
  };
  request.add_changes()->set_path("optimizer.sgd.lr");
  request.mutable_changes(0)->set_value_json("0.5");
  EXPECT_EQ(refused(request), "changes[0]");
  request = SecondRunOf("jobs/1");
  request.set_from_checkpoint("jobs/1/checkpoints/600");
  EXPECT_EQ(Clone(request).status().code(), absl::StatusCode::kNotFound);
  request = SecondRunOf("jobs/1");
  request.mutable_options()->set_array_size(2);
  EXPECT_EQ(refused(request), "options.array_size");
  request = SecondRunOf("jobs/1");
  request.set_tolerance(-1);
  EXPECT_EQ(refused(request), "tolerance");
  request.set_verifies(false);
  request.set_tolerance(0.5);
  EXPECT_EQ(refused(request), "tolerance");
  request = SecondRunOf("jobs/1");
  request.set_tolerance(0.25);
  request.add_changes()->set_path("devices.count");
  request.mutable_changes(0)->set_value_json("2");
  const auto clone = Clone(request);
  ASSERT_TRUE(clone.ok()) << clone.status();
  EXPECT_EQ(clone->provenance().tolerance(), 0.25);
  EXPECT_EQ(clone->resolved_spec().devices().count(), 2);
}

TEST_F(RemarksTest, LineageHasAncestorsAndDescendants) {
  Register();
  CreateJob("a");
  RunToEnd({1});
  ASSERT_TRUE(Clone(SecondRunOf("jobs/1")).ok());
  v1::CloneJobRequest clone;
  clone.set_name("jobs/2");
  ASSERT_TRUE(Clone(clone).ok());
  CreateJob("stranger");
  const v1::Lineage lineage = Lineage("jobs/2");
  EXPECT_THAT(NamesIn(lineage), ElementsAre("jobs/1", "jobs/2", "jobs/3"));
  EXPECT_FALSE(lineage.is_cut());
  EXPECT_EQ(lineage.nodes(0).title(), "a");
  EXPECT_EQ(lineage.nodes(0).user(), "anna");
  EXPECT_EQ(lineage.nodes(0).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(lineage.nodes(0).links(), IsEmpty());
  ASSERT_EQ(lineage.nodes(1).links_size(), 1);
  EXPECT_EQ(lineage.nodes(1).links(0).kind(), v1::LINEAGE_KIND_VERIFICATION);
  EXPECT_EQ(lineage.nodes(1).links(0).parent(), "jobs/1");
  ASSERT_EQ(lineage.nodes(2).links_size(), 1);
  EXPECT_EQ(lineage.nodes(2).links(0).kind(), v1::LINEAGE_KIND_CLONE);
  EXPECT_THAT(NamesIn(Lineage("jobs/4")), ElementsAre("jobs/4"));
  const v1::Lineage cut = Lineage("jobs/1", 2);
  EXPECT_THAT(NamesIn(cut), ElementsAre("jobs/1", "jobs/2"));
  EXPECT_TRUE(cut.is_cut());
  Delete("jobs/1");
  const v1::Lineage later = Lineage("jobs/2");
  EXPECT_THAT(NamesIn(later), ElementsAre("jobs/1", "jobs/2", "jobs/3"));
  EXPECT_EQ(later.nodes(0).state(), v1::JOB_STATE_UNSPECIFIED) << "only its name is left";
}

TEST_F(RemarksTest, JobsAreFoundByWhatIsTrueOfThem) {
  v1::CreateJobRequest create;
  for (const double lr : {0.1, 0.2, 0.3}) {
    *create.mutable_spec() = Spec(absl::StrCat("lr-", lr));
    create.mutable_spec()->mutable_optimizer()->mutable_sgd()->set_lr(lr);
    v1::Job job;
    ASSERT_TRUE(jobs_->CreateJob(Context().get(), create, &job).ok());
  }
  v1::AnnotateJobRequest note;
  note.set_name("jobs/2");
  note.set_note("the middle one");
  ASSERT_TRUE(Annotate(note).ok());
  const auto found = [&](const std::string& where, const std::string& order = "") {
    v1::ListJobsRequest request;
    request.set_where(where);
    request.set_order_by(order);
    v1::ListJobsResponse response;
    const grpc::Status status = jobs_->ListJobs(Context().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<std::string> names;
    for (const v1::Job& job : response.jobs()) names.push_back(job.name().substr(5));
    return absl::StrJoin(names, " ");
  };
  EXPECT_EQ(found("optimizer.sgd.lr > 0.1"), "3 2");
  EXPECT_EQ(found("lr > 0.1 and lr < 0.3"), "2");
  EXPECT_EQ(found("name ~ LR-0.3 or note ~ middle"), "3 2");
  EXPECT_EQ(found("note"), "2");
  EXPECT_EQ(found("not note"), "3 1");
  EXPECT_EQ(found("model = mlp and dataset = glyphs and user = anna and state = queued"), "3 2 1");
  EXPECT_EQ(found("devices = 1 and attempts >= 0 and age < 1h and created > 2020-01-01"), "3 2 1");
  EXPECT_EQ(found("test.accuracy > 0"), "");
  EXPECT_EQ(found("train.epochs = 2 and train.loss"), "");
  EXPECT_EQ(found("duration > 1s"), "");
  EXPECT_EQ(found("", "lr"), "1 2 3");
  EXPECT_EQ(found("", "optimizer.sgd.lr desc"), "3 2 1");
  EXPECT_EQ(found("id != 3", "name desc"), "2 1");
  EXPECT_EQ(found("", "test.accuracy"), "3 2 1") << "all are missing, so the newest is first";
}

TEST_F(RemarksTest, AnOrderComesPageByPage) {
  for (int i = 0; i < 5; ++i) CreateJob(absl::StrCat("j", (i * 3) % 5));
  v1::ListJobsRequest request;
  request.set_order_by("name");
  request.set_page_size(2);
  request.set_count_more(true);
  std::vector<std::string> names;
  std::vector<int64_t> more;
  do {
    v1::ListJobsResponse response;
    ASSERT_TRUE(jobs_->ListJobs(Context().get(), request, &response).ok());
    for (const v1::Job& job : response.jobs()) names.push_back(job.resolved_spec().name());
    more.push_back(response.more_jobs());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names, ElementsAre("j0", "j1", "j2", "j3", "j4"));
  EXPECT_THAT(more, ElementsAre(3, 1, 0));
}

TEST_F(RemarksTest, MistakesInAFilterHaveTheirPlace) {
  v1::ListJobsRequest request;
  const auto violations = [&] {
    v1::ListJobsResponse response;
    return GetFieldViolations(FromGrpcStatus(jobs_->ListJobs(Context().get(), request, &response)));
  };
  request.set_where("usr = anna");
  request.set_order_by("optimizer.sgd.lrr");
  const auto both = violations();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].field, "where");
  EXPECT_EQ(both[0].description,
            "character 1: found 'usr', expected a field; did you mean 'user'?");
  EXPECT_EQ(both[1].field, "order_by");
  EXPECT_THAT(both[1].description, HasSubstr("did you mean 'optimizer.sgd.lr'?"));
  request.clear_order_by();
  request.set_where("state = finished");
  EXPECT_THAT(violations()[0].description, HasSubstr("expected queued, starting, running"));
  request.set_where("train.precision = double");
  EXPECT_THAT(violations()[0].description, HasSubstr("bf16"));
}

}  // namespace
}  // namespace trainyard::rpc
