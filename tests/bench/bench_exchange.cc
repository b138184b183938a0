// Measures the time in which the processes of one host exchange a step's gradients and update with
// them: in memory that they share, and over communicators.
//
//   bench_exchange [--ranks 2] [--sizes 1,10,50,100,250] [--repeats 15]
// Sizes are MB of parameters. Nothing computes meanwhile, so all of it is exposed. Prints one line
// a size and kind: the least and the middle of the milliseconds of a step, the size over the least,
// the least over the one in which every rank copies as much memory at the same time, and the
// milliseconds of processor time that a step takes of a rank.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "tests/testing/temp_dir.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"
#include "worker/parallel/gloo/gloo_communicator.h"
#include "worker/parallel/shared/shared_exchange.h"
#include "worker/parallel/shm/shm_communicator.h"
#include "worker/parallel/wire_exchange.h"

namespace trainyard::parallel {
namespace {

struct Arguments {
  int ranks = 2;
  int repeats = 15;
  std::vector<int> sizes = {1, 10, 50, 100, 250};
};

bool Parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--sizes") {
      arguments.sizes.clear();
      for (const absl::string_view text : absl::StrSplit(argv[i + 1], ',')) {
        if (!absl::SimpleAtoi(text, &arguments.sizes.emplace_back())) return false;
      }
      continue;
    }
    int* number = flag == "--ranks"     ? &arguments.ranks
                  : flag == "--repeats" ? &arguments.repeats
                                        : nullptr;
    if (number == nullptr || !absl::SimpleAtoi(argv[i + 1], number) || *number < 1) return false;
  }
  return argc % 2 == 1;
}

enum class Kind { kShared, kWireShm, kWireGloo };
constexpr std::pair<Kind, const char*> kKinds[] = {
    {Kind::kShared, "shared"}, {Kind::kWireShm, "wire, shm"}, {Kind::kWireGloo, "wire, gloo"}};

// One rank, in a process of its own.
class Rank {
 public:
  Rank(const Arguments& arguments, std::string folder, int rank, int megabytes)
      : arguments_(arguments), folder_(std::move(folder)), rank_(rank), megabytes_(megabytes) {}

  absl::Status Run() {
    // One matrix of the size wanted.
    const int64_t width = std::max<int64_t>(16, int64_t{megabytes_} * 250);
    TY_ASSIGN_OR_RETURN(const engine::Graph model,
                        engine::BuildMlp({.input = {1000}, .hidden = {}, .classes = width}));
    TY_ASSIGN_OR_RETURN(auto backend, engine::MakeBackend("cpu"));
    TY_ASSIGN_OR_RETURN(executable_, backend->Compile(model, {.momentum = 0.9},
                                                      {.max_rows = 1, .shares_memory = true}));
    TY_ASSIGN_OR_RETURN(meeting_, Connect(Kind::kWireShm, "meeting"));
    TY_ASSIGN_OR_RETURN(const Times copy, TimeOfCopy());
    Print("a copy", "", copy, copy);
    for (const auto& [kind, name] : kKinds) {
      for (const bool is_sharded : {false, true}) {
        TY_ASSIGN_OR_RETURN(auto exchange,
                            MakeExchange(kind, is_sharded,
                                         absl::StrCat("run", static_cast<int>(kind), is_sharded)));
        TY_ASSIGN_OR_RETURN(const Times times, TimeOfSteps(*exchange));
        Print(name, is_sharded ? "sharded" : "replicated", times, copy);
      }
    }
    return absl::OkStatus();
  }

 private:
  // In seconds.
  struct Times {
    double least = 0;
    double middle = 0;
    double processor = 0;  // mean
  };

  absl::Span<float> reduction() { return executable_->reduction(); }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(Kind kind, const std::string& name) {
    const run_dir::RunDir dir(absl::StrCat(folder_, "/", megabytes_, name));
    if (kind == Kind::kWireGloo) {
      return ConnectGloo({.rank = rank_, .world_size = arguments_.ranks, .run_dir = dir});
    }
    return ConnectShm({.rank = rank_, .world_size = arguments_.ranks, .run_dir = dir});
  }

  absl::StatusOr<std::unique_ptr<GradientExchange>> MakeExchange(Kind kind, bool is_sharded,
                                                                 const std::string& name) {
    const auto gradients = static_cast<int64_t>(executable_->parameters().size());
    // Ranges become ready as if every 4 MB were a layer.
    std::vector<int64_t> ready;
    for (int64_t end = 1 << 20; end < gradients; end += 1 << 20) ready.push_back(end);
    ready.push_back(gradients);
    ready.push_back(static_cast<int64_t>(reduction().size()));
    const std::vector<Bucket> buckets = PlanBuckets(ready, gradients, {});
    if (kind != Kind::kShared) {
      TY_ASSIGN_OR_RETURN(auto communicator, Connect(kind, name));
      const auto ranks = static_cast<size_t>(arguments_.ranks);
      return MakeWireExchange(std::move(communicator),
                              {.buckets = buckets,
                               .gradient_elements = gradients,
                               .is_sharded = is_sharded,
                               .reduction = reduction(),
                               .slots = {},
                               .parameters = executable_->parameters(),
                               .plan = {std::vector<int>(ranks, 1), PlanRankSum(arguments_.ranks)},
                               .term_slots = {-1}});
    }
    const engine::Executable::SharedLayout layout = executable_->shared_layout();
    std::vector<int> members(static_cast<size_t>(arguments_.ranks));
    std::iota(members.begin(), members.end(), 0);
    TY_ASSIGN_OR_RETURN(
        SharedGang gang,
        ConnectSharedGang(
            {.fd = layout.fd,
             .base = reinterpret_cast<std::byte*>(reduction().data()) - layout.reduction_offset,
             .bytes = layout.bytes,
             .reduction_offset = layout.reduction_offset,
             .slot_offsets = layout.slot_offsets,
             .parameters_offset = layout.parameters_offset},
            members, *meeting_));
    return MakeSharedExchange(
        std::move(gang),
        {.buckets = buckets, .gradient_elements = gradients, .is_sharded = is_sharded});
  }

