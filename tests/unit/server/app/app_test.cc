#include "server/app.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "server/listen.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/sqlite_metrics_store.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "trainyard/v1/access.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class AppTest : public ::testing::Test {
 protected:
  ServerOptions Options(const std::string& name, std::vector<std::string> listen = {}) {
    return {dir_.File(name), std::move(listen), LogFormat::kText};
  }
  static std::unique_ptr<App> Start(const ServerOptions& options) {
    auto app = App::Start(options);
    EXPECT_TRUE(app.ok()) << app.status();
    return app.ok() ? *std::move(app) : nullptr;
  }
  static std::unique_ptr<grpc::ClientContext> Context() {
    auto context = std::make_unique<grpc::ClientContext>();
    rpc::SetTimeout(*context, absl::Seconds(30));
    context->set_wait_for_ready(true);
    return context;
  }
  static std::unique_ptr<v1::JobService::Stub> Jobs(const App& app) {
    return v1::JobService::NewStub(*rpc::MakeChannel(app.addresses().at(0)));
  }
  static v1::Job CreateJob(const App& app, const std::string& name) {
    v1::CreateJobRequest request;
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_name(name);
    spec.mutable_model()->mutable_mlp();
    spec.mutable_data()->set_dataset("glyphs");
    spec.mutable_train()->set_epochs(2);
    spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
    v1::Job job;
    const grpc::Status status = Jobs(app)->CreateJob(Context().get(), request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  // Makes a unary call of a service for which there are no generated stubs here.
  static std::string RawCall(const App& app, const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(*rpc::MakeChannel(app.addresses().at(0)));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(bytes);
    const auto context = Context();
    const auto call =
        stub.PrepareUnaryCall(context.get(), method, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    EXPECT_TRUE(status.ok()) << status.error_message();
    grpc::Slice whole;
    EXPECT_TRUE(response.DumpToSingleSlice(&whole).ok());
    return {reinterpret_cast<const char*>(whole.begin()), whole.size()};
  }
  static int Mode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return static_cast<int>(info.st_mode & 0777);
  }

  testing::TempDir dir_;
};

TEST_F(AppTest, ListensOnASocketThatOnlyItsUserReaches) {
  const auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  EXPECT_THAT(app->addresses(), ElementsAre("unix:" + dir_.File("a/server.sock")));
  EXPECT_EQ(Mode(dir_.File("a")), 0700);
  EXPECT_EQ(Mode(dir_.File("a/server.sock")), 0600);
  EXPECT_EQ(*ReadFile(dir_.File("a/ready")), app->addresses()[0] + "\n");
  EXPECT_EQ(CreateJob(*app, "first").name(), "jobs/1");
}

TEST_F(AppTest, ANewServerTakesUpWhatTheOldOneAcknowledged) {
  auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  const v1::Job job = CreateJob(*app, "first");
  app->Stop();
  EXPECT_FALSE(FileExists(dir_.File("a/ready")));
  app.reset();
  app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  v1::GetJobRequest request;
  request.set_name(job.name());
  v1::Job found;
  ASSERT_TRUE(Jobs(*app)->GetJob(Context().get(), request, &found).ok());
  EXPECT_EQ(found.uid(), job.uid());
}

TEST_F(AppTest, TheFilesOfADeletedJobGo) {
  auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  const v1::Job job = CreateJob(*app, "first");
  v1::CancelJobRequest cancel;
  cancel.set_name(job.name());
  v1::Job cancelled;
  ASSERT_TRUE(Jobs(*app)->CancelJob(Context().get(), cancel, &cancelled).ok());
  ASSERT_TRUE(MakeDirectories(dir_.File("a/logs/1/1")).ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.File("a/logs/1/1/0.log"), "hello").ok());
  v1::DeleteJobRequest request;
  request.set_name(job.name());
  v1::DeleteJobResponse response;
  ASSERT_TRUE(Jobs(*app)->DeleteJob(Context().get(), request, &response).ok());
  EXPECT_EQ(response.log_bytes(), 5);
  EXPECT_TRUE(testing::WaitUntil([&] { return !FileExists(dir_.File("a/logs/1")); }));

  // If a server died between the commit and the removal, the next server removes the files.
  app.reset();
  ASSERT_TRUE(MakeDirectories(dir_.File("a/logs/1/1")).ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.File("a/logs/1/1/0.log"), "hello").ok());
  app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  EXPECT_TRUE(testing::WaitUntil([&] { return !FileExists(dir_.File("a/logs/1")); }));
}

