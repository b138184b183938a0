// Draws the progress of a download from the lines that trainyard-fetch prints.
#include "client/commands/fetch_progress.h"

#include <ostream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace trainyard::commands {
namespace {

constexpr absl::Duration kFetchDrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kFetchLineInterval = absl::Seconds(10);

}  // namespace

FetchProgress::FetchProgress(const Context& context, absl::string_view file) : context_(context) {
  view_.name = std::string(file);
  // The first line is shown only if the download does not finish at once.
  if (!context.terminal.err_is_terminal) last_draw_ = context.clock.Uptime();
}

void FetchProgress::OnOutput(absl::string_view text) {
  absl::StrAppend(&unfinished_, text);
  const std::vector<std::string> lines = absl::StrSplit(unfinished_, '\n');
  unfinished_ = lines.back();
  for (size_t i = 0; i + 1 < lines.size(); ++i) OnLine(lines[i]);
}

void FetchProgress::OnLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  int64_t bytes = 0;
  int64_t total = 0;
  if (words.size() != 3 || words[0] != "progress" || !absl::SimpleAtoi(words[1], &bytes) ||
      !absl::SimpleAtoi(words[2], &total)) {
    verdict_ = std::string(line);
    return;
  }
  const absl::Duration now = context_.clock.Uptime();
  // Fewer bytes than before mean that the download started again.
  if (first_bytes_ < 0 || bytes < first_bytes_) {
    first_bytes_ = bytes;
    first_uptime_ = now;
  }
  view_.bytes = bytes;
  view_.total = total;
  const double seconds = absl::ToDoubleSeconds(now - first_uptime_);
  view_.bytes_per_s = seconds > 0 ? static_cast<double>(bytes - first_bytes_) / seconds : 0;
  if (!context_.options.quiet) Draw();
}

void FetchProgress::Draw() {
  const absl::Duration now = context_.clock.Uptime();
  const bool on_terminal = context_.terminal.err_is_terminal;
  if (now - last_draw_ < (on_terminal ? kFetchDrawInterval : kFetchLineInterval)) return;
  last_draw_ = now;
  if (on_terminal) {
    context_.err << output::kLineStart << output::TransferBarLine(view_, context_.terminal)
                 << output::kClearRest << std::flush;
    is_drawn_ = true;
  } else {
    context_.err << output::TransferTextLine(view_) << "\n" << std::flush;
  }
}

void FetchProgress::Clear() {
  if (is_drawn_) context_.err << output::kLineStart << output::kClearRest << std::flush;
  is_drawn_ = false;
}

}  // namespace trainyard::commands
