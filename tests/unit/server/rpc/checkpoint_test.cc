#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "absl/synchronization/blocking_counter.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "server/rpc/checkpoint_evaluation.h"
#include "tests/unit/server/rpc/checkpoint_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST_F(CheckpointTest, IsUploadedCommittedAndDownloadedByOffset) {
  // The file has more than one chunk of a download.
  std::string content;
  for (int i = 0; i < 100'000; ++i) content += std::to_string(i);
  const auto file = File("model.safetensors", content);
  EXPECT_EQ(*Append(file, 0, ""), 0);
  EXPECT_EQ(*Append(file, 0, content.substr(0, 200'000)), 200'000);
  EXPECT_EQ(*Append(file, 200'000, content.substr(200'000)), file.size());
  const auto checkpoint = Commit({file});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->name(), "jobs/1/checkpoints/600");
  EXPECT_EQ(checkpoint->attempt(), 1);
  EXPECT_EQ(*Download("model.safetensors", 0), content);
  EXPECT_EQ(*Download("model.safetensors", 300'000), content.substr(300'000));
  EXPECT_EQ(*Download("model.safetensors", file.size()), "");
  EXPECT_EQ(GetJob("jobs/1").progress().checkpoint_step(), 600);
}

TEST_F(CheckpointTest, ShowsTheNewestEvaluationAtOrBeforeItsStep) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  EXPECT_THAT(ListedMetrics(), ElementsAre(IsEmpty()));
  // This point came after the checkpoint. Points that are no evaluation are not shown.
  AppendPoint(300, "test.accuracy", 0.5);
  AppendPoint(600, "train.loss", 0.1);
  EXPECT_THAT(ListedMetrics(), ElementsAre(ElementsAre(Pair("test.accuracy", 0.5))));
  AppendPoint(600, "test.accuracy", 0.75);
  AppendPoint(600, "test.loss", 1.5);
  AppendPoint(601, "test.accuracy", 0.9);
  const auto metrics = ElementsAre(Pair("test.accuracy", 0.75), Pair("test.loss", 1.5));
  EXPECT_THAT(ListedMetrics(), ElementsAre(metrics));
  v1::GetCheckpointRequest request;
  request.set_name("jobs/1/checkpoints/600");
  v1::Checkpoint checkpoint;
  ASSERT_TRUE(checkpoints_->GetCheckpoint(Context().get(), request, &checkpoint).ok());
  EXPECT_EQ(checkpoint.files_size(), 1);
  EXPECT_THAT(MetricsOf(checkpoint), metrics);
}

TEST_F(CheckpointTest, ShowsNoEvaluationThatIsOnlyLater) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  AppendPoint(601, "test.accuracy", 0.9);
  EXPECT_THAT(ListedMetrics(), ElementsAre(IsEmpty()));
}

TEST_F(CheckpointTest, TheBestIsKnownByWhatTheCheckpointSaysOfItself) {
  const std::string state =
      R"({"step": 600, "evaluation": {"metrics": {"test.accuracy": 0.75, "test.loss": 1.5}}})";
  const auto file = File("state.json", state);
  ASSERT_TRUE(Append(file, 0, state).ok());
  ASSERT_TRUE(Commit({file}).ok());
  v1::GetCheckpointRequest request;
  request.set_name("jobs/1/checkpoints/600");
  v1::Checkpoint checkpoint;
  ASSERT_TRUE(checkpoints_->GetCheckpoint(Context().get(), request, &checkpoint).ok());
  EXPECT_TRUE(checkpoint.is_best());
  EXPECT_THAT(MetricsOf(checkpoint), IsEmpty()) << "no point has come yet";
}

TEST_F(CheckpointTest, OneThatWasNotEvaluatedIsNotTheBest) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  v1::GetCheckpointRequest request;
  request.set_name("jobs/1/checkpoints/600");
  v1::Checkpoint checkpoint;
  ASSERT_TRUE(checkpoints_->GetCheckpoint(Context().get(), request, &checkpoint).ok());
  EXPECT_FALSE(checkpoint.is_best());
}

