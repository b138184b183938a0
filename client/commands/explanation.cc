// Turns the server's explanation into text, with commands that can be pasted into a shell.
#include "client/commands/explanation.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/output/text.h"
#include "common/base/duration.h"

namespace trainyard::commands {
namespace {

// Quotes a word if a shell would not take it as it is.
std::string ShellWord(const std::string& text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("._/=+-:,").find(c) != absl::string_view::npos;
  });
  return is_plain ? text : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace

std::string Ordinal(int64_t number) {
  const int64_t tens = number % 100 / 10;
  const char* ending = "th";
  if (tens != 1 && number % 10 == 1) ending = "st";
  if (tens != 1 && number % 10 == 2) ending = "nd";
  if (tens != 1 && number % 10 == 3) ending = "rd";
  return absl::StrCat(number, ending);
}

std::string StartText(const v1::Explanation& explanation) {
  std::string text;
  if (explanation.reasons().empty()) {
    text = "now";
  } else if (explanation.has_start_in()) {
    text = absl::StrCat("in about ", DurationText(output::ToDuration(explanation.start_in())), " (",
                        output::TimeText(explanation.start_time()), " UTC)");
  } else {
    text = explanation.infeasible() ? "never" : "unknown";
  }
  if (!explanation.start_basis().empty()) {
    absl::StrAppend(&text, ": ", explanation.start_basis());
  }
  return text;
}

std::string ExplanationText(const Context& context, const v1::Explanation& explanation,
                            const std::string& command) {
  const output::Terminal& terminal = context.terminal;
  std::string text;
  if (!explanation.reasons().empty()) {
    absl::StrAppend(&text, terminal.Style("1", "waits because"), "\n");
  }
  for (const std::string& reason : explanation.reasons())
    absl::StrAppend(&text, "  ", reason, "\n");
  if (!explanation.change().empty()) {
    absl::StrAppend(&text, terminal.Style("1", "would start now"), "\n");
    if (!explanation.change_text().empty()) {
      absl::StrAppend(&text, "  ", explanation.change_text(), "\n");
    }
    std::string line = command;
    for (const v1::SpecChange& change : explanation.change()) {
      absl::StrAppend(&line, " --set ",
                      ShellWord(absl::StrCat(change.path(), "=", change.value_json())));
    }
    absl::StrAppend(&text, "  ", terminal.Style("36", line), "\n");
  } else if (!explanation.reasons().empty() && !explanation.change_text().empty()) {
    absl::StrAppend(&text, terminal.Style("1", "would start now"), "\n  ",
                    explanation.change_text(), "\n");
  }
  absl::StrAppend(&text, terminal.Style("1", "starts"), "\n  ", StartText(explanation), "\n");
  return text;
}

}  // namespace trainyard::commands
