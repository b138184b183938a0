// Fills in the few lines of shell that run on a node.
#include "server/provision/slurm/script.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/errors.h"
#include "common/base/files.h"

namespace trainyard::provision::slurm {
namespace {

// Workers get this long to write checkpoints and to let their jobs go on elsewhere.
constexpr int64_t kWarningSecondsMax = 300;
// A part of that is for the end of the worker itself.
constexpr int64_t kDrainPercent = 90;

// Options of sbatch, and why no pilot can have them.
struct Refused {
  char letter;  // 0 if it has none
  absl::string_view name;
  absl::string_view why;
};
constexpr Refused kRefused[] = {
    {'M', "--clusters",
     "sends pilots to other clusters, where nobody would look for them; set SLURM_CONF"},
    {0, "--cluster",
     "sends pilots to other clusters, where nobody would look for them; set SLURM_CONF"},
    {'a', "--array", "makes several jobs of one pilot; use the number of nodes"},
    {'H', "--hold", "holds pilots until somebody releases them; pause the provider"},
    {'W', "--wait", "lets sbatch wait until the pilot has ended"},
    {0, "--wrap", "takes the place of the script that starts the worker"},
    {0, "--test-only", "asks for nothing"},
    {0, "--requeue", "lets Slurm begin a pilot again under the same name"},
    {'h', "--help", "asks for nothing"},
    {'V', "--version", "asks for nothing"},
    {0, "--usage", "asks for nothing"},
};
// The letters of options that have a value, which may be the next word.
constexpr absl::string_view kLettersWithValue = "aAbBcCdDeFGiJLmMnNopqStwx";
// Names of options whose value may be the next word. Others are written with "=".
constexpr absl::string_view kNamesWithValue[] = {
    "--account",       "--begin",        "--constraint", "--cores-per-socket", "--deadline",
    "--dependency",    "--distribution", "--exclude",    "--export",           "--gpus",
    "--gpus-per-task", "--gres",         "--licenses",   "--mail-type",        "--mail-user",
    "--mem-per-cpu",   "--mem-per-gpu",  "--nodelist",   "--partition",        "--prefer",
    "--qos",           "--reservation",  "--switches",   "--threads-per-core", "--time-min",
    "--tmp",           "--wckey"};
// A name of an option may be cut short, but not so that it is one of these letters alone.
constexpr size_t kCutNameMin = 3;

int64_t WarningSeconds(const ProviderSpec& spec) {
  return std::min(kWarningSecondsMax, spec.time_limit_us / kSecondUs / 4);
}

int64_t Minutes(int64_t us) {
  return (us + kMinuteUs - 1) / kMinuteUs;
}

// The script. Text between two % is filled in. It runs as the user of the server: tokens are read
// by the worker from their files, and are in no argument and no variable.
//
// The warning goes from shell to shell through a file. Slurm would hand a signal to all processes
// of a step, ranks included, and a worker that is told twice to end does not wait for its jobs.
constexpr char kScript[] = R"(#!/bin/bash
# The pilot %pilot% of a Trainyard server. It runs one worker on each node of this allocation.
umask 077
node='
  name=%pilot%%suffix%
  state=$(mktemp -d "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/trainyard-worker.XXXXXXXX") || exit 1
  # Slurm tells all processes to end, and the state is removed once the worker has ended.
  trap : TERM
  "$@" --name "$name" --state_dir "$state" --join_token_file %folder%/"$name.token" \
    --drain_on_stop %drain%s &
  worker=$!
  warned=
  while kill -0 $worker 2>/dev/null; do
    if [ -z "$warned" ] && [ -e %folder%/%pilot%.drain ]; then
      warned=1
      kill -TERM $worker
    fi
    sleep 2
  done
  wait $worker
  status=$?
  rm -rf "$state"
  exit $status
'
drain=%batch_folder%/%pilot%.drain
trap : TERM
trap 'touch "$drain"' USR1
%launch%bash -c "$node" pilot %worker% &
child=$!
while kill -0 $child 2>/dev/null; do wait $child; done
wait $child
status=$?
rm -f "$drain"
exit $status
)";

// Returns why sbatch must not get this option; empty if it may.
std::string RefusalOf(absl::string_view word) {
  const absl::string_view name = word.substr(0, word.find('='));
  const bool is_long = absl::StartsWith(word, "--");
  for (const Refused& refused : kRefused) {
    const bool is_it = is_long ? name.size() >= kCutNameMin && absl::StartsWith(refused.name, name)
                               : word[1] == refused.letter;
    if (is_it) return std::string(refused.why);
  }
  if (word == "--") return "ends the options, and more follow";
  if (!is_long && word.size() > 2 && !absl::StrContains(kLettersWithValue, word[1])) {
    return "stands for several options; write each as a word of its own";
  }
  return "";
}

}  // namespace

