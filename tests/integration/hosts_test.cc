// Tests gangs over several hosts: each worker lives in a network namespace of its own, and its
// ranks reach the others only over Ethernet. Some lines are slow, some break in the middle of a
// training, and some never work.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "tests/faults/report.h"
#include "tests/integration/yard.h"
#include "tests/testing/networks.h"
#include "tests/testing/process.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

const char* const kNames[] = {"alpha", "beta", "gamma"};

// With short steps, ranks give up a collective after this time.
constexpr absl::Duration kCollectiveTimeout = absl::Seconds(30);

// A server, and a worker on each of several hosts.
class HostsTest : public ::testing::Test {
 protected:
  static Yard::Options FourDevices() {
    Yard::Options options;
    options.cpu_devices = 4;
    options.worker_flags = {"--share_cpus"};
    return options;
  }

  // Skips the test if there can be no hosts. Workers get the flags of their position in `flags`.
  void StartHosts(int hosts, absl::Duration delay = {},
                  const std::vector<std::vector<std::string>>& flags = {}) {
    auto networks = Networks::Make(hosts, delay);
    if (absl::IsUnavailable(networks.status())) {
      GTEST_SKIP() << networks.status().message();
    }
    ASSERT_TRUE(networks.ok()) << networks.status();
    networks_ = *std::move(networks);
    yard_.StartServer();
    for (int host = 0; host < hosts; ++host) {
      const auto place = static_cast<size_t>(host);
      yard_.StartWorker(
          kNames[place],
          {.network_namespace = networks_->Namespace(host),
           .flags = place < flags.size() ? flags[place] : std::vector<std::string>()});
    }
    yard_.WaitForWorkers(static_cast<size_t>(hosts));
  }

  std::string Submit(const std::string& name, int ranks, bool spread, int epochs,
                     const std::string& extra = "", int train_size = 2000) {
    return yard_.Submit(absl::StrReplaceAll(SmallSpec(name, ranks, epochs, train_size, extra),
                                            {{absl::StrCat("devices: ", ranks, "\n"),
                                              absl::StrCat("devices: {count: ", ranks, ", spread: ",
                                                           spread ? "true" : "false", "}\n")}}));
  }

  void ExpectSuccessOn(const std::string& job, int hosts) {
    const Job ended = yard_.WaitForEnd(job);
    ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
    std::set<std::string> workers;
    for (const auto& rank : ended.placement()) workers.insert(rank.worker());
    EXPECT_EQ(workers.size(), static_cast<size_t>(hosts));
  }

  // Returns values by step. If two attempts have made the same step, the newest attempt counts.
  std::map<int64_t, double> Losses(const std::string& job) {
    std::map<int64_t, double> losses;
    for (const auto& point : yard_.Metrics(job, "train.loss")) losses[point.step()] = point.value();
    return losses;
  }

  std::vector<v1::Attempt> Attempts(const std::string& job) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::ListAttemptsRequest request;
    request.set_parent(job);
    v1::ListAttemptsResponse response;
    const grpc::Status status = yard_.jobs().ListAttempts(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.attempts().begin(), response.attempts().end()};
  }

  // Returns the host of a rank of the job's attempt.
  int HostOf(const std::string& job, int rank) {
    const Job seen = yard_.GetJob(job);
    for (const auto& placed : seen.placement()) {
      if (placed.rank() != rank) continue;
      for (int host = 0; host < 3; ++host) {
        if (absl::EndsWith(placed.worker(), kNames[host])) return host;
      }
    }
    ADD_FAILURE() << "rank " << rank << " is nowhere: " << seen.ShortDebugString();
    return 0;
  }

  // This is declared before the yard, so that it is destroyed after the processes in it.
  std::unique_ptr<Networks> networks_;
  // The gangs over several hosts are compared with this one: four ranks on one host.
  Yard yard_{FourDevices()};
};

// The macro leaves the test itself, and not only StartHosts.
#define START_HOSTS(...)   \
  StartHosts(__VA_ARGS__); \
  if (HasFatalFailure() || IsSkipped()) return

TEST_F(HostsTest, AGangOverHostsHasTheLossesOfOneHost) {
  START_HOSTS(2, {}, {{"--address", "eth0"}, {"--address", "10.71.0.0/16"}});
  const std::string near = Submit("near", 2, /*spread=*/false, 1);
  ExpectSuccessOn(near, 1);
  const std::string far = Submit("far", 2, /*spread=*/true, 1);
  ExpectSuccessOn(far, 2);
  const auto losses = Losses(far);
  EXPECT_EQ(losses.size(), 40U);
  EXPECT_EQ(losses, Losses(near));
}

