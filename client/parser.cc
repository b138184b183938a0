#include "client/parser.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::client {
namespace {

using commands::Format;
using commands::Options;

constexpr int kUsage = 2;

constexpr char kSelectors[] = "Jobs: 12, jobs/12, last, @~1 (the one before the last), 1-10,15";

// Builds the application over one record of options, which it borrows.
class Grammar {
 public:
  explicit Grammar(Options& options)
      : app_("Trains neural networks on a shared pool of devices.", "trainyard"),
        options_(options) {
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.get_formatter()->column_width(34);
    app_.footer(
        "Start here:\n"
        "  trainyard up --detach                        a server and a worker on this machine\n"
        "  trainyard submit jobs/convnet-glyphs.yaml --follow\n"
        "Each verb has an example: trainyard VERB --help");
    AddGlobals();
    AddSubmitting();
    AddLooking();
    AddSteering();
    AddResources();
    AddMachine();
  }

  CLI::App& app() { return app_; }

 private:
  void AddGlobals() {
    app_.add_option("--server", options_.server,
                    "Server: unix:/path or 127.0.0.1:PORT. Else $TRAINYARD_SERVER, else the "
                    "current context of ~/.config/trainyard/config.yaml, else the socket of "
                    "`trainyard up`");
    static const std::map<std::string, Format> kFormats = {
        {"table", Format::kTable},     {"wide", Format::kWide}, {"json", Format::kJson},
        {"jsonl", Format::kJsonLines}, {"yaml", Format::kYaml}, {"name", Format::kName}};
    app_.add_option_function<std::string>(
            "-o,--output", [this](const std::string& name) { options_.format = kFormats.at(name); },
            "table, wide, json, jsonl, yaml or name")
        ->check(CLI::IsMember(&kFormats).description(""));
    app_.add_flag("--no-color", options_.no_color, "No colours; so does $NO_COLOR");
    app_.add_flag("-q,--quiet", options_.quiet, "Say nothing that is not asked for");
  }

  CLI::App* Verb(CLI::App* parent, const std::string& name, const std::string& summary,
                 const std::string& example) {
    CLI::App* verb = parent->add_subcommand(name, summary);
    verb->fallthrough();
    const std::string full = parent == &app_ ? name : absl::StrCat(parent->get_name(), " ", name);
    verb->footer(absl::StrCat("Example:\n  trainyard ", full, example.empty() ? "" : " ", example));
    verb->callback([this, full] { options_.verb = full; });
    return verb;
  }
  CLI::App* Verb(const std::string& name, const std::string& summary, const std::string& example) {
    return Verb(&app_, name, summary, example);
  }

  void Selectors(CLI::App* verb, bool is_required) {
    CLI::Option* option = verb->add_option("JOB", options_.selectors, kSelectors);
    if (is_required) option->required();
  }
  void OneJob(CLI::App* verb) {
    verb->add_option("JOB", options_.selectors, kSelectors)->required()->expected(1);
  }
  void Changes(CLI::App* verb) {
    verb->add_option("--set", options_.set, "Change of the spec, PATH=VALUE; may be repeated")
        ->allow_extra_args(false);
    verb->add_option("--devices", options_.devices, "Number of devices (devices.count)")
        ->check(CLI::Range(1, 4096).description(""));
    verb->add_option("--name", options_.name, "Name of the job");
    verb->add_option("--from", options_.from,
                     "Checkpoint to start from: 12/600, or a job for its newest");
    verb->add_option("--request-id", options_.request_id,
                     "The same request sent again gives the same job (chosen at random otherwise)");
    verb->add_flag("--dry-run", options_.dry_run, "Check and show only; nothing is stored");
  }

  void AddSubmitting() {
    CLI::App* submit = Verb("submit", "Submit a job spec",
                            "jobs/convnet-glyphs.yaml --set train.epochs=5 --follow");
    submit->add_option("FILE", options_.file, "Spec in YAML or JSON; - for standard input")
        ->required();
    Changes(submit);
    submit->add_flag("--follow", options_.follow, "Follow it to its end");
    CLI::App* run = Verb("run", "Submit a job spec and follow it (submit --follow)",
                         "jobs/convnet-glyphs.yaml --devices 2");
    run->add_option("FILE", options_.file, "Spec in YAML or JSON; - for standard input")
        ->required();
    Changes(run);
    CLI::App* clone =
        Verb("clone", "Run a job again, with changes", "last --set optimizer.sgd.lr=0.02 --follow");
    OneJob(clone);
    Changes(clone);
    clone->add_flag("--follow", options_.follow, "Follow it to its end");
    clone->add_flag("-y,--yes", options_.yes, "Do not ask");
  }

