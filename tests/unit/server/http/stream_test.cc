// Tests of streams as server-sent events, and of files.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/hash.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/http/http_fixture.h"

namespace trainyard::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class StreamTest : public DoorTest {
 protected:
  // Makes jobs/1 run, with the log "one\ntwo\n".
  void StartJob() {
    CreateJob("first");
    Register();
    attempt_ = StartRunning();
    ASSERT_TRUE(AppendLog(attempt_, 0, "one\ntwo\n").ok());
  }
  void SubmitArray(int size) {
    const std::string made = Ask(
        "anna",
        Post("JobService/CreateJob", absl::StrCat(R"({"spec": {"name": "many", "model": {"mlp": {}},
                             "data": {"dataset": "glyphs"}, "train": {"epochs": 2},
                             "optimizer": {"sgd": {"lr": 0.05}}, "schedule": "cosine",
                             "devices": 1}, "options": {"array_size": )",
                                                  size, "}}")));
    ASSERT_EQ(StatusOf(made), 200) << made;
  }
  static std::string Tail(bool follow, const std::string& id = "") {
    return Post("JobService/TailLogs",
                absl::StrCat(R"({"name":"jobs/1","follow":)", follow ? "true}" : "false}"),
                id.empty() ? "" : absl::StrCat("Last-Event-ID: ", id, "\r\n"));
  }
  // Returns the bytes of the log in an answer.
  static std::string LogIn(const std::string& answer) {
    std::string log;
    for (const absl::string_view line : absl::StrSplit(answer, '\n')) {
      if (!absl::StartsWith(line, "data: ")) continue;
      const auto data = nlohmann::json::parse(line.substr(6), nullptr, false);
      std::string bytes;
      if (data.is_object() && absl::Base64Unescape(data.value("data", ""), &bytes)) log += bytes;
    }
    return log;
  }

  // Commits a checkpoint with one file at step 600, or outputs of one file.
  void Commit(const std::string& name, const std::string& content, bool is_output = false) {
    v1::AppendCheckpointFileRequest part;
    part.set_session(session_);
    part.set_attempt(attempt_.attempt());
    part.set_fencing_token(attempt_.fencing_token());
    part.set_step(is_output ? 0 : 600);
    part.set_is_output(is_output);
    part.mutable_file()->set_name(name);
    part.mutable_file()->set_size(static_cast<int64_t>(content.size()));
    part.mutable_file()->set_hash(ContentHash(content));
    part.set_data(content);
    v1::AppendResponse appended;
    ASSERT_TRUE(agents_->AppendCheckpointFile(Context().get(), part, &appended).ok());
    v1::CommitCheckpointRequest commit;
    commit.set_session(session_);
    commit.set_attempt(attempt_.attempt());
    commit.set_fencing_token(attempt_.fencing_token());
    commit.set_step(part.step());
    commit.set_is_output(is_output);
    *commit.add_files() = part.file();
    v1::CommitCheckpointResponse committed;
    ASSERT_TRUE(agents_->CommitCheckpoint(Context().get(), commit, &committed).ok());
  }

  v1::DesiredAttempt attempt_;
};

TEST_F(StreamTest, ALogComesAsEventsAndGoesOnAfterTheLastOne) {
  StartJob();
  const std::string all = Ask("anna", Tail(false));
  EXPECT_THAT(all, AllOf(HasSubstr("Content-Type: text/event-stream"), HasSubstr("id: 1;0=8\n"),
                         HasSubstr("event: end\n")));
  EXPECT_EQ(LogIn(all), "one\ntwo\n");
  EXPECT_EQ(LogIn(Ask("anna", Tail(false, "1;0=4"))), "two\n");
  EXPECT_EQ(StatusOf(Ask("anna", Tail(false, "x;0=4"))), 400);

  RawClient follower = OpenAs("anna");
  follower.Send(Tail(true, "1;0=8"));
  ASSERT_TRUE(AppendLog(attempt_, 8, "three\n").ok());
  follower.ReadTo("id: 1;0=14\n");
  const std::string next = follower.ReadTo("\n\n");
  EXPECT_EQ(LogIn(next), "three\n") << "nothing comes twice";
  Succeed(attempt_);
  EXPECT_THAT(follower.ReadAll(), HasSubstr("event: end"));
}

