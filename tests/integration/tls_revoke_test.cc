// Certificates of workers that were revoked: the real programs are turned away, on connections that
// are open, when they renew and after a restart of the server, until they are invited again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/rpc/status.h"
#include "tests/integration/tls_yard.h"
#include "tests/testing/wait.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

class TlsRevokeTest : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartServer(); }

  // Invites the worker gamma and starts it, with what it has from before.
  void StartInvited() {
    Yard& yard = host_.yard();
    const ProcessResult made = yard.Cli({"workers", "invite", "gamma", "-o", "name"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    yard.StartWorker("gamma", {.flags = {"--join_token_file", host_.SecretFile(made.out),
                                         "--server_fingerprint", host_.fingerprint()},
                               .server_address = host_.address()});
    EXPECT_TRUE(WaitUntil([&] { return HasSaid("registered"); }, kPatience))
        << yard.worker("gamma")->Err();
  }
  bool HasSaid(absl::string_view text) {
    return absl::StrContains(host_.yard().worker("gamma")->Err(), text);
  }
  // Returns what the worker has, as somebody has it who has copied its files.
  tls::KeyPair CopyOfFiles() {
    const std::string folder = JoinPath(host_.yard().WorkerStateDir("gamma"), "tls");
    return {ReadFile(JoinPath(folder, "worker.key")).value_or(""),
            ReadFile(JoinPath(folder, "worker.pem")).value_or("")};
  }
  // Renews the certificate. Returns "" or the reason of the error.
  static std::string Renew(const std::shared_ptr<grpc::Channel>& channel, const std::string& key) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    context.set_wait_for_ready(true);
    v1::RenewCertificateRequest request;
    request.set_certificate_request(tls::MakeWorkerRequest(key, "gamma").value_or(""));
    v1::RenewCertificateResponse response;
    const absl::Status status = rpc::FromGrpcStatus(
        v1::AgentService::NewStub(channel)->RenewCertificate(&context, request, &response));
    if (status.ok()) return "";
    return absl::IsUnavailable(status) ? "UNAVAILABLE" : ErrorReason(status);
  }

  TlsYard host_;
};

TEST_F(TlsRevokeTest, ARevokedCertificateIsRefusedUntilTheWorkerIsInvitedAgain) {
  StartInvited();
  Yard& yard = host_.yard();
  const tls::KeyPair old = CopyOfFiles();
  const auto thief = host_.ChannelOf(old);
  ASSERT_EQ(Renew(thief, old.key), "");
  const ProcessResult revoked = yard.Cli({"workers", "revoke", "gamma"});
  ASSERT_EQ(revoked.exit_code, 0) << revoked.err;
  EXPECT_THAT(revoked.err, HasSubstr("certificates that worker 'gamma' has are refused"));
  // The open connection ends, and so the first call may only learn that.
  std::string reason = Renew(thief, old.key);
  if (reason == "UNAVAILABLE") reason = Renew(thief, old.key);
  EXPECT_EQ(reason, "CERTIFICATE_REVOKED");
  EXPECT_TRUE(WaitUntil([&] { return HasSaid("trainyard workers invite gamma"); }, kPatience))
      << yard.worker("gamma")->Err();
  EXPECT_THAT(yard.Cli({"audit"}).out, HasSubstr("RevokeCertificate"));

  yard.KillServer();
  host_.StartServer();
  EXPECT_EQ(Renew(host_.ChannelOf(old), old.key), "CERTIFICATE_REVOKED") << "after a restart";
  yard.KillWorker("gamma");
  StartInvited();
  const tls::KeyPair renewed = CopyOfFiles();
  EXPECT_EQ(Renew(host_.ChannelOf(renewed), renewed.key), "");
  EXPECT_NE(renewed.key, old.key);
  EXPECT_EQ(Renew(host_.ChannelOf(old), old.key), "CERTIFICATE_REVOKED") << "as it was before";
}

TEST_F(TlsRevokeTest, AnInvitationThatWasUsedUpLeavesAWorkerItsCertificate) {
  StartInvited();
  Yard& yard = host_.yard();
  const tls::KeyPair own = CopyOfFiles();
  yard.KillWorker("gamma");
  // A worker of an older version has not noted its invitation.
  const std::string noted = JoinPath(yard.WorkerStateDir("gamma"), "tls/invitation");
  ASSERT_EQ(unlink(noted.c_str()), 0);
  const std::string ended = host_.SecretFile("tyj_" + std::string(43, 'x'));
  const auto start = [&] {
    yard.StartWorker("gamma", {.flags = {"--join_token_file", ended, "--server_fingerprint",
                                         host_.fingerprint()},
                               .server_address = host_.address()});
    EXPECT_TRUE(WaitUntil([&] { return HasSaid("registered"); }, kPatience))
        << yard.worker("gamma")->Err();
  };
  start();
  EXPECT_TRUE(HasSaid("the worker keeps its certificate"));
  EXPECT_EQ(CopyOfFiles().certificate, own.certificate);
  yard.KillWorker("gamma");
  start();
  EXPECT_FALSE(HasSaid("the worker keeps its certificate")) << "it was tried once";
}

TEST_F(TlsRevokeTest, ANameThatNobodyHasIsToldAsThat) {
  const ProcessResult unknown = host_.yard().Cli({"workers", "revoke", "delta"});
  EXPECT_EQ(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("no worker of that name is known"));
  EXPECT_EQ(host_.yard().Cli({"workers", "revoke", "../delta"}).exit_code, 2);
}

}  // namespace
}  // namespace trainyard::testing
