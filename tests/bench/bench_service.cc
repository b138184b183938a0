// Puts one kind of load on a running server, for bench_service.py.
//
//   bench_service COMMAND ADDRESS [--jobs 10000] [--clients 1] [--batch 64] [--size 0]
//     ready    waits for the first answer
//     unary    creates jobs by CreateJob, each client one after the other
//     stream   creates jobs by one CreateJobs, `batch` items a message
//     arrays   creates arrays of `size` jobs by CreateJob, `jobs` in all
//     get      asks for jobs/1 `jobs` times over one connection; the latencies are exact to 1 us
//     list     lists pages of 100 jobs, `jobs` of them, newest first and by state
//     cancel   cancels all jobs
//   bench_service fsync FOLDER: appends 4 KiB and syncs, for two seconds
// Prints one line of JSON: how many, in how many seconds, and milliseconds of each call.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "grpcpp/grpcpp.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

// Messages of a stream whose answers are outstanding: enough to keep the server busy.
constexpr int kMessagesUnderWay = 8;
constexpr int kPageSize = 100;

struct Arguments {
  std::string command;
  std::string target;
  int jobs = 10'000;
  int clients = 1;
  int batch = 64;
  int size = 0;
};

bool Parse(int argc, char** argv, Arguments& arguments) {
  if (argc < 3) return false;
  arguments.command = argv[1];
  arguments.target = argv[2];
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    int* number = flag == "--jobs"      ? &arguments.jobs
                  : flag == "--clients" ? &arguments.clients
                  : flag == "--batch"   ? &arguments.batch
                  : flag == "--size"    ? &arguments.size
                                        : nullptr;
    if (number == nullptr || !absl::SimpleAtoi(argv[i + 1], number) || *number < 1) return false;
  }
  return argc % 2 == 1;
}

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

// Records how long each call took. The class is thread-safe.
class Times {
 public:
  void Add(double milliseconds) {
    const std::lock_guard lock(mutex_);
    all_.push_back(milliseconds);
  }
  void Print(int count) {
    const double seconds = Milliseconds(start_) / 1e3;
    std::sort(all_.begin(), all_.end());
    const auto at = [this](double share) {
      return all_[static_cast<size_t>(share * static_cast<double>(all_.size() - 1))];
    };
    std::printf("{\"count\": %d, \"seconds\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.3f}\n", count,
                seconds, at(0.5), at(0.99));
  }

 private:
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::vector<double> all_;
};

void Check(const grpc::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error_message().c_str());
  std::exit(1);
}

std::unique_ptr<v1::JobService::Stub> Connect(const Arguments& arguments) {
  auto channel = rpc::MakeChannel(arguments.target);
  TY_CHECK_OK(channel.status());
  return v1::JobService::NewStub(*channel);
}

// Waits in the queue of a server without workers.
v1::CreateJobRequest Request(int number) {
  v1::CreateJobRequest request;
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_name("bench");
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(2);
  spec.mutable_train()->set_seed(static_cast<uint64_t>(number));
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  // Makes an id as random as those of real clients, which no other run uses.
  request.set_request_id(
      absl::StrCat(absl::Hex(static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u), "-",
                   Clock::now().time_since_epoch().count()));
  return request;
}

void Ready(const Arguments& arguments) {
  Times times;
  const auto stub = Connect(arguments);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::ListJobsRequest request;
  request.set_page_size(1);
  v1::ListJobsResponse response;
  Check(stub->ListJobs(&context, request, &response));
  times.Add(0);
  times.Print(1);
}

