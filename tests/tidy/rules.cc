// Holds the tables of the checks.
#include "tests/tidy/rules.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace trainyard::tidy {

bool IsUnder(absl::string_view path, absl::string_view folder) {
  if (!absl::StartsWith(path, folder)) return false;
  return path.size() == folder.size() || folder.back() == '/' || path[folder.size()] == '/' ||
         path[folder.size()] == '.';
}

const std::vector<Floor>& Floors() {
  static const auto* floors = new std::vector<Floor>{
      // F0 words
      {"common/base", {}},
      {"common/datasets", {}},
      {"common/layers", {"common/base"}},
      {"common/networks", {"common/base", "common/layers"}},
      {"common/spec",
       {"common/base", "common/datasets", "common/layers", "common/networks", "common/sweep",
        "trainyard/v1"}},
      {"common/rpc", {"common/base", "trainyard/v1"}},
      {"common/sweep", {"common/base"}},
      {"common/tls", {"common/base"}},
      {"common/tar", {"common/base"}},
      {"common/yaml", {"common/base"}},
      {"common/command", {"common/base"}},
      {"common/curl", {"common/base"}},
      {"common/kubernetes", {"common/base", "common/curl"}},
      {"common/s3", {"common/base", "common/curl", "common/tls"}},
      {"common/daemon", {"common/base", "common/yaml"}},
      {"common/code", {"common/base", "common/tar", "common/tls"}},
      {"common/bundle", {"common/base", "common/code", "common/spec", "common/tar", "common/tls"}},
      // Server
      {"server/access", {"common/base", "common/tls"}},
      {"server/core/lifecycle", {"common/base"}},
      {"server/core/scheduling", {"common/base", "server/core/lifecycle"}},
      {"server/core/sweeping", {"common/base"}},
      {"server/core/yard", {"common/base", "server/core/lifecycle", "server/core/scheduling"}},
      {"server/provision/core", {"common/base"}},
      {"server/provision",
       {"common/base", "server/core", "server/runtime", "server/store", "server/provision/core"}},
      {"server/provision/kubernetes",
       {"common/base", "common/curl", "common/kubernetes", "common/yaml", "server/provision",
        "server/provision/core"}},
      {"server/provision/slurm",
       {"common/base", "common/command", "server/provision", "server/provision/core"}},
      {"server/codec", {"common/base", "common/spec", "server/core/lifecycle", "trainyard/v1"}},
      {"server/store", {"common/base", "server/access", "server/core/lifecycle"}},
      {"server/runtime/turn_loop", {"common/base", "server/core"}},
      {"server/store/sqlite",
       {"common/base", "common/tls", "server/access", "server/core/lifecycle",
        "server/core/sweeping", "server/codec", "server/store", "trainyard/v1"}},
      {"server/notify",
       {"common/base", "common/command", "common/curl", "common/tls", "server/core",
        "server/runtime", "server/store", "trainyard/v1"}},
      {"server/runtime",
       {"common/base", "common/s3", "common/tls", "server/access", "server/core", "server/store"}},
      {"server/kubernetes",
       {"common/base", "common/curl", "common/kubernetes", "common/tls", "server/access"}},
      {"server/published", {"trainyard/v1"}},
      {"server/filter", {"common/base", "common/spec", "trainyard/v1"}},
      {"server/verification", {"common/base", "common/spec", "trainyard/v1"}},
      {"server/sweeps",
       {"common/base", "common/spec", "common/sweep", "server/codec", "server/core",
        "server/runtime", "server/store", "trainyard/v1"}},
      {"server/rpc",
       {"common/base", "common/rpc", "common/s3", "common/spec", "common/sweep", "common/tls",
        "server/access", "server/codec", "server/core", "server/filter", "server/notify",
        "server/provision", "server/published", "server/runtime", "server/store", "server/sweeps",
        "server/verification", "trainyard/v1"}},
      {"server/metrics",
       {"common/base", "server/access", "server/codec", "server/core", "server/runtime",
        "server/store", "trainyard/v1"}},
      {"server/http",
       {"common/base", "common/rpc", "common/spec", "server/access", "trainyard/v1"}},
      {"server/backup",
       {"common/base", "common/code", "common/s3", "common/tls", "server/store", "trainyard/v1"}},
      {"server/relay", {"common/base", "server/access"}},
      {"server/tls", {"common/base", "common/tls", "server/relay"}},
      {"server", {"common", "server", "trainyard/v1"}},
      // Worker
      {"worker/run_dir", {"common/base"}},
      {"worker/cgroup", {"common/base"}},
      {"worker/data", {"common/base", "common/datasets"}},
      {"worker/checkpoint", {"common/base"}},
      {"worker/parallel", {"common/base", "worker/run_dir"}},
      {"worker/engine", {"common/base", "worker/engine"}},
      {"worker/engine/graph", {"common/base", "common/layers"}},
      {"worker/engine/optim", {"common/base"}},
      {"worker/engine/models",
       {"common/base", "common/layers", "common/networks", "worker/engine/graph",
        "worker/engine/optim", "worker/engine/backend"}},
      {"worker/engine/backend", {"common/base", "worker/engine/graph", "worker/engine/optim"}},
      // In the worker, only the trainer reads the spec as protobuf: docs/adr/0010-one-schema.md.
      {"worker/trainer/plan",
       {"common/base", "common/datasets", "common/spec", "trainyard/v1", "worker/run_dir",
        "worker/data", "worker/parallel", "worker/engine"}},
      {"worker/trainer/pipeline",
       {"common/base", "trainyard/v1", "worker/run_dir", "worker/parallel", "worker/engine",
        "worker/trainer/plan"}},
      {"worker/trainer/run",
       {"common/base", "common/datasets", "common/spec", "trainyard/v1", "worker/run_dir",
        "worker/data", "worker/checkpoint", "worker/parallel", "worker/engine",
        "worker/trainer/plan", "worker/trainer/pipeline"}},
      {"worker/trainer/report",
       {"common/base", "trainyard/v1", "worker/run_dir", "worker/data", "worker/checkpoint",
        "worker/engine", "worker/trainer/plan", "worker/trainer/run"}},
      {"worker/trainer",
       {"common/base", "common/datasets", "common/spec", "trainyard/v1", "worker/run_dir",
        "worker/data", "worker/checkpoint", "worker/parallel", "worker/engine"}},
      {"worker/program", {"common/base", "worker/run_dir", "worker/checkpoint"}},
      {"worker/enter", {"common/base"}},
      {"worker/supervisor", {"common/base", "worker/cgroup", "worker/run_dir"}},
      {"worker/agent",
       {"common/base", "common/code", "common/daemon", "common/rpc", "common/tls", "worker/cgroup",
        "worker/enter", "worker/run_dir", "worker/checkpoint", "trainyard/v1"}},
      // Client
      // The door of HTTP stands at either end: docs/adr/0025-the-door-at-the-clients-end.md.
      {"client/web", {"common", "client/link", "server/http", "server/access"}},
      {"client", {"common", "client", "trainyard/v1"}},
      // The simulator drives the pure cores, and no adapter.
      {"tests/sim",
       {"common/base", "server/core", "server/runtime/turn_loop", "server/store", "tests/testing",
        "worker/run_dir", "worker/agent", "worker/supervisor",
        "worker/checkpoint/checkpoint_pace"}},
      // Tests may include everything.
      {"tests", {"common", "server", "worker", "client", "tests", "trainyard"}},
  };
  return *floors;
}

