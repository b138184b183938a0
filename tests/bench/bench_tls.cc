// Puts one kind of load on a running server, by its socket or by its port for other hosts, for
// bench_tls.py.
//
//   bench_tls COMMAND [ADDRESS] [--count 1000] [--flights 1] [--job jobs/1] [--token FILE]
//             [--authority FILE]
//     call        asks who the caller is, `count` times over one connection
//     list        lists the newest jobs, `count` times over one connection
//     handshake   connects, makes the handshake and closes, `count` times one after the other
//     download    downloads the newest checkpoint of the job, `count` times, and drops the bytes
//     token       looks a token up among a thousand, `count` times, without a server
// A token and an authority make a channel of TLS. `flights` threads share the calls. Prints one
// line of JSON: how many calls, in how many seconds, how many in a second, microseconds of a call,
// and megabytes in a second.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/rpc/address.h"
#include "common/rpc/channel.h"
#include "common/tls/certificate.h"
#include "common/tls/probe.h"
#include "grpcpp/grpcpp.h"
#include "server/access/tokens.h"
#include "trainyard/v1/access.grpc.pb.h"
#include "trainyard/v1/checkpoint.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::Duration kTimeout = absl::Seconds(30);

struct Arguments {
  std::string command;
  std::string address;
  int count = 1000;
  int flights = 1;
  std::string job = "jobs/1";
  std::string token;
  std::string authority;
};

std::string ReadText(const std::string& path) {
  std::string text = ReadFile(path).value_or("");
  absl::StripAsciiWhitespace(&text);
  return text;
}

bool Parse(int argc, char** argv, Arguments& arguments) {
  int at = 1;
  for (std::string* word : {&arguments.command, &arguments.address}) {
    if (at < argc && argv[at][0] != '-') *word = argv[at++];
  }
  for (; at + 1 < argc; at += 2) {
    const std::string flag = argv[at];
    const std::string value = argv[at + 1];
    if (flag == "--count") {
      if (!absl::SimpleAtoi(value, &arguments.count) || arguments.count < 1) return false;
    } else if (flag == "--flights") {
      if (!absl::SimpleAtoi(value, &arguments.flights) || arguments.flights < 1) return false;
    } else if (flag == "--job") {
      arguments.job = value;
    } else if (flag == "--token") {
      arguments.token = ReadText(value);
    } else if (flag == "--authority") {
      arguments.authority = ReadText(value) + "\n";
    } else {
      return false;
    }
  }
  return at == argc && !arguments.command.empty();
}

double Microseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

void Check(const grpc::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error_message().c_str());
  std::exit(1);
}

// Takes the times of calls, and prints them.
class Times {
 public:
  void Add(double microseconds) { all_.push_back(microseconds); }
  void Add(const Times& others) { all_.insert(all_.end(), others.all_.begin(), others.all_.end()); }
  void Print(int64_t bytes = 0) {
    const double seconds = Microseconds(start_) / 1e6;
    std::sort(all_.begin(), all_.end());
    const auto at = [this](double share) {
      return all_[static_cast<size_t>(share * static_cast<double>(all_.size() - 1))];
    };
    std::printf(
        "{\"count\": %zu, \"seconds\": %.6f, \"rate\": %.1f, \"p50_us\": %.3f, \"p99_us\": %.3f, "
        "\"mb_s\": %.1f}\n",
        all_.size(), seconds, static_cast<double>(all_.size()) / seconds, at(0.5), at(0.99),
        static_cast<double>(bytes) / 1e6 / seconds);
  }

 private:
  const Clock::time_point start_ = Clock::now();
  std::vector<double> all_;
};

std::shared_ptr<grpc::Channel> Connect(const Arguments& arguments) {
  rpc::TlsOptions tls;
  tls.authority = arguments.authority;
  tls.server_name = std::string(tls::kServerName);
  tls.token = arguments.token;
  const auto channel = rpc::MakeChannel(arguments.address, rpc::Keepalive::kNone, {}, tls);
  TY_CHECK_OK(channel.status());
  TY_CHECK_OK(rpc::WaitForServer(**channel, arguments.address, kTimeout));
  return *channel;
}

