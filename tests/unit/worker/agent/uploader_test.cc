// Tests the uploaders against a server in this process that accepts, refuses, forgets and restarts.
#include <fcntl.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "fake_agent_service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "worker/agent/checkpoint_uploader.h"
#include "worker/agent/stream_uploader.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/metrics.h"
#include "worker/run_dir/outputs.h"

namespace trainyard::agent {
namespace {

constexpr AttemptId kId{{12}, 1};
const std::pair<std::string, int> kRank0 = {"jobs/12/attempts/1", 0};

class UploaderTest : public ::testing::Test {
 protected:
  UploaderTest() {
    target_.id = kId;
    target_.fencing_token = 7;
    target_.dir = run_dir::RunDir(JoinPath(folder_, "run"));
    target_.ranks = {0};
    TY_CHECK_OK(target_.dir.CreateRankDirectory(0));
    TY_CHECK_OK(MakeDirectories(target_.dir.CheckpointsDir()));
    StartServer();
    auto channel = rpc::MakeChannel("unix:" + Socket());
    TY_CHECK_OK(channel.status());
    stub_ = v1::AgentService::NewStub(*channel);
  }

  std::string Socket() const { return JoinPath(folder_, "s"); }
  void StartServer() {
    server_.emplace(state_, Socket());
    NewSession();
  }
  void NewSession() {
    const std::string id = absl::StrCat("session-", ++sessions_);
    {
      absl::MutexLock lock(&state_.mutex);
      state_.session = id;
    }
    session_.Set(id);
  }

  std::unique_ptr<StreamUploader> Streams() {
    auto uploader = std::make_unique<StreamUploader>(*stub_, session_, *Rng::Real(), [this] {
      absl::MutexLock lock(&state_.mutex);
      ++done_;
    });
    uploader->SetTargets({target_});
    uploader->Start();
    return uploader;
  }
  std::unique_ptr<CheckpointUploader> Checkpoints() {
    target_.checkpoints = checkpoint::ListCheckpoints(target_.dir.CheckpointsDir());
    auto uploader = std::make_unique<CheckpointUploader>(*stub_, session_, *Rng::Real(), [this] {
      absl::MutexLock lock(&state_.mutex);
      ++done_;
    });
    uploader->SetTargets({target_});
    uploader->Start();
    return uploader;
  }

  static void Append(const std::string& path, absl::string_view text) {
    auto fd = OpenFile(path, O_WRONLY | O_CREAT | O_APPEND);
    TY_CHECK_OK(fd.status());
    TY_CHECK_OK(WriteFully(fd->get(), text, path));
  }
  void Log(absl::string_view text) { Append(target_.dir.LogPath(0), text); }
  void Metrics(absl::string_view text) { Append(target_.dir.MetricsPath(0), text); }
  static std::string Line(int64_t step) {
    std::string line;
    run_dir::AppendMetricLine({step, "train.loss", 0.5 * static_cast<double>(step), 1}, line);
    return line;
  }

  bool WaitForLog(const std::string& text) {
    return state_.Wait([&] { return state_.logs[kRank0] == text; });
  }
  bool WaitForDone(StreamUploader& uploader) {
    return state_.Wait([&] { return done_ > 0; }) && uploader.ProgressOf(kId).done;
  }
  // The link loses the session while each of the next calls is answered.
  void LoseTheSessionAtEachOf(int calls) {
    absl::MutexLock lock(&state_.mutex);
    state_.on_call = [this, left = calls]() mutable {
      if (left-- > 0) session_.Set("");
    };
  }
  // Waits, and registers again whenever the session is lost.
  bool WaitWithNewSessions(const std::function<bool()>& condition) {
    return testing::WaitUntil([&] {
      if (session_.Get().empty()) NewSession();
      absl::MutexLock lock(&state_.mutex);
      return condition();
    });
  }
  std::vector<int64_t> Steps() {
    absl::MutexLock lock(&state_.mutex);
    std::vector<int64_t> steps;
    for (const v1::MetricPoint& point : state_.points[kRank0]) steps.push_back(point.step());
    return steps;
  }

