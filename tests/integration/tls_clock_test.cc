// The port for other hosts, while the clock of a laptop, of a worker or of the server is wrong: by
// an hour that changes nothing, and by more that is told as such.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/tls/issue.h"
#include "common/tls/read.h"
#include "tests/faults/shim.h"
#include "tests/integration/tls_yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsClockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_SHIM();
    host_.StartServer();
  }

  ProcessResult LogIn(Laptop& laptop) {
    const std::string token = host_.SecretFile(host_.CreateToken({"--expires-in", "30m"}));
    return laptop.Run(
        {"login", host_.target(), "--fingerprint", host_.fingerprint(), "--token-file", token});
  }
  // Starts a worker on a host with the moved clock, with an invitation or with what it has.
  void StartWorker(const std::string& name, bool is_invited) {
    std::vector<std::string> flags;
    if (is_invited) {
      const ProcessResult made = host_.yard().Cli({"workers", "invite", name, "-o", "name"});
      ASSERT_EQ(made.exit_code, 0) << made.err;
      flags = {"--join_token_file", host_.SecretFile(made.out), "--server_fingerprint",
               host_.fingerprint()};
    }
    host_.yard().StartWorker(
        name,
        {.flags = flags, .server_address = host_.address(), .environment = shim_.Environment()});
  }
  bool HasSaid(const std::string& worker, absl::string_view text) {
    return absl::StrContains(host_.yard().worker(worker)->Err(), text);
  }
  std::string PathOf(const std::string& worker, const std::string& file) {
    return JoinPath(host_.yard().WorkerStateDir(worker), absl::StrCat("tls/", file));
  }
  absl::Time EndOf(const std::string& worker) {
    const auto chain = tls::ReadCertificates(ReadFile(PathOf(worker, "worker.pem")).value_or(""));
    return chain.ok() ? chain->front().not_after : absl::InfinitePast();
  }

  Shim shim_;
  TlsYard host_;
};

class AnHour : public TlsClockTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    TlsClockTest::SetUp();
    shim_.SetClockOffset(absl::Hours(GetParam()));
  }
};

TEST_P(AnHour, OffOnALaptopChangesNothing) {
  Laptop laptop(shim_.Environment());
  // The token is good for half an hour, by the clock of the server.
  const ProcessResult signed_in = LogIn(laptop);
  ASSERT_EQ(signed_in.exit_code, 0) << signed_in.err;
  EXPECT_EQ(laptop.Run({"whoami"}).exit_code, 0);
  const std::string spec = laptop.home().Write("job.yaml", SmallSpec("remote", 1, 1, 500));
  host_.yard().StartWorker();
  const ProcessResult done = laptop.Run({"submit", spec, "--follow"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
}

TEST_P(AnHour, OffOnAWorkerLetsItJoinTrainAndRenew) {
  StartWorker("gamma", true);
  EXPECT_TRUE(WaitUntil([&] { return HasSaid("gamma", "registered"); }, kPatience))
      << host_.yard().worker("gamma")->Err();
  const std::string job = host_.yard().Submit(SmallSpec("far", 1, 1, 500));
  EXPECT_EQ(host_.yard().WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  // The worker starts again with a certificate that it should have renewed days ago.
  host_.yard().KillWorker("gamma");
  const absl::Time now = Clock::Real()->Now();
  const tls::KeyPair old =
      TlsYard::WorkerIdentity(host_.Authority(), "gamma", now - tls::kWorkerLifetime * 5 / 6);
  ASSERT_TRUE(WriteFileAtomically(PathOf("gamma", "worker.key"), old.key, 0600).ok());
  ASSERT_TRUE(WriteFileAtomically(PathOf("gamma", "worker.pem"), old.certificate, 0600).ok());
  StartWorker("gamma", false);
  EXPECT_TRUE(WaitUntil([&] { return EndOf("gamma") > now + tls::kWorkerLifetime / 2; }, kPatience))
      << host_.yard().worker("gamma")->Err();
}

INSTANTIATE_TEST_SUITE_P(Both, AnHour, ::testing::Values(-1, 1),
                         [](const auto& hours) { return hours.param < 0 ? "Slow" : "Fast"; });

TEST_F(TlsClockTest, AClockThatIsWrongByMoreIsToldAsThat) {
  Laptop laptop(shim_.Environment());
  ASSERT_EQ(LogIn(laptop).exit_code, 0);
  shim_.SetClockOffset(-absl::Hours(48));
  const auto is_told = AllOf(HasSubstr("does not hold"), HasSubstr("the clock of this host shows"));
  EXPECT_THAT(laptop.Run({"ls"}).err, AllOf(is_told, HasSubstr("set the clock")));
  EXPECT_THAT(LogIn(laptop).err, is_told);
  StartWorker("gamma", true);
  const auto refused = host_.yard().worker("gamma")->Wait(kPatience);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_THAT(refused->err, AllOf(HasSubstr("cannot join"), is_told));
  shim_.SetClockOffset(tls::kServerLifetime + absl::Hours(48));
  EXPECT_THAT(laptop.Run({"ls"}).err, AllOf(is_told, HasSubstr("it has expired at")));
  // The clock of a worker that has joined becomes wrong.
  shim_.SetClockOffset(absl::ZeroDuration());
  StartWorker("gamma", true);
  EXPECT_TRUE(WaitUntil([&] { return HasSaid("gamma", "registered"); }, kPatience));
  host_.yard().KillWorker("gamma");
  shim_.SetClockOffset(-absl::Hours(48));
  StartWorker("gamma", false);
  EXPECT_TRUE(
      WaitUntil([&] { return HasSaid("gamma", "the clock of this host shows"); }, kPatience))
      << host_.yard().worker("gamma")->Err();
}

}  // namespace
}  // namespace trainyard::testing
