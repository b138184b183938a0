// Walks the table of rules with real calls: each call, by each role, as owner, as member of a
// private project, and as a stranger.
#include "server/rpc/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <map>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/channel.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/rpc/gate_fixture.h"

namespace trainyard::rpc {
namespace {

using access::Role;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Role kRoles[] = {Role::kNone, Role::kViewer, Role::kSubmitter, Role::kOperator,
                           Role::kAdmin};

TEST_F(GateTest, EachCellOfTheTableIsAsItSays) {
  MakeJob();
  int cells = 0;
  for (const bool is_owner : {true, false}) {
    for (const Role role : kRoles) {
      const auto channel = ChannelOf(is_owner ? "anna" : "bert", role);
      for (const access::Rule& rule : access::kRules) {
        // Calls of workers are looked at below. Deleting the job, or what stands beside it, would
        // change what later cells find.
        if (rule.party == access::Party::kWorker || rule.rpc == "JobService/DeleteJob") continue;
        ++cells;
        std::string expected;
        if (role < rule.least) {
          expected = "ROLE_TOO_LOW";
        } else if (rule.need == access::Need::kChange && !is_owner && role < Role::kOperator) {
          expected = "NOT_OWNER";
        }
        EXPECT_EQ(RefusalOf(CallBy(channel, rule)), expected)
            << rule.rpc << " by " << access::RoleText(role) << (is_owner ? ", its owner" : "");
      }
    }
  }
  EXPECT_GT(cells, 400);
}

TEST_F(GateTest, JobsOfAPrivateProjectAreHiddenFromStrangersInEachCall) {
  MakeJob("vision");
  directory_.SetProject({"vision", true, {"mia"}});
  const auto stranger = ChannelOf("bert", Role::kSubmitter);
  const auto member = ChannelOf("mia", Role::kSubmitter);
  for (const access::Rule& rule : access::kRules) {
    if (rule.need == access::Need::kNothing) continue;
    EXPECT_EQ(RefusalOf(CallBy(stranger, rule)), "HIDDEN") << rule.rpc;
    const std::string expected = rule.need == access::Need::kChange ? "NOT_OWNER" : "";
    EXPECT_EQ(RefusalOf(CallBy(member, rule)), expected) << rule.rpc;
  }
}

TEST_F(GateTest, ListsAndWatchesLeaveOutWhatTheCallerMayNotSee) {
  MakeJob("vision");
  directory_.SetProject({"vision", true, {"mia"}});
  for (const auto& [user, jobs] :
       std::map<std::string, int>{{"bert", 0}, {"mia", 1}, {"anna", 1}}) {
    const auto stub = v1::JobService::NewStub(ChannelOf(user, Role::kSubmitter));
    v1::ListJobsResponse list;
    ASSERT_TRUE(stub->ListJobs(Context("").get(), {}, &list).ok());
    EXPECT_EQ(list.jobs_size(), jobs) << user;
    v1::ListQueueResponse queue;
    ASSERT_TRUE(stub->ListQueue(Context("").get(), {}, &queue).ok());
    EXPECT_EQ(queue.jobs_size(), jobs) << user;
    const auto sharing = v1::SharingService::NewStub(ChannelOf(user, Role::kSubmitter));
    v1::ListSharesResponse shares;
    ASSERT_TRUE(sharing->ListShares(Context("").get(), {}, &shares).ok());
    EXPECT_EQ(shares.shares_size(), jobs) << user;
    v1::ListUsageRequest by_project;
    by_project.set_group(v1::USAGE_GROUP_PROJECT);
    v1::ListUsageResponse usage;
    ASSERT_TRUE(sharing->ListUsage(Context("").get(), by_project, &usage).ok());
    EXPECT_EQ(usage.usage_size(), jobs) << user;
  }
  // A watch of all jobs begins with those that exist. The next job that bert sees is his own.
  const auto stub = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  const auto context = Context("");
  const auto watch = stub->WatchJobs(context.get(), {});
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec("second");
  v1::Job second;
  ASSERT_TRUE(stub->CreateJob(Context("").get(), request, &second).ok());
  v1::WatchJobsResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.job().name(), "jobs/2");
  context->TryCancel();
}

TEST_F(GateTest, OnlyMembersSubmitToAPrivateProject) {
  directory_.SetProject({"vision", true, {"mia"}});
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec("x");
  request.mutable_spec()->set_project("vision");
  v1::Job job;
  const auto bert = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  const grpc::Status status = bert->CreateJob(Context("").get(), request, &job);
  EXPECT_EQ(RefusalOf(status), "NOT_A_MEMBER");
  EXPECT_THAT(status.error_message(), HasSubstr("trainyard projects set vision --add bert"));
  const auto mia = v1::JobService::NewStub(ChannelOf("mia", Role::kSubmitter));
  EXPECT_TRUE(mia->CreateJob(Context("").get(), request, &job).ok());
  EXPECT_EQ(job.user(), "mia");
}

TEST_F(GateTest, AJobThatTheCallerMayNotSeeCannotBeBuiltUpon) {
  MakeJob("vision");
  directory_.SetProject({"vision", true, {"mia"}});
  const auto bert = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec("x");
  request.mutable_options()->add_after("jobs/1");
  v1::Job job;
  EXPECT_EQ(RefusalOf(bert->CreateJob(Context("").get(), request, &job)), "HIDDEN");
  request.mutable_options()->clear_after();
  request.mutable_spec()->set_from_checkpoint("1/best");
  EXPECT_THAT(bert->CreateJob(Context("").get(), request, &job).error_message(),
              HasSubstr("job 'jobs/1' does not exist"));
  request.mutable_spec()->clear_from_checkpoint();
  request.mutable_spec()->mutable_init()->set_job("1/600");
  EXPECT_THAT(bert->CreateJob(Context("").get(), request, &job).error_message(),
              HasSubstr("job 'jobs/1' does not exist"));
}

TEST_F(GateTest, CancellingManyJobsLeavesThoseOfOthers) {
  MakeJob();
  const auto bert = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("x");
  v1::Job own;
  ASSERT_TRUE(bert->CreateJob(Context("").get(), create, &own).ok());
  v1::CancelJobsRequest request;
  request.add_names("jobs/1");
  request.add_names(own.name());
  v1::CancelJobsResponse response;
  ASSERT_TRUE(bert->CancelJobs(Context("").get(), request, &response).ok());
  EXPECT_EQ(response.cancelled(), 1);
  ASSERT_EQ(response.errors_size(), 1);
  EXPECT_EQ(response.errors(0).name(), "jobs/1");
  EXPECT_EQ(GetJob("jobs/1").state(), v1::JOB_STATE_QUEUED);
}

TEST_F(GateTest, WorkersAreUsersOfThisHostAndTheirSessionsAreTheirOwn) {
  Register();
  // A session of the host's worker is of no use to another user.
  const auto stub = v1::AgentService::NewStub(ChannelOf("bert", Role::kSubmitter));
  v1::SyncWorkerRequest request;
  request.set_session(session_);
  request.set_sequence(1);
  v1::SyncWorkerResponse response;
  grpc::Status status = stub->SyncWorker(Context("").get(), request, &response);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(status)), "UNKNOWN_SESSION");
  // A user may run a worker, under a name that nobody has.
  v1::RegisterWorkerRequest join;
  join.set_worker("bert-1");
  join.set_uid("u-2");
  join.set_version("1.0");
  v1::RegisterWorkerResponse joined;
  ASSERT_TRUE(stub->RegisterWorker(Context("").get(), join, &joined).ok());
  request.set_session(joined.session());
  EXPECT_TRUE(stub->SyncWorker(Context("").get(), request, &response).ok());
  // Nobody else can use that session, and it may fetch only what it was told to start from.
  const auto carl = v1::AgentService::NewStub(ChannelOf("carl", Role::kAdmin));
  status = carl->SyncWorker(Context("").get(), request, &response);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(status)), "UNKNOWN_SESSION");
  v1::DownloadCheckpointRequest fetch;
  fetch.set_name("jobs/1/checkpoints/5");
  fetch.set_file("model.safetensors");
  const auto context = Context("");
  const auto reader = stub->FetchCheckpoint(context.get(), fetch);
  v1::DownloadCheckpointResponse chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GateTest, AUserHasAFewWorkersAtMost) {
  const auto stub = v1::AgentService::NewStub(ChannelOf("bert", Role::kSubmitter));
  v1::RegisterWorkerRequest join;
  join.set_version("1.0");
  v1::RegisterWorkerResponse joined;
  for (size_t i = 0; i < WorkerSessions::kOfUserMax; ++i) {
    join.set_worker(absl::StrCat("bert-", i));
    join.set_uid(absl::StrCat("u-", i));
    ASSERT_TRUE(stub->RegisterWorker(Context("").get(), join, &joined).ok());
  }
  EXPECT_TRUE(stub->RegisterWorker(Context("").get(), join, &joined).ok()) << "it is the same one";
  join.set_worker("bert-more");
  join.set_uid("u-more");
  const grpc::Status status = stub->RegisterWorker(Context("").get(), join, &joined);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(status)), "TOO_MANY_WORKERS");
}