  void AddLooking() {
    CLI::App* ls = Verb("ls", "List jobs, newest first", "--state running --state queued");
    ls->add_option("--state", options_.states, "Only jobs in this state; may be repeated")
        ->allow_extra_args(false);
    ls->add_option("--limit", options_.limit, "At most so many jobs (20)")
        ->check(CLI::Range(1, 1'000'000).description(""));
    ls->add_flag("-a,--all", options_.all, "All jobs, also those that ended long ago");
    CLI::App* show = Verb("show", "Show jobs with all there is to know", "last --events");
    Selectors(show, true);
    show->add_flag("--spec", options_.spec, "The resolved spec, as YAML that submit takes");
    show->add_flag("--events", options_.events, "With the history");
    Selectors(Verb("watch", "Follow jobs live", "last"), false);
    CLI::App* logs = Verb("logs", "Show what the ranks wrote", "last --rank 0 -f");
    OneJob(logs);
    logs->add_flag("-f,--follow", options_.follow, "Go on as text comes, until the job ends");
    logs->add_option("--rank", options_.rank, "Only this rank")
        ->check(CLI::Range(0, 4095).description(""));
    logs->add_option("--tail", options_.tail_lines, "Only the last so many lines of each rank")
        ->check(CLI::Range(0, 1'000'000).description(""));
    CLI::App* metrics =
        Verb("metrics", "Draw or print the metrics of a job", "last --metric train.loss");
    OneJob(metrics);
    metrics->add_option("--metric", options_.metrics, "Only this metric; may be repeated")
        ->allow_extra_args(false);
    metrics->add_flag("-f,--follow", options_.follow, "Print points as they come");
    CLI::App* diff = Verb("diff", "Show the differences of two jobs' specs", "@~1 last");
    diff->add_option("JOB", options_.selectors, kSelectors)->required()->expected(2);
    CLI::App* wait = Verb("wait", "Wait until jobs have ended", "last --timeout 10min");
    Selectors(wait, true);
    wait->add_option("--timeout", options_.timeout, "At most so long: 90s, 10min, 2h");
  }

  void AddSteering() {
    for (const auto& [name, summary] : std::map<std::string, std::string>{
             {"cancel", "Stop jobs for good"},
             {"suspend", "Take jobs out of the queue, or stop them after a checkpoint"},
             {"resume", "Queue suspended jobs again"}}) {
      CLI::App* verb = Verb(name, summary, "last");
      Selectors(verb, true);
      if (name != "resume") verb->add_option("--reason", options_.reason, "For the history");
    }
  }

  CLI::App* Group(const std::string& name, const std::string& summary) {
    CLI::App* group = app_.add_subcommand(name, summary);
    group->require_subcommand(1);
    group->fallthrough();
    return group;
  }

  void AddResources() {
    CLI::App* checkpoints = Group("checkpoints", "List and download checkpoints");
    OneJob(Verb(checkpoints, "ls", "List the checkpoints of a job", "last"));
    CLI::App* get =
        Verb(checkpoints, "get", "Download a checkpoint; goes on where it stopped", "last -O out");
    get->add_option("CHECKPOINT", options_.selectors,
                    "A job for its newest checkpoint, or JOB/STEP: last, 12/600")
        ->required()
        ->expected(1);
    get->add_option("-O,--output-dir", options_.output_dir,
                    "Folder for the files (job-12-step-600)");
    CLI::App* workers = Group("workers", "List and steer workers");
    Verb(workers, "ls", "List the workers and their devices", "");
    for (const auto& [name, summary] : std::map<std::string, std::string>{
             {"cordon", "Give workers no new ranks"}, {"uncordon", "Give workers ranks again"}}) {
      CLI::App* verb = Verb(workers, name, summary, "lab-1");
      verb->add_option("WORKER", options_.selectors, "Name of the worker")->required();
      if (name == "cordon") verb->add_option("--reason", options_.reason, "For the history");
    }
  }

