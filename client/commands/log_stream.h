// Reads the logs of a job's ranks and prints them. After a lost connection it continues without
// printing any text twice.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/commands/context.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Prints the text of the ranks. If there are several ranks, every line begins with the number of
// its rank, and only whole lines are written, so that two ranks never share a line. It borrows the
// context.
class LogPrinter {
 public:
  // `is_raw` leaves control characters as they are, which is for the user's own program alone.
  LogPrinter(const Context& context, bool with_rank, bool is_raw = false)
      : context_(context),
        out_(is_raw ? context.raw_out : context.out),
        with_rank_(with_rank),
        is_raw_(is_raw) {}

  void OnChunk(const v1::TailLogsResponse& chunk);

  // Holds text back until Release is called, and keeps only the last `lines` of it.
  void Hold(int64_t lines) { held_lines_ = lines; }
  void Release();
  // Prints the lines that have no end yet.
  void Flush();

  // Returns the offset from which no rank misses any text, which is the smallest end.
  int64_t ResumeOffset() const;
  int attempt() const { return attempt_; }

 private:
  void Print(int rank, absl::string_view data);
  void PrintLine(int rank, absl::string_view line);
  void Write(absl::string_view bytes);
  void KeepLastLines(std::string& text) const;

  const Context& context_;
  std::ostream& out_;
  const bool with_rank_;
  const bool is_raw_;
  int attempt_ = 0;
  int64_t held_lines_ = -1;
  std::map<int, int64_t> ends_;
  std::map<int, std::string> held_;
  std::map<int, std::string> partial_;
};

// Reads to the end, and continues after lost connections. Returns kInterrupted after Ctrl-C.
Result ReadLogs(const Context& context, link::ServerLink& link, v1::TailLogsRequest request,
                LogPrinter& printer);

}  // namespace trainyard::commands
