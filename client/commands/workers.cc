// workers lists workers, and decides which of them take new ranks.
#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/commands/device_table.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/base/worker_name.h"

namespace trainyard::commands {
namespace {

using output::Table;

struct WorkersOptions {
  std::vector<std::string> workers;
  std::string reason;
};

struct InviteOptions {
  std::string worker;
};

std::string TypesText(const v1::Worker& worker) {
  std::set<std::string> types;
  for (const v1::Device& device : worker.devices()) types.insert(device.type());
  return absl::StrJoin(types, ",");
}

// Returns "6/64": the processors that are held, of those that jobs may use.
std::string CpusText(const v1::Worker& worker) {
  if (worker.host().cpus() == 0) return "";
  return absl::StrCat(worker.host().cpus_held(), "/", worker.host().cpus());
}

std::string MemoryText(const v1::Worker& worker) {
  if (worker.host().cpus() == 0) return "";
  return absl::StrCat(FormatBytes(worker.host().memory_bytes_held()), "/",
                      FormatBytes(worker.host().memory_bytes()));
}

std::string StateCell(const Context& context, const v1::Worker& worker, absl::Time now) {
  if (output::IsSilent(worker, now)) return context.terminal.Style("33", "SILENT");
  return context.terminal.Style(worker.state() == v1::WORKER_STATE_ACTIVE ? "32" : "31",
                                output::StateText(worker.state()));
}

void PrintWorkers(const Context& context, const v1::ListWorkersResponse& response) {
  const bool has_hosts = std::any_of(response.workers().begin(), response.workers().end(),
                                     [](const v1::Worker& worker) { return worker.has_host(); });
  std::vector<Table::Column> columns = {{"WORKER"},
                                        {"STATE"},
                                        {"SCHEDULING"},
                                        {"DEVICES", Table::Align::kRight},
                                        {"BUSY", Table::Align::kRight},
                                        {"TYPE"},
                                        {"SEEN", Table::Align::kRight},
                                        {"VERSION"}};
  if (has_hosts) {
    columns.push_back({"CPUS", Table::Align::kRight});
    columns.push_back({"MEMORY", Table::Align::kRight});
  }
  Table table(std::move(columns));
  const absl::Time now = context.clock.Now();
  for (const v1::Worker& worker : response.workers()) {
    const auto busy = std::count_if(worker.devices().begin(), worker.devices().end(),
                                    [](const v1::Device& d) { return !d.attempt().empty(); });
    std::vector<std::string> row = {output::ShortName(worker.name()),
                                    StateCell(context, worker, now),
                                    output::SchedulingText(worker.scheduling()),
                                    absl::StrCat(worker.devices_size()),
                                    absl::StrCat(busy),
                                    TypesText(worker),
                                    output::AgeText(now - output::ToTime(worker.last_seen_time())),
                                    worker.version()};
    if (has_hosts) {
      row.push_back(CpusText(worker));
      row.push_back(MemoryText(worker));
    }
    table.AddRow(std::move(row));
  }
  context.out << table.Render();
}

template <typename Request, typename Method>
Result Steer(const Context& context, const WorkersOptions& options, Method method,
             absl::string_view done) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::vector<v1::Worker> workers;
  for (const std::string& name : options.workers) {
    Request request;
    request.set_name(absl::StartsWith(name, "workers/") ? name : WorkerName(name));
    if constexpr (requires { request.set_reason(""); }) {
      request.set_reason(options.reason);
    }
    TY_ASSIGN_OR_RETURN(v1::Worker worker, link->Call(method, request));
    context.Say(absl::StrCat(worker.name(), " ", done));
    workers.push_back(std::move(worker));
  }
  PrintResources(context, workers);
  return link::kOk;
}

Result ListWorkers(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListWorkersResponse response,
                      link->Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest()));
  if (PrintResources(context, response.workers())) return link::kOk;
  if (response.workers().empty()) {
    context.Say("no workers; `trainyard up` starts one on this machine");
  } else if (context.options.format == Format::kWide) {
    context.out << DeviceTable(response);
  } else {
    PrintWorkers(context, response);
  }
  return link::kOk;
}