TEST(ParseEvaluation, TakesFiniteNumbersOnly) {
  const auto parse = [](const std::string& metrics) {
    return ParseEvaluation("{\"evaluation\": {\"metrics\": " + metrics + "}}");
  };
  EXPECT_EQ(parse(R"({"test.accuracy": 1, "test.loss": 0.5, "test.top5": 1})"),
            (core::CheckpointEvaluation{.loss = 0.5, .accuracy = 1}));
  for (const char* metrics :
       {"{}", "7", R"({"test.accuracy": 1})", R"({"test.accuracy": 1, "test.loss": "nan"})",
        R"({"test.accuracy": null, "test.loss": 1})"}) {
    EXPECT_EQ(parse(metrics), std::nullopt) << metrics;
  }
  for (const char* text : {"", "{", "[]", "{}", R"({"evaluation": 1})"}) {
    EXPECT_EQ(ParseEvaluation(text), std::nullopt) << text;
  }
}

TEST_F(CheckpointTest, ACommitSentAgainIsFine) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  const auto again = Commit({file});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->step(), 600);
}

TEST_F(CheckpointTest, IsInvisibleUntilAllIsThereAndRight) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{").ok());
  EXPECT_EQ(ErrorReason(Commit({file}).status()), "OFFSET_MISMATCH");
  ASSERT_TRUE(Append(file, 1, "!").ok());
  EXPECT_EQ(ErrorReason(Commit({file}).status()), "CORRUPT_FILE");
  EXPECT_EQ(Download("state.json", 0).status().code(), absl::StatusCode::kNotFound);
  v1::ListCheckpointsRequest request;
  request.set_parent("jobs/1");
  v1::ListCheckpointsResponse response;
  ASSERT_TRUE(checkpoints_->ListCheckpoints(Context().get(), request, &response).ok());
  EXPECT_EQ(response.checkpoints_size(), 0);
}

TEST_F(CheckpointTest, AStaleTokenIsRefused) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  attempt_.set_fencing_token(attempt_.fencing_token() - 1);
  EXPECT_EQ(ErrorReason(Append(file, 0, "{}").status()), "STALE_FENCING_TOKEN");
  EXPECT_EQ(ErrorReason(Commit({file}).status()), "STALE_FENCING_TOKEN");
}

TEST_F(CheckpointTest, FaultsOfTheRequestAreNamed) {
  auto file = File("../../etc/passwd", "{}");
  file.set_hash("md5:1");
  const auto violations = GetFieldViolations(Append(file, 0, "{}").status());
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "file.name");
  EXPECT_EQ(violations[1].field, "file.hash");
  EXPECT_EQ(GetFieldViolations(Commit({}).status()).at(0).field, "files");
  for (const char* name : {".", "..", ".hidden", "MANIFEST"}) {
    const auto refused = GetFieldViolations(Append(File(name, "{}"), 0, "{}").status());
    ASSERT_EQ(refused.size(), 1u) << name;
    EXPECT_EQ(refused[0].field, "file.name") << name;
  }
}

TEST_F(CheckpointTest, DamageIsFoundByTheServerItselfAndShown) {
  EXPECT_EQ(Verify().status().code(), absl::StatusCode::kNotFound);
  const auto file = File("model.safetensors", "weights");
  ASSERT_TRUE(Append(file, 0, "weights").ok());
  ASSERT_TRUE(Commit({file}).ok());
  EXPECT_EQ(Verify(/*as_worker=*/true)->damage(), "") << "a claim alone changes nothing";
  Damage(file, "wEights");
  EXPECT_EQ(board_.FindCheckpoint({JobId{1}, 600})->damage, "");
  const auto damaged = Verify(/*as_worker=*/true);
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  EXPECT_THAT(damaged->damage(), HasSubstr("model.safetensors has the hash"));
  v1::GetCheckpointRequest request;
  request.set_name("jobs/1/checkpoints/600");
  v1::Checkpoint shown;
  ASSERT_TRUE(checkpoints_->GetCheckpoint(Context().get(), request, &shown).ok());
  EXPECT_EQ(shown.damage(), damaged->damage());
  EXPECT_EQ(GetJob("jobs/1").progress().checkpoint_step(), 0) << "there is no whole one";
  Damage(file, "weights");
  EXPECT_EQ(Verify()->damage(), "") << "a backup was restored";
}

