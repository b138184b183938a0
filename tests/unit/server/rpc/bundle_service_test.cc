// Tests that a job that ran elsewhere becomes one of this server, as far as it can be believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "common/base/bundle_errors.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/hash.h"
#include "common/tls/digest.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class BundleServiceTest : public RpcTest {
 protected:
  static google::protobuf::Timestamp At(int64_t seconds) {
    google::protobuf::Timestamp time;
    time.set_seconds(seconds);
    return time;
  }

  // A job as another server would show it.
  static v1::ImportJobRequest Elsewhere() {
    v1::ImportJobRequest request;
    request.set_request_id("bundle-1");
    v1::Job& job = *request.mutable_job();
    job.set_name("jobs/12");
    job.set_uid("uid-12");
    job.set_user("mia");
    *job.mutable_spec() = Spec("far");
    *job.mutable_resolved_spec() = Spec("far");
    job.mutable_provenance()->set_server_version("0.9");
    job.mutable_provenance()->set_worker_version("0.8");
    job.mutable_provenance()->set_data_digest("glyphs-v1:abc");
    job.mutable_provenance()->set_cloned_from("jobs/11");
    job.mutable_provenance()->set_parent_checkpoint("jobs/11/checkpoints/5");
    job.add_dependencies()->set_job("jobs/10");
    job.set_state(v1::JOB_STATE_SUCCEEDED);
    job.mutable_progress()->set_step(900);
    job.mutable_progress()->set_total_steps(900);
    *job.mutable_create_time() = At(1'500'000'000);
    *job.mutable_start_time() = At(1'500'000'010);
    *job.mutable_end_time() = At(1'500'000'110);
    (*job.mutable_final_metrics())["test.accuracy"] = 0.9;
    v1::Attempt& attempt = *request.add_attempts();
    attempt.set_name("jobs/12/attempts/2");
    attempt.set_state(v1::ATTEMPT_STATE_SUCCEEDED);
    v1::RankPlacement& rank = *attempt.add_placement();
    rank.set_worker("workers/lab-1");
    rank.set_device("cpu-0");
    *attempt.mutable_create_time() = At(1'500'000'005);
    *attempt.mutable_end_time() = At(1'500'000'110);
    v1::Event& event = *request.add_events();
    event.set_resource("jobs/12/attempts/2");
    event.set_type("ATTEMPT_SUCCEEDED");
    event.set_actor("user:root");
    event.set_message("well done");
    *event.mutable_time() = At(1'500'000'110);
    return request;
  }

  absl::StatusOr<v1::Job> Import(const v1::ImportJobRequest& request,
                                 const std::string& user = "anna") {
    v1::Job job;
    const grpc::Status status = bundles_->ImportJob(Context(user).get(), request, &job);
    if (!status.ok()) return FromGrpcStatus(status);
    return job;
  }
  // Imports the job after a change of it, and returns the fields that are wrong.
  std::vector<std::string> Mistakes(const std::function<void(v1::ImportJobRequest&)>& change) {
    v1::ImportJobRequest request = Elsewhere();
    change(request);
    std::vector<std::string> fields;
    for (const FieldViolation& violation : GetFieldViolations(Import(request).status())) {
      fields.push_back(violation.field);
    }
    return fields;
  }

  absl::StatusOr<int64_t> AppendPoints(const std::string& job, int64_t offset,
                                       const std::vector<int64_t>& steps,
                                       const std::string& user = "anna") {
    v1::AppendImportedMetricsRequest request;
    request.set_name(job);
    request.set_offset(offset);
    for (const int64_t step : steps) {
      v1::MetricPoint& point = *request.add_points();
      point.set_name("train.loss");
      point.set_step(step);
      point.set_value(1.0 / static_cast<double>(step));
      *point.mutable_time() = At(1'500'000'020);
    }
    v1::AppendImportedResponse response;
    const auto status = bundles_->AppendImportedMetrics(Context(user).get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.next_offset();
  }

  static v1::CheckpointFile File(const std::string& name, const std::string& content) {
    v1::CheckpointFile file;
    file.set_name(name);
    file.set_size(static_cast<int64_t>(content.size()));
    file.set_hash(ContentHash(content));
    return file;
  }
  absl::StatusOr<int64_t> AppendFile(const std::string& checkpoint, const v1::CheckpointFile& file,
                                     int64_t offset, const std::string& data,
                                     const std::string& user = "anna") {
    v1::AppendImportedFileRequest request;
    request.set_name(checkpoint);
    *request.mutable_file() = file;
    request.set_offset(offset);
    request.set_data(data);
    v1::AppendImportedResponse response;
    const auto status = bundles_->AppendImportedFile(Context(user).get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.next_offset();
  }
  absl::StatusOr<v1::Checkpoint> Commit(const std::string& checkpoint,
                                        const v1::CheckpointFile& file) {
    v1::CommitImportedCheckpointRequest request;
    request.set_name(checkpoint);
    *request.add_files() = file;
    *request.mutable_create_time() = At(1'500'000'100);
    (*request.mutable_metrics())["test.loss"] = 0.5;
    (*request.mutable_metrics())["test.accuracy"] = 0.9;
    v1::Checkpoint committed;
    const auto status =
        bundles_->CommitImportedCheckpoint(Context("anna").get(), request, &committed);
    if (!status.ok()) return FromGrpcStatus(status);
    return committed;
  }
  void SetQuota(int64_t stored_bytes) {
    v1::SetQuotaRequest quota;
    quota.mutable_quota()->set_subject("user:anna");
    quota.mutable_quota()->set_stored_bytes(stored_bytes);
    v1::Quota set;
    ASSERT_TRUE(sharing_->SetQuota(Context("").get(), quota, &set).ok());
  }
};

TEST_F(BundleServiceTest, AnImportedJobShowsWhatItWas) {
  CreateJob("mine");
  const auto job = Import(Elsewhere());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "jobs/2");
  EXPECT_NE(job->uid(), "uid-12") << "no two jobs have one uid";
  EXPECT_EQ(job->user(), "anna");
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  const v1::ImportOrigin& origin = job->provenance().imported();
  EXPECT_EQ(origin.job(), "jobs/12");
  EXPECT_EQ(origin.uid(), "uid-12");
  EXPECT_EQ(origin.user(), "mia");
  EXPECT_EQ(origin.create_time().seconds(), 1'500'000'000);
  EXPECT_EQ(job->provenance().worker_version(), "0.8");
  EXPECT_EQ(job->provenance().data_digest(), "glyphs-v1:abc");
  EXPECT_EQ(job->provenance().cloned_from(), "");
  EXPECT_EQ(job->provenance().parent_checkpoint(), "");
  EXPECT_THAT(job->dependencies(), IsEmpty());
  EXPECT_EQ(job->start_time().seconds(), 1'500'000'010);
  EXPECT_EQ(job->end_time().seconds(), 1'500'000'110);
  EXPECT_GT(job->create_time().seconds(), 1'500'000'110) << "it came here later";
  EXPECT_EQ(job->progress().step(), 900);
  EXPECT_EQ(job->final_metrics().at("test.accuracy"), 0.9);
  ASSERT_THAT(job->placement(), SizeIs(1));
  EXPECT_EQ(job->placement(0).worker(), "workers/lab-1");

  v1::ListEventsRequest list;
  list.set_parent("jobs/2");
  v1::ListEventsResponse events;
  ASSERT_TRUE(jobs_->ListEvents(Context().get(), list, &events).ok());
  ASSERT_THAT(events.events(), SizeIs(2));
  EXPECT_EQ(events.events(0).resource(), "jobs/2/attempts/2");
  EXPECT_EQ(events.events(0).actor(), "imported") << "nobody has acted here who has not";
  EXPECT_EQ(events.events(0).message(), "user:root: well done");
  EXPECT_EQ(events.events(0).time().seconds(), 1'500'000'110);
  EXPECT_EQ(events.events(1).type(), "JOB_IMPORTED");
  EXPECT_EQ(events.events(1).actor(), "user:anna");
}

TEST_F(BundleServiceTest, TheSameRequestMakesOneJobForEachUser) {
  EXPECT_EQ(Import(Elsewhere())->name(), "jobs/1");
  EXPECT_EQ(Import(Elsewhere())->name(), "jobs/1");
  EXPECT_EQ(Import(Elsewhere(), "bert")->name(), "jobs/2") << "he has the same file";
  v1::ImportJobRequest other = Elsewhere();
  other.mutable_job()->set_retries(2);
  EXPECT_EQ(ErrorReason(Import(other).status()), "REQUEST_ID_REUSED");
  v1::DeleteJobRequest remove;
  remove.set_name("jobs/1");
  v1::DeleteJobResponse removed;
  ASSERT_TRUE(jobs_->DeleteJob(Context().get(), remove, &removed).ok());
  EXPECT_EQ(Import(Elsewhere())->name(), "jobs/3") << "what was deleted can come again";
  EXPECT_EQ(Import(Elsewhere())->name(), "jobs/3");
}

TEST_F(BundleServiceTest, ATrialMakesNothing) {
  v1::ImportJobRequest request = Elsewhere();
  request.set_validate_only(true);
  const auto job = Import(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "");
  EXPECT_EQ(job->resolved_spec().name(), "far");
  EXPECT_EQ(CreateJob("next").name(), "jobs/1");
}

TEST_F(BundleServiceTest, AllMistakesAreToldAtOnce) {
  EXPECT_THAT(Mistakes([](auto& r) {
                r.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
                r.mutable_job()->mutable_resolved_spec()->mutable_train()->set_epochs(-1);
                r.mutable_job()->clear_end_time();
              }),
              ElementsAre("job.resolved_spec.train.epochs", "job.state", "job.end_time"));
  EXPECT_THAT(Mistakes([](auto& r) { r.mutable_job()->mutable_spec()->set_name("a b"); }),
              ElementsAre("job.spec.name"));
  EXPECT_THAT(Mistakes([](auto& r) { r.mutable_job()->clear_name(); }), ElementsAre("job.name"));
  EXPECT_THAT(Mistakes([](auto& r) {
                r.mutable_attempts(0)->set_state(v1::ATTEMPT_STATE_RUNNING);
                r.mutable_attempts(0)->mutable_placement(0)->set_worker("lab-1");
                r.mutable_attempts(0)->mutable_placement(0)->set_rank(7);
              }),
              ElementsAre("attempts[0].state", "attempts[0].placement[0].worker",
                          "attempts[0].placement[0].rank"));
  EXPECT_THAT(Mistakes([](auto& r) { *r.add_attempts() = r.attempts(0); }),
              ElementsAre("attempts[1].name"));
  EXPECT_THAT(Mistakes([](auto& r) {
                r.mutable_events(0)->set_resource("workers/lab-1");
                r.mutable_events(0)->set_type("rm -rf");
              }),
              ElementsAre("events[0].resource", "events[0].type"));
  EXPECT_THAT(Mistakes([](auto& r) {
                for (int i = 0; i < 1000; ++i) *r.add_events() = r.events(0);
              }),
              ElementsAre("events"));
  EXPECT_EQ(CreateJob("next").name(), "jobs/1") << "nothing was made";
}

TEST_F(BundleServiceTest, NothingPointsToThingsOfTheOtherServer) {
  v1::ImportJobRequest request = Elsewhere();
  for (v1::JobSpec* spec :
       {request.mutable_job()->mutable_spec(), request.mutable_job()->mutable_resolved_spec()}) {
    spec->mutable_init()->set_job("jobs/1/checkpoints/5");
    spec->mutable_notify()->set_mail("mia@lab.example");
    spec->set_from_checkpoint("jobs/1/checkpoints/5");
  }
  const auto job = Import(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->resolved_spec().has_init());
  EXPECT_FALSE(job->spec().has_notify());
  EXPECT_EQ(job->resolved_spec().from_checkpoint(), "");
  ASSERT_THAT(job->warnings(), SizeIs(2));
  EXPECT_THAT(job->warnings(1), HasSubstr("weights"));
}

TEST_F(BundleServiceTest, CodeMustBeThereFirst) {
  const std::string content = "an archive";
  v1::ImportJobRequest request = Elsewhere();
  for (v1::JobSpec* spec :
       {request.mutable_job()->mutable_spec(), request.mutable_job()->mutable_resolved_spec()}) {
    spec->Clear();
    spec->set_name("program");
    spec->mutable_program()->add_command("true");
    spec->mutable_program()->set_code(tls::Sha256Text(content));
    spec->mutable_program()->add_secrets("KEY");
  }
  request.mutable_job()->mutable_provenance()->mutable_code()->set_commit("abc");
  EXPECT_EQ(ErrorReason(Import(request).status()), error::kCodeNotFound);
  v1::UploadCodeRequest upload;
  upload.set_digest(tls::Sha256Text(content));
  upload.set_size(static_cast<int64_t>(content.size()));
  upload.set_data(content);
  v1::UploadCodeResponse uploaded;
  ASSERT_TRUE(code_calls_->UploadCode(Context("anna").get(), upload, &uploaded).ok());
  const auto job = Import(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->provenance().code().commit(), "abc");
  EXPECT_THAT(job->resolved_spec().program().secrets(), IsEmpty());
}

TEST_F(BundleServiceTest, PointsAreAppendedOnce) {
  ASSERT_TRUE(Import(Elsewhere()).ok());
  EXPECT_EQ(*AppendPoints("jobs/1", 0, {}), 0) << "it asks how many there are";
  EXPECT_EQ(*AppendPoints("jobs/1", 0, {1, 2}), 2);
  EXPECT_EQ(*AppendPoints("jobs/1", 0, {1, 2}), 2) << "a repeated call";
  const absl::Status gap = AppendPoints("jobs/1", 5, {6}).status();
  EXPECT_EQ(ErrorReason(gap), "OFFSET_MISMATCH");
  EXPECT_EQ(GetErrorMetadata(gap).at(error::kExpectedOffset), "2");
  EXPECT_EQ(*AppendPoints("jobs/1", 2, {3}), 3);
  const auto series = metrics_.Query(JobId{1}, {}, {});
  ASSERT_EQ(series->at("train.loss").size(), 3U);
  EXPECT_EQ(series->at("train.loss")[2].attempt, 2);
  EXPECT_EQ(series->at("train.loss")[2].point.time_us, int64_t{1'500'000'020} * 1'000'000);
}

TEST_F(BundleServiceTest, ACheckpointArrivesInPiecesAndIsThenOneOfTheJob) {
  ASSERT_TRUE(Import(Elsewhere()).ok());
  const std::string name = "jobs/1/checkpoints/900";
  const v1::CheckpointFile file = File("model.safetensors", "weights");
  EXPECT_EQ(*AppendFile(name, file, 0, "wei"), 3);
  EXPECT_EQ(ErrorReason(Commit(name, file).status()), "OFFSET_MISMATCH");
  EXPECT_EQ(*AppendFile(name, file, 0, ""), 3) << "an import goes on here";
  EXPECT_EQ(*AppendFile(name, file, 3, "ghts"), 7);
  const auto committed = Commit(name, file);
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(committed->step(), 900);
  EXPECT_EQ(committed->attempt(), 2);
  EXPECT_EQ(committed->create_time().seconds(), 1'500'000'100);
  EXPECT_TRUE(Commit(name, file).ok()) << "a repeated call";
  EXPECT_EQ(GetJob("jobs/1").progress().checkpoint_step(), 900);
  EXPECT_EQ(board_.FindCheckpoint({JobId{1}, 900})->evaluation->accuracy, 0.9);
  // More of them than keep.last says stay, because nobody will write newer ones.
  for (const int64_t step : {100, 200, 300, 400}) {
    const std::string other = absl::StrCat("jobs/1/checkpoints/", step);
    ASSERT_TRUE(AppendFile(other, file, 0, "weights").ok());
    ASSERT_TRUE(Commit(other, file).ok());
  }
  EXPECT_EQ(board_.CheckpointsOf(JobId{1}).size(), 5U);
  const v1::CheckpointFile wrong = File("model.safetensors", "other weights");
  const std::string damaged = "jobs/1/checkpoints/901";
  ASSERT_TRUE(AppendFile(damaged, wrong, 0, "other wEights").ok());
  EXPECT_EQ(ErrorReason(Commit(damaged, wrong).status()), "CORRUPT_FILE");
}

TEST_F(BundleServiceTest, OnlyTheOwnerAddsAndOnlyToWhatWasImported) {
  ASSERT_TRUE(Import(Elsewhere()).ok());
  CreateJob("mine");
  EXPECT_EQ(ErrorReason(AppendPoints("jobs/2", 0, {1}).status()), error::kNotImported);
  const v1::CheckpointFile file = File("a", "a");
  EXPECT_EQ(ErrorReason(AppendFile("jobs/2/checkpoints/1", file, 0, "a").status()),
            error::kNotImported);
  EXPECT_EQ(ErrorReason(Commit("jobs/2/checkpoints/1", file).status()), error::kNotImported);
  EXPECT_TRUE(absl::IsNotFound(AppendPoints("jobs/9", 0, {1}).status()));
  const auto bert = v1::BundleService::NewStub(Connect(User("bert")));
  v1::AppendImportedFileRequest append;
  append.set_name("jobs/1/checkpoints/1");
  *append.mutable_file() = file;
  v1::AppendImportedResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(ErrorReason(FromGrpcStatus(bert->AppendImportedFile(&context, append, &response))),
            "NOT_OWNER");
}

TEST_F(BundleServiceTest, AWorkerOfTheSameNameCannotWriteToIt) {
  ASSERT_TRUE(Import(Elsewhere()).ok());
  Register();
  v1::DesiredAttempt claimed;
  claimed.set_attempt("jobs/1/attempts/2");
  claimed.set_fencing_token(2);
  EXPECT_TRUE(absl::IsNotFound(AppendLog(claimed, 0, "forged").status()));
  EXPECT_THAT(Sync({}).attempts(), IsEmpty());
}

TEST_F(BundleServiceTest, AQuotaOfStorageCountsWhatIsNotCommitted) {
  SetQuota(10);
  ASSERT_TRUE(Import(Elsewhere()).ok());
  const v1::CheckpointFile file = File("a", "0123456");
  EXPECT_EQ(*AppendFile("jobs/1/checkpoints/1", file, 0, "0123456"), 7);
  EXPECT_EQ(ErrorReason(AppendFile("jobs/1/checkpoints/2", File("b", "bbbb"), 0, "bbbb").status()),
            "QUOTA_EXCEEDED");
  EXPECT_TRUE(Commit("jobs/1/checkpoints/1", file).ok());
  EXPECT_EQ(ErrorReason(AppendPoints("jobs/1", 0, {1, 2, 3}).status()), "QUOTA_EXCEEDED");
  SetQuota(7);
  v1::ImportJobRequest other = Elsewhere();
  other.set_request_id("");
  EXPECT_EQ(ErrorReason(Import(other).status()), "QUOTA_EXCEEDED");
  EXPECT_TRUE(Import(Elsewhere()).ok()) << "it is there already";
}

TEST_F(BundleServiceTest, AnImportedJobIsClonedAndContinued) {
  ASSERT_TRUE(Import(Elsewhere()).ok());
  const v1::CheckpointFile file = File("model.safetensors", "weights");
  ASSERT_TRUE(AppendFile("jobs/1/checkpoints/300", file, 0, "weights").ok());
  ASSERT_TRUE(Commit("jobs/1/checkpoints/300", file).ok());
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  request.set_from_checkpoint("jobs/1/checkpoints/300");
  v1::CloneJobResponse response;
  const auto status = jobs_->CloneJob(Context().get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::Job& clone = response.job();
  EXPECT_EQ(clone.provenance().cloned_from(), "jobs/1");
  EXPECT_EQ(clone.provenance().parent_checkpoint(), "jobs/1/checkpoints/300");
  EXPECT_FALSE(clone.provenance().has_imported());
  EXPECT_EQ(clone.resolved_spec().data().digest(), "glyphs-v1:abc");
}

}  // namespace
}  // namespace trainyard::rpc
