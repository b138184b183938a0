// trainyard-worker is the daemon of a host. Ending it leaves its jobs running.
#include <cstdio>
#include <string>

#include "common/base/run_main.h"
#include "worker/agent/worker_app.h"

namespace trainyard::agent {
namespace {

int Main(int argc, char** argv) {
  const ServiceManager manager(TakeServiceVariables());
  WorkerFlags flags;
  if (const auto code = ReadWorkerFlags(argc, argv, flags)) return *code;
  InitLog("trainyard-worker", LogLevel::kInfo, flags.log_format);
  const absl::Status status = RunWorker(flags, manager);
  if (!status.ok()) {
    std::fprintf(stderr, "trainyard-worker: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard::agent

int main(int argc, char** argv) {
  return trainyard::RunMain("trainyard-worker", trainyard::agent::Main, argc, argv);
}