  testing::TempDir temp_dir_;
  const std::string folder_ = temp_dir_.path();
  FakeServerState state_;
  std::optional<FakeAgentServer> server_;
  int sessions_ = 0;
  int done_ = 0;  // guarded by state_.mutex
  UploadTarget target_;
  Session session_;
  std::unique_ptr<v1::AgentService::Stub> stub_;
};

TEST_F(UploaderTest, SendsLogsAndMetricsAsTheyGrow) {
  auto uploader = Streams();
  Log("hello ");
  EXPECT_TRUE(WaitForLog("hello "));
  Log("world\n");
  Metrics(Line(1));
  EXPECT_TRUE(WaitForLog("hello world\n"));
  Metrics(Line(2));
  EXPECT_TRUE(state_.Wait([&] { return state_.points[kRank0].size() == 2; }));
  const v1::MetricPoint point = state_.points[kRank0][1];
  EXPECT_EQ(point.step(), 2);
  EXPECT_EQ(point.name(), "train.loss");
  EXPECT_EQ(point.value(), 1.0);
  EXPECT_EQ(point.attempt(), 1);
  EXPECT_FALSE(uploader->ProgressOf(kId).done);
  // This is recorded once the server has answered.
  EXPECT_TRUE(testing::WaitUntil([&] {
    const auto metrics = uploader->ProgressOf(kId).metrics;
    return metrics.contains("train.loss") && metrics.at("train.loss") == 1.0;
  }));
}

TEST_F(UploaderTest, TheTimelineIsAStreamOfItsOwnAndComesToItsEndBeforeTheAttemptIsDone) {
  auto uploader = Streams();
  Log("hello ");
  const std::string event = R"({"name":"step","ph":"X","ts":1,"dur":2,"pid":0,"tid":0})";
  Append(target_.dir.TracePath(0), event + "\n");
  ASSERT_TRUE(WaitForLog("hello "));
  ASSERT_TRUE(state_.Wait([&] { return state_.traces[kRank0] == event + "\n"; }));
  Append(target_.dir.TracePath(0), event + "\n");
  target_.exited = true;
  uploader->SetTargets({target_});
  ASSERT_TRUE(WaitForDone(*uploader));
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ(state_.traces[kRank0], event + "\n" + event + "\n");
  EXPECT_EQ(state_.logs[kRank0], "hello ");
}

TEST_F(UploaderTest, MetricsOfTheDeviceAreAStreamOfTheirOwn) {
  auto uploader = Streams();
  Metrics(Line(1) + Line(2));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[kRank0].size() == 2; }));
  std::string line;
  run_dir::AppendMetricLine({2, "gpu.power_watts", 350, 1}, line);
  Append(target_.dir.DeviceMetricsPath(0), line);
  const std::pair<std::string, int> device(kRank0.first, DeviceStreamOf(0));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[device].size() == 1; }));
  Metrics(Line(3));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[kRank0].size() == 3; }));
  EXPECT_THAT(Steps(), ::testing::ElementsAre(1, 2, 3));
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ(state_.points[device][0].name(), "gpu.power_watts");
  EXPECT_EQ(state_.points[device][0].value(), 350);
  EXPECT_EQ(state_.metric_offsets[device], static_cast<int64_t>(line.size()));
}

TEST_F(UploaderTest, ATornLastLineIsNeverSentAndHoldsNothingUp) {
  Metrics(Line(1) + Line(2).substr(0, 10));
  target_.exited = true;
  auto uploader = Streams();
  ASSERT_TRUE(WaitForDone(*uploader));
  EXPECT_THAT(Steps(), ::testing::ElementsAre(1));
}

TEST_F(UploaderTest, ALineThatIsTornByTheReaderComesWholeLater) {
  auto uploader = Streams();
  const std::string line = Line(2);
  Metrics(Line(1) + line.substr(0, 10));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[kRank0].size() == 1; }));
  Metrics(line.substr(10));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[kRank0].size() == 2; }));
  EXPECT_THAT(Steps(), ::testing::ElementsAre(1, 2));
}