  // Measures `body`, which all ranks begin together.
  template <typename Prepare, typename Body>
  absl::StatusOr<Times> Measure(const Prepare& prepare, const Body& body) {
    constexpr int kWarmUp = 3;
    std::vector<double> seconds;
    std::clock_t processor = 0;
    for (int i = 0; i < arguments_.repeats + kWarmUp; ++i) {
      prepare();
      std::vector<float> meeting(1);
      TY_RETURN_IF_ERROR(meeting_->AllReduce(absl::MakeSpan(meeting)));
      const std::clock_t processor_begin = std::clock();
      const absl::Duration begin = Clock::Real()->Uptime();
      TY_RETURN_IF_ERROR(body(i));
      if (i < kWarmUp) continue;
      seconds.push_back(absl::ToDoubleSeconds(Clock::Real()->Uptime() - begin));
      processor += std::clock() - processor_begin;
    }
    std::sort(seconds.begin(), seconds.end());
    return Times{seconds.front(), seconds[seconds.size() / 2],
                 static_cast<double>(processor) / CLOCKS_PER_SEC / arguments_.repeats};
  }

  absl::StatusOr<Times> TimeOfCopy() {
    std::vector<float> from(reduction().size(), 1.0f);
    std::vector<float> to(reduction().size());
    return Measure([] {},
                   [&](int) {
                     std::memcpy(to.data(), from.data(), to.size() * sizeof(float));
                     return absl::OkStatus();
                   });
  }

  absl::StatusOr<Times> TimeOfSteps(GradientExchange& exchange) {
    return Measure([&] { std::fill(reduction().begin(), reduction().end(), 0.001f); },
                   [&](int step) { return Step(exchange, step); });
  }

  absl::Status Step(GradientExchange& exchange, int64_t step) {
    TY_RETURN_IF_ERROR(exchange.Begin(step, {}));
    TY_RETURN_IF_ERROR(exchange.Ready(static_cast<int64_t>(reduction().size())));
    TY_RETURN_IF_ERROR(executable_->range_update()->BeginUpdate(0.01));
    const auto gradients = static_cast<int64_t>(executable_->parameters().size());
    for (size_t bucket = 0; bucket < exchange.buckets().size(); ++bucket) {
      TY_RETURN_IF_ERROR(exchange.Land(bucket));
      const Bucket own = exchange.OwnBlock(bucket);
      if (own.end <= gradients)
        TY_RETURN_IF_ERROR(executable_->range_update()->UpdateRange(own.begin, own.end));
      if (exchange.is_sharded()) TY_RETURN_IF_ERROR(exchange.Share(bucket));
    }
    TY_RETURN_IF_ERROR(exchange.End());
    TY_RETURN_IF_ERROR(exchange.Finish({}));
    return executable_->range_update()->EndUpdate();
  }

  void Print(const char* kind, const char* mode, const Times& times, const Times& copy) {
    if (rank_ != 0) return;
    const double gigabytes = static_cast<double>(reduction().size() * sizeof(float)) / 1e9;
    std::printf("%7.1f MB  %-10s  %-10s %8.2f ms %8.2f ms %6.2f GB/s %6.2f copies %8.2f ms busy\n",
                gigabytes * 1e3, kind, mode, times.least * 1e3, times.middle * 1e3,
                gigabytes / times.least, times.least / copy.least, times.processor * 1e3);
    std::fflush(stdout);
  }

  const Arguments arguments_;
  const std::string folder_;
  const int rank_;
  const int megabytes_;
  std::unique_ptr<engine::Executable> executable_;
  std::unique_ptr<Communicator> meeting_;
};

int RunSize(const Arguments& arguments, const std::string& folder, int megabytes) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const absl::Status status = Rank(arguments, folder, rank, megabytes).Run();
      if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
      _exit(status.ok() ? 0 : 1);
    }
    children.push_back(child);
  }
  int failures = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) ++failures;
  }
  return failures;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: bench_exchange [--ranks N] [--sizes MB,...] [--repeats N]\n");
    return 2;
  }
  const testing::TempDir folder;
  int failures = 0;
  for (const int megabytes : arguments.sizes) {
    failures += RunSize(arguments, folder.path(), megabytes);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::parallel

int main(int argc, char** argv) {
  return trainyard::parallel::Main(argc, argv);
}