std::string ShellWord(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string TokenPath(const SlurmOptions& options, const std::string& worker) {
  return JoinPath(options.folder, absl::StrCat(worker, ".token"));
}

std::string LogPath(const SlurmOptions& options, const std::string& pilot) {
  return JoinPath(options.folder, absl::StrCat(pilot, ".log"));
}

absl::Status CheckSlurmOptions(const SlurmOptions& options) {
  std::vector<FieldViolation> violations;
  if (!absl::StartsWith(options.folder, "/")) {
    violations.push_back({"folder", absl::StrCat("'", options.folder, "' is no absolute path")});
  }
  if (options.worker.empty()) violations.push_back({"worker", "is empty; name its program"});
  bool is_value = false;  // of the option before
  const auto refuse = [&violations](const std::string& argument, absl::string_view why) {
    violations.push_back({"arguments", absl::StrCat("'", argument, "' ", why)});
  };
  for (const std::string& argument : options.arguments) {
    if (std::exchange(is_value, false)) continue;
    // sbatch takes the first such word as the script, and no word behind it as an option.
    if (argument.size() < 2 || argument[0] != '-') {
      refuse(argument,
             "is no option; write the value of an option as --name=value, and leave the script to "
             "the server");
      continue;
    }
    const std::string why = RefusalOf(argument);
    if (!why.empty()) refuse(argument, why);
    is_value =
        why.empty() && argument.size() == 2
            ? absl::StrContains(kLettersWithValue, argument[1])
            : std::count(std::begin(kNamesWithValue), std::end(kNamesWithValue), argument) > 0;
  }
  if (is_value) refuse(options.arguments.back(), "lacks its value");
  return violations.empty() ? absl::OkStatus() : InvalidFields(violations);
}

std::vector<std::string> SbatchWords(const std::string& server_id, const ProviderSpec& spec,
                                     const SlurmOptions& options, const std::string& pilot,
                                     bool is_trial) {
  std::vector<std::string> words = {"sbatch"};
  if (is_trial) words.push_back("--test-only");
  // Whatever sbatch thinks of the arguments, nothing is submitted without its name. An option
  // without its value would take the word behind it.
  words.push_back(absl::StrCat("--job-name=", pilot));
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  words.push_back("--parsable");
  const auto add = [&](const char* option, const auto& value) {
    words.push_back(absl::StrCat(option, "=", value));
  };
  add("--job-name", pilot);
  add("--comment", absl::StrCat("trainyard:", server_id, ":", pilot));
  add("--time", Minutes(spec.time_limit_us));
  add("--nodes", spec.nodes);
  words.push_back("--ntasks-per-node=1");
  add("--cpus-per-task", spec.node.cpus);
  if (spec.node.memory_bytes > 0) {
    add("--mem", absl::StrCat((spec.node.memory_bytes + (1 << 20) - 1) >> 20, "M"));
  }
  if (spec.node.device_type != "cpu") add("--gpus-per-node", spec.node.devices);
  add("--signal", absl::StrCat("B:USR1@", WarningSeconds(spec)));
  // A pilot that has lost its node is gone; it must not come back by itself under the same name.
  words.push_back("--no-requeue");
  add("--chdir", "/");
  add("--output", LogPath(options, pilot));
  return words;
}

std::string PilotScript(const ProviderSpec& spec, const SlurmOptions& options,
                        const std::string& pilot) {
  std::string worker;
  for (const std::string& word : options.worker) {
    absl::StrAppend(&worker, worker.empty() ? "" : " ", ShellWord(word));
  }
  const bool is_single = spec.nodes == 1;
  // The text for nodes stands in quotes itself.
  const std::string folder = ShellWord(options.folder);
  const std::string launch = absl::StrCat(
      "srun --ntasks-per-node=1 --cpus-per-task=", spec.node.cpus, " --kill-on-bad-exit=0 ");
  return absl::StrReplaceAll(kScript,
                             {{"%pilot%", pilot},
                              {"%suffix%", is_single ? "" : "-n$SLURM_NODEID"},
                              {"%folder%", absl::StrReplaceAll(folder, {{"'", "'\\''"}})},
                              {"%batch_folder%", folder},
                              {"%drain%", absl::StrCat(WarningSeconds(spec) * kDrainPercent / 100)},
                              {"%launch%", is_single ? "" : launch},
                              {"%worker%", worker}});
}

}  // namespace trainyard::provision::slurm
