// Tests what belongs to one user alone: secrets, and to whom word of jobs goes.
#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PrivateTest : public RpcTest {
 protected:
  absl::Status SetSecret(const std::string& user, const std::string& name,
                         const std::string& value) {
    v1::SetSecretRequest request;
    request.set_name(name);
    request.set_value(value);
    v1::Secret secret;
    return FromGrpcStatus(secrets_stub_->SetSecret(Context(user).get(), request, &secret));
  }
  absl::Status DeleteSecret(const std::string& user, const std::string& name) {
    v1::DeleteSecretRequest request;
    request.set_name(name);
    v1::DeleteSecretResponse response;
    return FromGrpcStatus(secrets_stub_->DeleteSecret(Context(user).get(), request, &response));
  }
  absl::StatusOr<v1::Job> Submit(const std::string& user, const v1::JobSpec& spec) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = spec;
    v1::Job job;
    const grpc::Status status = jobs_->CreateJob(Context(user).get(), request, &job);
    if (!status.ok()) return FromGrpcStatus(status);
    return job;
  }
  absl::StatusOr<v1::Job> Clone(const std::string& user, const std::string& name) {
    v1::CloneJobRequest request;
    request.set_name(name);
    v1::CloneJobResponse response;
    const grpc::Status status = jobs_->CloneJob(Context(user).get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.job();
  }
  absl::StatusOr<v1::AddTargetResponse> Add(const std::string& user, const std::string& webhook,
                                            const std::string& mail = "") {
    v1::AddTargetRequest request;
    request.mutable_target()->set_webhook(webhook);
    request.mutable_target()->set_mail(mail);
    v1::AddTargetResponse response;
    const grpc::Status status = notify_stub_->AddTarget(Context(user).get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }
  static v1::JobSpec ProgramSpec() {
    v1::JobSpec spec;
    spec.set_name("own");
    spec.mutable_program()->add_command("true");
    spec.mutable_program()->add_secrets("hf_token");
    return spec;
  }

  const std::shared_ptr<grpc::Channel> channel_ = [this] {
    access::Peer root = User("root", access::Role::kAdmin);
    root.is_host = true;
    return Connect(root);
  }();
  const std::unique_ptr<v1::SecretService::Stub> secrets_stub_ =
      v1::SecretService::NewStub(channel_);
  const std::unique_ptr<v1::NotifyService::Stub> notify_stub_ =
      v1::NotifyService::NewStub(channel_);
};

std::string Violations(const absl::Status& status) {
  std::string all;
  for (const FieldViolation& violation : GetFieldViolations(status)) {
    absl::StrAppend(&all, violation.field, ": ", violation.description, "\n");
  }
  return all;
}

TEST_F(PrivateTest, AUserSeesTheOwnSecretsAndNoValue) {
  ASSERT_TRUE(SetSecret("anna", "hf_token", "the-value").ok());
  v1::ListSecretsResponse list;
  ASSERT_TRUE(secrets_stub_->ListSecrets(Context("anna").get(), {}, &list).ok());
  ASSERT_EQ(list.secrets_size(), 1);
  EXPECT_EQ(list.secrets(0).size(), 9);
  EXPECT_THAT(list.ShortDebugString(), Not(HasSubstr("the-value")));
  ASSERT_TRUE(secrets_stub_->ListSecrets(Context("bert").get(), {}, &list).ok());
  EXPECT_EQ(list.secrets_size(), 0);
  EXPECT_EQ(ErrorReason(DeleteSecret("bert", "hf_token")), "SECRET_NOT_FOUND");
  EXPECT_TRUE(DeleteSecret("anna", "hf_token").ok());

  v1::ListAuditEntriesRequest request;
  request.set_page_size(50);
  v1::ListAuditEntriesResponse audit;
  ASSERT_TRUE(access_->ListAuditEntries(Context("").get(), request, &audit).ok());
  EXPECT_THAT(audit.ShortDebugString(), HasSubstr("SecretService/SetSecret"));
  EXPECT_THAT(audit.ShortDebugString(), Not(HasSubstr("the-value")));
}

TEST_F(PrivateTest, NamesAndSizesAreBounded) {
  for (const char* name : {"", "1a", "../x", "a/b", ".a", "a b"}) {
    EXPECT_THAT(Violations(SetSecret("anna", name, "v")), HasSubstr("name: ")) << name;
  }
  EXPECT_THAT(Violations(SetSecret("anna", "a", "")), HasSubstr("value: "));
  EXPECT_THAT(Violations(SetSecret("anna", "a", std::string((64 << 10) + 1, 'x'))),
              HasSubstr("value: "));
  EXPECT_TRUE(SetSecret("anna", "a", std::string(64 << 10, 'x')).ok());
}

TEST_F(PrivateTest, AJobNeedsTheSecretsOfItsOwner) {
  EXPECT_THAT(Violations(Submit("anna", ProgramSpec()).status()),
              HasSubstr("spec.program.secrets[0]: 'anna' has no secret 'hf_token'"));
  ASSERT_TRUE(SetSecret("anna", "hf_token", "of anna").ok());
  const auto job = Submit("anna", ProgramSpec());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->ShortDebugString(), Not(HasSubstr("of anna")));
  EXPECT_THAT(Violations(Clone("bert", job->name()).status()),
              HasSubstr("'bert' has no secret 'hf_token'"));
  ASSERT_TRUE(SetSecret("bert", "hf_token", "of bert").ok());
  EXPECT_TRUE(Clone("bert", job->name()).ok());
}

