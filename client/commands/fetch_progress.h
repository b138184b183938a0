// Shows how far a download is: as a bar that is redrawn in place on a terminal, and as a line now
// and then elsewhere.
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

  // Takes the next piece of output, which may begin and end anywhere in a line.
  void OnOutput(absl::string_view text);
  // Removes the bar from the terminal.
  void Clear();
  // Returns the last line that does not describe progress: "fetched" or "present".
  const std::string& verdict() const { return verdict_; }

 private:
  void OnLine(absl::string_view line);
  void Draw();

  const Context& context_;
  output::TransferView view_;
  std::string unfinished_;  // the start of a line that is not complete yet
  std::string verdict_;
  // The number of bytes that were here when this run began. The speed leaves them out, because an
  // earlier run downloaded them.
  int64_t first_bytes_ = -1;
  absl::Duration first_uptime_;
  absl::Duration last_draw_ = -absl::InfiniteDuration();
  bool is_drawn_ = false;
};

}  // namespace trainyard::commands
