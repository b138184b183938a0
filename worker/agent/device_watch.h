// Watches the GPUs of this host while the daemon runs: who uses them, what they do, and what is
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

// Watches GPUs. It is not thread-safe, and borrows `nvml`.
class DeviceWatch {
 public:
  // `devices` are all devices of the host. Shares of the CPU are ignored.
  DeviceWatch(const std::vector<Device>& devices, Nvml& nvml, ProcessView view);

  // Looks at the GPUs. `held` names the devices on which ranks of ours run now.
  void Look(const std::set<std::string>& held);

  // Returns the GPUs as of the last look.
  const std::vector<Device>& gpus() const { return gpus_; }
  // Returns null if there is no such GPU.
  const Device* Find(const std::string& name) const;
  // Returns why the ranks on the device cannot continue, or an empty text if they can.
  std::string WhyRanksEnd(const std::string& name) const;
  // Returns the Xids of the last look, of hardware and of programs, in their order.
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