TEST_F(CheckpointTest, ABlobThatIsMissingIsDamage) {
  const auto file = File("model.safetensors", "weights");
  ASSERT_TRUE(Append(file, 0, "weights").ok());
  ASSERT_TRUE(Commit({file}).ok());
  Damage(file, "");
  EXPECT_EQ(ErrorReason(Download("model.safetensors", 0).status()), "CORRUPT_FILE");
  EXPECT_EQ(Verify()->damage(), "model.safetensors is missing");
}

TEST_F(CheckpointTest, ADamagedOneIsCommittedAnewWithAllItsBytes) {
  const auto file = File("model.safetensors", "weights");
  ASSERT_TRUE(Append(file, 0, "weights").ok());
  ASSERT_TRUE(Commit({file}).ok());
  Damage(file, "wEights");
  ASSERT_NE(Verify()->damage(), "");
  EXPECT_EQ(*Append(file, 0, ""), 0) << "the damaged bytes do not count";
  EXPECT_EQ(*Append(file, 0, "weights"), 7);
  const auto again = Commit({file});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->damage(), "");
  EXPECT_EQ(*Download("model.safetensors", 0), "weights");
}

TEST_F(CheckpointTest, ARepeatedUploadHealsDamageThatNobodyHasNoticed) {
  const auto file = File("model.safetensors", "weights");
  ASSERT_TRUE(Append(file, 0, "weights").ok());
  ASSERT_TRUE(Commit({file}).ok());
  Damage(file, "wEights");
  EXPECT_EQ(*Append(file, 0, ""), 0);
  EXPECT_EQ(*Append(file, 0, "weights"), 7);
  ASSERT_TRUE(Commit({file}).ok());
  EXPECT_EQ(*Download("model.safetensors", 0), "weights");
}

TEST_F(CheckpointTest, AJobDoesNotStartFromADamagedOne) {
  const auto file = File("model.safetensors", "weights");
  ASSERT_TRUE(Append(file, 0, "weights").ok());
  ASSERT_TRUE(Commit({file}).ok());
  Damage(file, "");
  ASSERT_NE(Verify()->damage(), "");
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  request.set_from_checkpoint("jobs/1/checkpoints/600");
  v1::CloneJobResponse response;
  const auto refused = FromGrpcStatus(jobs_->CloneJob(Context().get(), request, &response));
  EXPECT_EQ(ErrorReason(refused), "CHECKPOINT_DAMAGED");
  EXPECT_THAT(refused.message(), HasSubstr("job 'jobs/1' has no whole checkpoint"));
}

TEST_F(CheckpointTest, ManyWhoAskShareTheAnswer) {
  const auto file = File("model.safetensors", "weights");
  ASSERT_TRUE(Append(file, 0, "weights").ok());
  ASSERT_TRUE(Commit({file}).ok());
  Damage(file, "wEights");
  constexpr int kAskers = 20;
  absl::BlockingCounter left(kAskers);
  std::atomic<int> right = 0;
  for (int i = 0; i < kAskers; ++i) {
    verifier_->Verify({JobId{1}, 600}, [&](const auto& record) {
      if (record.ok() && !(*record)->is_whole()) ++right;
      left.DecrementCount();
    });
  }
  left.Wait();
  EXPECT_EQ(right, kAskers);
  const auto events = store_.ListEvents("jobs/1", 0, 100);
  EXPECT_EQ(std::count_if(events->begin(), events->end(),
                          [](const auto& event) { return event.type == "CHECKPOINT_DAMAGED"; }),
            1);
}

