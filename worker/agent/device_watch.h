// Looks after the GPUs of this host while the daemon runs: who uses them, what they do, and what is
// wrong with them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "worker/agent/device_inventory.h"
#include "worker/agent/gpu_faults.h"
#include "worker/agent/nvml.h"
#include "worker/agent/report.h"

namespace trainyard::agent {

// Not thread-safe. Borrows `nvml`.
class DeviceWatch {
 public:
  // `devices`: all of the host; shares of the CPU are passed over.
  DeviceWatch(const std::vector<Device>& devices, Nvml& nvml, ProcessView view);

  // `held`: names of the devices on which ranks of ours run now.
  void Look(const std::set<std::string>& held);

  // The GPUs as of the last look.
  const std::vector<Device>& gpus() const { return gpus_; }
  // Null where there is no such GPU.
  const Device* Find(const std::string& name) const;
  // Why what runs on the device has nothing more to hope for; empty where it has.
  std::string WhyRanksEnd(const std::string& name) const;
  // Xids of the last look, of hardware and of programs, in their order.
  std::vector<int64_t> XidsOf(const std::string& name) const;

 private:
  Nvml& nvml_;
  const ProcessView view_;
  std::vector<Device> gpus_;
  std::map<std::string, GpuFaults> faults_;
  std::set<std::string> held_before_;
  std::vector<XidEvent> xids_;
};

}  // namespace trainyard::agent