TEST_F(UploaderTest, LinesThatAreNoMetricsArePassedOver) {
  Metrics(Line(1) + "{\"step\": \"x\"}\nrubbish\n\n" + Line(2));
  target_.exited = true;
  auto uploader = Streams();
  ASSERT_TRUE(WaitForDone(*uploader));
  EXPECT_THAT(Steps(), ::testing::ElementsAre(1, 2));
}

// A daemon may end at any moment, so the server may have any number of bytes of the log, and the
// metrics up to the end of any line.
TEST_F(UploaderTest, TooManyDifferentMetricsAreLeftOutAndTheOthersGoOn) {
  std::string lines;
  for (int64_t i = 0; i < 5000; ++i) {
    run_dir::AppendMetricLine({1, absl::StrCat("user.", i), 1.0, 1}, lines);
  }
  run_dir::AppendMetricLine({2, "user.0", 2.0, 1}, lines);
  Metrics(lines);
  target_.exited = true;
  const auto uploader = Streams();
  ASSERT_TRUE(WaitForDone(*uploader));
  absl::MutexLock lock(&state_.mutex);
  const std::vector<v1::MetricPoint>& points = state_.points[kRank0];
  ASSERT_EQ(points.size(), 4097u);
  EXPECT_EQ(points[4095].name(), "user.4095");
  EXPECT_EQ(points[4096].name(), "user.0");
  EXPECT_EQ(state_.metric_offsets[kRank0], static_cast<int64_t>(lines.size()));
}

TEST_F(UploaderTest, ALogOfWhichTheServerHasEnoughDoesNotFillTheDisk) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.log_bytes_max = 4;
  }
  const auto uploader = Streams();
  Log("hello\n");
  ASSERT_TRUE(WaitForLog("hello\n"));
  const std::string path = target_.dir.LogPath(0);
  Log(std::string(1 << 20, 'x'));
  for (int i = 0; i < 20; ++i) Log(std::string(1 << 20, 'x'));
  EXPECT_TRUE(state_.Wait([&] { return *FileSize(path) == 0; }));
  Log("world\n");
  EXPECT_EQ(*FileSize(path), 6) << "the rank goes on";
  Metrics(Line(1));
  EXPECT_TRUE(state_.Wait([&] { return !state_.points[kRank0].empty(); })) << "other streams go on";
}

TEST_F(UploaderTest, RestartedAtAnyByteNothingIsLostOrDoubled) {
  std::string log, metrics;
  for (int64_t step = 1; step <= 5; ++step) {
    absl::StrAppend(&log, "line ", step, "\n");
    metrics += Line(step);
  }
  Log(log);
  Metrics(metrics);
  target_.exited = true;
  for (size_t have = 0; have <= log.size(); ++have) {
    {
      absl::MutexLock lock(&state_.mutex);
      state_.logs[kRank0] = log.substr(0, have);
      done_ = 0;
      const auto lines = static_cast<int64_t>(have % 6);
      state_.points[kRank0].resize(static_cast<size_t>(lines));
      int64_t offset = 0;
      for (int64_t step = 1; step <= lines; ++step) {
        state_.points[kRank0][static_cast<size_t>(step - 1)].set_step(step);
        offset += static_cast<int64_t>(Line(step).size());
      }
      state_.metric_offsets[kRank0] = offset;
    }
    auto uploader = Streams();
    ASSERT_TRUE(WaitForDone(*uploader)) << have;
    absl::MutexLock lock(&state_.mutex);
    ASSERT_EQ(state_.logs[kRank0], log) << have;
    ASSERT_EQ(state_.points[kRank0].size(), 5u) << have;
    for (int i = 0; i < 5; ++i)
      ASSERT_EQ(state_.points[kRank0][static_cast<size_t>(i)].step(), i + 1);
  }
}

