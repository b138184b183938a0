// The meaning of NVIDIA's words and numbers.
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
  bool ends_ranks = false;  // what runs there has nothing more to hope for
};

// Null for what a program has done to itself, and for what is not known.
const XidMeaning* HardwareXid(int64_t xid);

// Names what holds the clocks down, for people: "heat, power cap"; empty where nothing does that
// matters (a GPU that has nothing to do slows down, too).
std::string SlowedBy(uint64_t throttle_reasons);

// Numbers what is linked from 1 in the order of the items, and gives 0 to what has no link. Links
// through a third item count: rings and trees stay on them.
std::vector<int> NumberIslands(int count, const std::function<bool(int, int)>& linked);

// The device type of a product: "NVIDIA H200" is "h200", "NVIDIA GeForce GTX 1080 Ti"
// "gtx-1080-ti", "NVIDIA H100 80GB HBM3" "h100".
std::string DeviceTypeOf(const std::string& product);

}  // namespace trainyard::agent