TEST_F(HostsTest, FourRanksOverThreeHostsHaveTheLossesOfOneHost) {
  START_HOSTS(3);
  const std::string near = Submit("near", 4, /*spread=*/false, 1);
  ExpectSuccessOn(near, 1);
  const std::string far = Submit("far", 4, /*spread=*/true, 1);
  ExpectSuccessOn(far, 3);
  EXPECT_EQ(Losses(far), Losses(near));
}

TEST_F(HostsTest, ASlowLineChangesTheTimeAndNothingElse) {
  constexpr absl::Duration kDelay = absl::Milliseconds(25);
  constexpr int kTrainSize = 1000;  // of 20 steps, each of which crosses the line several times
  START_HOSTS(2, kDelay);
  const std::string near = Submit("near", 2, /*spread=*/false, 1, "", kTrainSize);
  ExpectSuccessOn(near, 1);
  const std::string far = Submit("far", 2, /*spread=*/true, 1, "", kTrainSize);
  ExpectSuccessOn(far, 2);
  EXPECT_EQ(Losses(far), Losses(near));
  const auto points = yard_.Metrics(far, "train.loss");
  ASSERT_EQ(points.size(), 20U);
  const auto time = [](const v1::MetricPoint& point) {
    return absl::Seconds(point.time().seconds()) + absl::Nanoseconds(point.time().nanos());
  };
  EXPECT_GE(time(points.back()) - time(points.front()), 19 * kDelay);
}

TEST_F(HostsTest, ALineThatBreaksEndsTheAttemptAndTheNextGoesOnFromTheCheckpoint) {
  FaultRow row({.fault = "the line between two ranks",
                .injection = "unplugged until the attempt has ended",
                .expectation = "step, collective and both ends are named; the job goes on from its "
                               "checkpoint with the same losses"});
  START_HOSTS(2);
  // Ranks report their steps once a second, in which a quiet machine makes a thousand. So many
  // steps must follow the one at which the line breaks. The line rarely breaks right behind a
  // checkpoint, where ranks wait longer for each other.
  constexpr int kEpochs = 45;
  constexpr char kCheckpoints[] = "checkpoint: {every: 200 steps}\nevaluate: {every: 50 epochs}\n";
  const std::string plain = Submit("plain", 2, /*spread=*/false, kEpochs, kCheckpoints);
  ExpectSuccessOn(plain, 1);
  const std::string job = Submit("struck", 2, /*spread=*/true, kEpochs, kCheckpoints);
  ASSERT_TRUE(yard_.WaitForStep(job, 210));
  nlohmann::json ranks = nlohmann::json::array();
  for (const char* worker : {"alpha", "beta"}) {
    const auto record = yard_.SupervisorRecord(yard_.RunDir(job, 1, worker));
    ASSERT_TRUE(record.contains("ranks")) << worker << ": " << record;
    ranks.push_back(record["ranks"][0]);
  }
  const int other = HostOf(job, 1);
  ASSERT_TRUE(networks_->SetPlugged(other, false).ok());
  const absl::Duration broken = Clock::Real()->Uptime();
  v1::Failure failure;
  ASSERT_TRUE(yard_.WaitForJob(job, [&failure](const Job& seen) {
    failure = seen.failure();
    return seen.state() == v1::JOB_STATE_QUEUED;
  }));
  const absl::Duration took = Clock::Real()->Uptime() - broken;
  EXPECT_LT(took, 2 * kCollectiveTimeout);
  for (const nlohmann::json& rank : ranks) {
    EXPECT_FALSE(
        testing::IsProcessAlive(rank["pid"].get<int64_t>(), rank["start_ticks"].get<int64_t>()))
        << rank;
  }
  EXPECT_EQ(failure.failure_class(), v1::FAILURE_CLASS_TRANSIENT);
  // This is either the collective of the gradients, or that of the ballots beside them.
  EXPECT_TRUE(absl::StrContains(failure.message(), ": all_to_all ") ||
              absl::StrContains(failure.message(), ": all_gather "))
      << failure.message();
  for (const absl::string_view part : {"step ", "rank 0", "rank 1", "10.71.0.2", "10.71.0.3",
                                       "on worker alpha", "on worker beta"}) {
    EXPECT_TRUE(absl::StrContains(failure.message(), part)) << part << ": " << failure.message();
  }
  ASSERT_TRUE(networks_->SetPlugged(other, true).ok());
  ExpectSuccessOn(job, 2);
  const std::vector<v1::Attempt> attempts = Attempts(job);
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_GE(attempts[1].resumed_from_step(), 50);
  const auto losses = Losses(job);
  EXPECT_EQ(losses, Losses(plain));
  row.Longest("named, and all gone, after", took);
  row.Count("attempts", static_cast<int64_t>(attempts.size()));
  row.Count("steps", static_cast<int64_t>(losses.size()));
  row.Survived();
}