void CreateOneByOne(const Arguments& arguments) {
  const auto stub = Connect(arguments);
  Times times;
  std::vector<std::thread> clients;
  clients.reserve(static_cast<size_t>(arguments.clients));
  const int each = arguments.jobs / arguments.clients;
  for (int c = 0; c < arguments.clients; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < each; ++i) {
        const auto start = Clock::now();
        grpc::ClientContext context;
        v1::Job job;
        Check(stub->CreateJob(&context, Request(c * each + i), &job));
        times.Add(Milliseconds(start));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  times.Print(each * arguments.clients);
}

// One thread writes while this one reads. They share a counter of the messages under way.
void CreateByStream(const Arguments& arguments) {
  const auto stub = Connect(arguments);
  grpc::ClientContext context;
  const auto stream = stub->CreateJobs(&context);
  const int messages = arguments.jobs / arguments.batch;
  std::vector<v1::CreateJobsRequest> requests(static_cast<size_t>(messages));
  int number = 0;
  for (v1::CreateJobsRequest& request : requests) {
    for (int i = 0; i < arguments.batch; ++i) *request.add_requests() = Request(number++);
  }
  std::mutex mutex;
  std::condition_variable answered;
  std::vector<Clock::time_point> sent;
  int read = 0;
  Times times;
  std::thread writer([&] {
    for (const v1::CreateJobsRequest& request : requests) {
      {
        std::unique_lock lock(mutex);
        answered.wait(lock,
                      [&] { return static_cast<int>(sent.size()) < read + kMessagesUnderWay; });
        sent.push_back(Clock::now());
      }
      TY_CHECK(stream->Write(request));
    }
    stream->WritesDone();
  });
  v1::CreateJobsResponse response;
  while (stream->Read(&response)) {
    for (const v1::CreateJobResult& result : response.results()) TY_CHECK(result.has_name());
    const std::lock_guard lock(mutex);
    times.Add(Milliseconds(sent[static_cast<size_t>(read++)]));
    answered.notify_one();
  }
  writer.join();
  Check(stream->Finish());
  times.Print(number);
}

void CreateArrays(const Arguments& arguments) {
  const auto stub = Connect(arguments);
  Times times;
  for (int created = 0; created < arguments.jobs; created += arguments.size) {
    v1::CreateJobRequest request = Request(created);
    request.mutable_options()->set_array_size(arguments.size);
    const auto start = Clock::now();
    grpc::ClientContext context;
    v1::Job job;
    Check(stub->CreateJob(&context, request, &job));
    times.Add(Milliseconds(start));
  }
  times.Print(arguments.jobs);
}

void ListPages(const Arguments& arguments) {
  const auto stub = Connect(arguments);
  Times times;
  v1::ListJobsRequest request;
  request.set_page_size(kPageSize);
  request.add_states(v1::JOB_STATE_QUEUED);
  int listed = 0;
  do {
    const auto start = Clock::now();
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    Check(stub->ListJobs(&context, request, &response));
    times.Add(Milliseconds(start));
    listed += response.jobs_size();
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty() && listed < arguments.jobs);
  times.Print(listed);
}

void GetAgainAndAgain(const Arguments& arguments) {
  const auto stub = Connect(arguments);
  v1::GetJobRequest request;
  request.set_name("jobs/1");
  Times times;
  for (int i = 0; i < arguments.jobs; ++i) {
    const auto begin = Clock::now();
    grpc::ClientContext context;
    v1::Job job;
    Check(stub->GetJob(&context, request, &job));
    times.Add(Milliseconds(begin));
  }
  times.Print(arguments.jobs);
}

void CancelAll(const Arguments& arguments) {
  const auto stub = Connect(arguments);
  Times times;
  v1::CancelJobsRequest request;
  request.set_user("");  // the caller's own
  grpc::ClientContext context;
  v1::CancelJobsResponse response;
  Check(stub->CancelJobs(&context, request, &response));
  times.Add(0);
  times.Print(static_cast<int>(response.cancelled()));
}

void SyncFile(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/bench_fsync");
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  TY_CHECK(file >= 0);
  const std::string block(4096, 'x');
  Times times;
  int count = 0;
  const auto start = Clock::now();
  while (Milliseconds(start) < 2000) {
    const auto begin = Clock::now();
    TY_CHECK(write(file, block.data(), block.size()) == static_cast<ssize_t>(block.size()));
    TY_CHECK(fdatasync(file) == 0);
    times.Add(Milliseconds(begin));
    ++count;
  }
  times.Print(count);
  close(file);
  unlink(path.c_str());
}

int Main(int argc, char** argv) {
  Arguments arguments;
  const bool is_parsed = Parse(argc, argv, arguments);
  const std::string& command = arguments.command;
  if (is_parsed && command == "ready") {
    Ready(arguments);
  } else if (is_parsed && command == "unary") {
    CreateOneByOne(arguments);
  } else if (is_parsed && command == "stream") {
    CreateByStream(arguments);
  } else if (is_parsed && command == "arrays" && arguments.size > 0) {
    CreateArrays(arguments);
  } else if (is_parsed && command == "get") {
    GetAgainAndAgain(arguments);
  } else if (is_parsed && command == "list") {
    ListPages(arguments);
  } else if (is_parsed && command == "cancel") {
    CancelAll(arguments);
  } else if (is_parsed && command == "fsync") {
    SyncFile(arguments.target);
  } else {
    std::fprintf(stderr, "usage: see the head of tests/bench/bench_service.cc\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::Main(argc, argv);
}
