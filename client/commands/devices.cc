// devices lists devices, sets them aside and takes them back.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/device_table.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct DevicesOptions {
  std::vector<std::string> devices;  // "lab-1/cpu-0"
  std::string reason;
};

struct DeviceName {
  std::string worker;  // workers/lab-1
  std::string device;
};

// Splits a name such as "lab-1/cpu-0" into worker and device.
absl::StatusOr<DeviceName> ParseDevice(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a device; write WORKER/DEVICE, as `trainyard devices ls` shows them"));
  }
  return DeviceName{WorkerName(parts[0]), parts[1]};
}

template <typename Request, typename Method>
Result SteerDevices(const Context& context, const DevicesOptions& options, Method method,
                    absl::string_view done) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::vector<v1::Worker> workers;
  for (const std::string& text : options.devices) {
    TY_ASSIGN_OR_RETURN(const DeviceName name, ParseDevice(text));
    Request request;
    request.set_worker(name.worker);
    request.set_device(name.device);
    if constexpr (std::is_same_v<Request, v1::QuarantineDeviceRequest>) {
      request.set_reason(options.reason);
    }
    TY_ASSIGN_OR_RETURN(v1::Worker worker, link->Call(method, request));
    context.Say(absl::StrCat("device ", name.device, " of ", name.worker, " ", done));
    workers.push_back(std::move(worker));
  }
  PrintResources(context, workers);
  return link::kOk;
}

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

Result Quarantine(const Context& context, const DevicesOptions& options) {
  return SteerDevices<v1::QuarantineDeviceRequest>(
      context, options, &v1::FleetService::Stub::QuarantineDevice,
      "is set aside; what runs there keeps running. `trainyard devices release` takes it back");
}

Result Release(const Context& context, const DevicesOptions& options) {
  return SteerDevices<v1::ReleaseDeviceRequest>(
      context, options, &v1::FleetService::Stub::ReleaseDevice, "is offered again");
}

}  // namespace

void AddDevices(VerbTable& verbs) {
  verbs.Group("devices", "List devices, and set them aside");
  verbs.Add("devices ls", "List all devices and what runs on them", "", ListDevices);
  verbs.Add<DevicesOptions>(
      "devices quarantine", "Set devices aside; what runs there keeps running", "lab-1/cpu-0",
      [](client::Flags& flags, DevicesOptions& options) {
        flags.Words("DEVICE", options.devices, "WORKER/DEVICE").Required();
        flags.Value("--reason", options.reason, "Shown with the device");
      },
      Quarantine);
  verbs.Add<DevicesOptions>(
      "devices release", "Take devices back", "lab-1/cpu-0",
      [](client::Flags& flags, DevicesOptions& options) {
        flags.Words("DEVICE", options.devices, "WORKER/DEVICE").Required();
      },
      Release);
}

}  // namespace trainyard::commands
