// Shows how far a transfer of known size is, which this program itself makes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/commands/context.h"
#include "client/output/progress.h"

namespace trainyard::commands {

// Draws a bar in place on a terminal, and prints a line now and then elsewhere. It borrows the
// context.
class TransferBar {
 public:
  TransferBar(const Context& context, const std::string& name, int64_t total_bytes);
  ~TransferBar() { Clear(); }
  TransferBar(const TransferBar&) = delete;
  TransferBar& operator=(const TransferBar&) = delete;

  // Notes that so many more bytes were transferred. Bytes that were there before count for the bar
  // and not for the speed.
  void Add(int64_t bytes);
  void Skip(int64_t bytes);
  // Removes the bar from the terminal.
  void Clear();

 private:
  void Draw();

  const Context& context_;
  output::TransferView view_;
  int64_t skipped_ = 0;
  const absl::Duration begin_;
  absl::Duration last_draw_;
  bool is_drawn_ = false;
};

}  // namespace trainyard::commands
