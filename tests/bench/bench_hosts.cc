// Measures an all_reduce of two ranks over TCP, each in a network namespace of its own, and
// compares it with a plain exchange of as many bytes over a socket between the same two processes.
// The difference is the cost of Gloo and of our sums on top of the kernel's TCP.
//
//   bench_hosts [--passes 15]
// Prints one line a size: the least and the middle of the milliseconds of each, and the ratio of
// the middles. Needs root, for the namespaces.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/testing/networks.h"
#include "tests/testing/temp_dir.h"
#include "worker/parallel/gloo/gloo_communicator.h"

namespace trainyard {
namespace {

using testing::Networks;

constexpr uint16_t kPort = 7000;  // within namespaces of our own
constexpr int kMegabytes[] = {1, 4, 16, 64};

sockaddr_in ListenerAddress() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  TY_CHECK(inet_pton(AF_INET, Networks::Address(0).c_str(), &address.sin_addr) == 1);
  return address;
}

// Listens for rank 0 in its namespace before any rank runs, so that the other need not wait.
UniqueFd Listen(int network_namespace) {
  UniqueFd listener;
  std::thread([&] {
    TY_CHECK(setns(network_namespace, CLONE_NEWNET) == 0);
    listener = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = ListenerAddress();
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    TY_CHECK(bind(listener.get(), generic, sizeof address) == 0);
    TY_CHECK(listen(listener.get(), 1) == 0);
  }).join();
  return listener;
}

// A connection between the two ranks.
UniqueFd Connect(int rank, int listener) {
  UniqueFd result;
  if (rank == 0) {
    result = UniqueFd(accept(listener, nullptr, nullptr));
  } else {
    result = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = ListenerAddress();
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    TY_CHECK(connect(result.get(), generic, sizeof address) == 0);
  }
  TY_CHECK(result.valid());
  const int on = 1;
  TY_CHECK(setsockopt(result.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
  return result;
}

// Both sides send `out` and receive `in` at the same time.
void Exchange(int connection, const std::vector<float>& out, std::vector<float>& in) {
  const size_t bytes = out.size() * sizeof(float);
  std::thread sender([&] {
    TY_CHECK(WriteFully(connection,
                        {reinterpret_cast<const char*>(out.data()), out.size() * sizeof(float)},
                        "the connection")
                 .ok());
  });
  size_t received = 0;
  while (received < bytes) {
    const ssize_t count =
        recv(connection, reinterpret_cast<char*>(in.data()) + received, bytes - received, 0);
    TY_CHECK(count > 0);
    received += static_cast<size_t>(count);
  }
  sender.join();
}

struct Times {
  std::vector<double> milliseconds;

  template <class Call>
  void Add(parallel::Communicator& communicator, Call call) {
    // All ranks begin together.
    std::vector<float> meeting(1);
    TY_CHECK(communicator.AllReduce(absl::MakeSpan(meeting)).ok());
    const absl::Time start = absl::Now();
    call();
    milliseconds.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
  }
  double Least() const { return *std::min_element(milliseconds.begin(), milliseconds.end()); }
  double Middle() {
    std::sort(milliseconds.begin(), milliseconds.end());
    return milliseconds[milliseconds.size() / 2];
  }
};

int RunRank(int rank, int network_namespace, int listener, const std::string& run_dir, int passes) {
  TY_CHECK(setns(network_namespace, CLONE_NEWNET) == 0);
  const UniqueFd connection = Connect(rank, listener);
  auto communicator = parallel::ConnectGloo({.rank = rank,
                                             .world_size = 2,
                                             .run_dir = run_dir::RunDir(run_dir),
                                             .interface = "eth0",
                                             .worker = absl::StrCat("host-", rank)});
  if (!communicator.ok()) {
    std::fprintf(stderr, "bench_hosts: %s\n", std::string(communicator.status().message()).c_str());
    return 1;
  }
  if (rank == 0) std::printf("   MB   socket: least middle    all_reduce: least middle   ratio\n");
  for (const int megabytes : kMegabytes) {
    std::vector<float> out(static_cast<size_t>(megabytes) * 1'000'000 / sizeof(float), 1.0F);
    std::vector<float> in(out.size());
    Times plain, gloo;
    // Makes one more pass, which is not counted: it grows windows and buffers.
    for (int pass = 0; pass <= passes; ++pass) {
      plain.Add(**communicator, [&] { Exchange(connection.get(), out, in); });
      gloo.Add(**communicator,
               [&] { TY_CHECK((*communicator)->AllReduce(absl::MakeSpan(in)).ok()); });
      std::fill(in.begin(), in.end(), 1.0F);
      if (pass > 0) continue;
      plain.milliseconds.clear();
      gloo.milliseconds.clear();
    }
    if (rank != 0) continue;
    const double ratio = gloo.Middle() / plain.Middle();
    std::printf("%5d %14.2f %7.2f %18.2f %7.2f %7.2f\n", megabytes, plain.Least(), plain.Middle(),
                gloo.Least(), gloo.Middle(), ratio);
    std::fflush(stdout);
  }
  return 0;
}

int Main(int argc, char** argv) {
  int passes = 15;
  const bool is_good = argc == 1 || (argc == 3 && std::string(argv[1]) == "--passes" &&
                                     absl::SimpleAtoi(argv[2], &passes) && passes > 0);
  if (!is_good) {
    std::fprintf(stderr, "usage: bench_hosts [--passes 15]\n");
    return 2;
  }
  const auto networks = Networks::Make(2);
  if (!networks.ok()) {
    std::fprintf(stderr, "bench_hosts: %s\n", std::string(networks.status().message()).c_str());
    return 1;
  }
  const testing::TempDir folder;
  const UniqueFd listener = Listen((*networks)->Namespace(0));
  pid_t ranks[2];
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = fork();
    TY_CHECK(ranks[rank] >= 0);
    if (ranks[rank] == 0) {
      _exit(RunRank(rank, (*networks)->Namespace(rank), listener.get(), folder.path(), passes));
    }
  }
  int result = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    if (status != 0) result = 1;
  }
  return result;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::Main(argc, argv);
}