Result Invite(const Context& context, const InviteOptions& options) {
  v1::InviteWorkerRequest request;
  request.set_worker(options.worker);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::InviteWorkerResponse made,
                      link->Call(&v1::AccessService::Stub::InviteWorker, request));
  if (PrintOne(context, made, made.text())) return link::kOk;
  const std::string port = made.addresses().empty()
                               ? "7070"
                               : made.addresses(0).substr(made.addresses(0).rfind(':') + 1);
  context.Say(
      absl::StrCat("this token lets one worker join within the hour. Write it to a file on the "
                   "worker's host, and start the worker there:\n  trainyard-worker --server tls://",
                   Hostname(), ":", port, options.worker.empty() ? "" : " --name ", options.worker,
                   " --join_token_file FILE \\\n    --server_fingerprint ", made.fingerprint()));
  context.out << made.text() << "\n";
  return link::kOk;
}

Result Cordon(const Context& context, const WorkersOptions& options) {
  return Steer<v1::CordonWorkerRequest>(context, options, &v1::FleetService::Stub::CordonWorker,
                                        "gets no new ranks; what runs keeps running");
}

Result Uncordon(const Context& context, const WorkersOptions& options) {
  return Steer<v1::UncordonWorkerRequest>(context, options, &v1::FleetService::Stub::UncordonWorker,
                                          "gets ranks again");
}

Result DeclareLost(const Context& context, const WorkersOptions& options) {
  return Steer<v1::DeclareWorkerLostRequest>(context, options,
                                             &v1::FleetService::Stub::DeclareWorkerLost,
                                             "is GONE; what it ran is queued again");
}

Result RevokeCertificates(const Context& context, const WorkersOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : options.workers) {
    v1::RevokeCertificateRequest request;
    request.set_worker(std::string(absl::StripPrefix(name, "workers/")));
    TY_ASSIGN_OR_RETURN(const v1::RevokeCertificateResponse revoked,
                        link->Call(&v1::AccessService::Stub::RevokeCertificate, request));
    context.Say(absl::StrCat("certificates that worker '", request.worker(),
                             "' has are refused from now on",
                             revoked.is_known() ? "" : "; no worker of that name is known"));
  }
  return link::kOk;
}

Result RemoveWorkers(const Context& context, const WorkersOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : options.workers) {
    v1::DeleteWorkerRequest request;
    request.set_name(absl::StartsWith(name, "workers/") ? name : WorkerName(name));
    request.set_reason(options.reason);
    TY_RETURN_IF_ERROR(link->Call(&v1::FleetService::Stub::DeleteWorker, request).status());
    context.Say(absl::StrCat(request.name(), " is removed"));
  }
  return link::kOk;
}

}  // namespace

void AddWorkers(VerbTable& verbs) {
  const auto declare = [](client::Flags& flags, WorkersOptions& options) {
    flags.Words("WORKER", options.workers, "Name of the worker").Required();
  };
  const auto declare_with_reason = [declare](client::Flags& flags, WorkersOptions& options) {
    declare(flags, options);
    flags.Value("--reason", options.reason, "For the history");
  };
  verbs.Group("workers", "List and steer workers");
  verbs.Add("workers ls", "List the workers and their devices", "", ListWorkers);
  verbs.Add<WorkersOptions>("workers cordon", "Give workers no new ranks", "lab-1",
                            declare_with_reason, Cordon);
  verbs.Add<InviteOptions>(
      "workers invite", "Make a token with which a worker of another host joins once", "lab-2",
      [](client::Flags& flags, InviteOptions& options) {
        flags.Word("NAME", options.worker, "The name that the worker must have [any new one]");
      },
      Invite);
  verbs.Add<WorkersOptions>(
      "workers lost",
      "Confirm that the host of an UNREACHABLE worker is off, so that its jobs start elsewhere",
      "lab-1", declare_with_reason, DeclareLost);
  verbs.Add<WorkersOptions>("workers revoke",
                            "Refuse the certificates of workers until they are invited again",
                            "lab-1", declare, RevokeCertificates);
  verbs.Add<WorkersOptions>("workers rm", "Forget workers that are out of contact and run nothing",
                            "old-1", declare_with_reason, RemoveWorkers);
  verbs.Add<WorkersOptions>("workers uncordon", "Give workers ranks again", "lab-1", declare,
                            Uncordon);
}

}  // namespace trainyard::commands