// A gigabyte of zeros is a megabyte on the wire.
TEST_F(AppTest, CompressedMessagesAreRefused) {
  auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  v1::GetJobRequest request;
  request.set_name(std::string(1 << 20, '0'));
  v1::Job job;
  const auto plain = Context();
  EXPECT_EQ(Jobs(*app)->GetJob(plain.get(), request, &job).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const auto compressed = Context();
  compressed->set_compression_algorithm(GRPC_COMPRESS_GZIP);
  EXPECT_EQ(Jobs(*app)->GetJob(compressed.get(), request, &job).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(AppTest, AnOlderDatabaseThatIsAcceptedGivesOutNoNumberAgain) {
  const std::string database = dir_.File("a/trainyard.db");
  auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  app.reset();
  const std::string backup = *ReadFile(database);
  app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  EXPECT_EQ(CreateJob(*app, "lost").name(), "jobs/1");
  app.reset();
  ASSERT_TRUE(WriteFileAtomically(database, backup).ok());
  ServerOptions options = Options("a");
  options.accept_lost_commits = true;
  app = Start(options);
  ASSERT_NE(app, nullptr);
  EXPECT_EQ(CreateJob(*app, "next").name(), "jobs/2");
}

// The parameter tells whether the mark of the last commit is there.
class OlderDatabase : public AppTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Marks, OlderDatabase, ::testing::Bool());

TEST_P(OlderDatabase, DestroysNothingThatIsNewer) {
  const std::string database = dir_.File("a/trainyard.db");
  const AttemptId newer_attempt{JobId{1}, 1};
  const AttemptId newer_job{JobId{2}, 1};
  auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  EXPECT_EQ(CreateJob(*app, "first").name(), "jobs/1");
  app.reset();
  const std::string backup = *ReadFile(database);
  app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  EXPECT_EQ(CreateJob(*app, "second").name(), "jobs/2");
  app.reset();
  ASSERT_TRUE(MakeDirectories(dir_.File("a/logs/1/1")).ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.File("a/logs/1/1/0.log"), "one").ok());
  ASSERT_TRUE(MakeDirectories(dir_.File("a/logs/2/1")).ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.File("a/logs/2/1/0.log"), "two").ok());
  const std::string blob = "blobs/01/01234567890123456789012345678901";
  ASSERT_TRUE(MakeDirectories(dir_.File("a/blobs/01")).ok());
  ASSERT_TRUE(WriteFileAtomically(dir_.File("a/" + blob), "weights").ok());
  {
    auto metrics = *store::OpenSqliteMetricsStore(dir_.File("a/metrics.db"));
    for (const AttemptId attempt : {newer_attempt, newer_job}) {
      ASSERT_TRUE(metrics->AppendPoints(attempt, 0, 0, {{1, "train.loss", 2, 3}}, 10).ok());
    }
  }

  ASSERT_TRUE(WriteFileAtomically(database, backup).ok());
  EXPECT_EQ(ErrorReason(App::Start(Options("a")).status()), "COMMITS_LOST");
  EXPECT_TRUE(FileExists(dir_.File("a/logs/2"))) << "a server that is refused moves nothing";
  // On a new machine nobody knows any more what was committed.
  ServerOptions options = Options("a");
  options.accept_lost_commits = GetParam();
  if (!GetParam()) {
    ASSERT_EQ(unlink((database + "-committed").c_str()), 0);
  }
  app = Start(options);
  ASSERT_NE(app, nullptr);
  EXPECT_FALSE(FileExists(dir_.File("a/logs/1")));
  EXPECT_FALSE(FileExists(dir_.File("a/logs/2")));
  const auto folders = ListDirectory(dir_.File("a/orphans"));
  ASSERT_TRUE(folders.ok()) << folders.status();
  ASSERT_EQ(folders->size(), 1u);
  const std::string orphans = dir_.File("a/orphans/" + (*folders)[0]);
  EXPECT_EQ(*ReadFile(orphans + "/logs/1/1/0.log"), "one");
  EXPECT_EQ(*ReadFile(orphans + "/logs/2/1/0.log"), "two");
  EXPECT_TRUE(testing::WaitUntil([&] { return FileExists(orphans + "/" + blob); }));
  const auto kept = *store::OpenSqliteMetricsStore(orphans + "/metrics.db");
  EXPECT_THAT(*kept->ListAttempts(), ElementsAre(newer_attempt, newer_job));
  EXPECT_EQ(*kept->CountPoints(JobId{2}), 1);
  // A job that gets the number now begins without logs and metrics. With the mark none gets it.
  EXPECT_EQ(CreateJob(*app, "other").name(), GetParam() ? "jobs/3" : "jobs/2");
  app.reset();
  EXPECT_TRUE((*store::OpenSqliteMetricsStore(dir_.File("a/metrics.db")))->ListAttempts()->empty());
}

