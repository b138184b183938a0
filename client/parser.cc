#include "client/parser.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdint>
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
    AddSharing();
    AddBench();
    AddData();
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
    verb->add_option("--set", options_.set,
                     "Change of the spec, PATH=VALUE, such as train.seed=2 or "
                     "model.layers.stack[0].conv2d.channels=64; may be repeated")
        ->allow_extra_args(false);
    verb->add_option("--devices", options_.devices, "Number of devices (devices.count)")
        ->check(CLI::Range(1, 4096).description(""));
    verb->add_option("--name", options_.name, "Name of the job");
    verb->add_option("--from", options_.from,
                     "Checkpoint to start from: 12/600, 12/best, or a job for its newest");
    verb->add_option("--request-id", options_.request_id,
                     "The same request sent again gives the same job (chosen at random otherwise)");
    verb->add_flag("--dry-run", options_.dry_run, "Check and show only; nothing is stored");
  }

  // What stands beside a spec.
  void SubmitOptions(CLI::App* verb) {
    verb->add_option("--project", options_.project, "Project that the job is accounted to");
    verb->add_option("--priority", options_.priority, "Larger goes first, -1000 to 1000");
    verb->add_option("--elastic", options_.elastic,
                     "As few and as many devices as will do: 2-8 (devices.min, devices.max)");
    verb->add_option("--array", options_.array,
                     "So many jobs of this spec, each with a seed of its own: 100, or 100%8 for at "
                     "most 8 at a time");
    verb->add_option("--after", options_.after, "Start when this job has ended; may be repeated")
        ->allow_extra_args(false);
    verb->add_option("--after-ok", options_.after_ok,
                     "Start when this job has succeeded; may be repeated")
        ->allow_extra_args(false);
    verb->add_option("--begin", options_.begin,
                     "Do not start before: 18:00, +2h, 2026-11-21T18:00:00Z");
    verb->add_option("--reservation", options_.reservation,
                     "Run on the devices of this reservation only");
  }

  void AddSubmitting() {
    CLI::App* submit = Verb("submit", "Submit job specs, one or thousands",
                            "jobs/convnet-glyphs.yaml --set train.epochs=5 --follow\n"
                            "  trainyard submit -f sweep.yaml       every document of the file\n"
                            "  trainyard submit jobs/mlp-glyphs.yaml --array 100%8");
    submit->add_option("FILE", options_.files,
                       "Spec in YAML or JSON, or several with --- between them; - for standard "
                       "input");
    submit
        ->add_option_function<std::vector<std::string>>(
            "-f,--file", [this](const std::vector<std::string>& files) { AddFiles(files); },
            "The same; may be repeated")
        ->allow_extra_args(false);
    Changes(submit);
    SubmitOptions(submit);
    submit->add_flag("--follow", options_.follow, "Follow it to its end");
    CLI::App* run = Verb("run", "Submit a job spec and follow it (submit --follow)",
                         "jobs/convnet-glyphs.yaml --devices 2");
    run->add_option("FILE", options_.files, "Spec in YAML or JSON; - for standard input")
        ->required()
        ->expected(1);
    Changes(run);
    SubmitOptions(run);
    CLI::App* clone =
        Verb("clone", "Run a job again, with changes", "last --set optimizer.sgd.lr=0.02 --follow");
    OneJob(clone);
    Changes(clone);
    SubmitOptions(clone);
    clone->add_flag("--follow", options_.follow, "Follow it to its end");
    clone->add_flag("-y,--yes", options_.yes, "Do not ask");
  }
  // -f may stand before the FILEs or behind them.
  void AddFiles(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      if (std::find(options_.files.begin(), options_.files.end(), file) == options_.files.end()) {
        options_.files.push_back(file);
      }
    }
  }

  void AddLooking() {
    CLI::App* ls = Verb("ls", "List jobs, newest first", "--state running --state queued");
    ls->add_option("--state", options_.states, "Only jobs in this state; may be repeated")
        ->allow_extra_args(false);
    ls->add_option("--limit", options_.limit, "At most so many jobs (20)")
        ->check(CLI::Range(1, 1'000'000).description(""));
    ls->add_flag("-a,--all", options_.all, "All jobs, also those that ended long ago");
    ls->add_option("--user", options_.user, "Only jobs of this user");
    ls->add_option("--project", options_.project, "Only jobs of this project");
    ls->add_option("--array", options_.array, "Only the jobs of this array, one by one");
    ls->add_flag("--expand", options_.expand, "The jobs of arrays one by one");
    CLI::App* explain =
        Verb("explain", "Tell why a job waits, what would start it now, and when it starts",
             "last\n  trainyard explain -f jobs/convnet-glyphs.yaml --devices 4");
    explain->add_option("JOB", options_.selectors, kSelectors)->expected(0, 1);
    explain->add_option("-f,--file", options_.files, "A spec that is not submitted yet")
        ->expected(1);
    Changes(explain);
    SubmitOptions(explain);
    AddPlan();
    CLI::App* top = Verb("top", "Show devices, queue and shares live; q ends it", "--once");
    top->add_flag("--once", options_.once, "Print once and end; so without a terminal");
    Verb("shares", "Show who uses the pool", "");
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
        Verb("metrics", "Draw or print the metrics of a job",
             "last --metric train.loss\n"
             "  trainyard metrics last comm      what communication costs, and how much is hidden");
    metrics
        ->add_option("JOB", options_.selectors,
                     absl::StrCat(kSelectors,
                                  "; then words for groups of metrics: comm for comm.* and "
                                  "compute.*, gpu for gpu.*"))
        ->required()
        ->type_name("JOB [GROUP ...]");
    metrics->add_option("--metric", options_.metrics, "Only this metric; may be repeated")
        ->allow_extra_args(false);
    metrics->add_flag("-f,--follow", options_.follow, "Print points as they come");
    CLI::App* trace = Verb("trace", "Make one timeline of those of the ranks, for a browser",
                           "last -O trace.json");
    OneJob(trace);
    trace->add_option("--rank", options_.rank, "Only this rank")
        ->check(CLI::Range(0, 4095).description(""));
    trace->add_option("--attempt", options_.attempt, "Of this attempt (the newest)")
        ->check(CLI::Range(1, 1'000'000).description(""));
    trace->add_option("-O,--output-file", options_.output_file, "File to write (standard output)");
    CLI::App* diff = Verb("diff", "Show the differences of two jobs' specs", "@~1 last");
    diff->add_option("JOB", options_.selectors, kSelectors)->required()->expected(2);
    CLI::App* wait = Verb("wait", "Wait until jobs have ended", "last --timeout 10min");
    Selectors(wait, true);
    wait->add_option("--timeout", options_.timeout, "At most so long: 90s, 10min, 2h");
  }

  void AddPlan() {
    CLI::App* plan = Verb("plan", "Tell time and memory of a step before it runs; needs no server",
                          "jobs/resnet50-imagenet.yaml --batch 64\n"
                          "  trainyard plan jobs/convnet-glyphs.yaml --dot | dot -Tsvg > step.svg");
    plan->add_option("FILE", options_.files, "Spec in YAML or JSON; - for standard input")
        ->required()
        ->expected(1);
    plan->add_option("--set", options_.set, "Change of the spec, PATH=VALUE; may be repeated")
        ->allow_extra_args(false);
    plan->add_option("--devices", options_.devices, "Number of devices (devices.count)")
        ->check(CLI::Range(1, 4096).description(""));
    plan->add_option("--batch", options_.batch, "Samples of a step (train.global_batch)")
        ->check(CLI::PositiveNumber.description(""));
    plan->add_option("--backend", options_.backend, "cpu or reference");
    plan->add_option("--threads", options_.threads, "Threads of a device")
        ->check(CLI::Range(1, 4096).description(""));
    plan->add_option("--without", options_.without, "Leave out this pass; may be repeated")
        ->allow_extra_args(false);
    plan->add_flag("--layers", options_.layers, "A row a layer");
    CLI::Option* dot = plan->add_flag("--dot", options_.dot, "The step's graph, for Graphviz");
    plan->add_flag("--json", options_.json, "All of it as JSON; so does -o json")->excludes(dot);
  }

  void AddSteering() {
    for (const auto& [name, summary] : std::map<std::string, std::string>{
             {"cancel", "Stop jobs for good"},
             {"suspend", "Take jobs out of the queue, or stop them after a checkpoint"},
             {"resume", "Queue suspended and held jobs again"}}) {
      const bool is_cancel = name == "cancel";
      CLI::App* verb =
          Verb(name, summary, is_cancel ? "last\n  trainyard cancel --array 12" : "last");
      Selectors(verb, !is_cancel);
      if (name != "resume") verb->add_option("--reason", options_.reason, "For the history");
      if (!is_cancel) continue;
      verb->add_option("--array", options_.array, "All jobs of the array that this job is of");
      verb->add_flag("--all-queued", options_.all_queued, "All jobs of yours that wait");
    }
    CLI::App* drain =
        Verb("drain", "Empty a worker: its jobs write checkpoints and go on elsewhere",
             "lab-1 --within 10m --reason 'new power supply'");
    drain->add_option("WORKER", options_.selectors, "Name of the worker")->required();
    drain->add_option("--within", options_.within,
                      "What has no checkpoint by then stops without (60s)");
    drain->add_option("--reason", options_.reason, "For the history");
  }

  CLI::App* Group(const std::string& name, const std::string& summary) {
    CLI::App* group = app_.add_subcommand(name, summary);
    group->require_subcommand(1);
    group->fallthrough();
    return group;
  }

  void AddResources() {
    CLI::App* checkpoints = Group("checkpoints", "List, download and verify checkpoints");
    OneJob(Verb(checkpoints, "ls", "List the checkpoints of a job", "last"));
    CLI::App* get =
        Verb(checkpoints, "get", "Download a checkpoint; goes on where it stopped", "last -O out");
    get->add_option("CHECKPOINT", options_.selectors,
                    "A job for its newest checkpoint, JOB/STEP, or JOB best: last, 12/600")
        ->required()
        ->expected(1, 2);
    get->add_option("-O,--output-dir", options_.output_dir,
                    "Folder for the files (job-12-step-600)");
    CLI::App* verify = Verb(checkpoints, "verify",
                            "Recompute a checkpoint's hashes and its evaluation", "last best");
    verify->add_option("CHECKPOINT", options_.selectors, "As for get, or a folder that holds one")
        ->required()
        ->expected(1, 2);
    verify->add_option("-O,--output-dir", options_.output_dir,
                       "Folder for what is downloaded (one that is removed again)");
    verify->add_option("--dataset_dir", options_.dataset_dir,
                       "Folder of the data sets; without the job's, the hashes alone");
    CLI::App* workers = Group("workers", "List and steer workers");
    Verb(workers, "ls", "List the workers and their devices", "");
    for (const auto& [name, summary] : std::map<std::string, std::string>{
             {"cordon", "Give workers no new ranks"},
             {"uncordon", "Give workers ranks again"},
             {"lost",
              "Vouch that the host of an UNREACHABLE worker is off: its jobs start elsewhere "
              "now"}}) {
      CLI::App* verb = Verb(workers, name, summary, "lab-1");
      verb->add_option("WORKER", options_.selectors, "Name of the worker")->required();
      if (name != "uncordon") verb->add_option("--reason", options_.reason, "For the history");
    }
    CLI::App* devices = Group("devices", "List devices, and set them aside");
    Verb(devices, "ls", "List all devices and what runs on them", "");
    for (const auto& [name, summary] : std::map<std::string, std::string>{
             {"quarantine", "Set devices aside; what runs there goes on"},
             {"release", "Take devices back"}}) {
      CLI::App* verb = Verb(devices, name, summary, "lab-1/cpu-0");
      verb->add_option("DEVICE", options_.selectors, "WORKER/DEVICE")->required();
      if (name == "quarantine") verb->add_option("--reason", options_.reason, "Shown with it");
    }
  }

  void AddSharing() {
    CLI::App* quotas = Group("quotas", "Limits of users and projects");
    Verb(quotas, "ls", "List all quotas", "");
    CLI::App* set = Verb(quotas, "set", "Set limits of a user or a project; the others stay",
                         "user:anna --devices 4 --weight 2");
    constexpr char kSubject[] = "user:NAME, project:NAME; user:* and project:* for all others";
    set->add_option("SUBJECT", options_.selectors, kSubject)->required()->expected(1);
    const auto limit = [set](const char* name, int& value, const char* what) {
      set->add_option(name, value, what)->check(CLI::Range(0, INT32_MAX).description(""));
    };
    limit("--devices", options_.quota_devices, "Devices held at a time; 0 for no limit");
    limit("--queued", options_.queued_jobs, "Jobs that wait at a time; 0 for no limit");
    limit("--submits", options_.submits_per_minute, "Jobs a minute; 0 for no limit");
    limit("--weight", options_.weight, "Share of the pool against others, 1 to 1000");
    set->add_option("--storage", options_.storage, "Checkpoints: '500 GiB'; 0 for no limit");
    Verb(quotas, "rm", "Take quotas away", "user:anna")
        ->add_option("SUBJECT", options_.selectors, kSubject)
        ->required();
    CLI::App* reservations = Group("reservations", "Devices kept for some users for a while");
    Verb(reservations, "ls", "List those in force and to come", "");
    CLI::App* create = Verb(reservations, "create", "Keep devices for users and projects",
                            "course --for project:course --devices 4 --start 14:00 --end +4h");
    create->add_option("NAME", options_.name, "Name of the reservation")->required();
    create->add_option("--for", options_.subjects, "user:NAME or project:NAME; may be repeated")
        ->required()
        ->allow_extra_args(false);
    create->add_option("--devices", options_.devices, "So many devices, free ones first")
        ->check(CLI::Range(1, 4096).description(""));
    create->add_option("--type", options_.device_type, "With --devices: of this type");
    create->add_option("--device", options_.device_names, "WORKER/DEVICE; may be repeated")
        ->allow_extra_args(false);
    create->add_option("--start", options_.start, "18:00, +2h, or a time as in --begin (now)");
    create->add_option("--end", options_.end, "The same; +2h is two hours after the start")
        ->required();
    Verb(reservations, "rm", "End reservations, or call them off", "course")
        ->add_option("NAME", options_.selectors, "Names of reservations")
        ->required();
  }

  void AddData() {
    CLI::App* data = Group("data", "Data sets in a folder of this machine");
    CLI::App* ls = Verb(data, "ls", "List the data sets in a folder", "--dataset_dir /srv/data");
    CLI::App* verify = Verb(data, "verify", "Read all samples, and tell which are corrupt",
                            "--dataset_dir /srv/data");
    CLI::App* fetch = Verb(data, "fetch", "Download public data sets; goes on where it stopped",
                           "cifar10 fashion-mnist --dataset_dir /srv/data");
    fetch
        ->add_option("DATASET", options_.selectors,
                     "cifar10, cifar100, fashion-mnist, mnist, tinyshakespeare")
        ->required();
    fetch->add_option("--mirror", options_.mirror,
                      "URL or folder that has the files; else their publisher's");
    for (CLI::App* verb : {ls, verify, fetch}) {
      verb->add_option("--dataset_dir", options_.dataset_dir, "Folder of the data sets")
          ->required();
    }
  }

  void AddBench() {
    CLI::App* bench = Group("bench", "Measure a job on several numbers of devices");
    CLI::App* scaling = Verb(bench, "scaling",
                             "Run a spec on each number of devices; tell speed-up, what more would "
                             "give, and whether the results agree",
                             "jobs/googlenet-cifar10-small.yaml --devices 1,2 -O report");
    scaling
        ->add_option("JOB|FILE", options_.source,
                     "A job whose spec is taken (12, last), or a spec in YAML or JSON")
        ->required();
    scaling->add_option("--devices", options_.device_counts, "Numbers of devices, ascending: 1,2,4")
        ->required();
    scaling->add_option("--steps", options_.steps, "Steps of each run (120)")
        ->check(CLI::Range(10, 10'000).description(""));
    scaling->add_option("--runs", options_.runs, "Runs of each; the median counts (1)")
        ->check(CLI::Range(1, 100).description(""));
    scaling
        ->add_option("--set", options_.set,
                     "Change of the spec for all runs, PATH=VALUE; may be repeated")
        ->allow_extra_args(false);
    scaling->add_option(
        "-O,--output-file", options_.output_file,
        "File for the report as JSON, or a folder for scaling.json and scaling.svg");
    scaling->add_option("--svg", options_.svg_file, "File for the picture");
  }

  void AddMachine() {
    CLI::App* up =
        Verb("up", "Start a server and a worker on this machine", "--detach --cpu_devices 2");
    up->add_option("--state_dir", options_.state_dir,
                   "Folder for all state (~/.local/state/trainyard)");
    up->add_option("--listen", options_.listen,
                   "Address of the server (unix:<state_dir>/server/server.sock)");
    up->add_option("--worker_name", options_.worker_name, "Name of the worker (the host's name)");
    up->add_option("--cpu_devices", options_.cpu_devices,
                   "CPU devices: 2; unequal ones as devices x threads, 1x2,2x1, or as threads @ "
                   "processors of each, 1@0,1@1,1@1")
        ->check(CLI::Validator(
            [](const std::string& text) {
              const bool has_form = !text.empty() && text[0] >= '1' && text[0] <= '9' &&
                                    text.find_first_not_of("0123456789x@,-") == std::string::npos;
              return has_form ? "" : absl::StrCat("'", text, "' names no CPU devices: 2, 1x2,2x1");
            },
            ""));
    up->add_flag("--share_cpus", options_.share_cpus,
                 "CPU devices share all processors, so that there may be more of them");
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
