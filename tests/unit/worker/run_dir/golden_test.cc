// Tests the bytes of every file of the run directory, and the examples of its document.
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/unit/worker/run_dir/test_support.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/metrics.h"
#include "worker/run_dir/records.h"

namespace trainyard::run_dir {
namespace {

TEST(RunDirGolden, AssignmentIsWrittenByteForByte) {
  const std::string golden = GoldenText("assignment.json");
  const auto assignment = DecodeAssignment(golden, "assignment.json");
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  EXPECT_EQ(assignment->job, 12);
  EXPECT_EQ(assignment->fencing_token, 3);
  EXPECT_EQ(assignment->world_size, 2);
  ASSERT_EQ(assignment->ranks.size(), 2U);
  EXPECT_EQ(assignment->ranks[0].cpus, std::vector<int64_t>{0});
  EXPECT_EQ(assignment->ranks[0].host_memory_bytes, int64_t{8} << 30);
  EXPECT_EQ(assignment->ranks[1].threads, 2);
  EXPECT_EQ(assignment->ranks[1].host_memory_bytes, 0) << "it has no limit";
  EXPECT_EQ(assignment->resume_from, "checkpoints/step-312");
  EXPECT_EQ(assignment->worker, "alpha");
  EXPECT_EQ(EncodeAssignment(*assignment).value(), golden);
}

TEST(RunDirGolden, ProgressIsWrittenByteForByte) {
  Progress progress;
  progress.state = Progress::State::kRunning;
  progress.step = 120;
  progress.total_steps = 936;
  progress.epochs = 3;
  progress.steps_per_epoch = 312;
  progress.samples_per_s = 5400;
  progress.data_wait_fraction = 0.01;
  progress.rss_bytes = 104857600;
  progress.planned_bytes = 52428800;
  progress.checkpoint_request = 2;
  progress.last_checkpoint_step = 100;
  progress.hosting = {{.rank = 0, .first_replica = 0, .replicas = 6, .samples_per_s = 4050},
                      {.rank = 1, .first_replica = 6, .replicas = 2, .samples_per_s = 1350}};
  progress.hosting_reason = "speeds of steps 3 to 10";
  progress.fallbacks = 2;
  progress.first_fallback = "conv1 conv2d: cuDNN has no plan";
  progress.disk_full =
      "metrics wait: no space left on the file system of 'metrics.jsonl'; free some and try again";
  progress.data_digest = "glyphs-v1:train=20000";
  progress.model_digest = "xxh3-128:0123456789abcdef0123456789abcdef";
  progress.update_time_us = 1790000000000000;
  progress.silent_until_boottime_us = 123456000000;
  EXPECT_EQ(EncodeProgress(progress), GoldenText("progress.json"));
  EXPECT_EQ(DecodeProgress(GoldenText("progress.json"), "progress.json").value(), progress);
}

TEST(RunDirGolden, ResultIsWrittenByteForByte) {
  RankResult result;
  result.outcome = Outcome::kUserError;
  result.reason = "NAN_LOSS";
  result.message = "loss is nan at step 12";
  result.step = 11;
  result.metrics = {{"test.accuracy", 0.91}, {"train.loss", std::nan("")}};
  result.stuck_rank = 1;
  result.operation = "all_reduce";
  result.sequence = 27;
  EXPECT_EQ(EncodeRankResult(result), GoldenText("result.json"));
  const auto read = DecodeRankResult(GoldenText("result.json"), "result.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(EncodeRankResult(*read), GoldenText("result.json"));
}

TEST(RunDirGolden, ExitsAreWrittenByteForByte) {
  const RankExit killed{.rank = 1,
                        .exit_code = 0,
                        .signal = 9,
                        .outcome = Outcome::kTransient,
                        .reason = "KILLED",
                        .message = "rank 1 was killed by signal 9",
                        .end_time_us = 1790000000000000};
  EXPECT_EQ(EncodeRankExit(killed), GoldenText("rank_exit.json"));
  EXPECT_EQ(DecodeRankExit(GoldenText("rank_exit.json"), "exit.json").value(), killed);

  const RankExit lost{.rank = 1,
                      .exit_code = 75,
                      .signal = 0,
                      .outcome = Outcome::kTransient,
                      .reason = "PEER_LOST",
                      .message = "rank 1 lost its peers",
                      .end_time_us = 1790000000000000};
  const AttemptExit attempt{.exit_code = 75,
                            .signal = 0,
                            .outcome = Outcome::kTransient,
                            .reason = "PEER_LOST",
                            .message = "rank 1 lost its peers",
                            .end_time_us = 1790000000000001,
                            .failed_rank = 1,
                            .ranks = {lost}};
  EXPECT_EQ(EncodeAttemptExit(attempt), GoldenText("exit.json"));
  EXPECT_EQ(DecodeAttemptExit(GoldenText("exit.json"), "exit.json").value(), attempt);
}

TEST(RunDirGolden, SupervisorRecordIsWrittenByteForByte) {
  const SupervisorRecord record{.pid = 4711,
                                .start_ticks = 123456,
                                .process_group = 4712,
                                .boot_id = "0b5f3c3e-7d43-4c0f-9a83-5f4c9f0d6c11",
                                .ranks = {{.rank = 0, .pid = 4712, .start_ticks = 123460}}};
  EXPECT_EQ(EncodeSupervisorRecord(record), GoldenText("supervisor.json"));
  EXPECT_EQ(DecodeSupervisorRecord(GoldenText("supervisor.json"), "supervisor.json").value(),
            record);
}

TEST(RunDirGolden, MetricLinesAreWrittenByteForByte) {
  std::string text;
  AppendMetricLine({12, "train.loss", 1.7, 1790000000000000}, text);
  AppendMetricLine({13, "train.loss", std::nan(""), 1790000000000001}, text);
  AppendMetricLine({13, "samples_per_s", 5400, 1790000000000002}, text);
  AppendMetricLine({14, "lr", 1e-5, 1790000000000003}, text);
  EXPECT_EQ(text, GoldenText("metrics.jsonl"));
}

TEST(RunDirGolden, LeaseAndStopRequestAreWrittenByteForByte) {
  EXPECT_EQ(EncodeLease({absl::Microseconds(123456789)}), GoldenText("lease"));
  EXPECT_EQ(EncodeStopRequest({"cancelled", absl::Seconds(10)}), GoldenText("control_stop"));
}

TEST(RunDirGolden, ACheckpointRequestIsRead) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  ASSERT_TRUE(MakeDirectories(dir.ControlDir()).ok());
  ASSERT_TRUE(ReplaceFile(dir.CheckpointRequestPath(), GoldenText("control_checkpoint")).ok());
  EXPECT_EQ(ReadCheckpointRequest(dir).value(), 3);
}

// The text between the fences of the first ```json block after `heading`.
std::string DocumentExample(const std::string& heading) {
  const auto document = ReadFile(testing::SourcePath("docs/run_directory.md"));
  TY_CHECK_OK(document.status());
  const size_t at = document->find("\n## " + heading);
  TY_CHECK(at != std::string::npos);
  const size_t begin = document->find("```json\n", at) + 8;
  return document->substr(begin, document->find("```", begin) - begin);
}

TEST(RunDirGolden, ExamplesOfTheDocumentAreRead) {
  const auto assignment = DecodeAssignment(DocumentExample("assignment.json"), "document");
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  EXPECT_EQ(assignment->job, 12);
  EXPECT_EQ(assignment->ranks.size(), 2U);
  const auto point = DecodeMetricLine(DocumentExample("ranks/<r>/metrics.jsonl"), "document");
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->value, 1.7);
  const auto progress = DecodeProgress(DocumentExample("ranks/<r>/progress.json"), "document");
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->total_steps, 936);
  ASSERT_EQ(progress->hosting.size(), 2U);
  EXPECT_EQ(progress->hosting[1].first_replica, 6);
  const auto result = DecodeRankResult(DocumentExample("ranks/<r>/result.json"), "document");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->metrics.at("test.loss"), 0.25);
  const auto exit = DecodeRankExit(DocumentExample("ranks/<r>/exit.json"), "document");
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(exit->outcome, Outcome::kSucceeded);
  const auto record = DecodeSupervisorRecord(DocumentExample("supervisor.json"), "document");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->ranks.size(), 2U);
}

}  // namespace
}  // namespace trainyard::run_dir