TEST_F(UploaderTest, AServerThatTakesPartOfAChunkGetsTheRest) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.take_at_most = 3;
  }
  Log("0123456789");
  target_.exited = true;
  auto uploader = Streams();
  ASSERT_TRUE(WaitForDone(*uploader));
  EXPECT_TRUE(WaitForLog("0123456789"));
}

// The server forgot what it had acknowledged. OFFSET_MISMATCH says where it is now.
TEST_F(UploaderTest, GoesBackWhereAServerHasLessThanItAcknowledged) {
  auto uploader = Streams();
  Log("0123456789");
  Metrics(Line(1) + Line(2));
  ASSERT_TRUE(WaitForLog("0123456789"));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[kRank0].size() == 2; }));
  {
    absl::MutexLock lock(&state_.mutex);
    state_.logs[kRank0] = "01234";
    state_.points[kRank0].resize(1);
    state_.metric_offsets[kRank0] = static_cast<int64_t>(Line(1).size());
  }
  Log("abc");
  Metrics(Line(3));
  EXPECT_TRUE(WaitForLog("0123456789abc"));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[kRank0].size() == 3; }));
  EXPECT_THAT(Steps(), ::testing::ElementsAre(1, 2, 3));
}

// A server that was started anew may have lost what nobody adds to any more.
TEST_F(UploaderTest, AsksInANewSessionEvenIfAllWasSent) {
  target_.exited = true;
  Log("0123456789");
  Metrics(Line(1) + Line(2));
  auto uploader = Streams();
  ASSERT_TRUE(WaitForDone(*uploader));
  {
    absl::MutexLock lock(&state_.mutex);
    state_.logs[kRank0] = "01234";
    state_.points[kRank0].resize(1);
    state_.metric_offsets[kRank0] = static_cast<int64_t>(Line(1).size());
  }
  NewSession();
  EXPECT_TRUE(WaitForLog("0123456789"));
  ASSERT_TRUE(state_.Wait([&] { return state_.points[kRank0].size() == 2; }));
  EXPECT_THAT(Steps(), ::testing::ElementsAre(1, 2));
  EXPECT_TRUE(testing::WaitUntil([&] { return uploader->ProgressOf(kId).done; }));
}

TEST_F(UploaderTest, GoesOnOverARestartOfTheServerUnderANewSession) {
  auto uploader = Streams();
  Log("before ");
  ASSERT_TRUE(WaitForLog("before "));
  server_.reset();
  Log("during ");
  server_.emplace(state_, Socket());
  // The uploader finds out that its session is unknown and forgets it.
  ASSERT_TRUE(testing::WaitUntil([&] { return session_.Get().empty(); }));
  NewSession();
  Log("after\n");
  EXPECT_TRUE(WaitForLog("before during after\n"));
}

TEST_F(UploaderTest, ASessionThatEndsBetweenTwoCallsEndsNoStream) {
  Metrics(Line(1));
  Log("hello\n");
  LoseTheSessionAtEachOf(2);
  auto uploader = Streams();
  EXPECT_TRUE(WaitWithNewSessions([this] { return state_.logs[kRank0] == "hello\n"; }));
  EXPECT_THAT(Steps(), ::testing::ElementsAre(1));
}

TEST_F(UploaderTest, ASessionThatEndsBetweenTwoCallsGivesNoCheckpointUp) {
  TY_CHECK_OK(checkpoint::WriteCheckpoint(target_.dir.CheckpointsDir(), 20,
                                          {{"model.safetensors", "bytes"}}));
  LoseTheSessionAtEachOf(2);
  auto uploader = Checkpoints();
  EXPECT_TRUE(WaitWithNewSessions([this] { return state_.commits[20] == 1; }));
}

TEST_F(UploaderTest, TriesAgainWhileTheServerIsUnavailable) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.unavailable = 3;
  }
  Log("text");
  target_.exited = true;
  auto uploader = Streams();
  ASSERT_TRUE(WaitForDone(*uploader));
  EXPECT_TRUE(WaitForLog("text"));
}

