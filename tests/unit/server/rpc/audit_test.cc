// Tests which calls leave entries in the audit log, and which entries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/channel.h"
#include "tests/unit/server/rpc/gate_fixture.h"

namespace trainyard::rpc {
namespace {

using access::Role;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using AuditTest = GateTest;

TEST_F(AuditTest, TheAuditLogHasChangesAndRefusalsAndNothingElse) {
  MakeJob();  // by root, for anna
  const auto bert = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  v1::GetJobRequest get;
  get.set_name("jobs/1");
  v1::Job job;
  ASSERT_TRUE(bert->GetJob(Context("").get(), get, &job).ok());
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/1");
  EXPECT_EQ(RefusalOf(bert->CancelJob(Context("").get(), cancel, &job)), "NOT_OWNER");
  v1::CreateJobRequest trial;
  *trial.mutable_spec() = Spec("x");
  trial.set_validate_only(true);
  ASSERT_TRUE(bert->CreateJob(Context("").get(), trial, &job).ok());
  v1::ListAuditEntriesResponse audit;
  ASSERT_TRUE(access_->ListAuditEntries(Context("").get(), {}, &audit).ok());
  ASSERT_EQ(audit.entries_size(), 2) << audit.DebugString();
  EXPECT_EQ(audit.entries(0).user(), "bert");
  EXPECT_EQ(audit.entries(0).rpc(), "JobService/CancelJob");
  EXPECT_EQ(audit.entries(0).resource(), "jobs/1");
  EXPECT_FALSE(audit.entries(0).allowed());
  EXPECT_THAT(audit.entries(0).reason(), HasSubstr("belongs to 'anna'"));
  EXPECT_EQ(audit.entries(1).user(), "anna");
  EXPECT_EQ(audit.entries(1).real_user(), "root");
  EXPECT_TRUE(audit.entries(1).allowed());
  v1::ListAuditEntriesRequest refused;
  refused.set_only_refused(true);
  refused.set_page_size(1);
  v1::ListAuditEntriesResponse page;
  ASSERT_TRUE(access_->ListAuditEntries(Context("").get(), refused, &page).ok());
  EXPECT_EQ(page.entries_size(), 1);
}

TEST_F(AuditTest, ARefusalByAHandlerIsInTheAuditLogAsOne) {
  MakeJob();
  directory_.SetProject({"vision", true, {"mia"}});
  const auto bert = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("secret");
  create.mutable_spec()->set_project("vision");
  v1::Job job;
  EXPECT_EQ(RefusalOf(bert->CreateJob(Context("").get(), create, &job)), "NOT_A_MEMBER");
  create.set_validate_only(true);
  EXPECT_EQ(RefusalOf(bert->CreateJob(Context("").get(), create, &job)), "NOT_A_MEMBER");
  v1::ExplainJobRequest explain;
  *explain.mutable_spec() = create.spec();
  v1::Explanation explanation;
  EXPECT_EQ(RefusalOf(bert->ExplainJob(Context("").get(), explain, &explanation)), "NOT_A_MEMBER");
  v1::CreateTokenRequest token;
  token.set_user("anna");
  v1::CreateTokenResponse made;
  const auto access = v1::AccessService::NewStub(ChannelOf("bert", Role::kSubmitter));
  EXPECT_EQ(RefusalOf(access->CreateToken(Context("").get(), token, &made)), "NOT_ADMIN");
  EXPECT_THAT(Audit(5),
              ElementsAre(HasSubstr("CreateToken about anna: you are 'bert'; only administrators"),
                          HasSubstr("ExplainJob about secret: project 'vision' is private"),
                          HasSubstr("CreateJob about secret: project 'vision' is private"),
                          HasSubstr("CreateJob about secret: project 'vision' is private"),
                          "JobService/CreateJob about first: allowed"));
}

TEST_F(AuditTest, ACloneIsNoWayIntoAPrivateProject) {
  MakeJob();
  directory_.SetProject({"vision", true, {"mia"}});
  v1::CloneJobRequest clone;
  clone.set_name("jobs/1");
  v1::SpecChange* change = clone.add_changes();
  change->set_path("project");
  change->set_value_json("\"vision\"");
  v1::CloneJobResponse response;
  const auto bert = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  EXPECT_EQ(RefusalOf(bert->CloneJob(Context("").get(), clone, &response)), "NOT_A_MEMBER");
  const auto mia = v1::JobService::NewStub(ChannelOf("mia", Role::kSubmitter));
  const grpc::Status cloned = mia->CloneJob(Context("").get(), clone, &response);
  EXPECT_TRUE(cloned.ok()) << cloned.error_message();
  EXPECT_THAT(Audit(2), ElementsAre("JobService/CloneJob about jobs/1: allowed",
                                    HasSubstr("CloneJob about jobs/1: project 'vision' is")));
}

TEST_F(AuditTest, WhoChangesManyThingsAtOnceLeavesAnEntryForEachOutcome) {
  MakeJob();
  directory_.SetProject({"vision", true, {"mia"}});
  const auto bert = v1::JobService::NewStub(ChannelOf("bert", Role::kSubmitter));
  const auto context = Context("");
  const auto stream = bert->CreateJobs(context.get());
  v1::CreateJobsRequest create;
  for (const char* name : {"a", "closed", "b", "no name"}) {
    *create.add_requests()->mutable_spec() = Spec(name);
  }
  create.mutable_requests(1)->mutable_spec()->set_project("vision");
  ASSERT_TRUE(stream->Write(create));
  v1::CreateJobsResponse created;
  ASSERT_TRUE(stream->Read(&created));
  EXPECT_THAT(Audit(2), ElementsAre(HasSubstr("CreateJobs about closed: project 'vision' is"),
                                    "JobService/CreateJobs about a b: allowed"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());

  v1::CancelJobsRequest cancel;
  for (const char* name : {"jobs/1", "jobs/2", "jobs/3"}) cancel.add_names(name);
  v1::CancelJobsResponse cancelled;
  ASSERT_TRUE(bert->CancelJobs(Context("").get(), cancel, &cancelled).ok());
  EXPECT_EQ(cancelled.failed(), 1);
  EXPECT_THAT(Audit(2), ElementsAre(HasSubstr("CancelJobs about jobs/1: jobs/1 belongs to 'anna'"),
                                    "JobService/CancelJobs about jobs/2 jobs/3: allowed"));
  cancel.clear_names();
  cancel.set_user("anna");
  ASSERT_TRUE(bert->CancelJobs(Context("").get(), cancel, &cancelled).ok());
  EXPECT_THAT(Audit(1),
              ElementsAre(HasSubstr("CancelJobs about user:anna: jobs/1 belongs to 'anna'")));
}

TEST_F(AuditTest, ACallForAnotherUserIsInTheAuditLogEvenIfItHasAMistake) {
  v1::CreateJobRequest create;
  *create.mutable_spec() = Spec("a b");
  v1::Job job;
  EXPECT_EQ(jobs_->CreateJob(Context("anna").get(), create, &job).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(Audit(1), ElementsAre("JobService/CreateJob about a b: allowed"));
}

// Callers are known by the number of a descriptor, so that of a connection whose calls still run
// must not become that of another one.

}  // namespace
}  // namespace trainyard::rpc
