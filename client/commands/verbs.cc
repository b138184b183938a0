// Builds the command line from the verbs, and prints how a verb has ended.
#include "client/commands/verbs.h"

#include <algorithm>
#include <cerrno>
#include <ostream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/program_command.h"
#include "client/output/plain_stream.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/escape.h"
#include "common/base/version.h"

namespace trainyard::commands {

#define VERB(file, add) void add(VerbTable& verbs);
#include "client/commands/verbs.def"
#undef VERB

namespace {

constexpr char kFooter[] =
    "Start here:\n"
    "  trainyard up --detach                        a server and a worker on this machine\n"
    "  trainyard submit jobs/convnet-glyphs.yaml --follow\n"
    "Each verb has an example: trainyard help VERB";

// A word of other tools, and the verbs that do here what it does there, with spaces between them.
struct Synonym {
  const char* word;
  const char* verbs;
};
constexpr Synonym kSynonyms[] = {
    {"list", "ls"},
    {"ps", "ls"},
    {"jobs", "ls"},
    {"squeue", "ls top"},
    {"queue", "ls top"},
    {"sinfo", "workers"},
    {"nodes", "workers"},
    {"gpus", "devices"},
    {"describe", "show"},
    {"get", "show"},
    {"info", "show status"},
    {"history", "show"},
    {"tail", "logs"},
    {"create", "submit create"},
    {"apply", "submit"},
    {"sbatch", "submit"},
    {"train", "submit run"},
    {"stop", "cancel down"},
    {"kill", "cancel"},
    {"scancel", "cancel"},
    {"abort", "cancel"},
    {"pause", "suspend"},
    {"continue", "resume"},
    {"unpause", "resume"},
    {"delete", "rm"},
    {"remove", "rm"},
    {"del", "rm"},
    {"retry", "clone"},
    {"rerun", "clone"},
    {"fork", "clone"},
    {"start", "up"},
    {"why", "explain"},
    {"dataset", "data"},
    {"datasets", "data"},
    {"download", "checkpoints fetch get"},
    {"sweeps", "sweep"},
    {"tune", "sweep"},
    {"hpo", "sweep"},
    {"check", "doctor"},
    {"diagnose", "doctor"},
};

// The command line with all verbs, and the values of its global flags.
struct Program {
  Program() {
    client::Flags flags = line.Globals();
    const client::Flag server = flags.Value(
        "--server", options.server,
        "Address of the server: unix:/path, ssh://[USER@]HOST or tls://HOST:PORT. By default "
        "$TRAINYARD_SERVER, then a context, then the server of your own `trainyard up`, then that "
        "of this machine");
    flags
        .Value("--context", options.context,
               "Context that names the server; see `trainyard contexts ls`. By default "
               "$TRAINYARD_CONTEXT, then the one of `trainyard contexts use`")
        .Excludes(server);
    flags
        .Value("--as", options.act_as,
               "Act for this user; only administrators may, and the audit log says so")
        .ShownAs("USER");
    std::vector<std::string> names;
    for (const auto& [name, value] : formats) names.push_back(name);
    flags.Value("-o,--output", format, "table, wide, json, jsonl, yaml, csv or name").OneOf(names);
    flags.Switch("--no-color", options.no_color, "Print no colours; $NO_COLOR does the same");
    line.SetVersion(absl::StrCat("trainyard ", Version()));
    for (const Synonym& synonym : kSynonyms) {
      line.AddSynonym(synonym.word, absl::StrSplit(synonym.verbs, ' '));
    }
    flags.Switch("-q,--quiet", options.quiet, "Print nothing but data and errors");
#define VERB(file, add) add(verbs);
#include "client/commands/verbs.def"
#undef VERB
  }

  const std::map<std::string, Format> formats = {
      {"table", Format::kTable},     {"wide", Format::kWide}, {"json", Format::kJson},
      {"jsonl", Format::kJsonLines}, {"yaml", Format::kYaml}, {"csv", Format::kCsv},
      {"name", Format::kName}};
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

void TellError(const Context& context, const absl::Status& status) {
  // A message is the only text that need not be UTF-8: it may come from a log or from gRPC.
  context.err << context.terminal.Style("1;31", "error:") << " " << WithoutEscapes(status.message())
              << "\n";
  const std::string next = NextStep(status);
  if (!next.empty()) context.err << "  " << next << "\n";
  context.err << std::flush;
}

// Adds to a refusal how a program is run, if the words after `run` or `submit` are those of one.
void AddProgramAdvice(const std::vector<std::string>& args, std::string& refusal) {
  if (std::find(args.begin(), args.end(), "--") != args.end()) return;
  const auto verb = std::find_if(args.begin(), args.end(), [](const std::string& word) {
    return word == "run" || word == "submit";
  });
  if (verb == args.end() || (verb != args.begin() && *(verb - 1) == "sweep")) return;
  const std::string advice = ProgramAdvice(*verb, {verb + 1, args.end()});
  if (advice.empty()) return;
  // The nearest flag of ours is not meant by those who give the flags of their program.
  const size_t suggestion = refusal.find("; did you mean ");
  if (suggestion != std::string::npos) {
    refusal.erase(suggestion, refusal.find('\n', suggestion) - suggestion);
  }
  refusal.insert(std::min(refusal.find('\n'), refusal.size()), "; " + advice);
}

}  // namespace

Parsed ParseCommandLine(const std::vector<std::string>& args) {
  Program program;
  client::CommandLine::Outcome outcome = program.line.Parse(args);
  if (outcome.verb.empty()) {
    if (outcome.exit_code != 0) AddProgramAdvice(args, outcome.err);
    return {std::nullopt, outcome.exit_code, std::move(outcome.out), std::move(outcome.err)};
  }
  program.options.format = program.formats.at(program.format);
  return {Invocation{program.options, program.verbs.Find(outcome.verb)}, 0, "", ""};
}

link::ExitCode Run(const Context& context, const RunFunction& run) {
  output::PlainStream out(context.out);
  output::PlainStream err(context.err);
  const Context plain = {
      context.options, context.surroundings,   context.terminal, out,         err,
      context.in,      context.in_is_terminal, context.clock,    context.rng, context.interrupt,
      context.raw_out};
  const Result result = run(plain);
  out << std::flush;
  if (result.ok()) {
    // Whoever reads the output may stop early, as `head` does.
    if (out.error() == 0 || out.error() == EPIPE) return *result;
    TellError(plain,
              absl::DataLossError(absl::StrCat("the output cannot be written: ",
                                               std::generic_category().message(out.error()))));
    return link::kFailed;
  }
  if (context.interrupt.triggered()) return link::kInterrupted;
  TellError(plain, result.status());
  return link::ExitCodeOf(result.status());
}

std::vector<client::VerbInfo> DescribeVerbs() {
  return Program().line.Describe();
}

client::VerbInfo DescribeGlobals() {
  return Program().line.DescribeGlobals();
}

}  // namespace trainyard::commands
