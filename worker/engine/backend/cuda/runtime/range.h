// Names what a thread enqueues, for a profiler. Without a profiler, a range costs a load and a
// branch.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace trainyard::engine::cuda {

// A range lasts as long as the object.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() { nvtxRangePop(); }
};

}  // namespace trainyard::engine::cuda