TEST_F(HostsTest, TheRanksOfAProgramFindEachOtherAndGoOnTogetherAfterALoss) {
  START_HOSTS(2);
  // Rank 1 of the first attempt is lost, while rank 0 waits for it.
  const std::string job = yard_.Submit(R"(name: meet
devices: {count: 2, spread: true}
program:
  script: |
    #!/usr/bin/python3
    import os, socket, time
    rank, attempt = int(os.environ["RANK"]), os.environ["TRAINYARD_ATTEMPT"]
    assert os.environ["NODE_RANK"] == str(rank) and os.environ["LOCAL_RANK"] == "0", os.environ
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 1:
        if attempt == "1":
            os.kill(os.getpid(), 9)
        while True:
            try:
                peer = socket.create_connection(address)
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        peer.sendall(b"rank 1")
    else:
        with socket.create_server(("", address[1])) as server:
            peer, _ = server.accept()
            print("heard", peer.recv(100).decode())
)");
  ExpectSuccessOn(job, 2);
  EXPECT_EQ(yard_.GetJob(job).attempt(), 2);
  const std::string logs = yard_.Cli({"logs", job}).out;
  EXPECT_TRUE(absl::StrContains(logs, "[0] heard rank 1")) << logs;
}

TEST_F(HostsTest, PyTorchAveragesGradientsOverHosts) {
  START_HOSTS(2);
  if (yard_.Cli({"run", "-q", "--", "/usr/bin/python3", "-c", "import torch.distributed"})
          .exit_code != 0) {
    GTEST_SKIP() << "/usr/bin/python3 has no PyTorch";
  }
  const std::string job = yard_.Submit(R"(name: ddp
devices: {count: 2, spread: true}
program:
  script: |
    #!/usr/bin/python3
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for step in range(20):
        optimizer.zero_grad()
        (model(torch.randn(8, 4)) - 1).square().mean().backward()
        optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    both = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(both, weights)
    assert torch.equal(both[0], both[1])
    print("equal weights")
)");
  ExpectSuccessOn(job, 2);
  const std::string logs = yard_.Cli({"logs", job}).out;
  EXPECT_TRUE(absl::StrContains(logs, "[0] equal weights")) << logs;
  EXPECT_TRUE(absl::StrContains(logs, "[1] equal weights")) << logs;
}

TEST_F(HostsTest, HostsThatCannotReachEachOtherAreNamedWithTheirAddresses) {
  START_HOSTS(2);
  ASSERT_TRUE(networks_->SetPlugged(1, false).ok());
  const std::string job = Submit("apart", 2, /*spread=*/true, 1, "max_retries: 0\n");
  const Job ended = yard_.WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(ended.failure().reason(), "PEER_LOST");
  for (const absl::string_view part :
       {"rank 0", "rank 1", "10.71.0.2", "10.71.0.3", "on worker alpha", "on worker beta",
        "is a firewall between them?"}) {
    EXPECT_TRUE(absl::StrContains(ended.failure().message(), part))
        << part << ": " << ended.failure().message();
  }
}

TEST_F(HostsTest, ARankThatNeverAppearsIsNamedByTheOthers) {
  const std::string sleeper = yard_.File("sleeper.sh");
  ASSERT_TRUE(WriteFileAtomically(sleeper, "#!/bin/sh\nexec sleep 600\n", 0755).ok());
  const std::string waiter = yard_.File("waiter.sh");
  const std::string wait = absl::StrCat("#!/bin/sh\nexec ", Yard::Binary("trainyard-trainer"),
                                        " --connect_seconds 6 \"$@\"\n");
  ASSERT_TRUE(WriteFileAtomically(waiter, wait, 0755).ok());
  START_HOSTS(2, {}, {{"--trainer", waiter}, {"--trainer", sleeper}});
  const std::string job = Submit("silent", 2, /*spread=*/true, 1, "max_retries: 0\n");
  const Job ended = yard_.WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_FAILED);
  const int silent = HostOf(job, 0) == 1 ? 0 : 1;
  EXPECT_TRUE(absl::StrContains(ended.failure().message(),
                                absl::StrCat("rank ", silent, " did not appear within 6.0s")))
      << ended.failure().message();
}

TEST_F(HostsTest, AnAddressThatIsNotHereIsRefusedWithThoseThatAre) {
  START_HOSTS(1);
  Process::Options options;
  options.args = {Yard::Binary("trainyard-worker"), "--server",  yard_.address(), "--state_dir",
                  yard_.WorkerStateDir("lost"),     "--address", "eth7"};
  options.network_namespace = networks_->Namespace(0);
  const auto result = RunProcess(std::move(options), yard_.File(""), kPatience);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_TRUE(absl::StrContains(
      result->err, "--address: no interface 'eth7'; this host has lo 127.0.0.1, eth0 10.71.0.2"))
      << result->err;
}

}  // namespace
}  // namespace trainyard::testing