  void AddMachine() {
    CLI::App* up =
        Verb("up", "Start a server and a worker on this machine", "--detach --cpu_devices 2");
    up->add_option("--state_dir", options_.state_dir,
                   "Folder for all state (~/.local/state/trainyard)");
    up->add_option("--listen", options_.listen,
                   "Address of the server (unix:<state_dir>/server/server.sock)");
    up->add_option("--worker_name", options_.worker_name, "Name of the worker (the host's name)");
    up->add_option("--cpu_devices", options_.cpu_devices, "Number of CPU devices")
        ->check(CLI::Range(1, 1024).description(""));
    up->add_option("--threads_per_device", options_.threads_per_device, "Threads of a CPU device")
        ->check(CLI::Range(1, 1024).description(""));
    up->add_option("--dataset_dir", options_.dataset_dir, "Folder of the data sets");
    up->add_flag("--detach", options_.detach, "Return when all is up; else run until Ctrl-C");
    CLI::App* down = Verb("down", "Stop what `trainyard up` started", "--cancel");
    down->add_option("--state_dir", options_.state_dir,
                     "Folder for all state (~/.local/state/trainyard)");
    down->add_flag("--cancel", options_.cancel, "Cancel the jobs first and wait for their end");
    down->add_flag("--force", options_.force,
                   "Stop although jobs run; their ranks go on until on_disconnect.keep is over");
    CLI::App* completion = Verb("completion", "Print a completion script for a shell",
                                "bash > ~/.local/share/bash-completion/completions/trainyard");
    completion->add_option("SHELL", options_.shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
    Verb("version", "Print the version", "");
  }

  CLI::App app_;
  Options& options_;
};

void Collect(const CLI::App& app, const std::string& prefix,
             std::vector<commands::VerbInfo>& verbs) {
  for (const CLI::App* verb : app.get_subcommands({})) {
    const std::string name = prefix + verb->get_name();
    if (!verb->get_subcommands({}).empty()) {
      Collect(*verb, name + " ", verbs);
      continue;
    }
    commands::VerbInfo info{name, verb->get_description(), {}};
    for (const CLI::App* level = verb; level != nullptr; level = level->get_parent()) {
      for (const CLI::Option* option : level->get_options()) {
        for (const std::string& flag : option->get_lnames()) info.flags.push_back("--" + flag);
      }
    }
    std::sort(info.flags.begin(), info.flags.end());
    info.flags.erase(std::unique(info.flags.begin(), info.flags.end()), info.flags.end());
    verbs.push_back(std::move(info));
  }
}

// "did you mean 'submit'?" for a first word that is no verb.
std::string VerbHint(CLI::App& app, const std::vector<std::string>& args) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  for (const std::string& arg : args) {
    if (!arg.empty() && arg[0] == '-') continue;
    if (std::find(names.begin(), names.end(), arg) != names.end()) return "";
    const std::string nearest = NearestWord(arg, names);
    return absl::StrCat("'", arg, "' is no verb",
                        nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"));
  }
  return "";
}

}  // namespace

Parsed ParseCommandLine(const std::vector<std::string>& args) {
  Parsed parsed;
  Options options;
  Grammar grammar(options);
  CLI::App& app = grammar.app();
  // CLI11 takes the arguments from the back.
  std::vector<std::string> reversed(args.rbegin(), args.rend());
  try {
    app.parse(reversed);
    if (options.verb == "run") {
      options.verb = "submit";
      options.follow = true;
    }
    parsed.options = std::move(options);
  } catch (const CLI::Success& success) {  // --help
    std::ostringstream out;
    std::ostringstream err;
    parsed.exit_code = app.exit(success, out, err);
    parsed.out = out.str();
  } catch (const CLI::ParseError& error) {
    const std::string hint = VerbHint(app, args);
    parsed.exit_code = kUsage;
    parsed.err = absl::StrCat("trainyard: ", hint.empty() ? error.what() : hint,
                              "\ntry: trainyard --help\n");
  }
  return parsed;
}

std::vector<commands::VerbInfo> DescribeVerbs() {
  Options options;
  Grammar grammar(options);
  std::vector<commands::VerbInfo> verbs;
  Collect(grammar.app(), "", verbs);
  return verbs;
}

}  // namespace trainyard::client