TEST_F(CheckpointTest, DownloadsOfWhatIsNotThereAreRefused) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  EXPECT_EQ(Download("model.safetensors", 0).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Download("state.json", 3).status().code(), absl::StatusCode::kOutOfRange);
  v1::GetCheckpointRequest request;
  request.set_name("jobs/1/checkpoints/601");
  v1::Checkpoint checkpoint;
  EXPECT_EQ(checkpoints_->GetCheckpoint(Context().get(), request, &checkpoint).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(CheckpointTest, ANewJobStartsFromIt) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  request.set_from_checkpoint("jobs/1/checkpoints/600");
  v1::CloneJobResponse response;
  const auto status = jobs_->CloneJob(Context().get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.job().provenance().parent_checkpoint(), "jobs/1/checkpoints/600");
  const v1::SyncWorkerResponse desired = Sync({Observed(attempt_, v1::OBSERVED_STATE_RUNNING)});
  ASSERT_EQ(desired.attempts_size(), 2);
  EXPECT_EQ(desired.attempts(1).resume_from().files(0).hash(), file.hash());
}

TEST_F(CheckpointTest, WhatAJobContinuesStandsInItsSpecAndItsClonesContinueItToo) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  request.set_from_checkpoint("jobs/1/checkpoints/600");
  v1::CloneJobResponse response;
  ASSERT_TRUE(jobs_->CloneJob(Context().get(), request, &response).ok());
  EXPECT_EQ(response.job().resolved_spec().from_checkpoint(), "jobs/1/checkpoints/600");
  ASSERT_EQ(response.differences_size(), 1);
  EXPECT_EQ(response.differences(0).path(), "from_checkpoint");
  EXPECT_EQ(response.differences(0).right_json(), R"("jobs/1/checkpoints/600")");
  request.set_name(response.job().name());
  request.clear_from_checkpoint();
  v1::CloneJobResponse again;
  ASSERT_TRUE(jobs_->CloneJob(Context().get(), request, &again).ok());
  EXPECT_EQ(again.differences_size(), 0);
  EXPECT_EQ(again.job().provenance().parent_checkpoint(), "jobs/1/checkpoints/600");
  auto* change = request.add_changes();
  change->set_path("from_checkpoint");
  v1::CloneJobResponse anew;
  ASSERT_TRUE(jobs_->CloneJob(Context().get(), request, &anew).ok());
  EXPECT_EQ(anew.job().provenance().parent_checkpoint(), "");
}

TEST_F(CheckpointTest, ASpecNamesACheckpointInTheWordsOfTheCommandLine) {
  const auto file = File("model.safetensors", "weights");
  ASSERT_TRUE(Append(file, 0, "weights").ok());
  ASSERT_TRUE(Commit({file}).ok());
  for (const char* name : {"1", "1/last", "1/latest", "1/600", "jobs/1/checkpoints/600"}) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = Spec("next");
    request.mutable_spec()->set_from_checkpoint(name);
    v1::Job job;
    const auto status = jobs_->CreateJob(Context().get(), request, &job);
    EXPECT_TRUE(status.ok()) << name << ": " << status.error_message();
    EXPECT_EQ(job.resolved_spec().from_checkpoint(), "jobs/1/checkpoints/600") << name;
    EXPECT_EQ(job.spec().from_checkpoint(), name);
  }
  for (const auto& [name, what] : {std::pair{"1/best", "no whole checkpoint that was evaluated"},
                                   {"1/7", "jobs/1/checkpoints/7"},
                                   {"9/best", "jobs/9"}}) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = Spec("next");
    request.mutable_spec()->set_from_checkpoint(name);
    v1::Job job;
    const auto status = FromGrpcStatus(jobs_->CreateJob(Context().get(), request, &job));
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(status.message(), HasSubstr(what));
  }
}