const Floor* FloorOf(absl::string_view path) {
  const Floor* best = nullptr;
  for (const Floor& floor : Floors()) {
    if (IsUnder(path, floor.folder) &&
        (best == nullptr || floor.folder.size() > best->folder.size())) {
      best = &floor;
    }
  }
  return best;
}

bool MayInclude(const Floor& floor, absl::string_view header) {
  if (IsUnder(header, floor.folder)) return true;
  for (const std::string& folder : floor.may_include) {
    if (IsUnder(header, folder)) return true;
  }
  return false;
}

const std::vector<Library>& Libraries() {
  static const auto* libraries = new std::vector<Library>{
      {"sqlite3.h", {"server/store/sqlite", "tests/contract", "tests/faults"}},
      {"dnnl", {"worker/engine/backend/cpu"}},
      {"gloo/", {"worker/parallel/gloo"}},
      {"yaml-cpp/", {"common/yaml"}},
      {"spdlog/", {"common/base/log.cc"}},
      {"xxhash.h", {"common/base"}},
      {"zlib.h", {"worker/data", "tests/unit/worker/data"}},
      {"zstd.h", {"common/bundle", "worker/data", "tests/unit/worker/data"}},
      {"archive", {"common/tar", "tests"}},
      {"git2", {"client/code", "tests"}},
      {"curl/", {"common/curl", "server/notify"}},
      {"pugixml", {"common/s3"}},
      {"re2/", {"tests/tidy"}},
      {"openssl/", {"client/fetch", "common/tls", "server/tls", "tests"}},
      {"jpeglib.h", {"worker/data", "tests/unit/worker/data", "tests/bench"}},
      {"CLI/",
       {"client/flags.cc", "client/fetch/main.cc", "common/daemon", "server", "tests/bench",
        "worker/agent", "worker/engine/backend/cuda/probe", "worker/supervisor", "worker/trainer"}},
      {"prometheus/", {"server/metrics", "tests"}},
      {"boost/", {"server/http", "tests/fuzz"}},
      {"grpc",
       {"common/rpc", "server/http", "server/metrics", "server/rpc", "server/app", "worker/agent",
        "client", "tests"}},
      {"nlohmann/",
       {"common/bundle", "common/spec", "common/sweep", "server/backup", "server/provision",
        "server/sweeps", "server/http", "server/kubernetes", "server/notify", "worker/run_dir",
        "worker/checkpoint", "worker/engine/backend/cuda/dnn", "worker/engine/backend/cuda/tuning",
        "worker/trainer", "worker/agent", "worker/program", "client", "tests"}},
      {"cuda",
       {"worker/engine/backend/cuda", "worker/parallel/nccl", "worker/parallel/staged", "tests"}},
      {"cub/", {"worker/engine/backend/cuda/kernels", "tests"}},
      {"cudnn", {"worker/engine/backend/cuda/dnn", "worker/engine/backend/cuda/probe", "tests"}},
      {"cublasLt.h", {"worker/engine/backend/cuda/blas", "tests/testing/cuda_on_cpu"}},
      {"nccl.h", {"worker/parallel/nccl", "tests/testing/cuda_on_cpu"}},
      {"nvml", {"worker/agent"}},
      {"elfutils/", {"worker/supervisor/stack"}},
      {"omp.h", {"worker/engine/backend/cpu", "worker/trainer", "tests"}},
  };
  return *libraries;
}