TEST_F(PrivateTest, AWorkerGetsTheSecretsOfAttemptsThatWerePlacedOnIt) {
  ASSERT_TRUE(SetSecret("anna", "hf_token", "of anna").ok());
  ASSERT_TRUE(SetSecret("anna", "other", "not asked for").ok());
  Register();
  const auto job = Submit("anna", ProgramSpec());
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::SyncWorkerResponse orders = Sync({});
  ASSERT_EQ(orders.attempts_size(), 1);
  v1::FetchSecretsRequest request;
  request.set_session(session_);
  request.set_attempt(orders.attempts(0).attempt());
  request.set_fencing_token(orders.attempts(0).fencing_token());
  v1::FetchSecretsResponse response;
  const auto fetch = [&] {
    return FromGrpcStatus(agents_->FetchSecrets(Context("").get(), request, &response));
  };
  ASSERT_TRUE(fetch().ok()) << fetch();
  ASSERT_EQ(response.secrets_size(), 1);
  EXPECT_EQ(response.secrets().at("hf_token"), "of anna");

  request.set_fencing_token(orders.attempts(0).fencing_token() + 1);
  EXPECT_EQ(ErrorReason(fetch()), "STALE_FENCING_TOKEN");
  request.set_fencing_token(orders.attempts(0).fencing_token());
  request.set_session("another");
  EXPECT_EQ(ErrorReason(fetch()), "UNKNOWN_SESSION");
  request.set_session(session_);
  ASSERT_TRUE(DeleteSecret("anna", "hf_token").ok());
  const absl::Status missing = fetch();
  EXPECT_EQ(ErrorReason(missing), "SECRET_NOT_FOUND");
  EXPECT_THAT(std::string(missing.message()), HasSubstr("'hf_token'"));
  // No user gets them.
  const auto user = v1::AgentService::NewStub(Connect(User("anna", access::Role::kAdmin)));
  EXPECT_FALSE(user->FetchSecrets(Context("").get(), request, &response).ok());
}

TEST_F(PrivateTest, TargetsAreBoundedCheckedAndSeenByTheirOwner) {
  const auto added = Add("anna", "https://chat.lab.example/hooks/key7");
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->target().name(), "webhook");
  EXPECT_EQ(added->signing_key().size(), 64u);
  EXPECT_THAT(added->target().events(),
              ElementsAre(v1::NOTIFY_EVENT_END, v1::NOTIFY_EVENT_FAILURE));
  v1::ListTargetsResponse list;
  ASSERT_TRUE(notify_stub_->ListTargets(Context("anna").get(), {}, &list).ok());
  ASSERT_EQ(list.targets_size(), 1);
  EXPECT_THAT(list.ShortDebugString(), Not(HasSubstr("key7")));
  ASSERT_TRUE(notify_stub_->ListTargets(Context("bert").get(), {}, &list).ok());
  EXPECT_EQ(list.targets_size(), 0);
  EXPECT_EQ(ErrorReason(Add("anna", "http://169.254.169.254/").status()), "NOTIFY_FORBIDDEN");
  EXPECT_EQ(ErrorReason(Add("anna", "", "anna@lab.example").status()), "NOTIFY_FORBIDDEN")
      << "there is no mail system here";
  EXPECT_THAT(Violations(Add("anna", "nothing").status()), HasSubstr("target.webhook: "));
  EXPECT_THAT(Violations(Add("anna", "", "a@b\nBcc: c@d").status()), HasSubstr("target.mail: "));
  EXPECT_THAT(Violations(Add("anna", "").status()), HasSubstr("target: "));
  for (int i = 2; i <= 20; ++i) {
    EXPECT_EQ(Add("anna", "https://chat.lab.example/x")->target().name(),
              absl::StrCat("webhook-", i));
  }
  EXPECT_EQ(ErrorReason(Add("anna", "https://chat.lab.example/x").status()), "TOO_MANY_TARGETS");
  EXPECT_TRUE(Add("bert", "https://chat.lab.example/x").ok());
}

TEST_F(PrivateTest, TheAddressOfASpecStaysWithItsAuthor) {
  v1::JobSpec spec = Spec("told");
  spec.mutable_notify()->set_webhook("http://127.0.0.1/");
  EXPECT_THAT(Violations(Submit("anna", spec).status()), HasSubstr("spec.notify.webhook: "));
  spec.mutable_notify()->set_webhook("https://chat.lab.example/hooks/7");
  const auto job = Submit("anna", spec);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(Clone("anna", job->name())->resolved_spec().has_notify());
  EXPECT_FALSE(Clone("bert", job->name())->resolved_spec().has_notify());
}

}  // namespace
}  // namespace trainyard::rpc
