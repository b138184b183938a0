// Builds the command line from the verbs, and prints how a verb has ended.
#include "client/commands/verbs.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/errors.h"

namespace trainyard::commands {

#define VERB(file, add) void add(VerbTable& verbs);
#include "client/commands/verbs.def"
#undef VERB

namespace {

constexpr char kFooter[] =
    "Start here:\n"
    "  trainyard up --detach                        a server and a worker on this machine\n"
    "  trainyard submit jobs/convnet-glyphs.yaml --follow\n"
    "Each verb has an example: trainyard VERB --help";

// The command line with all verbs, and the values of its global flags.
struct Program {
  Program() {
    client::Flags flags = line.Globals();
    flags.Value("--server", options.server,
                "Address of the server, unix:/path. By default $TRAINYARD_SERVER, "
                "then the current context of ~/.config/trainyard/config.yaml, then the socket of "
                "`trainyard up`");
    flags
        .Value("--as", options.act_as,
               "Act for this user; only administrators may, and the audit log says so")
        .ShownAs("USER");
    std::vector<std::string> names;
    for (const auto& [name, value] : formats) names.push_back(name);
    flags.Value("-o,--output", format, "table, wide, json, jsonl, yaml or name").OneOf(names);
    flags.Switch("--no-color", options.no_color, "Print no colours; $NO_COLOR does the same");
    flags.Switch("-q,--quiet", options.quiet, "Print nothing but data and errors");
#define VERB(file, add) add(verbs);
#include "client/commands/verbs.def"
#undef VERB
  }

  const std::map<std::string, Format> formats = {
      {"table", Format::kTable},     {"wide", Format::kWide}, {"json", Format::kJson},
      {"jsonl", Format::kJsonLines}, {"yaml", Format::kYaml}, {"name", Format::kName}};
  GlobalOptions options;
  std::string format = "table";
  client::CommandLine line{"trainyard", "Trains neural networks on a shared pool of devices.",
                           kFooter};
  VerbTable verbs{line};
};

// Returns what the user can do next, for errors that do not say it themselves.
std::string NextStep(const absl::Status& status) {
  if (const auto delay = GetRetryDelay(status)) {
    return absl::StrCat("try again in ", DurationText(*delay));
  }
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      return "the server takes too long; look at its log";
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return "this is a bug of the server; its log has the details";
    default:
      return "";
  }
}

}  // namespace

Parsed ParseCommandLine(const std::vector<std::string>& args) {
  Program program;
  client::CommandLine::Outcome outcome = program.line.Parse(args);
  if (outcome.verb.empty()) {
    return {std::nullopt, outcome.exit_code, std::move(outcome.out), std::move(outcome.err)};
  }
  program.options.format = program.formats.at(program.format);
  return {Invocation{program.options, program.verbs.Find(outcome.verb)}, 0, "", ""};
}

link::ExitCode Run(const Context& context, const RunFunction& run) {
  const Result result = run(context);
  context.out << std::flush;
  if (result.ok()) return *result;
  if (context.interrupt.triggered()) return link::kInterrupted;
  context.err << context.terminal.Style("1;31", "error:") << " " << result.status().message()
              << "\n";
  const std::string next = NextStep(result.status());
  if (!next.empty()) context.err << "  " << next << "\n";
  context.err << std::flush;
  return link::ExitCodeOf(result.status());
}

std::vector<client::VerbInfo> DescribeVerbs() {
  return Program().line.Describe();
}

}  // namespace trainyard::commands