TEST_F(GateTest, ACertificateIsForOneWorkerAndNothingElse) {
  access::Peer peer;
  peer.worker = "far-1";
  peer.address = "192.0.2.7";
  const auto channel = Connect(peer);
  v1::RegisterWorkerRequest join;
  join.set_worker("lab-1");
  join.set_uid("u-1");
  join.set_version("1.0");
  v1::RegisterWorkerResponse joined;
  const auto agents = v1::AgentService::NewStub(channel);
  const grpc::Status status = agents->RegisterWorker(Context("").get(), join, &joined);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(status)), "NOT_THIS_WORKER");
  join.set_worker("far-1");
  EXPECT_TRUE(agents->RegisterWorker(Context("").get(), join, &joined).ok());
  for (const access::Rule& rule : access::kRules) {
    if (rule.party == access::Party::kWorker) continue;
    EXPECT_EQ(RefusalOf(CallBy(channel, rule)), "NOT_A_USER") << rule.rpc;
  }
}

TEST_F(GateTest, AWorkerThatWasRemovedMakesNoCallAndTheAuditLogIsNotFilledByIt) {
  services_->sign_in->clock = &clock_;
  access::Peer peer;
  peer.worker = "far-1";
  peer.address = "192.0.2.7";
  peer.certificate_begin = clock_.Now() - absl::Hours(24);
  const auto old = Connect(peer);
  v1::RegisterWorkerRequest join;
  join.set_worker("far-1");
  join.set_uid("u-1");
  join.set_version("1.0");
  v1::RegisterWorkerResponse joined;
  const auto reason_of = [&](const std::shared_ptr<grpc::Channel>& channel) {
    const auto agents = v1::AgentService::NewStub(channel);
    return ErrorReason(FromGrpcStatus(agents->RegisterWorker(Context("").get(), join, &joined)));
  };
  EXPECT_EQ(reason_of(old), "");
  const auto remove = [&] {
    v1::DeleteWorkerRequest request;
    request.set_name("workers/far-1");
    v1::DeleteWorkerResponse removed;
    return fleet_->DeleteWorker(Context("").get(), request, &removed).ok();
  };
  EXPECT_FALSE(remove()) << "it is in contact";
  EXPECT_EQ(reason_of(old), "") << "what is refused changes nothing";
  clock_.Advance(absl::Minutes(10));
  EXPECT_TRUE(testing::WaitUntil(remove, absl::Seconds(30)));
  EXPECT_EQ(access_store_.ListRemovedWorkers()->size(), 1u);
  const auto again = Connect(peer);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(reason_of(again), "CERTIFICATE_REVOKED");
  int noted = 0;
  for (const std::string& entry : Audit(100)) noted += absl::StrContains(entry, "was revoked");
  EXPECT_GE(noted, 1);
  EXPECT_LE(noted, 10);
  peer.certificate_begin = services_->sign_in->removed_workers.EarliestBegin("far-1");
  EXPECT_EQ(reason_of(Connect(peer)), "");
}

