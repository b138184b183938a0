// Explains NVIDIA's words and numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trainyard::agent {

// An error that the driver logs under a number (Xid).
struct XidMeaning {
  int64_t xid = 0;
  const char* what = "";
  const char* remedy = "";
  bool ends_ranks = false;  // the ranks on the GPU cannot continue
};

// Returns null for an error that a program has caused itself, and for an unknown one.
const XidMeaning* HardwareXid(int64_t xid);

// Names for people what slows the clocks down: "heat, power cap". The text is empty if nothing does
// that matters; an idle GPU slows down, too.
std::string SlowedBy(uint64_t throttle_reasons);

// Numbers groups of linked items from 1 in the order of the items, and gives 0 to items without a
// link. Links through a third item count, so rings and trees form one group.
std::vector<int> NumberIslands(int count, const std::function<bool(int, int)>& linked);

// Returns the device type of a product: "NVIDIA H200" is "h200", "NVIDIA GeForce GTX 1080 Ti" is
// "gtx-1080-ti", "NVIDIA H100 80GB HBM3" is "h100", and "NVIDIA H200 MIG 1g.18gb" is "h200-mig-1g".
std::string DeviceTypeOf(const std::string& product);

}  // namespace trainyard::agent
