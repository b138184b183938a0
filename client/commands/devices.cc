// drain, and devices: what is set aside, and taken back.
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/commands.h"
#include "client/commands/device_table.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/spec/interval.h"

namespace trainyard::commands {
namespace {

struct DeviceName {
  std::string worker;  // workers/lab-1
  std::string device;
};

// "lab-1/cpu-0".
absl::StatusOr<DeviceName> ParseDevice(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is no device; write WORKER/DEVICE, as `trainyard devices ls` shows them"));
  }
  return DeviceName{WorkerName(parts[0]), parts[1]};
}

template <typename Request, typename Method>
Result SteerDevices(const Context& context, Method method, absl::string_view done) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::vector<v1::Worker> workers;
  for (const std::string& text : context.options.selectors) {
    TY_ASSIGN_OR_RETURN(const DeviceName name, ParseDevice(text));
    Request request;
    request.set_worker(name.worker);
    request.set_device(name.device);
    if constexpr (std::is_same_v<Request, v1::QuarantineDeviceRequest>) {
      request.set_reason(context.options.reason);
    }
    TY_ASSIGN_OR_RETURN(v1::Worker worker, link->Call(method, request));
    context.Say(absl::StrCat("device ", name.device, " of ", name.worker, " ", done));
    workers.push_back(std::move(worker));
  }
  PrintResources(context, workers);
  return link::kOk;
}

}  // namespace

Result ListDevices(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListWorkersResponse response,
                      link->Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest()));
  std::vector<const google::protobuf::Message*> messages;
  std::vector<std::string> names;
  for (const v1::Worker& worker : response.workers()) {
    for (const v1::Device& device : worker.devices()) {
      messages.push_back(&device);
      names.push_back(absl::StrCat(output::ShortName(worker.name()), "/", device.name()));
    }
  }
  if (PrintList(context, messages, names)) return link::kOk;
  if (names.empty()) {
    context.Say("no devices; `trainyard up` starts a worker on this machine");
  } else {
    context.out << DeviceTable(response);
  }
  return link::kOk;
}

Result Quarantine(const Context& context) {
  return SteerDevices<v1::QuarantineDeviceRequest>(
      context, &v1::FleetService::Stub::QuarantineDevice,
      "is set aside; what runs there goes on. `trainyard devices release` takes it back");
}

Result Release(const Context& context) {
  return SteerDevices<v1::ReleaseDeviceRequest>(context, &v1::FleetService::Stub::ReleaseDevice,
                                                "is offered again");
}

Result Drain(const Context& context) {
  absl::Duration within;
  if (!context.options.within.empty()) {
    TY_ASSIGN_OR_RETURN(within, ParseDuration(context.options.within));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : context.options.selectors) {
    v1::DrainWorkerRequest request;
    request.set_name(absl::StartsWith(name, "workers/") ? name : WorkerName(name));
    request.set_reason(context.options.reason);
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

}  // namespace trainyard::commands
