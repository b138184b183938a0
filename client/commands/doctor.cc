// doctor looks at this machine and at the server that commands go to, and says what is wrong and
// what to do. It changes nothing.
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/doctor_sections.h"
#include "client/commands/verbs.h"
#include "client/doctor/examination.h"
#include "client/output/csv.h"
#include "client/output/proto_text.h"
#include "common/base/version.h"

namespace trainyard::commands {
namespace {

using doctor::Finding;
using doctor::Findings;
using doctor::Level;
using nlohmann::ordered_json;

struct DoctorOptions {
  std::string state_dir;
  bool brief = false;
};

// Each section has its own limits, and takes as long only if something hangs.
constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr size_t kLevelColumns = 9;  // "problem" and two spaces

struct Chapter {
  std::string title;
  Findings findings;
};

absl::StatusOr<std::vector<Chapter>> Examine(const Context& context, const DoctorOptions& options) {
  std::vector<doctor::Examination> examinations;
  for (const DoctorSection& section : DoctorSections(context, options.state_dir)) {
    examinations.emplace_back(section.title, section.look);
  }
  const absl::Duration start = context.clock.Uptime();
  Chapter of_server = {"server", doctor::JudgeServer(AskServer(context), Version())};
  std::vector<Chapter> chapters;
  for (const doctor::Examination& examination : examinations) {
    while (!examination.is_over() && context.clock.Uptime() - start < kPatience) {
      if (context.interrupt.WaitFor(kPoll)) return absl::CancelledError("interrupted");
    }
    chapters.push_back({examination.title(), examination.Take(kPatience)});
    // The programs come first, since nothing works without them.
    if (chapters.size() == 1) chapters.push_back(std::move(of_server));
  }
  return chapters;
}

// Breaks a text into lines of at most `width` columns, each after the first one indented.
std::string Wrapped(const std::string& text, size_t indent, size_t width) {
  std::string out;
  size_t column = indent;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const size_t columns = output::DisplayWidth(word);
    if (column > indent && column + 1 + columns > width) {
      absl::StrAppend(&out, "\n", std::string(indent, ' '));
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    absl::StrAppend(&out, word);
    column += columns;
  }
  return out;
}

const char* ColorOf(Level level) {
  switch (level) {
    case Level::kOk:
      return "32";
    case Level::kWarning:
      return "33";
    case Level::kProblem:
      break;
  }
  return "31";
}

void PrintFinding(const Context& context, const Finding& finding) {
  constexpr size_t kIndent = 2 + kLevelColumns;
  constexpr size_t kUnbounded = 1'000'000;
  const output::Terminal& terminal = context.terminal;
  const size_t width = terminal.out_is_terminal ? static_cast<size_t>(terminal.width) : kUnbounded;
  const std::string level = doctor::LevelText(finding.level);
  // A text of another program may have several lines.
  const auto in_lines = [&](const std::string& text) {
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    return Wrapped(absl::StrJoin(lines, " "), kIndent, width);
  };
  context.out << "  " << terminal.Style(ColorOf(finding.level), level)
              << std::string(kLevelColumns - level.size(), ' ') << in_lines(finding.message)
              << "\n";
  if (!finding.advice.empty()) {
    context.out << std::string(kIndent, ' ') << in_lines(absl::StrCat("-> ", finding.advice))
                << "\n";
  }
}

void PrintText(const Context& context, const std::vector<Chapter>& chapters, bool brief) {
  bool is_first = true;
  for (const Chapter& chapter : chapters) {
    bool has_title = false;
    for (const Finding& finding : chapter.findings) {
      if (brief && finding.level == Level::kOk) continue;
      if (!has_title) {
        context.out << (is_first ? "" : "\n") << context.terminal.Style("1", chapter.title) << "\n";
        has_title = true;
        is_first = false;
      }
      PrintFinding(context, finding);
    }
  }
}

bool PrintAsAsked(const Context& context, const std::vector<Chapter>& chapters, bool brief) {
  ordered_json all = ordered_json::array();
  for (const Chapter& chapter : chapters) {
    for (const Finding& finding : chapter.findings) {
      if (brief && finding.level == Level::kOk) continue;
      all.push_back({{"section", chapter.title},
                     {"check", finding.check},
                     {"level", doctor::LevelText(finding.level)},
                     {"message", finding.message},
                     {"advice", finding.advice}});
    }
  }
  const auto text = [](const ordered_json& json, int indent) {
    // Texts of other programs need not be UTF-8.
    return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
  };
  switch (context.options.format) {
    case Format::kJson:
      context.out << text(all, 2) << "\n";
      return true;
    case Format::kJsonLines:
      for (const ordered_json& each : all) context.out << text(each, -1) << "\n";
      return true;
    case Format::kYaml:
      context.out << output::JsonToYaml(text(all, -1));
      return true;
    case Format::kCsv:
      context.out << output::JsonToCsv(text(all, -1));
      return true;
    case Format::kName:
      for (const ordered_json& each : all) context.out << each["check"].get<std::string>() << "\n";
      return true;
    default:
      return false;
  }
}

Result LookAtMachine(const Context& context, const DoctorOptions& options) {
  const auto chapters = Examine(context, options);
  if (!chapters.ok()) return chapters.status();
  std::map<Level, size_t> counts;
  for (const Chapter& chapter : *chapters) {
    for (const Finding& finding : chapter.findings) ++counts[finding.level];
  }
  const size_t problems = counts[Level::kProblem];
  if (!PrintAsAsked(context, *chapters, options.brief)) {
    PrintText(context, *chapters, options.brief);
    const std::string few =
        problems == 0 ? std::string("no problem") : Counted(problems, "problem");
    context.Say(absl::StrCat(few, ", ", Counted(counts[Level::kWarning], "warning"), ", and ",
                             counts[Level::kOk], " checks without any"));
  }
  return problems == 0 ? link::kOk : link::kFailed;
}

}  // namespace

void AddDoctor(VerbTable& verbs) {
  verbs.Add<DoctorOptions>(
      "doctor", "Look at this machine and at the server, and say what is wrong and what to do",
      "--brief",
      [](client::Flags& flags, DoctorOptions& options) {
        flags.Switch("--brief", options.brief, "Show only what is not fine");
        flags.Value("--state-dir", options.state_dir,
                    "State directory of `trainyard up` (~/.local/state/trainyard)");
      },
      LookAtMachine);
}

}  // namespace trainyard::commands
