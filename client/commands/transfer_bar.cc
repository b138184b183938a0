// A short transfer draws nothing.
#include "client/commands/transfer_bar.h"

#include <ostream>

namespace trainyard::commands {
namespace {

constexpr absl::Duration kBarInterval = absl::Milliseconds(100);
constexpr absl::Duration kLineInterval = absl::Seconds(10);

}  // namespace

TransferBar::TransferBar(const Context& context, const std::string& name, int64_t total_bytes)
    : context_(context), begin_(context.clock.Uptime()), last_draw_(begin_) {
  view_.name = name;
  view_.total = total_bytes;
}

void TransferBar::Add(int64_t bytes) {
  view_.bytes += bytes;
  Draw();
}

void TransferBar::Skip(int64_t bytes) {
  view_.bytes += bytes;
  skipped_ += bytes;
  Draw();
}

void TransferBar::Draw() {
  const absl::Duration now = context_.clock.Uptime();
  const bool on_terminal = context_.terminal.err_is_terminal;
  if (context_.options.quiet || now - last_draw_ < (on_terminal ? kBarInterval : kLineInterval)) {
    return;
  }
  last_draw_ = now;
  view_.bytes_per_s =
      static_cast<double>(view_.bytes - skipped_) / absl::ToDoubleSeconds(now - begin_);
  if (on_terminal) {
    context_.err << output::kLineStart << output::TransferBarLine(view_, context_.terminal)
                 << output::kClearRest << std::flush;
    is_drawn_ = true;
  } else {
    context_.err << output::TransferTextLine(view_) << "\n" << std::flush;
  }
}

void TransferBar::Clear() {
  if (is_drawn_) context_.err << output::kLineStart << output::kClearRest << std::flush;
  is_drawn_ = false;
}

}  // namespace trainyard::commands