TEST_F(StreamTest, AStreamThatWaitsIsOpenAndAClientThatGoesEndsTheCall) {
  StartJob();
  RawClient follower = OpenAs("anna");
  follower.Send(Tail(true, "1;0=8"));
  EXPECT_THAT(follower.ReadTo("\r\n\r\n"), HasSubstr("200 OK")) << "although there is no event yet";
  ASSERT_TRUE(testing::WaitUntil([&] { return open_streams_.size() == 1; }));
  follower.Close();
  EXPECT_TRUE(testing::WaitUntil([&] { return open_streams_.size() == 0; }));
  EXPECT_TRUE(testing::WaitUntil([&] { return door_->connections() == 0; }));
}

TEST_F(StreamTest, AStreamThatIsRefusedIsAnErrorOfHttp) {
  const std::string answer =
      Ask("anna", Post("JobService/WatchMetrics", R"({"name":"jobs/9","follow":true})"));
  EXPECT_EQ(StatusOf(answer), 404);
  EXPECT_EQ(BodyOf(answer)["code"], "not_found");
}

TEST_F(StreamTest, ChangesOfJobsGoOnFromTheirRevision) {
  StartJob();
  RawClient watcher = OpenAs("anna");
  watcher.Send(Post("JobService/WatchJobs", R"({"names":["jobs/1"]})"));
  watcher.ReadTo("\nid: ");
  std::string id = watcher.ReadTo("\n");
  ASSERT_FALSE(id.empty());
  id.pop_back();
  watcher.Close();
  Succeed(attempt_);
  RawClient again = OpenAs("anna");
  again.Send(Post("JobService/WatchJobs", R"({"names":["jobs/1"]})",
                  absl::StrCat("Last-Event-ID: ", id, "\r\n")));
  EXPECT_THAT(again.ReadTo("JOB_STATE_SUCCEEDED"), Not(HasSubstr("JOB_STATE_QUEUED")));
}

TEST_F(StreamTest, JobsOfOneCommitComeOnceEach) {
  SubmitArray(3);
  const auto read = [](RawClient& client) {
    client.ReadTo("id: ");
    std::string id = client.ReadTo("\n");
    if (!id.empty()) id.pop_back();
    client.ReadTo("data: ");
    const auto event = nlohmann::json::parse(client.ReadTo("\n\n"), nullptr, false);
    return std::pair(id, event.is_object() ? event["job"].value("name", "") : "");
  };
  RawClient watcher = OpenAs("anna");
  watcher.Send(Post("JobService/WatchJobs", "{}"));
  std::vector<std::pair<std::string, std::string>> events;
  for (int i = 0; i < 3; ++i) events.push_back(read(watcher));
  ASSERT_FALSE(events[2].second.empty());
  RawClient again = OpenAs("anna");
  again.Send(
      Post("JobService/WatchJobs", "{}", absl::StrCat("Last-Event-ID: ", events[1].first, "\r\n")));
  EXPECT_EQ(read(again).second, events[2].second) << events[1].first;
}

TEST_F(StreamTest, EventsThatComeTogetherAreSentTogether) {
  SubmitArray(200);
  RawClient watcher = OpenAs("anna");
  watcher.Send(Post("JobService/WatchJobs", "{}"));
  std::string all;
  for (int i = 1; i <= 200; ++i) all += watcher.ReadTo(absl::StrCat("\"name\":\"jobs/", i, "\""));
  all += watcher.ReadTo("\n\n");
  const auto count = [&all](absl::string_view what) {
    return std::vector<absl::string_view>(absl::StrSplit(all, what)).size() - 1;
  };
  EXPECT_EQ(count("\nid: "), 200u) << "each job is an event of its own";
  EXPECT_LE(count("\n\n\r\n"), 40u) << "the parts of the body";
}