TEST_F(AppTest, ABucketDoesNotDependOnTheRecordsOfProviders) {
  ServerOptions options = Options("a");
  options.bucket.place = "s3://lab/yard";
  options.bucket.endpoint = "http://127.0.0.1:1";  // nobody is there
  auto app = Start(options);
  ASSERT_NE(app, nullptr);
  app.reset();
  {
    auto db = *store::Database::Open(dir_.File("a/providers.db"), store::Database::Mode::kDurable);
    ASSERT_TRUE(db->Execute("INSERT INTO providers (name, record) VALUES ('lab', '{')").ok());
  }
  EXPECT_NE(Start(options), nullptr);
  ASSERT_EQ(unlink(dir_.File("a/providers.db").c_str()), 0);
  ASSERT_TRUE(MakeDirectories(dir_.File("a/providers.db")).ok());
  EXPECT_FALSE(App::Start(options).ok()) << "that is another trouble, and is told";
}

TEST_F(AppTest, AJobWhosePointsAreLostSaysSoAndGoesOn) {
  const std::string database = dir_.File("a/metrics.db");
  auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  EXPECT_EQ(CreateJob(*app, "first").name(), "jobs/1");
  app.reset();
  const std::string older = *ReadFile(database);
  std::string committed;
  {
    auto metrics = *store::OpenSqliteMetricsStore(database);
    const std::vector<store::MetricPoint> points = {{1, "train.loss", 2, 3}, {2, "lr", 1, 4}};
    ASSERT_TRUE(metrics->AppendPoints({JobId{1}, 1}, 0, 0, points, 10).ok());
    committed = *ReadFile(database + "-committed");
  }
  ASSERT_TRUE(WriteFileAtomically(database, older).ok());
  ASSERT_TRUE(WriteFileAtomically(database + "-committed", committed).ok());
  app = Start(Options("a"));
  ASSERT_NE(app, nullptr) << "lost points keep no job from running";
  std::string told;
  EXPECT_TRUE(testing::WaitUntil([&] {
    v1::ListEventsRequest request;
    request.set_parent("jobs/1");
    v1::ListEventsResponse response;
    EXPECT_TRUE(Jobs(*app)->ListEvents(Context().get(), request, &response).ok());
    for (const v1::Event& event : response.events()) {
      if (event.type() == "METRICS_LOST") told = event.message();
    }
    return !told.empty();
  }));
  EXPECT_THAT(told, StartsWith("metrics.db has lost 2 points of 1 streams; the first is "
                               "jobs/1/attempts/1 rank 0 metrics, from byte 0 on."));
}

TEST_F(AppTest, AStateDirectoryHasOneServer) {
  const auto app = Start(Options("a"));
  const auto second = App::Start(Options("a", {"unix:" + dir_.File("t")}));
  EXPECT_EQ(ErrorReason(second.status()), "STATE_LOCKED");
  EXPECT_EQ(CreateJob(*app, "still-here").name(), "jobs/1");
}

TEST_F(AppTest, ASocketHasOneServer) {
  const auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  const auto second = App::Start(Options("b", {app->addresses()[0]}));
  EXPECT_EQ(ErrorReason(second.status()), "ADDRESS_IN_USE");
  EXPECT_EQ(CreateJob(*app, "still-here").name(), "jobs/1");
}

TEST_F(AppTest, APassedSocketThatNobodyServesIsRefused) {
  auto other = Listen("unix:" + dir_.File("other"));
  ASSERT_TRUE(other.ok()) << other.status();
  ServerOptions options = Options("a");
  options.passed_sockets = {other->sockets[0].get()};
  const absl::Status status = App::Start(options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "--listen does not name")) << status;
}

TEST_F(AppTest, ListensOnSeveralAddresses) {
  const auto app = Start(Options("a", {"unix:" + dir_.File("s"), "unix:" + dir_.File("t")}));
  ASSERT_NE(app, nullptr);
  ASSERT_EQ(app->addresses().size(), 2u);
  for (const std::string& address : app->addresses()) {
    const auto jobs = v1::JobService::NewStub(*rpc::MakeChannel(address));
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs->ListJobs(Context().get(), v1::ListJobsRequest(), &response).ok()) << address;
  }
}

