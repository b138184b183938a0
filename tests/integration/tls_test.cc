// The port for other hosts, as people at laptops and workers of other hosts use it: the real
// programs sign in, join, train, and are turned away when their tokens have ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/rpc/status.h"
#include "common/tls/certificate.h"
#include "common/tls/read.h"
#include "tests/integration/tls_yard.h"
#include "tests/testing/wait.h"
#include "trainyard/v1/access.grpc.pb.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TlsTest : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartServer(); }

  // Signs the laptop in with a new token, and returns the token's text.
  std::string LogIn(Laptop& laptop, const std::vector<std::string>& flags = {}) {
    const std::string token = host_.CreateToken();
    std::vector<std::string> args = {"login",         host_.target(),
                                     "--fingerprint", host_.fingerprint(),
                                     "--token-file",  host_.SecretFile(token)};
    args.insert(args.end(), flags.begin(), flags.end());
    const ProcessResult result = laptop.Run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("signed in to " + host_.address()));
    return token;
  }
  // Returns the id by which people name a token.
  std::string IdOf(const std::string& token) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::WhoAmIResponse who;
    const grpc::Status status =
        v1::AccessService::NewStub(host_.ChannelWith(token))->WhoAmI(&context, {}, &who);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return who.token();
  }
  // Invites a worker, and returns the flags with which it joins.
  std::vector<std::string> Invite(const std::string& worker) {
    const ProcessResult made = host_.yard().Cli({"workers", "invite", worker, "-o", "name"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return {"--join_token_file", host_.SecretFile(made.out), "--server_fingerprint",
            host_.fingerprint()};
  }
  bool IsActive(const std::string& worker) {
    const std::string listed = host_.yard().Cli({"workers", "ls", "-o", "jsonl"}).out;
    for (const absl::string_view line : absl::StrSplit(listed, '\n')) {
      if (absl::StrContains(line, absl::StrCat("\"workers/", worker, "\"")) &&
          absl::StrContains(line, "ACTIVE")) {
        return true;
      }
    }
    return false;
  }

  TlsYard host_;
  Laptop laptop_;
};

TEST_F(TlsTest, ALaptopSignsInSubmitsAndFollows) {
  host_.yard().StartWorker();
  LogIn(laptop_);
  EXPECT_THAT(laptop_.Run({"whoami"}).out,
              AllOf(HasSubstr("role    admin"), HasSubstr(host_.address())));
  const std::string spec = laptop_.home().Write(
      "job.yaml", SmallSpec("remote", 1, 2, 1000, "checkpoint: {every: 10 steps}\n"));
  const ProcessResult submitted = laptop_.Run({"submit", spec, "--follow"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_THAT(laptop_.Run({"ls"}).out, HasSubstr("remote"));
  EXPECT_GT(laptop_.Run({"logs", "1", "-f"}).out.size(), 100u);
  EXPECT_THAT(laptop_.Run({"metrics", "1"}).out, HasSubstr("train.loss"));
  const std::string folder = laptop_.home().File("checkpoint");
  const ProcessResult fetched = laptop_.Run({"checkpoints", "get", "1", "-O", folder});
  EXPECT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_TRUE(FileExists(JoinPath(folder, "MANIFEST")));
}

TEST_F(TlsTest, ASignInNamesTheServerAndLogoutForgetsTheToken) {
  const std::string token = LogIn(laptop_);
  EXPECT_EQ(laptop_.Config(), absl::StrCat("contexts:\n  127.0.0.1:\n    server: ", host_.address(),
                                           "\ncurrent: 127.0.0.1\n"));
  struct stat info {};
  const std::string stored = laptop_.home().File(
      absl::StrCat(".config/trainyard/servers/127.0.0.1_", host_.port(), "/token"));
  ASSERT_EQ(stat(stored.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  EXPECT_EQ(laptop_.Run({"ls"}).exit_code, 0);
  const ProcessResult out = laptop_.Run({"logout"});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  EXPECT_THAT(out.err, HasSubstr("forgot the token and the certificate of " + host_.address()));
  EXPECT_FALSE(FileExists(stored));
  const ProcessResult refused = laptop_.Run({"ls"});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err, HasSubstr("run `trainyard login " + host_.target() + "`"));
  EXPECT_EQ(laptop_.Run({"logout"}).exit_code, 3);
  // The token itself is as good as before.
  EXPECT_TRUE(TlsYard::WhoAmI(*host_.ChannelWith(token)).ok());
}

TEST_F(TlsTest, TheNameOfAContextIsChosenAndNoOtherIsLost) {
  laptop_.Run({"contexts", "add", "home", "ssh://home", "--use"});
  LogIn(laptop_, {"--name", "lab", "--no-use"});
  EXPECT_THAT(laptop_.Run({"contexts", "show"}).out, HasSubstr("ssh://home"));
  EXPECT_EQ(laptop_.Run({"ls", "--context", "lab"}).exit_code, 0);
  // A second sign-in finds the context that the server has.
  LogIn(laptop_);
  EXPECT_EQ(laptop_.Run({"contexts", "ls", "-o", "name"}).out, "home\nlab\n");
  EXPECT_THAT(laptop_.Run({"contexts", "show"}).out, HasSubstr(host_.address()));
  const ProcessResult taken = laptop_.Run({"login", host_.target(), "--name", "home"});
  EXPECT_EQ(taken.exit_code, 6);
  EXPECT_THAT(taken.err, HasSubstr("there is a context 'home' already, for ssh://home"));
  EXPECT_EQ(laptop_.Run({"login", host_.target(), "--name", "../home"}).exit_code, 2);
}

TEST_F(TlsTest, WhatDoesNotSignInIsNotStored) {
  const std::string token = host_.SecretFile(host_.CreateToken());
  const std::string print = host_.fingerprint();
  const auto expect = [this](const std::vector<std::string>& flags, int exit_code,
                             const std::string& text, const std::string& input = "") {
    std::vector<std::string> args = {"login", host_.target()};
    args.insert(args.end(), flags.begin(), flags.end());
    const ProcessResult result = laptop_.Run(args, input);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  expect({"--token-file", token}, 6, "nobody has confirmed the certificate of");
  expect({"--token-file", token, "--fingerprint", "abc"}, 2, "fingerprint 'abc' is none");
  expect({"--token-file", token, "--fingerprint", std::string(64, 'a')}, 6,
         "another certificate than the one that was accepted");
  expect({"--token-file", host_.SecretFile("tyk_short"), "--fingerprint", print}, 2,
         "characters instead of 47");
  expect({"--token-file", host_.SecretFile("tyj_" + std::string(43, 'x')), "--fingerprint", print},
         2, "lets a worker join");
  expect({"--token-file", host_.SecretFile("tyk_" + std::string(43, 'x')), "--fingerprint", print},
         4, "is not one of this server");
  expect({"--token-file", "/nonexistent", "--fingerprint", print}, 3, "/nonexistent");
  EXPECT_EQ(laptop_.Config(), "");
  EXPECT_FALSE(FileExists(laptop_.home().File(".config/trainyard/servers")));
  const std::string text = ReadFile(token).value_or("");
  expect({"--token-file", "-", "--fingerprint", print}, 0, "signed in to", text);
}

TEST_F(TlsTest, ARevokedTokenEndsItsStreamsAtOnceAndNoOthers) {
  host_.yard().StartWorker();
  const std::string token = LogIn(laptop_);
  Laptop other;
  LogIn(other);
  const std::string job = host_.yard().Submit(SmallSpec("long", 1, 10'000, 1000));
  const auto logs = laptop_.Start({"logs", job, "-f"}, "logs");
  const auto watch = laptop_.Start({"watch", job}, "watch");
  const auto others = other.Start({"logs", job, "-f"}, "logs");
  ASSERT_TRUE(WaitUntil(
      [&] {
        return !laptop_.Written("logs.out").empty() && !laptop_.Written("watch.err").empty() &&
               !other.Written("logs.out").empty();
      },
      kPatience));
  const ProcessResult revoked = host_.yard().Cli({"tokens", "revoke", IdOf(token)});
  ASSERT_EQ(revoked.exit_code, 0) << revoked.err;
  for (const auto* follower : {&logs, &watch}) {
    const auto end = (*follower)->Wait(kPatience);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->exit_code, 4) << end->err;
    EXPECT_THAT(end->err, AllOf(HasSubstr("was revoked"), Not(HasSubstr("trying again"))));
  }
  EXPECT_EQ(laptop_.Run({"ls"}).exit_code, 4);
  // The other token of the same user is another one.
  const size_t written = other.Written("logs.out").size();
  EXPECT_TRUE(WaitUntil([&] { return other.Written("logs.out").size() > written; }, kPatience));
  EXPECT_TRUE(others->running());
  host_.yard().Cli({"cancel", job});
  EXPECT_TRUE(others->Wait(kPatience).ok());
}

TEST_F(TlsTest, AWorkerOfAnotherHostJoinsOnceAndComesBackWithItsCertificate) {
  LogIn(laptop_);
  const std::vector<std::string> invitation = Invite("gamma");
  Yard& yard = host_.yard();
  yard.StartWorker("gamma", {.flags = invitation, .server_address = host_.address()});
  const ProcessResult followed = laptop_.Run(
      {"submit", laptop_.home().Write("first.yaml", SmallSpec("first", 1, 1, 500)), "--follow"});
  EXPECT_EQ(followed.exit_code, 0) << followed.err << yard.worker("gamma")->Err();
  EXPECT_GT(laptop_.Run({"logs", "1"}).out.size(), 100u);
  const std::string key = JoinPath(yard.WorkerStateDir("gamma"), "tls/worker.key");
  struct stat info {};
  ASSERT_EQ(stat(key.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);

  // The invitation is used up, for another worker and for a thief alike.
  const auto refused = [&](const std::string& name, const std::string& why) {
    yard.StartWorker(name, {.flags = invitation, .server_address = host_.address()});
    const auto end = yard.worker(name)->Wait(kPatience);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_NE(end->exit_code, 0);
    EXPECT_THAT(end->err, HasSubstr(why));
    EXPECT_FALSE(FileExists(JoinPath(yard.WorkerStateDir(name), "tls/worker.pem")));
  };
  refused("delta", "was revoked or used up");

  yard.KillWorker("gamma");
  yard.StartWorker("gamma", {.flags = {}, .server_address = host_.address()});
  const std::string job = yard.Submit(SmallSpec("second", 1, 1, 500));
  EXPECT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(IsActive("gamma"));
}

TEST_F(TlsTest, AServerThatIsKilledIsFoundAgainByItsWorkersAndFollowers) {
  LogIn(laptop_);
  Yard& yard = host_.yard();
  yard.StartWorker("gamma", {.flags = Invite("gamma"), .server_address = host_.address()});
  const ProcessResult submitted = laptop_.Run(
      {"submit", laptop_.home().Write("long.yaml", SmallSpec("long", 1, 1, 1'000'000)), "-q"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const auto follower = laptop_.Start({"watch", "1"}, "follower");
  ASSERT_TRUE(yard.WaitForStep("jobs/1", 10));
  const uint16_t port = host_.port();
  const std::string state_dir = yard.server_state_dir();
  yard.KillServer();
  TlsYard again(port, state_dir);
  again.StartServer();
  const int64_t step = again.yard().GetJob("jobs/1").progress().step();
  EXPECT_TRUE(again.yard().WaitForStep("jobs/1", step + 100)) << yard.worker("gamma")->Err();
  EXPECT_EQ(again.yard().Cli({"cancel", "1"}).exit_code, 0);
  const auto end = follower->Wait(kPatience);
  EXPECT_TRUE(end.ok()) << end.status() << laptop_.Written("follower");
}

TEST_F(TlsTest, AWorkerWhoseAnswerWasLostJoinsAgainWithItsKey) {
  const std::vector<std::string> invitation = Invite("gamma");
  Yard& yard = host_.yard();
  // Joins as a worker does, with a key that it has written to its disk before.
  const auto join = [&](const std::string& key) {
    std::string token = ReadFile(invitation[1]).value_or("");
    absl::StripAsciiWhitespace(&token);
    const auto agents = v1::AgentService::NewStub(host_.ChannelWith(token));
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::JoinWorkerRequest request;
    request.set_worker("gamma");
    request.set_certificate_request(tls::MakeWorkerRequest(key, "gamma").value_or(""));
    v1::JoinWorkerResponse response;
    return rpc::FromGrpcStatus(agents->JoinWorker(&context, request, &response));
  };
  const std::string key = tls::MakeKey();
  const std::string folder = JoinPath(yard.WorkerStateDir("gamma"), "tls");
  ASSERT_TRUE(MakeDirectories(folder, 0700).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(folder, "joining.key"), key, 0600).ok());
  ASSERT_TRUE(join(key).ok());
  // The worker has not got the answer, and the server ends before it asks again.
  yard.KillServer();
  host_.StartServer();
  EXPECT_EQ(ErrorReason(join(tls::MakeKey())), "TOKEN_REVOKED");
  EXPECT_THAT(yard.Cli({"audit"}).out, HasSubstr("was revoked or used up"));
  yard.StartWorker("gamma", {.flags = invitation, .server_address = host_.address()});
  EXPECT_TRUE(WaitUntil([&] { return IsActive("gamma"); }, kPatience))
      << yard.worker("gamma")->Err();
  EXPECT_EQ(ReadFile(JoinPath(folder, "worker.key")).value_or(""), key);
  EXPECT_FALSE(FileExists(JoinPath(folder, "joining.key")));
}

TEST_F(TlsTest, AnInvitationIsForOneNameAndFromOneServer) {
  const std::vector<std::string> invitation = Invite("gamma");
  Yard& yard = host_.yard();
  const auto expect = [&](const std::string& name, const std::vector<std::string>& flags,
                          const std::string& why) {
    yard.StartWorker(name, {.flags = flags, .server_address = host_.address()});
    const auto end = yard.worker(name)->Wait(kPatience);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_NE(end->exit_code, 0);
    EXPECT_THAT(end->err, HasSubstr(why));
  };
  expect("delta", invitation, "the invitation is for worker 'gamma', not for 'delta'");
  expect("gamma", {}, "trainyard workers invite");
  expect("gamma",
         {"--join_token_file", invitation[1], "--server_fingerprint", std::string(64, 'b')},
         "another certificate than the one that was accepted");
  // None of that has used the invitation up.
  yard.StartWorker("gamma", {.flags = invitation, .server_address = host_.address()});
  EXPECT_TRUE(WaitUntil([&] { return IsActive("gamma"); }, kPatience))
      << yard.worker("gamma")->Err();
}

TEST_F(TlsTest, AWorkerRenewsItsCertificateInTimeAndSaysIfItIsTooLate) {
  Yard& yard = host_.yard();
  // Gives the worker what it would have if it had joined so long ago.
  const auto joined_before = [&](const std::string& name, absl::Duration age) {
    const tls::KeyPair identity =
        TlsYard::WorkerIdentity(host_.Authority(), name, Clock::Real()->Now() - age);
    const std::string folder = JoinPath(yard.WorkerStateDir(name), "tls");
    ASSERT_TRUE(MakeDirectories(folder, 0700).ok());
    const std::vector<std::pair<std::string, std::string>> files = {
        {"worker.key", identity.key},
        {"worker.pem", identity.certificate},
        {"authority.pem", host_.Authority().certificate},
        {"server_name", std::string(tls::kServerName)}};
    for (const auto& [file, text] : files) {
      ASSERT_TRUE(WriteFileAtomically(JoinPath(folder, file), text, 0600).ok());
    }
    yard.StartWorker(name, {.flags = {}, .server_address = host_.address()});
  };
  const auto end_of = [&](const std::string& name) {
    const auto chain = tls::ReadCertificates(
        ReadFile(JoinPath(yard.WorkerStateDir(name), "tls/worker.pem")).value_or(""));
    return chain.ok() ? chain->front().not_after : absl::InfinitePast();
  };
  joined_before("gamma", tls::kWorkerLifetime * 5 / 6);
  const absl::Time soon = Clock::Real()->Now() + tls::kWorkerLifetime / 2;
  EXPECT_TRUE(WaitUntil([&] { return end_of("gamma") > soon; }, kPatience))
      << yard.worker("gamma")->Err();
  EXPECT_TRUE(WaitUntil([&] { return IsActive("gamma"); }, kPatience));
  joined_before("delta", tls::kWorkerLifetime + absl::Hours(1));
  const auto end = yard.worker("delta")->Wait(kPatience);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_NE(end->exit_code, 0);
  EXPECT_THAT(end->err,
              AllOf(HasSubstr("it has expired at"), HasSubstr("trainyard workers invite")));
}

TEST_F(TlsTest, ThePinHoldsWhateverIsWrongWithTheToken) {
  LogIn(laptop_);
  const std::string folder =
      laptop_.home().File(absl::StrCat(".config/trainyard/servers/127.0.0.1_", host_.port()));
  const std::string token = JoinPath(folder, "token");
  ASSERT_EQ(chmod(token.c_str(), 0644), 0);
  const ProcessResult readable = laptop_.Run({"ls"});
  EXPECT_NE(readable.exit_code, 0);
  EXPECT_THAT(readable.err, HasSubstr("other users may read the token"));
  // Somebody takes the place of the server while its user signs in anew.
  const uint16_t port = host_.port();
  const std::string print = host_.fingerprint();
  host_.yard().KillServer();
  TlsYard stranger(port);
  stranger.StartServer();
  const std::vector<std::string> login = {"login", stranger.target(), "--token-file",
                                          stranger.SecretFile(stranger.CreateToken())};
  const auto expect_refusal = [&](const std::string& why) {
    const ProcessResult refused = laptop_.Run(login);
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.err, HasSubstr(why));
  };
  expect_refusal("Accepted: " + print);
  ASSERT_EQ(unlink(token.c_str()), 0);
  expect_refusal("Accepted: " + print);
  EXPECT_THAT(laptop_.Run({"ls"}).err, HasSubstr("trainyard login"));
  // A pin that cannot be read is not the same as none.
  const std::string pin = JoinPath(folder, "authority.pem");
  ASSERT_EQ(unlink(pin.c_str()), 0);
  ASSERT_TRUE(MakeDirectories(pin, 0700).ok());
  expect_refusal("the certificate that was accepted for " + stranger.address());
  EXPECT_NE(laptop_.Run({"ls"}).exit_code, 0);
}

TEST_F(TlsTest, TokensAndPinsSurviveARestartAndAnotherServerIsNotTrusted) {
  const std::string token = LogIn(laptop_);
  const uint16_t port = host_.port();
  const std::string state = host_.yard().server_state_dir();
  const std::string print = host_.fingerprint();
  host_.yard().KillServer();
  {
    TlsYard again(port, state);
    again.StartServer();
    EXPECT_EQ(again.fingerprint(), print);
    EXPECT_EQ(laptop_.Run({"ls"}).exit_code, 0);
    again.yard().KillServer();
  }
  TlsYard stranger(port);
  stranger.StartServer();
  const ProcessResult refused = laptop_.Run({"ls"});
  EXPECT_EQ(refused.exit_code, 6) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("Somebody may stand between you and the server"),
                                 HasSubstr(print), HasSubstr(stranger.fingerprint())));
  // The stranger never saw the token, or it would have counted a use that fails.
  EXPECT_THAT(stranger.yard().Cli({"audit"}).out, Not(HasSubstr("token")));
}

}  // namespace
}  // namespace trainyard::testing