TEST_F(StreamTest, MetricsGoOnFromTheirCursor) {
  StartJob();
  ASSERT_TRUE(AppendMetrics(attempt_, 0, {1, 2}).ok());
  const std::string all = Ask("anna", Post("JobService/WatchMetrics", R"({"name":"jobs/1"})"));
  const size_t at = all.rfind("id: ");
  ASSERT_NE(at, std::string::npos) << all;
  const std::string id = all.substr(at + 4, all.find('\n', at) - at - 4);
  const std::string rest = Ask("anna", Post("JobService/WatchMetrics", R"({"name":"jobs/1"})",
                                            absl::StrCat("Last-Event-ID: ", id, "\r\n")));
  EXPECT_THAT(rest, AllOf(HasSubstr("event: end"), Not(HasSubstr("points"))));
}

TEST_F(StreamTest, AReaderThatReadsNothingHoldsOnePartAlone) {
  StartJob();
  const std::string line(1000, 'x');
  for (int64_t i = 0; i < 4; ++i) {
    std::string text;
    for (int n = 0; n < 1000; ++n) text += line;
    ASSERT_TRUE(AppendLog(attempt_, 8 + i * 1'000'000, text).ok());
  }
  RawClient slow = OpenAs("anna");
  slow.Send(Tail(false));
  ASSERT_TRUE(testing::WaitUntil([&] { return open_streams_.size() == 1; }));
  EXPECT_EQ(StatusOf(Ask("ben", Get("/trainyard.v1.AccessService/WhoAmI"))), 200)
      << "others do not wait";
  EXPECT_EQ(open_streams_.size(), 1u) << "the source waits for its reader";
  EXPECT_EQ(LogIn(slow.ReadAll()).size(), 4'000'008u);
}

TEST_F(StreamTest, AFileThatIsNotThereIsNotFound) {
  StartJob();
  EXPECT_EQ(StatusOf(Ask("anna", Get("/files/jobs/1/checkpoints/7/model.safetensors"))), 404);
  EXPECT_EQ(StatusOf(Ask("anna", Get("/files/%zz"))), 404);
  EXPECT_EQ(StatusOf(Ask("anna", Get("/files/../../etc/passwd"))), 404) << "it is no checkpoint";
  EXPECT_EQ(StatusOf(Ask("anna", Get("/files/a/b/c/d/e"))), 400) << "nor is this";
}

TEST_F(StreamTest, AFileMayHaveFolders) {
  StartJob();
  Commit("sub/m.bin", "some bytes");
  for (const char* path : {"sub/m.bin", "sub%2Fm.bin"}) {
    const std::string answer =
        Ask("anna", Get(absl::StrCat("/files/jobs/1/checkpoints/600/", path)));
    EXPECT_EQ(StatusOf(answer), 200) << answer;
    EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\nsome bytes")) << answer;
  }
  EXPECT_EQ(StatusOf(Ask("anna", Get("/files/jobs/1/checkpoints/600/sub/../sub/m.bin"))), 404);
}

TEST_F(StreamTest, AnOutputIsServedAsAFileOfACheckpointIs) {
  StartJob();
  const auto get = [&](const std::string& path, const std::string& headers = "") {
    return Ask("anna", Get(absl::StrCat("/files/jobs/1/", path), headers));
  };
  EXPECT_EQ(StatusOf(get("outputs/results/table.csv")), 404) << "none have come";
  Commit("results/table.csv", "a,b\n1,2\n", /*is_output=*/true);
  const std::string answer = get("outputs/results/table.csv");
  EXPECT_EQ(StatusOf(answer), 200) << answer;
  EXPECT_THAT(answer, HasSubstr("ETag: \"xxh3-128:"));
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\na,b\n1,2\n")) << answer;
  const std::string rest = get("outputs/results/table.csv", "Range: bytes=4-\r\n");
  EXPECT_EQ(StatusOf(rest), 206) << rest;
  EXPECT_TRUE(absl::EndsWith(rest, "\r\n\r\n1,2\n")) << rest;
  EXPECT_EQ(StatusOf(get("outputs/results/table.csv",
                         "Range: bytes=4-\r\nIf-Range: \"xxh3-128:of-another-one\"\r\n")),
            200)
      << "the client has the beginning of another file";
  for (const char* path : {"outputs/table.csv", "outputs/results/../results/table.csv", "outputs",
                           "outputs/", "checkpoints/600/table.csv"}) {
    EXPECT_EQ(StatusOf(get(path)), 404) << path;
  }
}

}  // namespace
}  // namespace trainyard::http
