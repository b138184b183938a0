// drain empties workers, so that their hosts can be switched off.
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/spec/interval.h"

namespace trainyard::commands {
namespace {

struct DrainOptions {
  std::vector<std::string> workers;
  std::string within;
  std::string reason;
};

Result Drain(const Context& context, const DrainOptions& options) {
  absl::Duration within;
  if (!options.within.empty()) {
    TY_ASSIGN_OR_RETURN(within, ParseDuration(options.within));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : options.workers) {
    v1::DrainWorkerRequest request;
    request.set_name(absl::StartsWith(name, "workers/") ? name : WorkerName(name));
    request.set_reason(options.reason);
    if (within > absl::ZeroDuration()) *request.mutable_within() = spec::ToProto(within);
    TY_ASSIGN_OR_RETURN(const v1::Worker worker,
                        link->Call(&v1::FleetService::Stub::DrainWorker, request));
    int busy = 0;
    for (const v1::Device& device : worker.devices()) busy += device.attempt().empty() ? 0 : 1;
    const std::string id = output::ShortName(worker.name());
    context.Say(absl::StrCat(
        worker.name(), " takes no new ranks",
        busy == 0 ? "; it is empty"
                  : absl::StrCat("; ", Counted(static_cast<size_t>(busy), "device"),
                                 " to go: the jobs there write checkpoints, then queue again"),
        ". `trainyard workers uncordon ", id, "` puts it back to work"));
    PrintList(context, {&worker}, {worker.name()});
  }
  return link::kOk;
}

}  // namespace

void AddDrain(VerbTable& verbs) {
  verbs.Add<DrainOptions>(
      "drain", "Empty a worker: its jobs write checkpoints and continue elsewhere",
      "lab-1 --within 10m --reason 'new power supply'",
      [](client::Flags& flags, DrainOptions& options) {
        flags.Words("WORKER", options.workers, "Name of the worker").Required();
        flags.Value("--within", options.within,
                    "Jobs that wrote no checkpoint by then stop without one (60s)");
        flags.Value("--reason", options.reason, "For the history");
      },
      Drain);
}

}  // namespace trainyard::commands