TEST_F(GateTest, UsersOfOtherHostsAreNoWorkers) {
  access::Peer peer = User("anna", Role::kAdmin);
  peer.address = "192.0.2.7";
  const auto channel = Connect(peer);
  for (const access::Rule& rule : access::kRules) {
    if (rule.party != access::Party::kWorker) continue;
    EXPECT_EQ(RefusalOf(CallBy(channel, rule)), "NOT_A_WORKER") << rule.rpc;
  }
}

TEST_F(GateTest, WhoIsNotKnownIsToldNothing) {
  const auto channel = server_->InProcessChannel(grpc::ChannelArguments());
  for (const access::Rule& rule : access::kRules) {
    EXPECT_EQ(RefusalOf(CallBy(channel, rule)), "UNKNOWN_CALLER") << rule.rpc;
  }
}

TEST_F(GateTest, ARoleThatWasSetGoesBeforeTheSystems) {
  MakeJob();
  directory_.SetUser({"bert", Role::kNone, "root", 0});
  const auto bert = ChannelOf("bert", Role::kAdmin);
  EXPECT_EQ(RefusalOf(CallBy(bert, access::RuleOf("JobService/GetJob"))), "ROLE_TOO_LOW");
  const auto stub = v1::AccessService::NewStub(bert);
  v1::WhoAmIResponse who;
  ASSERT_TRUE(stub->WhoAmI(Context("").get(), {}, &who).ok());
  EXPECT_EQ(who.user(), "bert");
  EXPECT_EQ(who.role(), v1::ROLE_NONE);
  EXPECT_EQ(who.role_source(), "set");
  // Root keeps its role, so nobody can lock everybody out.
  directory_.SetUser({"root", Role::kNone, "mallory", 0});
  ASSERT_TRUE(access_->WhoAmI(Context("").get(), {}, &who).ok());
  EXPECT_EQ(who.role(), v1::ROLE_ADMIN);
}

