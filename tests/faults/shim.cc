// Makes the file that a test shares with the preloaded library.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/faults/shim.h"

namespace trainyard::testing {

Shim::Shim() {
  const auto file = OpenFile(dir_.File("control"), O_RDWR | O_CREAT);
  TY_CHECK_OK(file.status());
  TY_CHECK(ftruncate(file->get(), sizeof(ShimControl)) == 0);
  void* memory =
      mmap(nullptr, sizeof(ShimControl), PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  TY_CHECK(memory != MAP_FAILED);
  control_ = static_cast<ShimControl*>(memory);
}

Shim::~Shim() {
  munmap(control_, sizeof(ShimControl));
}

bool Shim::IsPossible() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

std::map<std::string, std::string> Shim::Environment() const {
  return {{"LD_PRELOAD", FAULT_SHIM}, {kShimVariable, dir_.File("control")}};
}

void Shim::Arm(const Fault& fault) {
  TY_CHECK(fault.path.size() < ShimControl::kPathBytes);
  Disarm();
  std::fill(std::begin(control_->path), std::end(control_->path), '\0');
  std::copy(fault.path.begin(), fault.path.end(), control_->path);
  control_->action = fault.action;
  control_->passing = fault.passing;
  control_->times = fault.times;
  control_->seen = 0;
  control_->calls = fault.calls;
}

}  // namespace trainyard::testing
