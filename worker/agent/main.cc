// trainyard-worker is the daemon of a host. Ending it leaves its jobs running.
#include <cstdio>
#include <string>

#include "worker/agent/worker_app.h"

int main(int argc, char** argv) {
  trainyard::agent::WorkerFlags flags;
  if (const auto code = trainyard::agent::ReadWorkerFlags(argc, argv, flags)) return *code;
  trainyard::InitLog("trainyard-worker", trainyard::LogLevel::kInfo, flags.log_format);
  const absl::Status status = trainyard::agent::RunWorker(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "trainyard-worker: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