TEST_F(GateTest, AdministratorsActForOthersWithTheRightsOfThose) {
  directory_.SetUser({"bert", Role::kViewer, "root", 0});
  v1::WhoAmIResponse who;
  ASSERT_TRUE(access_->WhoAmI(Context("bert").get(), {}, &who).ok());
  EXPECT_EQ(who.user(), "bert");
  EXPECT_EQ(who.real_user(), "root");
  EXPECT_EQ(who.role(), v1::ROLE_VIEWER);
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec("x");
  v1::Job job;
  EXPECT_EQ(RefusalOf(jobs_->CreateJob(Context("bert").get(), request, &job)), "ROLE_TOO_LOW");
  const auto anna = v1::AccessService::NewStub(ChannelOf("anna", Role::kOperator));
  EXPECT_EQ(RefusalOf(anna->WhoAmI(Context("bert").get(), {}, &who)), "NOT_ADMIN");
}

TEST_F(GateTest, AdministratorsActForOthersWithTheRolesOfTheirGroups) {
  std::vector<std::string> learned;
  services_->sign_in->learn_user = [&](const std::string& user) { learned.push_back(user); };
  services_->sign_in->user_of_system = [](const std::string& user) {
    access::Peer peer = User(user, user == "otto" ? Role::kOperator : Role::kViewer);
    if (user == "otto") peer.role_source = access::RoleSource::kGroup;
    return peer;
  };
  v1::WhoAmIResponse who;
  ASSERT_TRUE(access_->WhoAmI(Context("otto").get(), {}, &who).ok());
  EXPECT_EQ(who.role(), v1::ROLE_OPERATOR);
  EXPECT_EQ(who.role_source(), "group");
  EXPECT_THAT(learned, ElementsAre("otto")) << "the system is asked for users who are not here";
  ASSERT_TRUE(access_->WhoAmI(Context("vera").get(), {}, &who).ok());
  EXPECT_EQ(who.role(), v1::ROLE_VIEWER);
  EXPECT_EQ(who.role_source(), "default");
  // A role that was set goes before the group.
  directory_.SetUser({"otto", Role::kNone, "root", 0});
  ASSERT_TRUE(access_->WhoAmI(Context("otto").get(), {}, &who).ok());
  EXPECT_EQ(who.role(), v1::ROLE_NONE);
  EXPECT_EQ(who.role_source(), "set");
}