// Makes the calls in as many threads as calls are to be under way at a time.
void CallAgainAndAgain(const Arguments& arguments, const std::function<void()>& call) {
  Times times;
  std::vector<Times> of_flight(static_cast<size_t>(arguments.flights));
  std::vector<std::thread> flights;
  for (Times& own : of_flight) {
    flights.emplace_back([&] {
      for (int i = 0; i < arguments.count / arguments.flights; ++i) {
        const auto begin = Clock::now();
        call();
        own.Add(Microseconds(begin));
      }
    });
  }
  for (std::thread& flight : flights) flight.join();
  for (const Times& own : of_flight) times.Add(own);
  times.Print();
}

void AskWhoIAm(const Arguments& arguments) {
  const auto stub = v1::AccessService::NewStub(Connect(arguments));
  CallAgainAndAgain(arguments, [&stub] {
    grpc::ClientContext context;
    v1::WhoAmIResponse who;
    Check(stub->WhoAmI(&context, {}, &who));
  });
}

void ListJobs(const Arguments& arguments) {
  const auto stub = v1::JobService::NewStub(Connect(arguments));
  CallAgainAndAgain(arguments, [&stub] {
    grpc::ClientContext context;
    v1::ListJobsResponse jobs;
    Check(stub->ListJobs(&context, {}, &jobs));
  });
}

void ShakeHands(const Arguments& arguments) {
  const auto server = rpc::ParseAddress(arguments.address);
  TY_CHECK_OK(server.status());
  Times times;
  for (int i = 0; i < arguments.count; ++i) {
    const auto begin = Clock::now();
    TY_CHECK_OK(tls::ProbeServer(server->host, server->port, kTimeout).status());
    times.Add(Microseconds(begin));
  }
  times.Print();
}

int64_t Download(v1::CheckpointService::Stub& stub, const v1::Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const v1::CheckpointFile& file : checkpoint.files()) {
    grpc::ClientContext context;
    v1::DownloadCheckpointRequest request;
    request.set_name(checkpoint.name());
    request.set_file(file.name());
    const auto reader = stub.DownloadCheckpoint(&context, request);
    v1::DownloadCheckpointResponse chunk;
    while (reader->Read(&chunk)) bytes += static_cast<int64_t>(chunk.data().size());
    Check(reader->Finish());
  }
  return bytes;
}

void DownloadAgainAndAgain(const Arguments& arguments) {
  const auto stub = v1::CheckpointService::NewStub(Connect(arguments));
  v1::ListCheckpointsRequest request;
  request.set_parent(arguments.job);
  v1::ListCheckpointsResponse list;
  grpc::ClientContext context;
  Check(stub->ListCheckpoints(&context, request, &list));
  TY_CHECK(!list.checkpoints().empty());
  const v1::Checkpoint& newest = *list.checkpoints().rbegin();
  int64_t bytes = 0;
  Times times;
  for (int i = 0; i < arguments.count; ++i) {
    const auto begin = Clock::now();
    bytes += Download(*stub, newest);
    times.Add(Microseconds(begin));
  }
  times.Print(bytes);
}

// The part of a call that a token costs the server beyond a connection whose user is known.
void LookUpTokens(const Arguments& arguments) {
  constexpr int kTokens = 1000;
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  access::TokenTable table;
  std::vector<std::string> texts;
  for (int i = 0; i < kTokens; ++i) {
    access::TokenRecord draft;
    draft.user = absl::StrCat("user", i);
    draft.expires = now + absl::Hours(1);
    const access::NewToken made = access::MakeToken(draft, now);
    table.Add(made.record);
    texts.push_back(made.text);
  }
  Times times;
  for (int i = 0; i < arguments.count; ++i) {
    const auto begin = Clock::now();
    TY_CHECK_OK(table
                    .Use(texts[static_cast<size_t>(i) % texts.size()], access::TokenKind::kUser,
                         now + absl::Seconds(1))
                    .status());
    times.Add(Microseconds(begin));
  }
  times.Print();
}

int Main(int argc, char** argv) {
  Arguments arguments;
  const bool is_parsed = Parse(argc, argv, arguments);
  const bool has_address = is_parsed && !arguments.address.empty();
  const std::string& command = arguments.command;
  if (has_address && command == "call") {
    AskWhoIAm(arguments);
  } else if (has_address && command == "list") {
    ListJobs(arguments);
  } else if (has_address && command == "handshake") {
    ShakeHands(arguments);
  } else if (has_address && command == "download") {
    DownloadAgainAndAgain(arguments);
  } else if (is_parsed && command == "token") {
    LookUpTokens(arguments);
  } else {
    std::fprintf(stderr, "usage: see the head of tests/bench/bench_tls.cc\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::Main(argc, argv);
}
