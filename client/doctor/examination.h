// Looks at a part of a machine on a thread of its own, which is left alone if it hangs: a disk of a
// network that is gone, or a name service, may never answer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/doctor/finding.h"

namespace trainyard::doctor {

class Examination {
 public:
  // Begins. `look` holds copies of all that it needs, since it may outlive this object.
  Examination(std::string title, std::function<Findings()> look);

  const std::string& title() const { return title_; }
  bool is_over() const;
  // Returns the findings. If there are none yet, returns one that says that `patience` was not
  // enough.
  Findings Take(absl::Duration patience) const;

 private:
  struct Outcome;

  std::string title_;
  std::shared_ptr<Outcome> outcome_;
};

}  // namespace trainyard::doctor