TEST_F(AppTest, PortsAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(App::Start(Options("a", {"127.0.0.1:0"})).status()));
}

TEST_F(AppTest, AGroupThatDoesNotExistIsNoGroupOfAdministrators) {
  ServerOptions options = Options("a");
  options.admin_group = "no-such-group";
  EXPECT_TRUE(absl::IsNotFound(App::Start(options).status()));
}

TEST_F(AppTest, RightsSurviveARestart) {
  auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  const auto connect = [&app] {
    return v1::AccessService::NewStub(*rpc::MakeChannel(app->addresses().at(0)));
  };
  v1::SetUserRequest user;
  user.set_name("anna");
  user.set_role(v1::ROLE_OPERATOR);
  v1::User anna;
  ASSERT_TRUE(connect()->SetUser(Context().get(), user, &anna).ok());
  v1::SetProjectRequest project;
  project.mutable_project()->set_name("vision");
  project.mutable_project()->set_is_private(true);
  v1::Project vision;
  ASSERT_TRUE(connect()->SetProject(Context().get(), project, &vision).ok());
  app.reset();
  app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  v1::ListUsersResponse users;
  ASSERT_TRUE(connect()->ListUsers(Context().get(), {}, &users).ok());
  ASSERT_EQ(users.users_size(), 1);
  EXPECT_EQ(users.users(0).role(), v1::ROLE_OPERATOR);
  v1::ListProjectsResponse projects;
  ASSERT_TRUE(connect()->ListProjects(Context().get(), {}, &projects).ok());
  ASSERT_EQ(projects.projects_size(), 1);
  EXPECT_TRUE(projects.projects(0).is_private());
  v1::ListAuditEntriesResponse audit;
  ASSERT_TRUE(connect()->ListAuditEntries(Context().get(), {}, &audit).ok());
  EXPECT_EQ(audit.entries_size(), 2);
}

TEST_F(AppTest, SaysThatItServes) {
  const auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  // This is HealthCheckResponse{status: SERVING}.
  EXPECT_EQ(RawCall(*app, "/grpc.health.v1.Health/Check", ""), absl::string_view("\x08\x01", 2));
}

// Asks the question of any reflection client by hand: field 7 of ServerReflectionRequest,
// list_services.
TEST_F(AppTest, TellsItsServicesByReflection) {
  const auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  grpc::GenericStub stub(*rpc::MakeChannel(app->addresses().at(0)));
  grpc::CompletionQueue queue;
  const auto context = Context();
  const auto call = stub.PrepareCall(
      context.get(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  const grpc::Slice question("\x3a\x01*");
  call->Write(grpc::ByteBuffer(&question, 1), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(wait());
  grpc::Slice whole;
  ASSERT_TRUE(answer.DumpToSingleSlice(&whole).ok());
  const absl::string_view text(reinterpret_cast<const char*>(whole.begin()), whole.size());
  for (const char* service :
       {"trainyard.v1.JobService", "trainyard.v1.FleetService", "trainyard.v1.AgentService",
        "trainyard.v1.CheckpointService", "grpc.health.v1.Health"}) {
    EXPECT_TRUE(absl::StrContains(text, service)) << service;
  }
  context->TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  (void)wait();
}

TEST_F(AppTest, WatchesEndWithUnavailableWhenItStops) {
  const auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  CreateJob(*app, "first");
  const auto jobs = Jobs(*app);
  const auto context = Context();
  const auto stream = jobs->WatchJobs(context.get(), v1::WatchJobsRequest());
  v1::WatchJobsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  app->Stop();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(AppTest, AMessageThatIsTooLargeIsRefused) {
  const auto app = Start(Options("a"));
  ASSERT_NE(app, nullptr);
  v1::CreateJobRequest request;
  request.mutable_spec()->set_name(std::string(5 << 20, 'x'));
  v1::Job job;
  EXPECT_EQ(Jobs(*app)->CreateJob(Context().get(), request, &job).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(DefaultStateDir, FollowsTheStateHome) {
  EXPECT_EQ(DefaultStateDir("", "/home/anna"), "/home/anna/.local/state/trainyard/server");
  EXPECT_EQ(DefaultStateDir("/var/state", "/home/anna"), "/var/state/trainyard/server");
}

}  // namespace
}  // namespace trainyard