TEST_F(GateTest, ADescriptorStaysTakenWhileACallOfItsConnectionRuns) {
  MakeJob();
  absl::Notification entered;
  absl::Notification go_on;
  metrics_.before_query = [&] {
    if (!entered.HasBeenNotified()) entered.Notify();
    go_on.WaitForNotification();
  };
  int descriptor = -1;
  std::shared_ptr<grpc::Channel> channel = Connect(User("bert", Role::kSubmitter), &descriptor);
  auto context = Context("");
  std::thread caller([&] {
    v1::QueryMetricsRequest request;
    request.set_name("jobs/1");
    v1::QueryMetricsResponse response;
    const auto stub = v1::JobService::NewStub(std::move(channel));
    EXPECT_EQ(stub->QueryMetrics(context.get(), request, &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  entered.WaitForNotification();
  context->TryCancel();
  caller.join();
  context.reset();  // its call keeps the client's end open
  struct stat before {};
  ASSERT_EQ(fstat(descriptor, &before), 0);
  std::vector<std::shared_ptr<grpc::Channel>> others;
  for (int i = 0; i < 50; ++i) {
    int other = -1;
    others.push_back(Connect(User("carl", Role::kSubmitter), &other));
    v1::WhoAmIResponse who;
    ASSERT_TRUE(
        v1::AccessService::NewStub(others.back())->WhoAmI(Context("").get(), {}, &who).ok());
    EXPECT_EQ(who.user(), "carl");
    EXPECT_NE(other, descriptor);
  }
  struct stat after {};
  ASSERT_EQ(fstat(descriptor, &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  go_on.Notify();
  EXPECT_TRUE(testing::WaitUntil([&] {
    struct stat now {};
    return fstat(descriptor, &now) != 0 || now.st_ino != before.st_ino;
  })) << "it is free once the call is over";
}

TEST_F(GateTest, StreamsEndWhenRightsChange) {
  MakeJob();
  const auto bert = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  const auto context = Context("");
  const auto watch = bert->WatchJobs(context.get(), {});
  v1::WatchJobsResponse response;
  ASSERT_TRUE(watch->Read(&response));
  v1::SetUserRequest set;
  set.set_name("bert");
  set.set_role(v1::ROLE_NONE);
  v1::User user;
  ASSERT_TRUE(access_->SetUser(Context("").get(), set, &user).ok());
  EXPECT_EQ(user.actor(), "root");
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(access_store_.ListUsers()->at(0).role, Role::kNone);
}

TEST_F(GateTest, RightsAreSetAndForgotten) {
  v1::SetUserRequest set;
  set.set_name("a b");
  v1::User user;
  const absl::Status refused = FromGrpcStatus(access_->SetUser(Context("").get(), set, &user));
  std::vector<std::string> fields;
  for (const auto& violation : GetFieldViolations(refused)) fields.push_back(violation.field);
  EXPECT_THAT(fields, ElementsAre("name", "role"));
  v1::SetProjectRequest project;
  project.mutable_project()->set_name("vision");
  project.mutable_project()->set_is_private(true);
  project.mutable_project()->add_members("mia");
  v1::Project answer;
  ASSERT_TRUE(access_->SetProject(Context("").get(), project, &answer).ok());
  const auto bert = v1::AccessService::NewStub(ChannelOf("bert", Role::kSubmitter));
  v1::ListProjectsResponse list;
  ASSERT_TRUE(bert->ListProjects(Context("").get(), {}, &list).ok());
  EXPECT_EQ(list.projects_size(), 0) << "he is no member, and need not know of it";
  ASSERT_TRUE(access_->ListProjects(Context("").get(), {}, &list).ok());
  EXPECT_EQ(list.projects_size(), 1);
  v1::DeleteProjectRequest remove;
  remove.set_name("vision");
  v1::DeleteProjectResponse removed;
  ASSERT_TRUE(access_->DeleteProject(Context("").get(), remove, &removed).ok());
  EXPECT_TRUE(access_store_.ListProjects()->empty());
}

}  // namespace
}  // namespace trainyard::rpc
