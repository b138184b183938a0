// Tells how far a download is: on a terminal by a bar that is redrawn in place, elsewhere by a line
// now and then.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/commands/context.h"
#include "client/output/progress.h"

namespace trainyard::commands {

// Reads what `trainyard-fetch --progress` prints. Borrows the context.
class FetchProgress {
 public:
  FetchProgress(const Context& context, absl::string_view file);

  // Takes the next piece of output, wherever it is cut.
  void OnOutput(absl::string_view text);
  // Takes the bar away.
  void Clear();
  // The last line that is no progress: "fetched" or "present".
  const std::string& verdict() const { return verdict_; }

 private:
  void OnLine(absl::string_view line);
  void Draw();

  const Context& context_;
  output::TransferView view_;
  std::string unfinished_;  // line
  std::string verdict_;
  // The speed counts from the first bytes of this run; those before had come in another one.
  int64_t first_bytes_ = -1;
  absl::Duration first_uptime_;
  absl::Duration last_draw_ = -absl::InfiniteDuration();
  bool is_drawn_ = false;
};

}  // namespace trainyard::commands