TEST_F(UploaderTest, AStaleTokenEndsTheStreamsOfTheAttempt) {
  target_.fencing_token = 6;
  Log("text");
  target_.exited = true;
  auto uploader = Streams();
  ASSERT_TRUE(WaitForDone(*uploader));
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ(state_.logs[kRank0], "");
}

TEST_F(UploaderTest, CommitsCompleteCheckpointsAndWhatIsThereAlreadyIsFine) {
  const std::string model(3'000'000, 'm');
  TY_CHECK_OK(checkpoint::WriteCheckpoint(target_.dir.CheckpointsDir(), 10,
                                          {{"model.safetensors", model}, {"state.json", "{}"}}));
  // It is half-written, so it does not have its final folder name yet.
  TY_CHECK_OK(MakeDirectories(JoinPath(target_.dir.CheckpointsDir(), "step-20.partial")));
  {
    absl::MutexLock lock(&state_.mutex);
    state_.files[{10, "model.safetensors"}] = model.substr(0, 1'234'567);
  }
  auto uploader = Checkpoints();
  ASSERT_TRUE(state_.Wait([&] { return done_ > 0; }));
  EXPECT_THAT(uploader->ProgressOf(kId).committed, ::testing::ElementsAre(10));
  EXPECT_FALSE(uploader->ProgressOf(kId).done);
  {
    absl::MutexLock lock(&state_.mutex);
    EXPECT_EQ((state_.files[{10, "model.safetensors"}]), model);
    done_ = 0;
  }
  // Another daemon takes over and commits again. The server recognises the repetition.
  target_.exited = true;
  uploader = Checkpoints();
  ASSERT_TRUE(state_.Wait([&] { return done_ > 1; }));
  EXPECT_TRUE(uploader->ProgressOf(kId).done);
  EXPECT_THAT(uploader->ProgressOf(kId).committed, ::testing::ElementsAre(10));
}

TEST_F(UploaderTest, ANewCheckpointIsSentWhenItIsSeenWithoutAnotherLook) {
  auto uploader = Checkpoints();
  for (const int64_t step : {10, 20}) {
    TY_CHECK_OK(checkpoint::WriteCheckpoint(target_.dir.CheckpointsDir(), step,
                                            {{"model.safetensors", "bytes"}}));
    target_.checkpoints.push_back(step);
    uploader->SetTargets({target_});
    ASSERT_TRUE(state_.Wait([&] { return state_.commits.contains(step); })) << step;
  }
}

TEST_F(UploaderTest, ADamagedCheckpointIsNotSentAndTheNextOneIs) {
  const std::string folder = target_.dir.CheckpointsDir();
  TY_CHECK_OK(checkpoint::WriteCheckpoint(folder, 10, {{"model.safetensors", "good"}}));
  TY_CHECK_OK(WriteFileAtomically(
      JoinPath(checkpoint::CheckpointPath(folder, 10), "model.safetensors"), "evil"));
  TY_CHECK_OK(checkpoint::WriteCheckpoint(folder, 20, {{"model.safetensors", "next"}}));
  target_.exited = true;
  auto uploader = Checkpoints();
  ASSERT_TRUE(state_.Wait([&] { return done_ > 1; }));
  EXPECT_TRUE(uploader->ProgressOf(kId).done);
  EXPECT_THAT(uploader->ProgressOf(kId).committed, ::testing::ElementsAre(20));
  absl::MutexLock lock(&state_.mutex);
  EXPECT_FALSE(state_.commits.contains(10));
}

class OutputsUploadTest : public UploaderTest {
 protected:
  OutputsUploadTest() {
    TY_CHECK_OK(MakeDirectories(JoinPath(folder_, "work")));
    TY_CHECK_OK(run_dir::WriteOutputsPlan(target_.dir, {JoinPath(folder_, "work"), {"*"}}));
    for (const char* name : {"a", "b", "c"}) Put(name, "0123456789");
    target_.exited = true;
  }