TEST_F(CheckpointTest, AJobForWhichNothingIsLeftToTrainIsRefused) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec("short");
  request.mutable_spec()->mutable_train()->set_epochs(1);
  request.set_from_checkpoint("jobs/1/checkpoints/600");
  v1::Job job;
  auto violations =
      GetFieldViolations(FromGrpcStatus(jobs_->CreateJob(Context().get(), request, &job)));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec.train.epochs");
  EXPECT_EQ(
      violations[0].description,
      "is 1, and checkpoint 'jobs/1/checkpoints/600' is at epoch 1 (step 600 of 313): nothing "
      "is left to train; did you mean init: {job: 1/600}, which begins a new training with "
      "its weights?");
  request.mutable_spec()->mutable_train()->set_steps(600);
  violations = GetFieldViolations(FromGrpcStatus(jobs_->CreateJob(Context().get(), request, &job)));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec.train.steps");
  request.mutable_spec()->mutable_train()->set_steps(601);
  EXPECT_TRUE(jobs_->CreateJob(Context().get(), request, &job).ok());
}

TEST_F(CheckpointTest, ATrainingBeginsWithTheWeightsOfAJob) {
  const auto file = File("model.safetensors", "weights");
  ASSERT_TRUE(Append(file, 0, "weights").ok());
  ASSERT_TRUE(Commit({file}).ok());
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec("tuned");
  request.mutable_spec()->mutable_train()->set_epochs(1);
  request.mutable_spec()->mutable_init()->set_job("1/last");
  v1::Job job;
  const auto status = jobs_->CreateJob(Context().get(), request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(job.resolved_spec().init().job(), "jobs/1/checkpoints/600");
  EXPECT_EQ(job.resolved_spec().init().digest(), file.hash());
  const v1::SyncWorkerResponse desired = Sync({Observed(attempt_, v1::OBSERVED_STATE_RUNNING)});
  ASSERT_EQ(desired.attempts_size(), 2);
  EXPECT_FALSE(desired.attempts(1).has_resume_from());
  EXPECT_EQ(desired.attempts(1).init_from().name(), "jobs/1/checkpoints/600");
  EXPECT_EQ(desired.attempts(1).init_from().files(0).hash(), file.hash());

  request.mutable_spec()->mutable_init()->set_digest("xxh3-128:other");
  auto refused = FromGrpcStatus(jobs_->CreateJob(Context().get(), request, &job));
  EXPECT_EQ(GetFieldViolations(refused).at(0).field, "spec.init.digest");
  request.mutable_spec()->mutable_init()->clear_digest();
  request.set_from_checkpoint("jobs/1/checkpoints/600");
  refused = FromGrpcStatus(jobs_->CreateJob(Context().get(), request, &job));
  EXPECT_EQ(GetFieldViolations(refused).at(0).field, "spec.init");
}

TEST_F(CheckpointTest, AnotherModelCannotStartFromIt) {
  const auto file = File("state.json", "{}");
  ASSERT_TRUE(Append(file, 0, "{}").ok());
  ASSERT_TRUE(Commit({file}).ok());
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  request.set_from_checkpoint("jobs/1/checkpoints/600");
  auto* change = request.add_changes();
  change->set_path("model.mlp.hidden");
  change->set_value_json("[128]");
  v1::CloneJobResponse response;
  const auto status = FromGrpcStatus(jobs_->CloneJob(Context().get(), request, &response));
  const auto violations = GetFieldViolations(status);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec.model.mlp.hidden");
  EXPECT_EQ(violations[0].description,
            "is [128], but checkpoint 'jobs/1/checkpoints/600' has [256]");
}

}  // namespace
}  // namespace trainyard::rpc