const std::vector<BannedWord>& BannedWords() {
  static const auto* words = new std::vector<BannedWord>{
      {R"(\babsl::Now\b)", {"common/base/env.cc", "tests/bench"}, "take the time from a Clock"},
      {R"(\b(system_clock|random_device)\b)", {"common/base/env.cc"}, "use Clock or Rng"},
      // This matches calls of SleepFor, not the declaration of a clock's method.
      {R"((\b(sleep_for|usleep|nanosleep)|[.>:]SleepFor)\s*\()",
       // Among the tests, only one place checks a condition repeatedly, only one clock is moved by
       // hand, and only the emulated cuDNN takes as long as it is told to.
       {"common/base", "server/http", "server/runtime", "worker", "client", "tests/testing/wait.cc",
        "tests/testing/cuda_on_cpu/cudnn/plan.cc",
        "tests/unit/worker/trainer/run/reporter_test.cc"},
       "wait for the event, or use Clock::SleepFor in an adapter"},
      {R"(\bgetenv\b)",
       {"client", "server/app", "server/bucket_flags", "server/main", "worker/agent",
        "worker/supervisor", "worker/trainer", "worker/program/main.cc", "tests",
        "common/base/env.cc", "common/daemon/service_manager.cc"},
       "environment variables are read in mains"},
      {R"(\bthrow\b)",
       // The interfaces of Gloo and CLI11 report failures by exceptions.
       {"worker/parallel/gloo", "common/daemon/flag_file.cc"},
       "return a Status"},
      {R"((^|[^.>\w])(rand|srand|strcpy|strcat|sprintf|gets|mktemp|tmpnam|popen|system)\s*\()",
       {},
       "unsafe or unbounded call"},
      {R"(\busing namespace\b)", {}, "name what you use"},
      {R"(\bstd::views\b)", {}, "clang 14 cannot compile it"},
      {R"(#include <format>)", {}, "g++ 12 has none; use absl::StrFormat"},
      {R"(\bassert\s*\()", {}, "TY_CHECK stays on in release"},
  };
  return *words;
}

bool BannedWord::IsWronglyIn(absl::string_view code, absl::string_view path) const {
  if (!RE2::PartialMatch({code.data(), code.size()}, *pattern_)) return false;
  return std::none_of(allowed_in_.begin(), allowed_in_.end(),
                      [&](const std::string& prefix) { return IsUnder(path, prefix); });
}

bool BeginsWithAFragment(absl::string_view line) {
  for (const absl::string_view opening :
       {"// Of ", "// Whether ", "// The same of ", "// Same of ", "// How ", "// What ",
        "// Where ", "// Which ", "// Who ", "// Why "}) {
    if (absl::StartsWith(line, opening)) return true;
  }
  return false;
}

}  // namespace trainyard::tidy