  void Put(const std::string& name, const std::string& text) {
    TY_CHECK_OK(ReplaceFile(JoinPath(JoinPath(folder_, "work"), name), text));
  }
  // Puts another content into a file at each of the next calls.
  void ChangeAtEachOf(int calls, const std::string& name,
                      std::function<std::string(int left)> content) {
    absl::MutexLock lock(&state_.mutex);
    state_.on_call = [this, left = calls, name, content = std::move(content)]() mutable {
      if (left-- > 0) Put(name, content(left));
    };
  }
  // Returns what was committed.
  v1::CommitCheckpointRequest Upload() {
    auto uploader = std::make_unique<CheckpointUploader>(*stub_, session_, *Rng::Real(), [this] {
      absl::MutexLock lock(&state_.mutex);
      ++done_;
    });
    target_.checkpoints = {kOutputsStep};
    uploader->SetTargets({target_});
    uploader->Start();
    EXPECT_TRUE(state_.Wait([&] { return done_ > 0; }));
    EXPECT_TRUE(uploader->ProgressOf(kId).committed.contains(kOutputsStep));
    absl::MutexLock lock(&state_.mutex);
    return state_.committed;
  }
  static std::string Names(const v1::CommitCheckpointRequest& commit) {
    std::string names;
    for (const v1::CheckpointFile& file : commit.files()) names += file.name();
    return names;
  }
};

std::string Numbered(int left) {
  return absl::StrCat(10'000 + left, "67890");
}

std::string Longer(int left) {
  return std::string(static_cast<size_t>(2000 - left), 'x');
}

TEST_F(OutputsUploadTest, AFileThatChangesOnceIsSentAsItIsThen) {
  ChangeAtEachOf(1, "b", Numbered);
  const v1::CommitCheckpointRequest commit = Upload();
  EXPECT_EQ(Names(commit), "abc");
  EXPECT_EQ(commit.left_out(), "");
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.files[{0, "b"}]), "1000067890");
}

TEST_F(OutputsUploadTest, AFileThatKeepsChangingCostsNoOtherOne) {
  ChangeAtEachOf(1000, "b", Numbered);
  const v1::CommitCheckpointRequest commit = Upload();
  EXPECT_EQ(Names(commit), "ac");
  EXPECT_THAT(commit.left_out(), ::testing::HasSubstr("'b' changed again and again"));
}

TEST_F(OutputsUploadTest, AFileThatChangesItsSizeEachTimeCostsNoOtherOne) {
  ChangeAtEachOf(1000, "b", [](int left) { return Numbered(left) + Longer(left); });
  const v1::CommitCheckpointRequest commit = Upload();
  EXPECT_EQ(Names(commit), "ac");
  EXPECT_THAT(commit.left_out(), ::testing::HasSubstr("'b' changed again and again"));
}

TEST_F(OutputsUploadTest, ALogThatGrowsIsSentAsItWasWhenItWasListed) {
  Put("b", Longer(1000));
  ChangeAtEachOf(1000, "b", Longer);
  EXPECT_EQ(Names(Upload()), "abc");
}

TEST_F(OutputsUploadTest, AFileThatIsRemovedMeanwhileIsLeftOut) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.on_call = [this] { (void)RemoveTree(JoinPath(folder_, "work/b")); };
  }
  EXPECT_EQ(Names(Upload()), "ac");
}

TEST_F(UploaderTest, BytesThatWereDamagedOnTheWayAreSentAgain) {
  TY_CHECK_OK(checkpoint::WriteCheckpoint(target_.dir.CheckpointsDir(), 10,
                                          {{"model.safetensors", "0123456789"}}));
  {
    absl::MutexLock lock(&state_.mutex);
    state_.files[{10, "model.safetensors"}] = "0x2345";
  }
  auto uploader = Checkpoints();
  ASSERT_TRUE(state_.Wait([&] { return done_ > 0; }));
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ((state_.files[{10, "model.safetensors"}]), "0123456789");
  EXPECT_EQ(state_.commits[10], 1);
}

}  // namespace
}  // namespace trainyard::agent
